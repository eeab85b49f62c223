"""What runs tell of their bills."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from paretune.commands.bill.accounts import RecordedCost
from paretune.tracking import RecordedJob, RecordedRun, Tracking, schema

_REAL = f"tags.`{schema.ORIGIN}` = 'measured' and tags.`{schema.JOB_NAME}` != ''"
_DIGITS = 9  # after the point of a price that is computed back: AWS gives at most ten
_OPEN = ("Running", "Stopping")


def runs_on_the_bill(tracking: Tracking) -> list[RecordedRun]:
    """All runs whose jobs AWS bills, newest first.

    Raises:
        TrackingUnavailable: MLflow does not answer.
    """
    return [run for run in tracking.runs(_REAL) if RecordedJob(run).cluster.instance_type.startswith("ml.")]


def recorded_cost(run: RecordedRun) -> RecordedCost:
    """What a run tells of its bill; its numbers exactly as they were recorded."""
    job = RecordedJob(run)
    pool_s = job.bill.warm_pool_seconds
    is_open = job.state in _OPEN or run.tags.get(schema.WARM_POOL) == schema.WARM_POOL_KEPT or not run.ended
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
        training_jobs=tuple(arn.rpartition("/")[2].lower() for arn in run.tags.get(schema.JOB_ARNS, "").split()),
        ended=None if is_open else datetime.fromtimestamp(run.ended, UTC) + timedelta(seconds=pool_s),
    )


def _price(job: RecordedJob) -> float | None:
    """Dollars of an instance's hour with all digits.

    Until 2026-11-22, six digits were recorded: then it is the price behind the cost, if that rounds to them.
    """
    told, seconds = job.bill.price_usd_per_hour, (job.bill.billable_seconds or 0.0) + job.bill.warm_pool_seconds
    if told is None or job.bill.cost_usd is None or not seconds or told != float(f"{told:g}"):
        return told
    used = round(job.bill.cost_usd * 3600 / (seconds * job.cluster.instance_count), _DIGITS)
    return used if f"{used:g}" == f"{told:g}" else told


def _exact(number: float | None) -> Decimal | None:
    """The shortest decimal number that is the same float: what was meant when it was written."""
    return None if number is None else Decimal(repr(float(number)))
