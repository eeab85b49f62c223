"""Computes the bill of a job: converts billed seconds to `cost_usd`, and records the cost of kept instances.

Instances that SageMaker keeps after a job (a warm pool) are billed by the second until the next similar job reuses
them, they expire, or they are released. Their cost is known only then, and is recorded in the run of the job that
requested them.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from paretune.core.errors import BadInput, LaunchRefused, LostContact
from paretune.core.shell import command_line
from paretune.estimating.phases import UNBILLED
from paretune.jobs.plan import recorded_plan
from paretune.jobs.run_names import new_name
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Job, WarmPoolStatus
from paretune.launchers.transitions import DOWNLOADING
from paretune.presentation.text import duration, usd
from paretune.specification import metrics
from paretune.specification.order import Offer
from paretune.specification.plan import Plan
from paretune.tracking import schema
from paretune.tracking.recorded_run import RecordedRun, recorded_price
from paretune.tracking.store import Tracking

_PHASE_METRICS = {DOWNLOADING: metrics.DOWNLOADING_SECONDS, "uploading": metrics.UPLOADING_SECONDS}


class Bill:
    """Seconds and dollars of the attempts of a job that have ended, and of the instances kept after the last one.

    cost_usd = sum over attempts of billable seconds per instance x instances x price per hour / 3600, each attempt at
    the price of the instance type it ran on, plus the same for instances kept in a warm pool once they are released.
    """

    def __init__(self, plan: Plan, offer: Offer | None = None) -> None:
        self.plan = plan
        self.offer = offer or plan.offer  # the cluster of the last attempt, with the price of one instance
        self.seconds = 0.0  # wall time of the attempts that have ended
        self.billable_seconds = 0.0  # billed seconds per instance of these attempts
        self.attempts_usd: float | None = 0.0  # dollars of these attempts; None if they are not known
        self.phases: dict[str, float] = {}  # seconds of each phase of these attempts, as `read_phases` names them
        self.pool: WarmPoolStatus | None = None  # instances kept after the last attempt, as last seen; None if none are
        self.recorded_usd: float | None = None  # cost that an earlier process recorded; it is never lowered
        self._last: Job | None = None

    @classmethod
    def of_run(cls, run: RecordedRun, workplace: Workplace) -> "Bill":
        """Return the bill of a recorded job that has ended, without the cost of instances kept after it.

        Raises LaunchRefused or BadInput if the job cannot be read.
        """
        if location := workplace.elsewhere(run.tags):
            raise LaunchRefused(location)
        plan = recorded_plan(run, workplace)
        bill = cls(plan, replace(plan.offer_on(run.instance_type), price=recorded_price(run.tags, None)))
        bill.attempts_usd = run.cost_usd
        bill._last = workplace.launcher.attach(run.tags.get(schema.JOB_NAME, ""))
        return bill

    def add(self, job: Job) -> None:
        """Add an attempt that has ended, at the price of `offer`. Adding it again changes nothing."""
        if self._last is not None and self._last.name == job.name:
            return
        self._last = job
        self._look_at_pool()
        status = job.status()
        # Rounded like the recorded seconds, so that the recorded cost follows from them.
        billable_seconds = round(status.billable_seconds, 2)
        self.seconds += round(status.seconds, 2)
        self.billable_seconds += billable_seconds
        for phase, phase_seconds in status.phase_seconds.items():
            self.phases[phase] = self.phases.get(phase, 0.0) + phase_seconds
        self._charge(billable_seconds)

    @property
    def last_job(self) -> str:
        """Name of the last attempt that has ended; "" if there is none."""
        return "" if self._last is None else self._last.name

    def usd_of(self, seconds: float) -> float | None:
        """Return what the cluster costs for this many seconds per instance; None without a price."""
        price, count = self.offer.price, self.offer.instance_count
        return None if price is None else price.cost_usd(seconds, count)

    def _charge(self, seconds: float) -> None:
        usd = self.usd_of(seconds)
        self.attempts_usd = None if usd is None or self.attempts_usd is None else self.attempts_usd + usd

    @property
    def cost_usd(self) -> float | None:
        """Dollars of all attempts, and of instances kept after the job once they are released; None without a price."""
        if self.attempts_usd is None:
            return None
        pool_usd = None if self.pool is None or self.pool.is_kept else self.usd_of(self._pool_s)
        return max(self.attempts_usd + (pool_usd or 0.0), self.recorded_usd or 0.0)

    def so_far_usd(self, job: Job) -> float | None:
        """Return dollars of all ended attempts and of the running job; None if unknown, as for a running spot job."""
        if self.plan.limits.is_spot or self.attempts_usd is None:
            return None
        usd = self.usd_of(job.status().billable_seconds)
        return None if usd is None else self.attempts_usd + usd

    @property
    def kept_usd(self) -> float | None:
        """The most that instances still kept after the job can cost; None if none are, or the price is unknown."""
        is_kept = self.pool is not None and self.pool.is_kept
        return self.usd_of(self._pool_s) if is_kept else None

    @property
    def pool_tag(self) -> str | None:
        """Value of the tag `schema.WARM_POOL`: one word for all states in which instances are kept; None without any.

        AWS may still call kept instances InUse when the job has just ended.
        """
        if self.pool is None:
            return None
        return schema.WARM_POOL_KEPT if self.pool.is_kept else self.pool.status

    @property
    def _pool_s(self) -> float:
        return 0.0 if self.pool is None else self.pool.billed_s(self.plan.limits.kept_s)

    def metrics(self) -> dict[str, float]:
        """Return seconds and dollars as MLflow metrics; unknown metrics are absent."""
        totals = {metrics.JOB_SECONDS: self.seconds, metrics.BILLABLE_SECONDS: self.billable_seconds}
        totals |= {name: self.phases[phase] for phase, name in _PHASE_METRICS.items() if phase in self.phases}
        if UNBILLED & self.phases.keys():
            totals[metrics.STARTING_SECONDS] = sum(self.phases.get(phase, 0.0) for phase in UNBILLED)
        if self.pool is not None and not self.pool.is_kept:
            totals[metrics.WARM_POOL_SECONDS] = self._pool_s
        if self.cost_usd is not None and self.offer.price is not None:
            totals[metrics.COST_USD] = self.cost_usd
        return totals

    def release_instances(self, *, tries_again: bool = False) -> str:
        """Release the instances kept after the last attempt; return why that was not possible, or "".

        With `tries_again`, their cost is added to the bill now, because the next attempt may keep other instances.
        """
        error = ""
        if self._last is not None:
            try:
                self._last.release_warm_pool()
            except LostContact as lost:
                error = str(lost)
            self._look_at_pool()
        if tries_again and self.pool is not None:
            self._charge(self._pool_s)
            self.pool = None
        return error

    def _look_at_pool(self) -> None:
        """Read the state of the kept instances.

        If AWS does not answer, the last known state remains. If no state is known, instances that the job asked to keep
        count as kept.
        """
        assert self._last is not None  # the callers have checked
        try:
            self.pool = self._last.warm_pool()
        except LostContact:
            if self.pool is None and self.plan.limits.kept_s:
                self.pool = WarmPoolStatus(status=schema.WARM_POOL_KEPT, is_kept=True, seconds=0.0)

    def record_pool(self, run: RecordedRun, workplace: Workplace) -> tuple[float | None, str]:
        """Record the cost of kept instances in the run of their job; return the dollars and a sentence.

        The dollars are None while the instances are kept, and if their price is unknown. A second call changes nothing.
        Raises LostContact if AWS does not answer.
        """
        name, pool = run.tags.get(schema.JOB_NAME, ""), None if self._last is None else self._last.warm_pool()
        # The job may have been deleted, which is possible once no instances are kept.
        self.pool = pool = pool or WarmPoolStatus(status="Deleted", is_kept=False, seconds=None)
        usd = self.usd_of(self._pool_s)
        if pool.is_kept:
            return None, (
                f"the instances of {name} are kept for the next similar job, at a cost of at most {_in_words(usd)}: "
                f"`{command_line('sync')}` records the cost once they are released"
            )
        is_new, values = metrics.WARM_POOL_SECONDS not in run.metrics, self.metrics()
        names = (metrics.WARM_POOL_SECONDS, metrics.COST_USD)
        values = metrics.to_known_digits({name: values[name] for name in names if is_new and name in values})
        owner = run.tags.get(schema.CONTINUES) or run.run_id
        written, tags = workplace.tracking.run(run.run_id), {schema.WARM_POOL: pool.status}
        with suppress(BadInput):  # the budget file may be gone
            if (ledger := workplace.budget_ledger(run.budget)) is not None:
                ledger.record_cost(owner, values.get(metrics.COST_USD, run.cost_usd))
                tags |= {schema.RESERVED: ""} if run.tags.get(schema.RESERVED) else {}
        kind, all_values = self.offer.instance_type, {**run.metrics, **values}
        title = new_name(run.tags, self.plan.card, kind, run.metrics, all_values)
        with written.later():
            written.log_metrics(values)
            written.set_tags({**tags, schema.RUN_NAME: title})
        written.flush()
        end = "reused" if pool.status == "Reused" else "released"
        billed = f"billed for {duration(self._pool_s)} each until they were {end}"
        cost = "; the price is unknown" if usd is None else f": {_in_words(usd)}, in its cost_usd now"
        return usd, f"the instances kept after {name} were {billed}{cost}"


def _in_words(value: float | None) -> str:
    return "an unknown amount" if value is None else usd(value)


def record_pools(
    tracking: Tracking, workplace_of: Callable[[RecordedRun], Workplace | None]
) -> Iterator[tuple[str, str]]:
    """Record the cost of warm pools that have ended; yield a run's id and a sentence for each pool, ended or not.

    Runs for which `workplace_of` returns None are skipped. Raises TrackingUnavailable.
    """
    for run in reversed(tracking.runs(f"tags.`{schema.WARM_POOL}` = '{schema.WARM_POOL_KEPT}'")):
        try:
            if (workplace := workplace_of(run)) is None:
                continue
            sentence = Bill.of_run(run, workplace).record_pool(run, workplace)[1]
        except (BadInput, LaunchRefused, LostContact) as error:
            yield run.run_id, f"the warm pool of {run.tags.get(schema.JOB_NAME)} cannot be read: {error}"
        else:
            yield run.run_id, sentence
