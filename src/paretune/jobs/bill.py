"""The bill of a job: the place where billed seconds become `cost_usd`, and kept instances are booked.

Instances that SageMaker keeps after a job, a warm pool, are billed by the second until the next job like it reuses
them, they expire, or they are given back. Only then is their cost known, and booked to the run of the job that asked
for them.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from paretune.core.commands import command_line
from paretune.core.errors import BadInput, LaunchRefused, LostContact, ParetuneError
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Job, WarmPoolStatus, job_name, parse_job_name
from paretune.pricing.budget import cost_usd
from paretune.pricing.prices import Price
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.job_phases import DOWNLOADING, UNBILLED
from paretune.tracking import RecordedJob, RecordedRun, Tracking, schema

_PHASE_METRICS = {DOWNLOADING: metrics.DOWNLOADING_SECONDS, "uploading": metrics.UPLOADING_SECONDS}


class Bill:
    """Seconds and dollars of the attempts of a job that have ended, and of the instances kept after them.

    cost_usd = sum over attempts of billable seconds per instance x instances x price per hour / 3600, each attempt at
    the price of the instance type it ran on, plus the same for instances kept in a warm pool once they are given back.
    """

    def __init__(self, spec: JobSpec, price: Price | None) -> None:
        self.ran, self.price = spec, price
        """The job on the instances of its last attempt, and the hourly price of one of them; None if unknown."""
        self.seconds = 0.0
        """Wall time of the attempts that have ended."""
        self.billable_seconds = 0.0
        """Billed seconds per instance of the attempts that have ended."""
        self.phases: dict[str, float] = {}
        """Seconds of each phase of these attempts, as `JobPhases` names them."""
        self.pool: WarmPoolStatus | None = None
        """Instances kept after these attempts when last asked; None if none were kept."""
        self.recorded_usd: float | None = None
        """Dollars that an earlier process has recorded for the job; booking never lowers them."""
        self._attempts: list[Job] = []
        self._attempts_usd: float | None = 0.0

    def add(self, job: Job) -> None:
        """Add an attempt that has ended, once, at the price of the instances in `ran`."""
        if self._attempts and self._attempts[-1].name == job.name:
            return
        self._attempts.append(job)
        self.look_at_pool()
        billable = job.billable_seconds()
        self.seconds += job.seconds()
        self.billable_seconds += billable
        for phase, phase_seconds in job.phase_seconds().items():
            self.phases[phase] = self.phases.get(phase, 0.0) + phase_seconds
        usd = cost_usd(self.price, self.ran, billable)
        self._attempts_usd = None if usd is None or self._attempts_usd is None else self._attempts_usd + usd

    def forget_cost(self) -> None:
        """Leave the cost absent: the job has run, but nobody can tell any more for how long."""
        self._attempts_usd = None

    @property
    def cost_usd(self) -> float | None:
        """Dollars of all attempts and of kept instances that were given back; None if a price is unknown."""
        if self._attempts_usd is None:
            return None
        pool_s = 0.0 if self.pool is None or self.pool.is_kept else self.pool.seconds
        return max(self._attempts_usd + (cost_usd(self.price, self.ran, pool_s) or 0.0), self.recorded_usd or 0.0)

    @property
    def kept_usd(self) -> float | None:
        """The most that instances still kept after the job can cost; None if none are, or the price is unknown."""
        if self.pool is None or not self.pool.is_kept:
            return None
        return cost_usd(self.price, self.ran, self.pool.most_seconds)

    def metrics(self) -> dict[str, float]:
        """Seconds and dollars as MLflow metrics; a metric that is not known is absent."""
        totals = {metrics.JOB_SECONDS: self.seconds, metrics.BILLABLE_SECONDS: self.billable_seconds}
        totals |= {name: self.phases[phase] for phase, name in _PHASE_METRICS.items() if phase in self.phases}
        if UNBILLED & self.phases.keys():
            totals[metrics.STARTING_SECONDS] = sum(self.phases.get(phase, 0.0) for phase in UNBILLED)
        if self.pool is not None and not self.pool.is_kept:
            totals[metrics.WARM_POOL_SECONDS] = self.pool.seconds
        if self.cost_usd is not None and self.price is not None:
            totals[metrics.COST_USD] = self.cost_usd
        return totals

    def kept_sentence(self) -> str:
        """Return that instances are kept after the last attempt, and what that may cost; empty if none are."""
        if self.pool is None or not self.pool.is_kept:
            return ""
        most = "" if self.kept_usd is None else f", for at most {self.kept_usd:.4g} USD more"
        return (
            f"the instances of {self._attempts[-1].name} are kept for {self.pool.most_seconds / 60:g} minutes for the "
            f"next job like it{most}; `{command_line('sync')}` books what they cost"
        )

    def release_instances(self) -> list[str]:
        """Give back the instances kept after the attempts; returns why some could not be given back."""
        errors = []
        for job in self._attempts:
            try:
                job.release_warm_pool()
            except LostContact as error:
                errors.append(str(error))
        self.look_at_pool()
        return errors

    def look_at_pool(self) -> None:
        """Ask for the kept instances; if AWS does not answer, they count as kept as long as was asked for."""
        try:
            self.pool = pool_after(self._attempts)
        except LostContact:
            most_s = 60 * self.ran.keep_alive_minutes
            if self.pool is None and most_s:
                kept = schema.WARM_POOL_KEPT
                self.pool = WarmPoolStatus(status=kept, is_kept=True, seconds=0.0, most_seconds=most_s)


def pool_after(attempts: Sequence[Job]) -> WarmPoolStatus | None:
    """The instances kept after these ended attempts of one job, with the seconds of all; None if none were kept.

    `status` is `Available` while those of any attempt are kept, else the status of the last attempt's.

    Raises:
        LostContact: AWS does not answer.
    """
    pools = [pool for job in attempts if (pool := job.warm_pool()) is not None]
    if not pools:
        return None
    is_kept = any(pool.is_kept for pool in pools)
    return replace(
        pools[-1],
        status=schema.WARM_POOL_KEPT if is_kept else pools[-1].status,
        is_kept=is_kept,
        seconds=sum(pool.seconds for pool in pools),
        most_seconds=sum(pool.most_seconds if pool.is_kept else pool.seconds for pool in pools),
    )


def price_tags(price: Price | None) -> dict[str, str | None]:
    """Tags with the price of a cost, if known, with all its digits: AWS's bill is compared with it."""
    if price is None:
        return {}
    usd = repr(price.usd_per_hour).removesuffix(".0")
    return {
        schema.PRICE: ", ".join(filter(None, [f"{usd} USD per hour", price.region, price.as_of, price.source])),
        schema.PRICE_USD_PER_HOUR: usd,
        schema.PRICE_REGION: price.region or None,
        schema.PRICE_AS_OF: price.as_of or None,
        schema.PRICE_SOURCE: price.source,
    }


def recorded_price(job: RecordedJob) -> Price | None:
    """The price that `price_tags` has recorded for a job; None if none is recorded."""
    if job.price_usd_per_hour is None:
        return None
    return Price(
        usd_per_hour=job.price_usd_per_hour,
        region=job.price_region,
        as_of=job.price_as_of,
        source=job.price_source,
        instance_type=job.instance_type,
        confidence="notional",  # the launch of the job has printed its remarks already
    )


class KeptPool:
    """Instances kept after a recorded job that has ended, until they are booked; raises LaunchRefused, BadInput."""

    def __init__(self, run: RecordedRun, workplace: Workplace) -> None:
        self.job = RecordedJob(run)
        self.name = run.tags.get(schema.JOB_NAME, "")
        self.workplace = workplace
        if location := workplace.elsewhere(run.tags):
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
        usd, bill = self.usd(status), self.job
        with suppress(BadInput):  # the file of the budgets is gone
            ledger = self.workplace.budget_ledger(self.job.budget)
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
        return None if price is None else price.cost_usd(status.seconds, self.job.instance_count)

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
