"""Recorded costs of runs, and the run that a line of the bill belongs to.

A run may have several jobs, its attempts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from paretune.commands.bill.lines import Line
from paretune.launchers.base import job_name, parse_job_name
from paretune.tracking import RecordedJob, RecordedRun, Tracking, schema

STEP = Decimal("1e-12")
"""Shares are rounded to it; the last share takes the rest, so that all add up to the line."""
_BILLED_RUNS = f"tags.`{schema.ORIGIN}` = 'measured' and tags.`{schema.JOB_NAME}` != ''"
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
        """Hours of its jobs, without warm pools, that a complete bill must have.

        Earlier attempts may have had other numbers of instances than the recorded one of the last attempt; their
        booked cost limits the hours.
        """
        hours = self.seconds * self.instance_count / 3600
        if self.cost_usd is None or not self.price_usd_per_hour:
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
        price_usd_per_hour=_exact(job.bill.price_usd_per_hour),
        instance_type=job.cluster.instance_type,
        started=datetime.fromtimestamp(run.started, UTC),
        ended_at=None if is_open else datetime.fromtimestamp(run.ended_at, UTC) + timedelta(seconds=pool_s),
    )


def _exact(number: float | None) -> Decimal | None:
    """Return the shortest decimal that is the same float."""
    return None if number is None else Decimal(repr(float(number)))


class RunsByJob:
    """Finds the run of a line."""

    def __init__(self, costs: Sequence[RecordedCost]) -> None:
        self._by_run: Mapping[str, RecordedCost] = {cost.run_id: cost for cost in costs}

    def run_of(self, line: Line) -> RecordedCost | None:
        """Return the run that a line is billed for: by the job that its ARN names, else by its tag.

        A training job with another name carries a copied tag.
        """
        run = self._run_of_job(line.job_name)
        if run is not None or not line.run_tag:
            return run
        has_copied_tag = line.resource.startswith("arn:") and line.job_name
        return None if has_copied_tag else self._run_of_job(job_name(line.run_tag, 1))

    def _run_of_job(self, name: str) -> RecordedCost | None:
        run_and_attempt = parse_job_name(name)
        return self._by_run.get(run_and_attempt[0]) if run_and_attempt else None


def split(value: Decimal, weights: Sequence[Decimal]) -> list[Decimal]:
    """Divide a value in proportion to weights; the parts add up to it exactly."""
    total = sum(weights, Decimal(0))
    parts = [(value * weight / total).quantize(STEP) for weight in weights[:-1]]
    return [*parts, value - sum(parts, Decimal(0))]
