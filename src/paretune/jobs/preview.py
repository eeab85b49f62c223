"""Describes a job before it is launched: the words of its plan, and the dry run, which shows the plan.

A dry run makes the same checks as a launch, launches nothing, and shows the job with its worst case. Without access to
AWS, it skips the checks that need an account, and says so.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from paretune.core.result import Result, Row, value_of
from paretune.core.shell import options
from paretune.jobs.card import settings_in_name
from paretune.jobs.warnings import ForeseenJob
from paretune.jobs.workplace import Workplace
from paretune.presentation.text import duration, limit_usd
from paretune.specification import launchers
from paretune.specification.container import JobInputs
from paretune.specification.launchers import LOCAL, LauncherTraits
from paretune.specification.parallelism import BatchPlan
from paretune.specification.plan import Card, Plan
from paretune.storage.database import redacted


@dataclass(frozen=True, kw_only=True)
class JobPreview(Result):
    """The result of a dry run: the job, its data, its worst case in dollars, and the request that would be sent.

    Attributes:
        card: the job as it was planned.
        document: `specification`, `batch`, `script` or `project`, `data`, `request` (to SageMaker), `worst_case_usd`,
            `budgets` and `warnings`; parts that are not known or do not apply are absent.
    """

    card: Card
    document: Mapping[str, Any]
    words: Mapping[str, str] = field(default_factory=dict)  # the same as text for people, by heading

    @property
    def title(self) -> str:
        """The title, which states that nothing was launched."""
        remark = self.card.experimental
        return f"dry run: nothing was launched{f' ({remark})' * bool(remark)}"

    def rows(self) -> list[Row]:
        """Return one row: the specification, and the worst case in USD."""
        texts = self.card.parameters
        return [{name: value_of(text) for name, text in texts.items()} | {"worst_case_usd": self.worst_case_usd}]

    def summary(self) -> Mapping[str, str]:
        """Return what would run, where, for how long and at what cost, by heading."""
        return self.words

    @property
    def worst_case_usd(self) -> float | None:
        """The most that the job should cost, in USD; None if the price is unknown."""
        worst: float | None = self.document.get("worst_case_usd")
        return worst

    def to_dict(self) -> dict[str, object]:
        """Return the document, with the command that launches the job as `command`."""
        command = self.card.command_line
        return {**json.loads(json.dumps(dict(self.document), default=str)), "command": command}

    def notes(self) -> list[str]:
        """Return warnings, how to see all parameters and the request, and the command that launches the job."""
        request = " and the whole request" if "request" in self.document else ""
        return [
            *(f"warning: {text}" for text in self.document.get("warnings", ())),
            f"every parameter{request} as JSON: the same command with {options(json='true')}",
            f"nothing was launched; to launch it: {self.card.command_line}",
        ]


def preview(plan: Plan, workplace: Workplace) -> JobPreview:
    """Return the dry run of a planned job: what would run, with the request that its launcher would send."""
    from paretune.tracking.store import tracking_uri  # imports MLflow, which estimates do not need

    card, launcher, inputs = plan.card, workplace.launcher, plan.inputs or JobInputs()
    request, budgets = dict[str, Any](), list[str]()
    if workplace.offline is None:
        request = dict(launcher.preview(plan.order("RUN", "RUN")))
        budgets = [budget.sentence(plan.limits.worst_usd) for budget in workplace.check_budgets(plan)]
    code = None if inputs.code is None else dict(inputs.code.described)
    parts = {
        "specification": dict(card.parameters),
        "batch": None if card.is_users else asdict(plan.offer.batch),
        "script": code if card.kind == "script" else None,
        "project": code if card.kind == "project" else None,
        "data": _data(inputs),
        "worst_case_usd": plan.limits.worst_usd,
        "warnings": list(card.warnings) or None,
        "request": request or None,
        "budgets": budgets or None,
    }
    words = {name: text for name, text in card.texts.items() if name != "batch"}  # which is part of the settings
    results = request.get("OutputDataConfig", {}).get("S3OutputPath", "")
    words["where"] += f", results in {results}" if results else ""
    words |= {"budgets": "; ".join(budgets), **_travel(plan, inputs, request)}
    words["recorded"] = f"in MLflow, {redacted(tracking_uri())}"
    return JobPreview(
        card=card,
        document={name: value for name, value in parts.items() if value is not None},
        words={name: text for name, text in words.items() if text},
    )


def _data(inputs: JobInputs) -> dict[str, Any] | None:
    """Return counts and baselines of the prepared rows, with findings in words; None if there are no rows."""
    if inputs.dataset is None:
        return None
    return {**inputs.dataset.facts, "labels": list(inputs.dataset.labels), "found": inputs.findings.words}


def _travel(plan: Plan, inputs: JobInputs, request: Mapping[str, Any]) -> dict[str, str]:
    """Return which inputs stay in S3 and which leave this machine, by heading; "" if that is unknown."""
    channels = {channel["ChannelName"]: channel for channel in request.get("InputDataConfig", ())}
    sources = {name: channel["DataSource"]["S3DataSource"]["S3Uri"] for name, channel in channels.items()}
    theirs = {address.rstrip("/") for address in (inputs.code.in_s3 if inputs.code else {}).values()}
    stay = [name for name, uri in sources.items() if uri.rstrip("/") in theirs]
    is_streamed = any(channels[name]["InputMode"] == "FastFile" for name in stay)
    mode = ", streamed" if is_streamed else ", downloaded before the training starts"
    sent = ", ".join(name for name in sources if name not in stay)
    is_known = bool(request) or not launchers.known()[plan.launcher].is_billed
    return {
        "stays in S3": f"{', '.join(f'{name} from {sources[name]}' for name in stay)}{mode}" if stay else "",
        "leaves this machine": f"to S3, once for all jobs that share them: {sent}" if sent else "nothing" * is_known,
    }


def texts_of(job: ForeseenJob, inputs: JobInputs, worst_usd: float | None) -> dict[str, str]:
    """Return what a dry run and a launch say of a job, by heading."""
    spec, price = job.spec, job.price
    notional = " (notional: nobody bills this machine)" if price and price.confidence == "notional" else ""
    epochs = f"{spec.num_train_epochs:g} epoch{'s' * (spec.num_train_epochs != 1)}"
    ended = f"the job is stopped after {duration(60 * spec.max_runtime_minutes)}"
    batch = f"{batch_in_words(job.plan)}{chosen_in_words(job)}"
    described = dict(inputs.code.described) if inputs.code is not None else {}
    lines = {
        "would run": training_in_words(job, inputs),
        "data": inputs.findings.words,
        **(described if spec.runs_user_code else {"settings": f"{spec.fine_tuning} fine-tuning, {epochs}, {batch}"}),
        "batch": "" if spec.runs_user_code else batch,
        "where": place_in_words(spec.runs_on, spec.instance_type, spec.instance_count, is_spot=spec.spot),
        "expected": "" if job.estimate is None else job.estimate.sentence(),
        "worst case": "unknown: no price" if worst_usd is None else f"{limit_usd(worst_usd)}{notional}; {ended}",
        "price": "unknown" if price is None else f"{price.stated}, of each instance ({price.plain_source})",
    }
    return {name: text for name, text in lines.items() if text}


def training_in_words(job: ForeseenJob, inputs: JobInputs) -> str:
    """Describe what is trained: a model and its data, the user's script, or a project, with the given settings."""
    spec, rows = job.spec, ""
    if spec.runs_user_code:
        script = (
            f"entry point {spec.entry_point} of {spec.project}" if spec.project else f"your script {spec.entry_script}"
        )
        settings = settings_in_name(spec, takes_seed=job.takes_seed)
        return " ".join(filter(None, (script, spec.script_words, settings and f"with {settings}")))
    if inputs.dataset is not None:
        facts = inputs.dataset.facts
        rows = f" ({facts['train_rows']:,.0f} rows, validated on {facts['validation_rows']:,.0f})"
    return f"{spec.model}{' with random weights' if spec.init == 'random' else ''} on {spec.dataset}{rows}"


