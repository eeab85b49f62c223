"""The bill of a job over all its attempts: the place where billed seconds become `cost_usd`."""

from collections.abc import Sequence
from dataclasses import replace

from paretune.core.commands import command_line
from paretune.core.errors import LostContact
from paretune.launchers.base import Job, WarmPoolStatus
from paretune.pricing.budget import cost_usd
from paretune.pricing.prices import Price
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.job_phases import DOWNLOADING, UNBILLED
from paretune.tracking import RecordedJob, schema

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
    return {
        schema.PRICE_USD_PER_HOUR: repr(price.usd_per_hour).removesuffix(".0"),
        schema.PRICE_REGION: price.region or None,
        schema.PRICE_AS_OF: price.as_of or None,
        schema.PRICE_SOURCE: price.source,
    }


def recorded_price(job: RecordedJob) -> Price | None:
    """The price that `price_tags` has recorded for a job; None if none is recorded."""
    if job.bill.price_usd_per_hour is None:
        return None
    return Price(
        usd_per_hour=job.bill.price_usd_per_hour,
        region=job.bill.price_region,
        as_of=job.bill.price_as_of,
        source=job.bill.price_source,
        instance_type=job.cluster.instance_type,
        confidence="notional",  # the launch of the job has printed its remarks already
    )
