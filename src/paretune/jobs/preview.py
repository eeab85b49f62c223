"""A dry run: everything is checked as for a launch, nothing is launched, and the job is shown with its worst case."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from paretune.core.commands import options
from paretune.core.errors import BadInput
from paretune.core.result import Result, Row, value_of
from paretune.jobs.advice import ForeseenJob, foreseen, limit_refusal, warnings_of
from paretune.jobs.preparation import inputs_of
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import job_name
from paretune.launchers.storage import volume_for_gib
from paretune.presentation.numbers import duration, usd
from paretune.specification.container import JobDocument, JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import BatchPlan
from paretune.specification.profile import remarks
from paretune.specification.script_arguments import own_settings, script_in_words
from paretune.storage.database import redacted
from paretune.tracking import require_answer, tracking_uri

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, kw_only=True)
class JobPreview(Result):
    """A dry run: the job, its data, its worst-case dollars, and what would be sent where.

    Attributes:
        spec: the job, with dry_run off.
        document: `specification`, `batch`, `data`, `request` (to SageMaker), `main_memory_gib`, `worst_case_usd`,
            `budgets` and `warnings`; parts that are not known are absent.
        summary: the same for a reader: a heading such as `worst case` to one line of text.
    """

    spec: JobSpec
    document: Mapping[str, Any]
    summary: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Says that nothing was launched."""
        return "dry run: nothing was launched"

    def rows(self) -> list[Row]:
        """One row: the specification, and the worst case in USD."""
        texts = self.spec.as_text()
        return [{name: value_of(text) for name, text in texts.items()} | {"worst_case_usd": self.worst_case_usd}]

    @property
    def worst_case_usd(self) -> float | None:
        """The most that the job can cost, USD; None if the price is unknown."""
        worst: float | None = self.document.get("worst_case_usd")
        return worst

    def to_dict(self) -> dict[str, object]:
        """The document, and the line that launches the job as `command`."""
        return {**json.loads(json.dumps(dict(self.document), default=str)), "command": self.spec.command()}

    def notes(self) -> list[str]:
        """Warnings, where the whole request is, and the line that launches the job."""
        return [
            *(f"warning: {text}" for text in self.document.get("warnings", ())),
            f"every parameter and the whole request as JSON: the same command with {options(json='true')}",
            f"nothing was launched; to launch it: {self.spec.command()}",
        ]

    def __str__(self) -> str:
        """The summary of the job with its dollars and seconds; then the command that launches it."""
        width = max(map(len, self.summary), default=0)
        lines = [f"  {name:<{width}}  {text}" for name, text in self.summary.items()]
        return "\n".join([self.title, "", *lines, "", *self.notes()])

    def _shown(self) -> "DataFrame":
        import pandas

        return pandas.DataFrame(list(self.summary.items()), columns=["", "value"])


def preview(spec: JobSpec, workplace: Workplace) -> JobPreview:
    """Check the job as its launch would, raising the same errors, and return what would run."""
    launcher, attribution = workplace.launcher, workplace.attribution(spec)
    require_answer(tracking_uri())
    worst_usd = launcher.worst_case_usd(spec)
    budgets = workplace.check_budgets(spec, attribution)
    inputs = inputs_of(spec, workplace, meanwhile=lambda: launcher.check(spec))
    document = JobDocument.first(job_name("RUN", 1), spec, attribution=attribution)
    job = foreseen(spec, inputs, workplace)
    if refusal := limit_refusal(job):
        raise BadInput([refusal])
    phases = {} if job.estimate is None else job.estimate.phases
    rounded = {name: {key: round(value, 1) for key, value in asdict(part).items()} for name, part in phases.items()}
    batch = asdict(document.plan) | {"global_batch_size": document.plan.global_batch_size}
    parts = {
        "specification": spec.as_text(),
        "batch": batch if not spec.runs_own_training else None,
        "script": script_in_words(spec, document.plan) if spec.entry_script else None,
        "project": None if inputs.project is None else {"command": inputs.project.document["command"]},
        "data": dict(inputs.dataset.facts) if inputs.dataset is not None else None,
        "request": dict(launcher.preview(document, inputs)) or None,
        "main_memory_gib": job.host_bytes
        and {name: round(size / 2**30, 1) for name, size in zip(("loading", "saving"), job.host_bytes, strict=True)},
        "phases": rounded or None,
        "worst_case_usd": worst_usd,
        "budgets": [budget.sentence(worst_usd) for budget in budgets] or None,
        "warnings": [*remarks(spec, workplace.environment), *warnings_of([job])] or None,
    }
    parts = {name: value for name, value in parts.items() if value is not None}
    return JobPreview(
        spec=spec.replace(dry_run=None), document=parts, summary=_summary(job, document.plan, inputs, parts)
    )


