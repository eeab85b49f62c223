"""Recorded costs of runs, and the runs that a line of the bill belongs to.

A run may have several jobs, its attempts; a job may train several runs, the trials of a study that share it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from paretune.commands.bill.lines import Line
from paretune.launchers.base import job_name, parse_job_name
from paretune.launchers.shared_jobs import split_job_name
from paretune.tracking import RecordedJob, RecordedRun, Tracking, schema

STEP = Decimal("1e-12")
"""Shares of a line are rounded to it; the last share takes the rest, so that all add up to the line."""
_BILLED_RUNS = f"tags.`{schema.ORIGIN}` = 'measured' and tags.`{schema.JOB_NAME}` != ''"
_PRICE_DIGITS = 9  # after the point of a price that is computed from a cost: AWS gives at most ten
_OPEN_STATES = ("Running", "Stopping")


@dataclass(frozen=True, kw_only=True)
class RecordedCost:
    """The recorded cost of one run; dollars are exactly the recorded numbers."""

    run_id: str
    job_name: str  # of its last attempt, as recorded
    cost_usd: Decimal | None
    seconds: Decimal  # billed per instance, of all attempts
    pool_seconds: Decimal  # billed per instance after the job
    instance_count: int
    price_usd_per_hour: Decimal | None  # of one instance
    started: datetime
    ended_at: datetime | None  # when the last of its instances was released; None while it runs or is kept
    instance_type: str = ""  # of its last attempt; empty if unknown, then all lines are taken to be of this type

    @property
    def instance_hours(self) -> Decimal:
        """Hours of its jobs, without warm pools, that a complete bill must have; 0 if none need be on one.

        Earlier attempts may have had other numbers of instances than the recorded one of the last attempt; their
        booked cost limits the hours.
        """
        if self.price_usd_per_hour == 0:  # a training plan has paid for them
            return Decimal(0)
        hours = self.seconds * self.instance_count / 3600
        if self.cost_usd is None or self.price_usd_per_hour is None:
            return hours
        pool_hours = self.pool_seconds * self.instance_count / 3600
        return min(hours, max(Decimal(0), self.cost_usd / self.price_usd_per_hour - pool_hours))


def runs_on_the_bill(tracking: Tracking) -> list[RecordedRun]:
    """Return all runs whose jobs AWS bills, newest first; raises TrackingUnavailable."""
    return [run for run in tracking.runs(_BILLED_RUNS) if RecordedJob(run).cluster.instance_type.startswith("ml.")]


def recorded_cost(run: RecordedRun) -> RecordedCost:
    """Return the recorded cost of a run."""
    job = RecordedJob(run)
    pool_s = job.bill.warm_pool_seconds
    is_open = job.state in _OPEN_STATES or run.tags.get(schema.WARM_POOL) == schema.WARM_POOL_KEPT or not run.ended_at
    return RecordedCost(
        run_id=run.run_id,
        job_name=run.tags[schema.JOB_NAME],
        cost_usd=_exact(job.bill.cost_usd),
        seconds=_exact(job.bill.billable_seconds) or Decimal(0),
        pool_seconds=_exact(pool_s) or Decimal(0),
        instance_count=job.cluster.instance_count,
        price_usd_per_hour=_exact(_price(job)),
        instance_type=job.cluster.instance_type,
        started=datetime.fromtimestamp(run.started, UTC),
        ended_at=None if is_open else datetime.fromtimestamp(run.ended_at, UTC) + timedelta(seconds=pool_s),
    )


def _price(job: RecordedJob) -> float | None:
    """Return dollars of an instance's hour with all digits.

    Until 2026-11-22, six digits were recorded. The price is then computed from the cost, if it rounds to these digits.
    """
    recorded, seconds = job.bill.price_usd_per_hour, (job.bill.billable_seconds or 0.0) + job.bill.warm_pool_seconds
    if recorded is None or job.bill.cost_usd is None or not seconds or recorded != float(f"{recorded:g}"):
        return recorded
    computed = round(job.bill.cost_usd * 3600 / (seconds * job.cluster.instance_count), _PRICE_DIGITS)
    return computed if f"{computed:g}" == f"{recorded:g}" else recorded


def _exact(number: float | None) -> Decimal | None:
    """Return the shortest decimal that is the same float."""
    return None if number is None else Decimal(repr(float(number)))


class RunsByJob:
    """Finds the runs of a line."""

    def __init__(self, costs: Sequence[RecordedCost]) -> None:
        self._by_run: Mapping[str, RecordedCost] = {cost.run_id: cost for cost in costs}
        self._groups: dict[tuple[str, int], list[RecordedCost]] = {}  # by the first trial and the attempt of their job
        for cost in costs:
            group, key = split_job_name(cost.job_name)
            if key and (last := parse_job_name(group)) is not None:
                members = self._groups.setdefault((last[0], 1), [])
                members.append(cost)
                self._groups |= {(last[0], attempt): members for attempt in range(2, last[1] + 1)}
        for (first, _), members in self._groups.items():  # its first trial may have had a job of its own later
            leader = self._by_run.get(first)
            if leader is not None and leader not in members:
                members.append(leader)

    def runs_of(self, line: Line) -> list[RecordedCost]:
        """Return the runs that a line is billed for: by the job that its ARN names, else by its tag; may be empty.

        A training job with another name carries a copied tag.
        """
        runs = self._runs_of_job(line.job_name)
        if runs or not line.run_tag:
            return runs
        has_copied_tag = line.resource.startswith("arn:") and line.job_name
        return [] if has_copied_tag else self._runs_of_job(job_name(line.run_tag, 1))

    def _runs_of_job(self, name: str) -> list[RecordedCost]:
        run_and_attempt = parse_job_name(name)
        if run_and_attempt is not None and run_and_attempt in self._groups:
            return self._groups[run_and_attempt]
        run = self._by_run.get(run_and_attempt[0]) if run_and_attempt else None
        return [run] if run is not None else []


def shares(line: Line, runs: Sequence[RecordedCost]) -> list[Line]:
    """Split a line among runs that share a job, in proportion to their seconds; all figures add up to the line's."""
    if len(runs) == 1:
        return [line]
    weights = [run.seconds for run in runs]
    if not any(weights):
        weights = [Decimal(1)] * len(runs)
    columns: dict[str, list[Decimal]] = {
        name: split(value, weights)
        for name in ("amount", "unblended_usd", "list_usd", "effective_usd")
        if (value := getattr(line, name)) is not None
    }
    return [
        replace(line, **{name: parts[number] for name, parts in columns.items()})  # type: ignore[arg-type]
        for number in range(len(runs))
    ]


def split(value: Decimal, weights: Sequence[Decimal]) -> list[Decimal]:
    """Divide a value in proportion to weights; the parts add up to it exactly."""
    total = sum(weights, Decimal(0))
    parts = [(value * weight / total).quantize(STEP) for weight in weights[:-1]]
    return [*parts, value - sum(parts, Decimal(0))]
