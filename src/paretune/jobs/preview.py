"""Checks a job before it is paid for: price and estimate, warnings, admission, and the dry run.

Warnings never stop a launch, but `limit_refusal` can. A dry run makes the same checks as a launch, launches nothing,
and shows the job with its worst case. Without access to AWS, it skips the checks that need an account, and says so.
"""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from paretune.core.errors import BadInput, NoAccount, refuse
from paretune.core.result import Result, Row, value_of
from paretune.core.shell import options
from paretune.estimating.estimator import Estimate, Forecast, known_architecture
from paretune.estimating.workload import whole_argument
from paretune.jobs.preparation import inputs_of
from paretune.jobs.run_names import settings_in_name
from paretune.jobs.workplace import Workplace, Workplaces
from paretune.launchers.base import JobSetup, Launcher
from paretune.launchers.disk import SPARE_GIB, bytes_on_disk, least_volume_gib
from paretune.ledger.budget_file import BudgetFile
from paretune.presentation.text import duration, usd
from paretune.pricing import price_remarks
from paretune.specification.container import Command, JobDocument, JobInputs
from paretune.specification.declaration import experimental_words
from paretune.specification.identity import JobIdentity
from paretune.specification.job import JobSpec, default_learning_rate
from paretune.specification.order import job_name
from paretune.specification.parallelism import OF_THE_BATCH, REFERENCE_BATCH_SIZE, BatchPlan
from paretune.specification.price import Price
from paretune.specification.rules import description_faults, launch_faults
from paretune.storage.database import redacted

_MOST_NAMES = 10  # maximum number of files that a warning names
_ROUNDED_DOWN = 0.9  # a learning rate above this share of the scaled one counts as scaled by hand and rounded down


@dataclass(frozen=True, kw_only=True)
class ForeseenJob:
    """A job before its launch, with its price, its estimate and the disk space that it needs."""

    spec: JobSpec
    region: str  # region of its price
    disk_bytes: float | None  # most bytes on an instance at one time; None if model or number of checkpoints is unknown
    price: Price | None  # price of one instance; None if unknown
    estimate: Estimate | None  # None if model or rows are unknown, or if a user's own training has never run before
    command: Command | None = None  # the user's own training; None for paretune's, and if it is not known yet

    @property
    def takes_seed(self) -> bool:
        """Whether another seed changes the training."""
        return self.command is None or self.command.takes_seed

    @property
    def plan(self) -> BatchPlan:
        """The batch plan of its first attempt: the one of its estimate, if `JobSpec.leaves_batch_open`."""
        is_open = self.estimate is not None and self.spec.leaves_batch_open
        return self.estimate.plan if self.estimate is not None and is_open else self.spec.plan()


def foreseen(spec: JobSpec, inputs: JobInputs, workplace: Workplace) -> ForeseenJob:
    """Return a job with its price, estimate and disk space. Raises BadInput if its training arguments are invalid."""
    return _foreseen(spec, inputs, workplace.launcher, workplace.forecast)


def _foreseen(spec: JobSpec, inputs: JobInputs, launcher: Launcher, forecast: Forecast) -> ForeseenJob:
    built = known_architecture(spec, inputs)
    return ForeseenJob(
        spec=spec,
        region=launcher.region(spec),
        disk_bytes=None if inputs.model is None and built is None else bytes_on_disk(spec, inputs, built),
        price=launcher.price(spec),
        estimate=_estimate(spec, inputs, launcher, forecast),
        command=inputs.command,
    )


