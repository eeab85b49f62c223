"""Warm pools of recorded jobs: instances that SageMaker keeps after a job, billed by the second until given back.

They are reused by the next job like it, expire, or are given back by `Job.release_warm_pool`. Only then is their cost
known, and booked to the run of the job that asked for them.
"""

from contextlib import suppress

from paretune.core.errors import BadInput, LaunchRefused, LostContact, ParetuneError
from paretune.jobs.adoption import elsewhere
from paretune.jobs.bill import pool_after, recorded_price
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import WarmPoolStatus, job_name, parse_job_name
from paretune.specification import metrics
from paretune.tracking import RecordedJob, RecordedRun, Tracking, schema


class KeptPool:
    """Instances kept after a recorded job that has ended, until they are booked; raises LaunchRefused, BadInput."""

    def __init__(self, run: RecordedRun, workplace: Workplace) -> None:
        self.job = RecordedJob(run)
        self.name = run.tags.get(schema.JOB_NAME, "")
        self.workplace = workplace
        if location := elsewhere(run.tags, workplace.launcher):
            raise LaunchRefused(location)
        origin = parse_job_name(self.name)
        names = [job_name(run.run_id, attempt + 1) for attempt in range(origin[1])] if origin else []
        self._attempts = [job for name in names if (job := workplace.launcher.attach(name)) is not None]

    def release(self) -> None:
        """Give the instances back; raises LostContact if AWS does not answer."""
        for job in self._attempts:
            job.release_warm_pool()

    def settle(self) -> WarmPoolStatus | None:
        """Book what the instances have cost, once; None while they are kept.

        Raises:
            LostContact: AWS does not answer.
        """
        status = pool_after(self._attempts)
        if status is None:  # the job was deleted, which AWS allows once nothing is kept: assume the longest time
            seconds = 60 * float(self.job.param("keep_alive_minutes") or 0.0)
            status = WarmPoolStatus(status="Deleted", is_kept=False, seconds=seconds, most_seconds=seconds)
        if status.is_kept:
            return None
        usd, bill = self.usd(status), self.job.bill
        with suppress(BadInput):  # the file of the budgets is gone
            ledger = self.workplace.budget_ledger(self.job.request.budget)
            if ledger is not None:
                ledger.book_kept(self.job.run_id, usd or 0.0)
        values: dict[str, float] = {}
        if metrics.WARM_POOL_SECONDS not in self.job.run.metrics:
            values[metrics.WARM_POOL_SECONDS] = status.seconds
            if usd is not None and bill.cost_usd is not None:
                values[metrics.COST_USD] = bill.cost_usd + usd
        run = self.workplace.tracking.run(self.job.run_id)
        with run.later():
            run.log_metrics(values)
            run.set_tags({schema.WARM_POOL: status.status})
        run.flush()
        return status

    def usd(self, status: WarmPoolStatus) -> float | None:
        """Dollars of the instances' seconds; None if the price is unknown."""
        price = recorded_price(self.job)
        return None if price is None else price.cost_usd(status.seconds, self.job.cluster.instance_count)

    def sentence(self, status: WarmPoolStatus) -> str:
        """Seconds for which the instances, which are no longer kept, were billed."""
        end = f"reused by {status.reused_by}" if status.reused_by else "given back"
        return (
            f"the instances kept after {self.name} were billed for {status.seconds:,.0f} s each until they were {end}"
        )


def kept_runs(tracking: Tracking) -> list[RecordedRun]:
    """Runs of ended jobs whose instances may still be kept, oldest first; raises TrackingUnavailable."""
    return tracking.runs(f"tags.`{schema.WARM_POOL}` = '{schema.WARM_POOL_KEPT}'")[::-1]


def settle_reused(workplace: Workplace, reusing_job: str) -> list[str]:
    """Book the pools that a job has taken over: a sentence on each. `sync` books what cannot be booked now."""
    messages = []
    with suppress(ParetuneError):
        for run in kept_runs(workplace.tracking):
            with suppress(BadInput, LaunchRefused, LostContact):
                pool = KeptPool(run, workplace)
                settled = pool.settle()
                if settled is not None and settled.reused_by == reusing_job:
                    messages.append(f"{pool.sentence(settled)}; that is booked to run {pool.job.run_id}")
    return messages
