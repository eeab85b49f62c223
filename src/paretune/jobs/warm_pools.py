"""Warm pools: instances that SageMaker keeps after a job, billed by the second until they are given back.

They are reused by the next job like it, expire, or are given back by `Job.release`. Only then is it known what they
have cost, which is booked to the run of the job that asked for them.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from paretune.core.errors import BadInput, LaunchRefused, LostContact, ParetuneError
from paretune.jobs.adoption import elsewhere
from paretune.jobs.priced import recorded_price
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Job, job_name, run_of
from paretune.specification import metrics
from paretune.tracking import RecordedJob, RecordedRun, Tracking, schema

KEPT = schema.WARM_POOL_KEPT
"""Value of the tag `paretune.warm_pool` as long as the instances are billed."""


@dataclass(frozen=True, kw_only=True)
class Retention:
    """The instances that the attempts of one job have left behind.

    Attributes:
        status: SageMaker's word for those of the last attempt; KEPT while those of any attempt are kept.
        is_kept: whether they are billed still.
        seconds: billed so far per instance, of all attempts.
        most_seconds: billed at most per instance.
        reused_by: name of the job that has taken over those of the last attempt; empty where none has.
    """

    status: str
    is_kept: bool
    seconds: float
    most_seconds: float
    reused_by: str

    def sentence(self, name: str) -> str:
        """What has become of the instances of the job `name`, which are no longer kept."""
        what = f"reused by {self.reused_by}" if self.reused_by else "given back"
        return f"the instances kept after {name} were billed for {self.seconds:,.0f} s each until they were {what}"


def retained(attempts: Sequence[Job]) -> Retention | None:
    """What the attempts of one job, all ended, have left behind; None where nothing was kept.

    Raises:
        LostContact: AWS refuses to tell.
    """
    pools = [pool for job in attempts if (pool := job.warm_pool()) is not None]
    if not pools:
        return None
    is_kept = any(pool.is_kept for pool in pools)
    return Retention(
        status=KEPT if is_kept else pools[-1].status,
        is_kept=is_kept,
        seconds=sum(pool.seconds for pool in pools),
        most_seconds=sum(pool.most_seconds if pool.is_kept else pool.seconds for pool in pools),
        reused_by=pools[-1].reused_by,
    )


class KeptPool:
    """The instances kept after a recorded job that has ended, until they are booked to its run.

    Raises:
        LaunchRefused, BadInput: the job cannot be looked at.
    """

    def __init__(self, run: RecordedRun, workplace: Workplace) -> None:
        self.job = RecordedJob(run)
        self.name = run.tags.get(schema.JOB_NAME, "")
        self._tracking = workplace.tracking
        self._workplace = workplace
        if place := elsewhere(run.tags, workplace.launcher):
            raise LaunchRefused(place)
        made_from = run_of(self.name)
        names = [job_name(run.run_id, attempt + 1) for attempt in range(made_from[1])] if made_from else []
        self._attempts = [job for name in names if (job := workplace.launcher.attach(name)) is not None]

    @property
    def run_id(self) -> str:
        """The run of the job."""
        return self.job.run_id

    def release(self) -> None:
        """Give the instances back; LostContact where that cannot be asked for."""
        for job in self._attempts:
            job.release()

    def settle(self) -> Retention | None:
        """Book what the instances have cost, once; None as long as they are kept.

        The job that has reused them is told on its run.

        Raises:
            LostContact: AWS refuses to tell.
        """
        found = retained(self._attempts)
        if found is None:  # deleted, which AWS allows once nothing is kept: how long they were is not known any more
            seconds = 60 * float(self.job.param("keep_alive_minutes") or 0.0)
            found = Retention(status="Deleted", is_kept=False, seconds=seconds, most_seconds=seconds, reused_by="")
        if found.is_kept:
            return None
        self._book_kept(found)
        run = self._tracking.run(self.run_id)
        booked: dict[str, float] = {}
        if metrics.WARM_POOL_SECONDS not in self.job.run.metrics:
            booked[metrics.WARM_POOL_SECONDS] = found.seconds
            usd = self.usd(found)
            if usd is not None and self.job.cost_usd is not None:
                booked[metrics.COST_USD] = self.job.cost_usd + usd
        with run.later():
            run.log_metrics(booked)
            run.set_tags({schema.WARM_POOL: found.status})
        run.flush()
        tell_follower(self._tracking, found, self.name)
        return found

    def _book_kept(self, found: Retention) -> None:
        """Book what the instances have cost against the budgets of the job, where their file is there."""
        with suppress(BadInput):
            ledger = self._workplace.budget_ledger(self.job.budget)
            if ledger is not None:
                ledger.book_kept(self.run_id, self.usd(found) or 0.0)

    def usd(self, found: Retention) -> float | None:
        """Dollars of the instances' seconds; None where the price is not known."""
        price = recorded_price(self.job)
        return None if price is None else price.cost_usd(found.seconds, self.job.instance_count)


def tell_follower(tracking: Tracking, found: Retention, name: str) -> None:
    """Record on the run of the job that has reused the instances of the job `name` whose they were."""
    follower = run_of(found.reused_by)
    if follower is not None:
        tracking.run(follower[0]).set_tags({schema.WARM_POOL_OF: name})


def kept_runs(tracking: Tracking) -> list[RecordedRun]:
    """Runs of ended jobs whose instances are not known to have been given back, oldest first.

    Raises:
        TrackingUnavailable: MLflow does not answer.
    """
    return tracking.runs(f"tags.`{schema.WARM_POOL}` = '{KEPT}'")[::-1]


def settle_reused(workplace: Workplace, by: str) -> list[str]:
    """Book the pools that the job `by` has taken over: a sentence on each. `sync` books what cannot be booked now."""
    said = []
    with suppress(ParetuneError):
        for run in kept_runs(workplace.tracking):
            with suppress(BadInput, LaunchRefused, LostContact):
                pool = KeptPool(run, workplace)
                settled = pool.settle()
                if settled is not None and settled.reused_by == by:
                    said.append(f"{settled.sentence(pool.name)}; that is booked to run {pool.run_id}")
    return said