def _estimate(spec: JobSpec, inputs: JobInputs, launcher: Launcher, forecast: Forecast) -> Estimate | None:
    """Return the estimate of a job, whose batch fits on each of its instance types if the job leaves its batch open."""
    estimate = forecast.of(spec, inputs, launcher.price)
    if not spec.leaves_batch_open or estimate is None:
        return estimate
    fewest = estimate.plan.per_device_train_batch_size
    for moved in (each.replace(per_device_train_batch_size=None) for each in spec.clusters()[1:]):
        other = forecast.of(moved, inputs, launcher.price)
        if other is not None and other.plan != moved.plan():
            fewest = min(fewest, other.plan.per_device_train_batch_size)
    if fewest == estimate.plan.per_device_train_batch_size:
        return estimate
    return forecast.of(spec, inputs, launcher.price, plan=estimate.plan.in_parts(fewest))


@dataclass(frozen=True, kw_only=True)
class Admitted(ForeseenJob):
    """A job that may be launched, with everything that was read, computed and checked for it."""

    inputs: JobInputs
    setup: JobSetup  # its launcher's choices, such as role, image and volume, or the timeline of a simulated job
    worst_usd: float | None  # worst case in dollars, on its most expensive instance type; None if a price is unknown
    warnings: tuple[str, ...]

    @property
    def identity(self) -> JobIdentity:
        """The identity of the job, with the key of its prepared rows or of the user's code that is uploaded."""
        dataset, code = self.inputs.dataset, self.inputs.code
        data_key, code_key = None if dataset is None else dataset.key, (code and code.key) or None
        return JobIdentity.of(self.spec, data_key=data_key, code_key=code_key)


def admit(spec: JobSpec, workplace: Workplace, *, revision: str | None = None, judges_limit: bool = True) -> Admitted:
    """Admit a job: return everything that its launch needs, or raise before anything is paid for.

    Every job is admitted here once, whether a command, a study or an agent launches it. `revision` is the commit of a
    model on the Hub, by default the newest. `judges_limit=False` skips `limit_refusal`: a study judges the limits of
    its trials itself, because it knows more about them than the estimate does.
    """
    refuse(description_faults(spec))
    launcher, setups = workplace.launcher, list[JobSetup]()
    worst_usd = launcher.admit(spec)
    if spec.budget is not None:
        BudgetFile.read(spec.budget)  # its faults are reported before anything is prepared
    inputs = inputs_of(spec, workplace, lambda: setups.append(launcher.check(spec)), revision=revision)
    setup = launcher.check_inputs(setups[0], inputs)
    job = foreseen(spec, inputs, workplace)
    warnings = _judged(job, inputs, judges_limit=judges_limit)
    return Admitted(**vars(job), inputs=inputs, setup=setup, worst_usd=worst_usd, warnings=warnings)


def _judged(job: ForeseenJob, inputs: JobInputs, *, judges_limit: bool = True) -> tuple[str, ...]:
    """Return the warnings about a job. Raises BadInput if `limit_refusal` refuses it."""
    if judges_limit and (refusal := limit_refusal(job)):
        raise BadInput([refusal])
    return (*warnings_of([job]), *data_warnings(job.spec, inputs), *left_behind_warnings(inputs))


def warnings_of(jobs: Sequence[ForeseenJob], *, only_common: bool = False) -> list[str]:
    """Return warnings about these jobs, one sentence for each kind of warning.

    If several jobs have the same kind of warning in different words, the first sentence is returned with the number of
    these jobs. `only_common` leaves out kinds that do not apply to all jobs, for a search that finds out by itself
    which jobs are bad. Each remark on a price is always returned.
    """
    warnings = []
    for warning in (unscaled_rate, nearly_full, ended_by_its_limit, small_disk):
        is_memory = warning is nearly_full  # the other warnings are about a launch by paretune
        judged = [job for job in jobs if job.spec.probe_steps is None and (is_memory or not job.spec.is_only_described)]
        cases = [(job, text) for job in judged if (text := warning(job))]
        if not cases or (only_common and len(cases) < len(jobs)):
            continue
        (first, text), differ = cases[0], len({text for _, text in cases}) > 1
        cluster = f"{first.spec.instance_count} x {first.spec.instance_type}"
        warnings.append(f"{len(cases)} of {len(jobs)} jobs, the first on {cluster}: {text}" if differ else text)
    today, paid = datetime.now(UTC).date(), [job for job in jobs if job.spec.has_instances]
    doubts = (text for job in paid for text in price_remarks(job.price, job.spec.instance_type, job.region, today))
    return [*warnings, *dict.fromkeys(doubts)]


