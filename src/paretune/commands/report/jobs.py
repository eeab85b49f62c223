"""Recorded jobs as a pandas frame: a row per job, with its settings as texts and its measurements as numbers."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import pandas as pd

from paretune.commands.report import DEVICES, NESTED, SHAPE
from paretune.core.errors import BadInput
from paretune.core.result import Row
from paretune.presentation.text import dollars, duration
from paretune.specification import catalog, metrics
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import OF_THE_BATCH
from paretune.specification.parameters import spell
from paretune.tracking import schema
from paretune.tracking.recorded_job import DATASET_SIZE, RecordedJob

QUANTITIES: dict[str, tuple[str, Callable[[float], str]]] = {
    metrics.THROUGHPUT_SAMPLES: ("samples/s", "{:,.1f}".format),
    metrics.TRAIN_SECONDS: ("training time", duration),
    metrics.BILLABLE_SECONDS: ("billed time", duration),
    metrics.COST_USD: ("cost (USD)", dollars),
    metrics.PEAK_MEMORY_GIB: ("memory per device (GiB)", "{:,.2f}".format),
    metrics.F1: ("F1", "{:.4f}".format),
    metrics.PERPLEXITY: ("perplexity", "{:,.2f}".format),
    metrics.ESTIMATED_SECONDS: ("estimated before", duration),
}
"""Metric to its name and how a value is written."""
_ESTIMATES = (metrics.ESTIMATED_SECONDS, metrics.ESTIMATED_COST_USD, metrics.ESTIMATED_MEMORY_GIB)
ESTIMATED = [f"{name}{end}" for name in _ESTIMATES for end in ("", "_low", "_high")]
_METRICS = list(dict.fromkeys([*QUANTITIES, *ESTIMATED, metrics.BILLED_USD, metrics.WARM_POOL_SECONDS]))
VERSIONS = "versions"
DEFAULTS = {name: spell(field.default) for name, field in JobSpec.model_fields.items()}
_PRICE = ("price_usd_per_hour", "price_region", "price_as_of", "price_source")


def frame_of(jobs: Iterable[RecordedJob], factor: str = SHAPE) -> pd.DataFrame:
    """A row per job, of at least one.

    Every parameter of a job is a column of texts, and so are `factor`, the shape, devices and versions; what is not
    recorded has its default. Columns of numbers have NaN where nothing is known: `device_count`, `rows`
    (of the data set if a table has them, else those trained on), `work` (rows times epochs), `rate` and metrics.
    """
    frame = pd.DataFrame([_row(job, factor) for job in jobs])
    numbers = ["device_count", "rows", "rate", *_METRICS]
    frame[numbers] = frame[numbers].apply(pd.to_numeric, errors="coerce")
    return frame.assign(work=frame["rows"] * pd.to_numeric(frame.num_train_epochs, errors="coerce"))


def _row(job: RecordedJob, factor: str) -> Row:
    try:
        spec = job.spec_as_run()
    except BadInput:
        spec = None
    values = {name: job.param(name) or text for name, text in DEFAULTS.items()}
    values |= {"instance_type": job.instance_type, "instance_count": str(job.instance_count)}
    values["precision"] = job.used_precision or values["precision"]
    devices, tags = _devices(job, spec), {} if spec is None else spec.tags
    if spec is not None:
        plan = job.used_plan(spec)
        values |= {name: str(getattr(plan, name)) for name in OF_THE_BATCH[:2]}
    outer, _, inner = factor.partition(".")
    if outer in NESTED and inner:
        values[factor] = "" if spec is None else spell(spec.model_dump(mode="json")[outer].get(inner, "not set"))
    is_notional = not job.instance_type.startswith("ml.")
    shape, day = f"{job.instance_count} x {job.instance_type or 'local'}", _day(job)
    return {
        **values,
        "run_id": job.run_id,
        "run_name": job.name,
        "date": day,
        "origin": job.origin,
        "is_notional": is_notional,
        "kind": f"{job.origin}, notional dollars" if is_notional else job.origin,
        "launcher": job.launcher,
        "state": job.state,
        SHAPE: shape,
        DEVICES: "" if devices is None else str(devices),
        VERSIONS: job.versions,
        "device_count": devices,
        "rows": job.param(DATASET_SIZE) or job.metric("train_rows") or job.param("max_train_samples"),
        "rate": job.param("scaled_learning_rate") or job.param("learning_rate"),
        **{name: job.metric(name) for name in _METRICS},
        **{name: getattr(job, name) for name in _PRICE},
        "study": job.run.tags.get(schema.STUDY, ""),
        "month": day[:7],
        "user": job.run.tags.get(schema.USER, ""),
        "team": job.run.tags.get(schema.TEAM) or tags.get("team", ""),
        "tag": [f"{name}={value}" for name, value in sorted(tags.items())],
    }


def _devices(job: RecordedJob, spec: JobSpec | None) -> int | None:
    """Accelerators of the whole cluster, or processes on CPUs; None if they are unknown."""
    if spec is not None:
        return spec.processes * spec.instance_count
    instance = catalog.instances().get(job.instance_type)
    return None if instance is None else max(1, instance.accelerator_count) * job.instance_count


def _day(job: RecordedJob) -> str:
    has_date = job.run.started and not job.row_key
    return f"{datetime.fromtimestamp(job.run.started, UTC):%Y-%m-%d}" if has_date else ""


def dates(frame: pd.DataFrame) -> str:
    """Number, dates and origins of jobs: 230 jobs from 2026-10-01 to 2026-11-21 (200 measured, ...)."""
    days = sorted(filter(None, frame.date))
    origins = ", ".join(f"{count} {origin}" for origin, count in sorted(Counter(frame.origin).items()))
    when = "" if not days else f" of {days[0]}" if days[0] == days[-1] else f" from {days[0]} to {days[-1]}"
    return f"{len(frame)} job{'s' if len(frame) > 1 else ''}{when} ({origins})."


def records(frame: pd.DataFrame) -> list[Row]:
    """The rows of a frame; unknown values are None."""
    rows: list[Row] = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return rows
