"""Recorded jobs as a pandas frame: a row per completed job, with its settings as texts and its measurements."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from paretune.commands.report.command import DEVICES, NESTED, SHAPE
from paretune.core.errors import BadInput
from paretune.core.result import Row
from paretune.specification import catalog, metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import spell
from paretune.tracking import RecordedJob
from paretune.tracking.recorded_job import DATASET_SIZE

QUANTITIES = {
    metrics.THROUGHPUT_SAMPLES: "samples/s",
    metrics.TRAIN_SECONDS: "training time",
    metrics.BILLABLE_SECONDS: "billed time",
    metrics.COST_USD: "cost (USD)",
    metrics.PEAK_MEMORY_GIB: "memory per device (GiB)",
    metrics.F1: "F1",
    metrics.PERPLEXITY: "perplexity",
    metrics.ESTIMATED_SECONDS: "estimated before",
}
VERSIONS = "versions"
COMPILED = "training_arguments.torch_compile"
DEFAULTS = {name: spell(field.default) for name, field in JobSpec.model_fields.items()}


def frame_of(jobs: Iterable[RecordedJob], factor: str = SHAPE) -> pd.DataFrame:
    """A row per job that can be compared: completed, with paretune's own training, and no probe.

    Every parameter of a job is a column of texts, and so are `factor`, the shape, devices, versions and torch_compile;
    what is not recorded has its default. Columns of numbers have NaN where nothing is known: `device_count`, `rows`
    (of the data set if a table has them, else those trained on), `work` (rows times epochs) and QUANTITIES.
    """
    rows = [_row(job, factor) for job in jobs if job.is_completed]
    frame = pd.DataFrame(rows)
    return frame if frame.empty else frame[frame.probe_steps == ""].reset_index(drop=True)


def _row(job: RecordedJob, factor: str) -> Row:
    try:
        spec = job.request.spec_as_run()
    except BadInput:
        spec = None
    cluster, values = job.cluster, {name: job.param(name) or text for name, text in DEFAULTS.items()}
    values["precision"] = job.request.used_precision or values["precision"]
    for name in ("instance_type", "instance_count"):
        values[name] = str(getattr(cluster, name)) if job.param(name) else values[name]
    devices = _devices(job, spec)
    if spec is not None:
        plan = job.request.used_plan(spec)
        for name in ("per_device_train_batch_size", "gradient_accumulation_steps"):
            values[name] = str(getattr(plan, name))
    for name in (COMPILED, factor):
        outer, _, inner = name.partition(".")
        if outer in NESTED and inner:
            values[name] = "" if spec is None else spell(spec.model_dump(mode="json")[outer].get(inner, "not set"))
    config, rows = values["dataset_config_name"], job.param(DATASET_SIZE) or job.metric("train_rows")
    size = _number(rows or job.param("max_train_samples"))
    epochs = _number(values["num_train_epochs"])
    measured = {name: job.metric(name) for name in QUANTITIES}
    shape = f"{cluster.instance_count} x {cluster.instance_type or 'local'}"
    facts = [f"run {job.run_id[:8]}", shape]
    for name, form in ((metrics.BILLABLE_SECONDS, "time {:,.0f} s"), (metrics.COST_USD, "cost {:,.4g} USD")):
        facts += [] if measured[name] is None else [form.format(measured[name])]
    facts += [] if job.f1 is None else [f"F1 {job.f1:.4f}"]
    return {
        **values,
        "run_id": job.run_id,
        "origin": job.origin,
        "is_notional": not cluster.instance_type.startswith("ml."),
        "dataset": values["dataset"] + (f"/{config}" if config else ""),
        SHAPE: shape,
        DEVICES: "" if devices is None else str(devices),
        VERSIONS: job.versions,
        "device_count": _number(devices),
        "rows": size,
        "work": size * epochs,
        "started": job.run.started,
        "about": ", ".join([*facts, *([f"{size:,.0f} rows"] if size == size else [])]),
        **{name: _number(value) for name, value in measured.items()},
    }


def _devices(job: RecordedJob, spec: JobSpec | None) -> int | None:
    """Accelerators of the whole cluster, or processes on CPUs; None if they are unknown."""
    if spec is not None:
        return spec.processes * spec.instance_count
    instance = catalog.instances().get(job.cluster.instance_type)
    return None if instance is None else max(1, instance.accelerator_count) * job.cluster.instance_count


def _number(value: Any) -> float:
    try:
        return float(value) if value not in (None, "") else float("nan")
    except ValueError:
        return float("nan")


def began(job: RecordedJob, form: str = "%Y-%m-%d") -> str:
    """When its run began, in UTC, formatted by `strftime`; empty if unknown, as of an imported run."""
    has_date = job.run.started and not job.row_key
    return datetime.fromtimestamp(job.run.started, UTC).strftime(form) if has_date else ""


def dates(jobs: Sequence[RecordedJob]) -> str:
    """Number, dates and origins of jobs: 230 jobs from 2026-10-01 to 2026-11-21 (200 measured, ...)."""
    days = sorted(filter(None, map(began, jobs)))
    counts = Counter(job.origin for job in jobs)
    origins = ", ".join(f"{count} {origin}" for origin, count in sorted(counts.items()))
    when = "" if not days else f" of {days[0]}" if days[0] == days[-1] else f" from {days[0]} to {days[-1]}"
    return f"{len(jobs)} job{'s' if len(jobs) > 1 else ''}{when} ({origins})."