def unscaled_rate(job: ForeseenJob) -> str:
    """Return a warning if a batch is above REFERENCE_BATCH_SIZE and its learning rate is not scaled; "" otherwise.

    A rate that was raised by hand counts as scaled. There is no warning if the user's own program chooses the batch or
    the rate.
    """
    spec, plan = job.spec, job.spec.plan()
    size, reference = plan.global_batch_size, REFERENCE_BATCH_SIZE
    scaled = default_learning_rate(spec.fine_tuning) * (size / reference) ** 0.5
    if spec.learning_rate_scaling != "none" or size <= reference or plan.learning_rate >= _ROUNDED_DOWN * scaled:
        return ""
    if spec.runs_user_code and not _sets_both(job):
        return ""
    return (
        f"global batch size {size} is above {reference} and learning rate {plan.learning_rate:g} is not scaled: fewer "
        f"steps of the same size usually learn less; {options(learning_rate_scaling='sqrt')}, or a higher learning_rate"
    )


def _sets_both(job: ForeseenJob) -> bool:
    """Return whether a user's own training gets its batch and its learning rate from paretune."""
    if job.spec.gives("learning_rate") and job.spec.gives(*OF_THE_BATCH):
        return True
    return job.command is not None and job.command.takes_batch and "learning_rate" in job.command.recorded


def ended_by_its_limit(job: ForeseenJob) -> str:
    """Return a warning if a job is estimated to take longer than max_runtime_minutes; "" otherwise."""
    spec, estimate, limit_s = job.spec, job.estimate, job.spec.max_runtime_minutes * 60
    if estimate is None or estimate.time.seconds <= limit_s:
        return ""
    if refusal := limit_refusal(job):
        return f"refused when it is launched: {refusal}"
    return (
        f"estimated {_with_interval(estimate)}, and max_runtime_minutes {spec.max_runtime_minutes:g} ends it "
        f"after {duration(limit_s)}: it {'is billed and ' * spec.has_instances}leaves no model; "
        f"{_higher_limit(estimate)}"
    )


def limit_refusal(job: ForeseenJob) -> str:
    """Return why a job is refused: the whole 80 % interval of its time is above max_runtime_minutes.

    Returns "" if the job is not refused. Jobs on this machine and those that `exceeds_limit` exempts are never refused.
    """
    spec, estimate = job.spec, job.estimate
    if estimate is None or not spec.has_instances or not estimate.exceeds_limit:
        return ""
    least = math.ceil(estimate.time.seconds_low / 60)
    return (
        f"max_runtime_minutes must be at least {least} for this job, got {spec.max_runtime_minutes:g}: it is estimated "
        f"to take {_with_interval(estimate)} and would be billed without leaving a model; {_higher_limit(estimate)}, "
        f"fewer rows, epochs or steps, or {options(force='limit')} to launch it anyway"
    )


def _with_interval(estimate: Estimate) -> str:
    time = estimate.time
    interval = f"80 % interval {duration(time.seconds_low)} to {duration(time.seconds_high)}"
    return f"{duration(time.seconds)} ({interval})"


def _higher_limit(estimate: Estimate) -> str:
    return options(max_runtime_minutes=math.ceil(estimate.time.seconds_high / 60))