def _summary(job: ForeseenJob, plan: BatchPlan, inputs: JobInputs, parts: Mapping[str, Any]) -> dict[str, str]:
    spec, price, request, worst = job.spec, job.price, parts.get("request", {}), parts.get("worst_case_usd")
    notional = " (notional: nobody bills this machine)" if price and price.confidence == "notional" else ""
    epochs = f"{spec.num_train_epochs:g} epoch{'s' * (spec.num_train_epochs != 1)}"
    ended = f"the job is ended after {duration(60 * spec.max_runtime_minutes)}"
    disk = job.disk_bytes if spec.has_instances else None
    channels = ", ".join(channel["ChannelName"] for channel in request.get("InputDataConfig", ()))
    settings = {"settings": f"{spec.fine_tuning} fine-tuning, {epochs}, {batch_in_words(plan)}"}
    lines = {
        "would run": training_in_words(spec, None if inputs.dataset is None else inputs.dataset.facts),
        **(settings if not spec.runs_own_training else parts.get("script") or parts.get("project", {})),
        "where": _where(spec, request),
        "disk": ""
        if disk is None
        else f"{disk / 1e9:,.0f} GB at most, of data, model, checkpoints and results: "
        f"a volume of {volume_for_gib(disk):,} GiB",
        "main memory": "" if job.host_bytes is None else _main_memory(spec, job.host_bytes),
        "expected": "" if job.estimate is None else job.estimate.sentence(),
        "worst case": "unknown: no price" if worst is None else f"{usd(worst)}{notional}; {ended}",
        "price": "unknown" if price is None else f"{price.stated}, of each instance ({price.plain_source})",
        "budgets": "; ".join(parts.get("budgets", ())),
        "leaves this machine": f"to S3, once for all jobs that share them: {channels}" if channels else "nothing",
        "recorded": f"in MLflow, {redacted(tracking_uri())}",
    }
    return {name: text for name, text in lines.items() if text}


def _main_memory(spec: JobSpec, host_bytes: tuple[float, float]) -> str:
    loading, saving = (f"{size / 2**30:,.1f} GiB" for size in host_bytes)
    whole = f", of {spec.instance().memory_gib:,.0f} GiB" if spec.has_instances else ""
    return f"{loading} while the model is loaded, {saving} while it is saved, on each machine{whole}"


def training_in_words(spec: JobSpec, facts: Mapping[str, float] | None = None) -> str:
    """The model and its data with their rows, the script, or the project with its parameters."""
    if spec.runs_own_training:
        entry = f"entry point {spec.entry_point} of {spec.project}"
        return (entry if spec.project else f"your script {spec.entry_script}") + (
            f" with {settings}" if (settings := own_settings(spec)) else ""
        )
    rows = ""
    if facts is not None:
        rows = f" ({facts['train_rows']:,.0f} rows, validated on {facts['validation_rows']:,.0f})"
    return f"{spec.model}{' with random weights' if spec.init == 'random' else ''} on {spec.dataset}{rows}"


def batch_in_words(plan: BatchPlan) -> str:
    """The global batch size with its factors, and the learning rate."""
    factors = f"{plan.per_device_train_batch_size} x {plan.devices} x {plan.gradient_accumulation_steps}"
    return f"global batch size {plan.global_batch_size} = {factors}, learning rate {plan.learning_rate:g}"


def _where(spec: JobSpec, request: Mapping[str, Any]) -> str:
    if not spec.has_instances:
        return "this machine" + (f", {spec.instance_count} processes" if spec.instance_count > 1 else "")
    cluster = f"{spec.instance_count} x {spec.instance_type}" + (", Spot" if spec.spot else "")
    if spec.is_simulated:
        return f"{cluster}, simulated: no job is sent to AWS"
    results = request.get("OutputDataConfig", {}).get("S3OutputPath", "")
    return f"SageMaker, {cluster}" + (f", results in {results}" if results else "")
