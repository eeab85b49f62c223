"""Completed jobs as a report compares them, and those of `estimate`, which have not run."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from paretune.commands.report.factors import DEFAULTS, DEVICES, NESTED, SHAPE, VERSIONS
from paretune.core.errors import BadInput
from paretune.specification import catalog, metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import spell
from paretune.tracking import RecordedJob, RecordedRun, schema
from paretune.tracking.recorded_job import DATASET_SIZE

LOCAL = "local"


@dataclass(frozen=True, kw_only=True, order=True)
class Kind:
    """Jobs that may be compared with each other: of one origin, model, data set and task."""

    origin: str
    is_notional: bool  # jobs on this machine, whose dollars are not billed
    model: str
    dataset: str
    task: str
    apart: str = ""  # further settings that must be equal, in words; may be empty

    def __str__(self) -> str:
        """Return a heading, such as published: distilbert-base-uncased on amazon_polarity."""
        dollars = ", notional dollars" if self.is_notional else ""
        return f"{self.origin}{dollars}: {self.model} on {self.dataset}" + (f", {self.apart}" if self.apart else "")


@dataclass(frozen=True)
class Observation:
    """A completed job; unknown values are None, or an empty text."""

    job: RecordedJob

    @cached_property
    def kind(self) -> Kind:
        """The jobs that it may be compared with."""
        config = self.setting("dataset_config_name")
        return Kind(
            origin=self.job.origin,
            is_notional=not self.job.cluster.instance_type.startswith("ml."),
            model=self.setting("model"),
            dataset=self.setting("dataset") + (f"/{config}" if config else ""),
            task=self.setting("task"),
        )

    @cached_property
    def spec(self) -> JobSpec | None:
        """The job as it ran, or None if its parameters cannot be read."""
        try:
            return self.job.request.spec_as_run()
        except BadInput:
            return None

    @cached_property
    def devices(self) -> int | None:
        """Accelerators of the whole cluster, or processes on CPUs."""
        if self.spec is not None:
            return self.spec.processes * self.spec.instance_count
        instance = catalog.instances().get(self.job.cluster.instance_type)
        return None if instance is None else max(1, instance.accelerator_count) * self.job.cluster.instance_count

    @property
    def shape(self) -> str:
        """Instances and their type: 2 x ml.p3.16xlarge."""
        return f"{self.job.cluster.instance_count} x {self.job.cluster.instance_type or LOCAL}"

    def setting(self, name: str) -> str:
        """Return the value of one of FACTORS as text; if it is not recorded, its default."""
        if name == SHAPE:
            return self.shape
        if name == DEVICES:
            return "" if self.devices is None else str(self.devices)
        if name == "precision" and self.job.request.used_precision:
            return self.job.request.used_precision
        if name in ("per_device_train_batch_size", "gradient_accumulation_steps") and self.spec is not None:
            return str(getattr(self.job.request.used_plan(self.spec), name))
        if name in ("instance_type", "instance_count") and self.job.param(name):
            return str(getattr(self.job.cluster, name))  # what it got
        outer, _, inner = name.partition(".")
        if outer in NESTED and inner:
            return "" if self.spec is None else spell(self.spec.model_dump(mode="json")[outer].get(inner, "not set"))
        return self.job.param(name) or ("" if self.job.is_foreign else DEFAULTS[name])

    def number(self, name: str) -> float | None:
        """Return the setting as a number, or None if it is not one."""
        try:
            return float(self.setting(name))
        except ValueError:
            return None

    @property
    def learning_rate(self) -> float | None:
        """The peak rate that was used, after scaling."""
        text = self.job.param("scaled_learning_rate") or self.job.param("learning_rate")
        return float(text) if text else None

    @cached_property
    def data_size(self) -> float | None:
        """Rows of the data set if a table has them, else rows that were trained on."""
        rows = self.job.param(DATASET_SIZE) or self.job.metric("train_rows") or self.job.param("max_train_samples")
        return float(rows) if rows else None

    @property
    def samples(self) -> float | None:
        """Rows times epochs, the work of the job."""
        epochs = self.number("num_train_epochs")
        return None if self.data_size is None or epochs is None else self.data_size * epochs

    @property
    def seconds(self) -> float | None:
        """Seconds billed per instance."""
        return self.job.bill.billable_seconds

    def value(self, quantity: str) -> float | None:
        """Return the measured value of a metric, or None."""
        plain = {metrics.BILLABLE_SECONDS: self.job.bill.billable_seconds, metrics.COST_USD: self.job.bill.cost_usd}
        return plain[quantity] if quantity in plain else self.job.metric(quantity)

    def describe(self) -> str:
        """Return a line for a tooltip."""
        facts = [f"run {self.job.run_id[:8]}", self.shape]
        for name, form in ((metrics.BILLABLE_SECONDS, ",.0f"), (metrics.COST_USD, ",.4g"), (metrics.F1, ".4f")):
            value = self.value(name)
            if value is not None:
                facts.append(f"{SHORT_NAMES[name]} {value:{form}}{_UNITS[name]}")
        if self.data_size is not None:
            facts.append(f"{self.data_size:,.0f} rows")
        return ", ".join(facts)


SHORT_NAMES = {metrics.BILLABLE_SECONDS: "time", metrics.COST_USD: "cost", metrics.F1: "F1"}
_UNITS = {metrics.BILLABLE_SECONDS: " s", metrics.COST_USD: " USD", metrics.F1: ""}


def observations(jobs: Iterable[RecordedJob]) -> list[Observation]:
    """Return the jobs that can be compared: completed, with paretune's own training, and no probes."""
    completed = [Observation(job) for job in jobs if job.is_completed and not job.is_foreign]
    return [run for run in completed if not run.setting("probe_steps")]