def nearly_full(job: ForeseenJob) -> str:
    """Return a warning if the job may run out of memory; "" otherwise.

    There is one if an earlier job that needed at most as much memory ran out of it, or if the interval of the estimate
    reaches beyond the memory of a device.
    """
    estimate = job.estimate
    if estimate is None or estimate.memory is None:
        return ""
    memory, failed = estimate.memory, estimate.did_not_fit
    if failed is None and (estimate.fits == "yes" or math.isnan(memory.usable_gib)):
        return ""
    most = f"{memory.gib:.1f} to {memory.gib_high:.1f} of {memory.usable_gib:.1f} GiB"
    reason = f"estimated memory {most} per device"
    if failed is not None:
        tried = f"per-device batch {failed.rows} ran out of memory before"
        reason = f"{tried} on a device with as much memory (run {failed.run_id})"
    nothing = "nothing that paretune knows fits: use a smaller model, or a shorter max_seq_length"
    return f"{reason}: a job that runs out of memory is billed until then; {estimate.remedy_in_words() or nothing}"


def small_disk(job: ForeseenJob) -> str:
    """Return a warning if a job with sagemaker.volume_size_in_gb may fill its disk; "" otherwise."""
    spec, given_gib = job.spec, job.spec.sagemaker.volume_size_in_gb
    if given_gib is None or job.disk_bytes is None or not spec.has_instances:
        return ""
    needed = least_volume_gib(job.disk_bytes)
    local_gib = spec.instance().local_storage_gib  # an instance with its own disks has no volume
    if (local_gib or given_gib) >= needed:
        return ""
    if local_gib:
        disk = f"the disk of {spec.instance_type} with {local_gib} GiB"
        remedy = "use an instance_type with larger disks"
    else:
        disk = f"sagemaker.volume_size_in_gb {given_gib}"
        remedy = f"{options(**{'sagemaker.volume_size_in_gb': needed})}, or leave it out"
    return (
        f"{disk} is below {needed} GiB, which model, data and checkpoints may need with {SPARE_GIB} GiB to spare: a "
        f"full disk often fails a job late, when most of it is already billed; {remedy}"
    )


@dataclass(frozen=True, kw_only=True)
class JobPreview(Result):
    """The result of a dry run: the job, its data, its worst case in dollars, and the request that would be sent.

    Attributes:
        spec: the job, with dry_run off.
        document: `specification`, `batch`, `script` or `project`, `data`, `request` (to SageMaker), `worst_case_usd`,
            `budgets` and `warnings`; parts that are not known or do not apply are absent.
    """

    spec: JobSpec
    document: Mapping[str, Any]
    words: Mapping[str, str] = field(default_factory=dict)  # the same as text for people, by heading

    @property
    def title(self) -> str:
        """The title, which states that nothing was launched."""
        remark = experimental_words(self.spec.experimental())
        return f"dry run: nothing was launched{f' ({remark})' * bool(remark)}"

    def rows(self) -> list[Row]:
        """Return one row: the specification, and the worst case in USD."""
        texts = self.spec.as_text()
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
        return {**json.loads(json.dumps(dict(self.document), default=str)), "command": self.spec.command()}

    def notes(self) -> list[str]:
        """Return warnings, how to see all parameters and the request, and the command that launches the job."""
        request = " and the whole request" if "request" in self.document else ""
        return [
            *(f"warning: {text}" for text in self.document.get("warnings", ())),
            f"every parameter{request} as JSON: the same command with {options(json='true')}",
            f"nothing was launched; to launch it: {self.spec.command()}",
        ]


def preview(spec: JobSpec, workplace: Workplace) -> JobPreview:
    """Check the job as its launch would, raising the same errors, and return what would run."""
    from paretune.tracking.store import require_answer, tracking_uri  # imports MLflow, which estimates do not need

    launcher = workplace.launcher
    require_answer(tracking_uri())
    budgets = workplace.check_budgets(spec)  # before anything is prepared
    job = admit(spec, workplace)
    document = JobDocument.first(job_name("RUN", 1), spec, workplace.attribution(spec), run_id="RUN", plan=job.plan)
    launcher_parts = {
        "request": dict(launcher.preview(document, job.inputs, job.setup)) or None,
        "budgets": [budget.sentence(job.worst_usd) for budget in budgets] or None,
    }
    return _preview(job, job.inputs, job.worst_usd, job.warnings, tracking_uri(), launcher_parts)