def batch_in_words(plan: BatchPlan) -> str:
    """Return the global batch size and the learning rate as text.

    The size is written as per-device batch x devices x accumulation steps. If this product is not the global
    batch size, the parts that a step is divided into are described instead.
    """
    batch, devices, parts = plan.per_device_train_batch_size, plan.devices, plan.gradient_accumulation_steps
    size, factors = f"global batch size {plan.global_batch_size}", f"{batch} x {devices} x {parts}"
    if plan.global_batch_size == batch * devices * parts:
        cut = f"= {factors}"
    else:  # the last part is smaller
        cut = f"in {parts} parts of at most {batch} rows" + (f" on each of {devices} devices" if devices > 1 else "")
    return f"{size} {cut}, learning rate {plan.learning_rate:g}"


def chosen_in_words(job: ForeseenJob) -> str:
    """Return why a job's micro-batches are smaller than its parameters imply; "" if they are not."""
    usual, plan = job.spec.plan(), job.plan
    if plan == usual:
        return ""
    rows = plan.per_device_train_batch_size
    return f" ({rows} row{'s' * (rows > 1)} at once, because {usual.per_device_train_batch_size} may not fit in memory)"


def place_in_words(launcher: LauncherTraits, instance_type: str, count: int, *, is_spot: bool) -> str:
    """Describe where a job runs."""
    if instance_type == LOCAL:
        return "this machine" + (f", {count} processes" if count > 1 else "")
    cluster = f"{count} x {instance_type}" + (", Spot" if is_spot else "")
    return f"{cluster}, simulated: no job is sent to AWS" if launcher.is_simulated else f"{launcher.title}, {cluster}"