def with_rate(jobs: Sequence[RecordedJob], rate: str) -> list[RecordedJob]:
    """Return the jobs with a learning rate that is `fixed`, or `scaled` with the global batch size, or `all` jobs.

    Fixed is the rate that most jobs of a model and its data used without a rule; of several, the lowest. All others are
    scaled, whether a rule has scaled them or whoever typed them.
    """
    if rate == "all":
        return list(jobs)
    groups: dict[tuple[str, ...], Counter[float | None]] = {}
    rates = [(_rule_and_data(job), Observation(job).learning_rate) for job in jobs]
    for (rule, *data), used in rates:
        groups.setdefault(tuple(data), Counter())[used] += rule in ("", "none")
    usual = {data: max(counts, key=lambda used: (counts[used], -(used or 0.0))) for data, counts in groups.items()}
    is_fixed = [rule in ("", "none") and used == usual[tuple(data)] for (rule, *data), used in rates]
    return [job for job, fixed in zip(jobs, is_fixed, strict=True) if fixed == (rate == "fixed")]


def _rule_and_data(job: RecordedJob) -> tuple[str, ...]:
    return tuple(map(job.param, ("learning_rate_scaling", "model", "dataset", "dataset_config_name", "task")))


def grouped(runs: Iterable[Observation], key: Callable[[Observation], object]) -> dict[object, list[Observation]]:
    """Return the runs by `key`, in the order of their first appearance."""
    groups: dict[object, list[Observation]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def day(job: RecordedJob) -> str:
    """Return the day on which its run began, in UTC; empty for an imported run, whose table does not have it."""
    return began(job, "%Y-%m-%d")


def began(job: RecordedJob, form: str) -> str:
    """Return when its run began, in UTC, formatted by `strftime`; empty if unknown, as of an imported run."""
    has_date = job.run.started and not job.row_key
    return datetime.fromtimestamp(job.run.started, UTC).strftime(form) if has_date else ""


def sorted_levels(names: Iterable[str]) -> list[str]:
    """Sort the levels of a factor: numbers by size, else texts."""
    levels = list(names)
    try:
        return sorted(levels, key=float)
    except ValueError:
        return sorted(levels)


def varying(runs: Sequence[Observation], names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return name to values, for those `names` that have several values; unknown values are left out."""
    differing = {}
    for name in names:
        values = {run.job.versions if name == VERSIONS else run.setting(name) for run in runs} - {""}
        if len(values) > 1:
            differing[name] = sorted_levels(values)
    return differing


TABLE = "estimate.csv"
_METRICS = {
    "seconds": metrics.BILLABLE_SECONDS,
    "cost_usd": metrics.COST_USD,
    "memory_gib_per_device": metrics.PEAK_MEMORY_GIB,
}
_JOB_PARAMETERS = {*DEFAULTS, "global_batch_size"}


def estimated_jobs(runs: Iterable[RecordedRun], table_of: Callable[[str], str | None]) -> list[RecordedJob]:
    """Return the rows of estimates as completed jobs, each job once, as in the first of `runs`.

    Jobs that do not fit into memory are left out, and so are trainings of a user's own, which model and data do not
    identify. `table_of` returns the text of a run's TABLE by the run's id. Parameters that are neither in the table nor
    among those of the command have their defaults.
    """
    jobs: dict[frozenset[tuple[str, str]], RecordedJob] = {}
    for run in runs:
        for row in csv.DictReader(io.StringIO(table_of(run.run_id) or "")):
            if row.get("fits") == "no" or row.get("project") or row.get("entry_script"):
                continue
            texts = {**run.params, **{name: text for name, text in row.items() if text}}
            params = {name: text for name, text in texts.items() if name in _JOB_PARAMETERS}
            numbers = {metric: float(row[name]) for name, metric in _METRICS.items() if row[name]}
            tags = {schema.ORIGIN: schema.ESTIMATED, schema.STATE: "Completed"}
            job = RecordedJob(RecordedRun(run.run_id, params, tags, numbers, run.started))
            jobs.setdefault(frozenset(params.items()), job)
    return list(jobs.values())