def preview_without_account(spec: JobSpec, workplaces: Workplaces, reason: str) -> JobPreview:
    """Preview a job without access to its AWS account; `reason` says why there is no access.

    Parameters, data and most parts of the request are checked, and time and dollars are estimated with public prices. A
    warning names what is not checked. Raises the same errors as `preview` for what is checked.
    """
    from paretune.tracking.store import require_answer, tracking_uri

    refuse(description_faults(spec))
    require_answer(tracking_uri())
    here = workplaces.of(JobSpec())  # prepares data
    launcher = workplaces.at_public_prices(spec).launcher
    worst_usd = launcher.admit(spec)
    inputs = inputs_of(spec, here, lambda: refuse(launch_faults(spec)))
    job = _foreseen(spec, inputs, launcher, here.forecast)
    unchecked = "role, bucket, data in S3, permissions, quotas and budgets"
    try:
        workplaces.of(spec.replace(region=job.region)).launcher.check_without_account(spec, inputs)
    except NoAccount:  # for example if the AWS profile does not exist
        unchecked = f"image, disks, limits of AWS, {unchecked}"
    warning = f"your AWS account was not queried: {reason}; not checked: {unchecked}; prices are those of {job.region}"
    return _preview(job, inputs, worst_usd, (warning, *_judged(job, inputs)), tracking_uri())


def _preview(
    job: ForeseenJob,
    inputs: JobInputs,
    worst_usd: float | None,
    warnings: Sequence[str],
    store: str,
    launcher_parts: Mapping[str, Any] | None = None,
) -> JobPreview:
    """Return the preview of a job that would be recorded in `store`; `launcher_parts` come from its launcher."""
    spec, plan = job.spec, job.plan
    parts = {
        "specification": spec.as_text(),
        "batch": asdict(plan) if not spec.runs_user_code else None,
        "script": dict(inputs.code.described) if spec.entry_script and inputs.code else None,
        "project": dict(inputs.code.described) if spec.project and inputs.code else None,
        "data": _data(inputs),
        "worst_case_usd": worst_usd,
        "warnings": list(warnings) or None,
        **(launcher_parts or {}),
    }
    parts = {name: value for name, value in parts.items() if value is not None}
    words = _summary(job, plan, inputs, parts) | {"recorded": f"in MLflow, {redacted(store)}"}
    return JobPreview(spec=spec.replace(dry_run=None), document=parts, words=words)


def _data(inputs: JobInputs) -> dict[str, Any] | None:
    """Return counts and baselines of the prepared rows, with findings in words; None if there are no rows."""
    if inputs.dataset is None:
        return None
    return {**inputs.dataset.facts, "labels": list(inputs.dataset.labels), "found": inputs.findings.words}


def data_warnings(spec: JobSpec, inputs: JobInputs) -> list[str]:
    """Return warnings about the rows of a job, including one if a global batch has more rows than an epoch.

    That one is left out if max_steps sets the number of steps.
    """
    rows, size = (inputs.dataset.facts if inputs.dataset else {}).get("train_rows"), spec.plan().global_batch_size
    if rows is None or size <= rows or whole_argument(spec, "max_steps"):
        return list(inputs.findings.warnings)
    devices, remedies = spec.plan().devices, ["more epochs"]
    smaller = max(1, int(rows) // 20 // devices) * devices
    if smaller <= rows:
        with suppress(BadInput):  # the other typed batch parameters may not allow it
            spec.replace(global_batch_size=smaller)
            remedies.insert(0, options(global_batch_size=smaller))
    too_large = f"global batch size {size:,} is above the {rows:,.0f} training rows, so that an epoch has one step"
    return [*inputs.findings.warnings, f"{too_large}: a model learns from many steps: use {', or '.join(remedies)}"]


def left_behind_warnings(inputs: JobInputs) -> list[str]:
    """Return a warning with the names of the files that are not sent with a script or a project."""
    if inputs.code is None or not (names := inputs.code.left_behind):
        return []
    more = f" and {len(names) - _MOST_NAMES} more files" if len(names) > _MOST_NAMES else ""
    return [
        "not sent with the code, because their names look like secrets or begin with a dot: "
        f"{', '.join(names[:_MOST_NAMES])}{more}; rename those that the training reads"
    ]


def _summary(job: ForeseenJob, plan: BatchPlan, inputs: JobInputs, parts: Mapping[str, Any]) -> dict[str, str]:
    spec, price, request, worst = job.spec, job.price, parts.get("request", {}), parts.get("worst_case_usd")
    notional = " (notional: nobody bills this machine)" if price and price.confidence == "notional" else ""
    epochs = f"{spec.num_train_epochs:g} epoch{'s' * (spec.num_train_epochs != 1)}"
    ended = f"the job is stopped after {duration(60 * spec.max_runtime_minutes)}"
    sources = {
        channel["ChannelName"]: channel["DataSource"]["S3DataSource"]["S3Uri"]
        for channel in request.get("InputDataConfig", ())
    }
    theirs = {address.rstrip("/") for address in (inputs.code.in_s3 if inputs.code else {}).values()}
    stays = [f"{name} from {uri}" for name, uri in sources.items() if uri.rstrip("/") in theirs]
    mode = ", streamed" if spec.sagemaker.input_mode == "FastFile" else ", downloaded before the training starts"
    channels = ", ".join(name for name, uri in sources.items() if uri.rstrip("/") not in theirs)
    nothing = "nothing" if "request" in parts or not spec.runs_on.is_billed else ""  # else it is unknown
    settings = {"settings": f"{spec.fine_tuning} fine-tuning, {epochs}, {batch_in_words(plan)}{chosen_in_words(job)}"}
    lines = {
        "would run": training_in_words(job, inputs),
        "data": inputs.findings.words,
        **(settings if not spec.runs_user_code else parts.get("script") or parts.get("project", {})),
        "where": place_in_words(spec, request),
        "expected": "" if job.estimate is None else job.estimate.sentence(),
        "worst case": "unknown: no price" if worst is None else f"{usd(worst)}{notional}; {ended}",
        "price": "unknown" if price is None else f"{price.stated}, of each instance ({price.plain_source})",
        "budgets": "; ".join(parts.get("budgets", ())),
        "stays in S3": f"{', '.join(stays)}{mode}" if stays else "",
        "leaves this machine": f"to S3, once for all jobs that share them: {channels}" if channels else nothing,
    }
    return {name: text for name, text in lines.items() if text}


def training_in_words(job: ForeseenJob, inputs: JobInputs) -> str:
    """Describe what is trained: a model and its data, the user's script, or a project, with the given settings."""
    spec, rows = job.spec, ""
    if spec.runs_user_code:
        entry = f"entry point {spec.entry_point} of {spec.project}"
        return (entry if spec.project else f"your script {spec.entry_script}") + (
            f" with {settings}" if (settings := settings_in_name(spec, takes_seed=job.takes_seed)) else ""
        )
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
    return f" ({rows} rows at once, because {usual.per_device_train_batch_size} may not fit in memory)"


def place_in_words(spec: JobSpec, request: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Describe where a job runs; `request` is the one that its launcher would send, if it is known."""
    launcher = spec.runs_on
    if not spec.has_instances:
        return "this machine" + (f", {spec.instance_count} processes" if spec.instance_count > 1 else "")
    cluster = f"{spec.instance_count} x {spec.instance_type}" + (", Spot" if spec.spot else "")
    if launcher.is_simulated:
        return f"{cluster}, simulated: no job is sent to AWS"
    results = request.get("OutputDataConfig", {}).get("S3OutputPath", "")
    return f"{launcher.title}, {cluster}" + (f", results in {results}" if results else "")
