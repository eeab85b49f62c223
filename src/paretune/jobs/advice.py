"""Warnings about a job before it is paid for: a function for each, with its reason and what mends it.

`foreseen` gathers the facts about a job, `warnings_of` returns the warnings. Only `limit_refusal` stops a job.
Warnings about a finished job are in `verdicts`.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from paretune.core.commands import options
from paretune.core.errors import BadInput, TrackingUnavailable
from paretune.estimating.architecture import Architecture
from paretune.estimating.estimator import Estimate
from paretune.estimating.forecast import known_architecture
from paretune.estimating.workload import training_rows
from paretune.jobs.verdicts import is_full_rate, is_unscaled
from paretune.launchers.storage import SPARE_GIB, bytes_of_weights, bytes_on_disk, least_volume_gib
from paretune.presentation.numbers import duration
from paretune.pricing.prices import Price, price_remarks
from paretune.specification import catalog
from paretune.specification.batch_size import BatchPlan
from paretune.specification.container import JobInputs, PreparedDataset
from paretune.specification.job import JobSpec, default_learning_rate
from paretune.specification.metrics import CLASSIFICATION
from paretune.specification.regions import usual_region
from paretune.tracking import schema

if TYPE_CHECKING:
    from paretune.jobs.workplace import Workplace
    from paretune.tracking import Tracking

LEAST_EFFICIENCY, MOST_MEMORY = 0.5, 0.9  # an estimate with less scaling efficiency, or more memory, is warned of
_SAME_JOB = ("model", "dataset", "task", "fine_tuning")
"""Parameters, beside a user's own script, that two jobs share if one of them shows that the other works."""
_SAME_TRAINING = ("entry_script", "project", "entry_point")
_MOST_RUNS = 50
_LEAST_OF_FAIR_SHARE = 0.1  # share of its equal share below which a class is rare: with two classes, 5 % of the rows
_NOTABLY_SCALED = 2.0
_USUAL_WARMUP = 0.06  # Goyal et al. warm up 5 of 90 epochs, Liu et al. (RoBERTa, arXiv 1907.11692) 6 %.


@dataclass(frozen=True, kw_only=True)
class ForeseenJob:
    """A job before its launch, and what is known about it."""

    spec: JobSpec
    plan: BatchPlan  # the batch that it begins with
    region: str  # region of its price
    rows: float | None  # training rows in an epoch; None if unknown
    disk_bytes: float | None  # most bytes on an instance at one time; None if the model is unknown
    price: Price | None  # price of one instance; None if unknown
    estimate_of: Callable[[JobSpec, BatchPlan], Estimate | None]
    """Returns the estimate of this job or a similar one, or None if it cannot be estimated."""
    dataset: PreparedDataset | None = None  # its prepared rows; None if it reads its own
    has_worked: bool | None = None  # whether such a job has completed on an instance; None if the store was not asked

    @cached_property
    def estimate(self) -> Estimate | None:
        """The estimate; raises BadInput if its training arguments do not determine the number of steps."""
        return self.estimate_of(self.spec, self.plan)

    @property
    def devices(self) -> int:
        """Devices of all its instances."""
        return self.spec.processes * self.spec.instance_count


def foreseen(spec: JobSpec, inputs: JobInputs, workplace: "Workplace", *, plan: BatchPlan | None = None) -> ForeseenJob:
    """The facts about a job, except `has_worked`."""
    launcher, forecast = workplace.launcher, workplace.forecast
    price = launcher.price(spec)
    architecture = known_architecture(spec, inputs)
    return ForeseenJob(
        spec=spec,
        plan=plan or spec.plan(),
        region=(price.region if price else "") or usual_region(spec.region, workplace.environment),
        rows=training_rows(spec, None if inputs.dataset is None else inputs.dataset.facts),
        disk_bytes=disk_bytes(spec, inputs, architecture),
        price=price,
        estimate_of=lambda similar, its_plan: forecast.of(similar, its_plan, inputs, price),
        dataset=inputs.dataset,
    )


def disk_bytes(spec: JobSpec, inputs: JobInputs, built: Architecture | None) -> float | None:
    """Bytes on an instance, from the prepared model, else from the architecture; None if both are unknown."""
    if inputs.model is not None:
        return bytes_on_disk(spec, inputs)
    return None if built is None else bytes_of_weights(spec, built)


def has_worked(spec: JobSpec, tracking: "Tracking") -> bool | None:
    """Whether a job like it has completed on an instance, for a simulated one also simulated; None for one instance."""
    if not spec.has_instances or spec.instance_count == 1:
        return None
    origin = "!= 'published'" if spec.is_simulated else "= 'measured'"
    condition = f"tags.`{schema.ORIGIN}` {origin} and tags.`{schema.STATE}` = 'Completed'"
    condition += " and params.instance_type LIKE 'ml.%'"
    texts = spec.as_text()
    shared = {name: texts[name] for name in (_SAME_JOB if spec.project is None else ("project",))}
    condition += "".join(f" and params.{name} = '{text}'" for name, text in shared.items() if "'" not in text)
    try:
        runs = tracking.runs(condition, newest=_MOST_RUNS)
    except TrackingUnavailable:  # recording the job reports it
        return None
    shared |= {name: texts[name] for name in _SAME_TRAINING}
    return any(all(run.params.get(name, "") == text for name, text in shared.items()) for run in runs)


def with_history(jobs: Sequence[ForeseenJob], tracking: "Tracking") -> list[ForeseenJob]:
    """The jobs with `has_worked` from the store; similar jobs are looked up once."""
    worked: dict[tuple[str, ...], bool | None] = {}
    completed = []
    for job in jobs:
        texts = job.spec.as_text()
        key = (*(texts[name] for name in (*_SAME_JOB, *_SAME_TRAINING)), str(job.spec.instance_count > 1))
        if key not in worked:
            worked[key] = has_worked(job.spec, tracking)
        completed.append(replace(job, has_worked=worked[key]))
    return completed


def warnings_of(jobs: Sequence[ForeseenJob], *, only_common: bool = False) -> list[str]:
    """The warnings about these jobs, one sentence for each kind.

    A sentence describes the first job that it is about and counts the others. `only_common` leaves out warnings that
    are not about all jobs, for a search, which finds out itself which of its jobs are bad.
    """
    warnings = []
    for warning in _WARNINGS:
        cases = [(job, text) for job in jobs if job.spec.probe_steps is None and (text := warning(job))]
        if not cases or (only_common and len(cases) < len(jobs)):
            continue
        (first, text), differ = cases[0], len({text for _, text in cases}) > 1
        cluster = f"{first.spec.instance_count} x {first.spec.instance_type}"
        warnings.append(f"{len(cases)} of {len(jobs)} jobs, the first on {cluster}: {text}" if differ else text)
    return [*warnings, *dict.fromkeys(text for job in jobs for text in doubtful_price(job))]


def unscaled_rate(job: ForeseenJob) -> str:
    """Warn if a large batch is trained with the learning rate of a small one."""
    if not is_unscaled(job.spec, job.plan):
        return ""
    size, reference = job.plan.global_batch_size, job.spec.reference_batch_size
    return (
        f"global batch size {size} is above reference_batch_size {reference} and learning rate "
        f"{job.plan.learning_rate:g} is not scaled: fewer steps of the same size usually learn less; "
        f"{options(learning_rate_scaling='sqrt')}, or {options(reference_batch_size=size)} if this rate suits that "
        "batch"
    )


def scaled_rate_without_warmup(job: ForeseenJob) -> str:
    """Warn if the rate of a small batch is scaled to twice its value or more, and applied from the first step on."""
    times = job.plan.learning_rate / job.spec.unscaled_learning_rate
    has_warmup = any(job.spec.training_arguments.get(name) for name in ("warmup_ratio", "warmup_steps"))
    if job.spec.runs_own_training or has_warmup or times < _NOTABLY_SCALED:
        return ""
    return (
        f"learning rate {job.plan.learning_rate:g} is scaled to {times:.3g} times that of batch "
        f"{job.spec.reference_batch_size}: the first steps of such a rate may not converge (Goyal et al., arXiv "
        f"1706.02677); {options(**{'training_arguments.warmup_ratio': _USUAL_WARMUP})}"
    )


def ended_by_its_limit(job: ForeseenJob) -> str:
    """Warn if a job is estimated to take longer than max_runtime_minutes."""
    spec, estimate, limit_s = job.spec, _estimate(job), job.spec.max_runtime_minutes * 60
    if estimate is None or estimate.time.seconds <= limit_s:
        return ""
    if refusal := limit_refusal(job):
        return f"refused when it is launched: {refusal}"
    return (
        f"estimated {_with_interval(estimate)}, and max_runtime_minutes {spec.max_runtime_minutes:g} ends it "
        f"after {duration(limit_s)}: it is paid and leaves no model; {_higher_limit(estimate)}"
    )


def limit_refusal(job: ForeseenJob) -> str:
    """The reason to refuse a job whose whole 80 % interval is above max_runtime_minutes; empty if it may be."""
    spec, estimate = job.spec, _estimate(job)
    if estimate is None or not estimate.exceeds_limit:
        return ""
    least = math.ceil(estimate.time.seconds_low / 60)
    return (
        f"max_runtime_minutes must be at least {least} for this job, got {spec.max_runtime_minutes:g}: it is estimated "
        f"to take {_with_interval(estimate)} and would be paid without leaving a model; {_higher_limit(estimate)}, "
        f"fewer rows or epochs, or {options(force='true')} to launch it all the same"
    )


def _with_interval(estimate: Estimate) -> str:
    time = estimate.time
    interval = f"80 % interval {duration(time.seconds_low)} to {duration(time.seconds_high)}"
    return f"{duration(time.seconds)} ({interval})"


def _higher_limit(estimate: Estimate) -> str:
    return options(max_runtime_minutes=math.ceil(estimate.time.seconds_high / 60))


def full_rate_of_adapters(job: ForeseenJob) -> str:
    """Warn if adapters are trained with a learning rate for full fine-tuning."""
    if not is_full_rate(job.spec):
        return ""
    return (
        f"learning rate {job.spec.unscaled_learning_rate:g} is one for full fine-tuning, and "
        f"fine_tuning={job.spec.fine_tuning} needs about ten times that to learn as much; "
        f"{options(learning_rate=f'{default_learning_rate(job.spec.fine_tuning):g}')}, or leave learning_rate out"
    )


def idle_devices(job: ForeseenJob) -> str:
    """Warn if a batch has fewer rows than there are devices."""
    if job.rows is None or job.plan.devices <= job.rows:
        return ""
    count = f"{job.rows:,.0f} row{'s' if job.rows > 1 else ''}"
    return (
        f"{job.plan.devices} devices share {count} in a batch: the others repeat a row and add nothing; "
        f"{options(max_train_samples=job.plan.global_batch_size)} or more, or fewer devices "
        f"({options(instance_count=1)})"
    )


def rare_class(job: ForeseenJob) -> str:
    """Warn if a class has less than a tenth of the training rows that it would have if all were as frequent."""
    data = job.dataset
    if data is None or job.spec.task != CLASSIFICATION:
        return ""
    train, validation = _class_counts(data, "train"), _class_counts(data, "validation")
    rare = min(range(len(train)), key=train.__getitem__)
    rows, classes, held_out = train[rare], len(train), validation[rare]
    if rows >= _LEAST_OF_FAIR_SHARE * sum(train) / classes:
        return ""
    # One of n rows that is missed lowers the F1 of its class from 1 to 2(n-1) / (2n-1).
    effect = f"one of them moves it by up to {1 / ((2 * held_out - 1) * classes):.2g}" if held_out else "none is in it"
    return (
        f"class {data.labels[rare]!r} has {rows:,} of {sum(train):,} training rows ({rows / sum(train):.1%}) and "
        f"{held_out:,} of {sum(validation):,} validation rows: F1 is the mean over {classes} classes, and {effect}; "
        "bring more rows of this class, in validation_file, too"
    )


def _class_counts(data: PreparedDataset, split: str) -> list[int]:
    """Rows of each of C classes, in the order of their labels; a row must have one class."""
    import pyarrow as pa

    with pa.memory_map(str(data.folder / f"{split}.arrow")) as file:
        counts = pa.ipc.open_file(file).read_all()["label"].value_counts().to_pylist()
    rows = {entry["values"]: entry["counts"] for entry in counts}
    return [rows.get(number, 0) for number in range(len(data.labels))]


def unproven(job: ForeseenJob) -> str:
    """Warn if a job on several instances is the first of its kind on any instance."""
    spec = job.spec
    if job.has_worked is not False:
        return ""
    training = f"{spec.model} on {spec.dataset}" if spec.project is None else spec.project
    return (
        f"instance_count {spec.instance_count}, and no run of {training} has completed on an "
        f"instance yet: a mistake would cost {spec.instance_count} times as much; first {options(instance_count=1)}"
    )


def inefficient(job: ForeseenJob) -> str:
    """Warn if the estimated scaling efficiency is below 50 %."""
    spec, plan, estimate = job.spec, job.plan, _estimate(job)
    if estimate is None or job.devices == 1 or not spec.has_instances:
        return ""
    single = None
    with suppress(BadInput):  # no such job
        single_spec = spec.on_one_device(plan)
        single = job.estimate_of(single_spec, single_spec.plan())
    if single is None or single.fits == "no" or not estimate.time.seconds:
        return ""
    speed_up = single.time.seconds / estimate.time.seconds
    if speed_up >= LEAST_EFFICIENCY * job.devices:
        return ""
    start = estimate.time.startup_seconds
    reason = f", of which {start:.0f} s are start-up" if start > estimate.time.seconds / 2 else ""
    return (
        f"estimated efficiency {speed_up / job.devices:.0%} (below {LEAST_EFFICIENCY:.0%}): {job.devices} devices take "
        f"{estimate.time.seconds:.0f} s{reason}, one would take {single.time.seconds:.0f} s; "
        f"{_with_fewer_devices(spec)}"
    )


def _estimate(job: ForeseenJob) -> Estimate | None:
    """The estimate; None if the training arguments are wrong, which the launch reports."""
    with suppress(BadInput):
        return job.estimate
    return None


def _with_fewer_devices(spec: JobSpec) -> str:
    if spec.instance_count > 1:
        return options(instance_count=1)
    instance = spec.instance()
    smaller = [
        other
        for other in catalog.instances().values()
        if other.family == instance.family and 0 < other.accelerator_count < instance.accelerator_count
    ]
    if not smaller:
        return "take an instance_type with fewer GPUs"
    return options(instance_type=min(smaller, key=lambda other: (other.accelerator_count, other.vcpus)).instance_type)


def nearly_full(job: ForeseenJob) -> str:
    """Warn if the estimated memory of a device is above 90 %."""
    estimate = _estimate(job)
    if estimate is None or estimate.memory.gib <= MOST_MEMORY * estimate.usable_gib:
        return ""
    gib, usable_gib = estimate.memory.gib, estimate.usable_gib
    share = f"{gib:.1f} of {usable_gib:.1f} GiB per device, {gib / usable_gib:.0%}"
    return (
        f"estimated memory {share} (above {MOST_MEMORY:.0%}): a job that runs out of memory is paid until then; "
        f"{_with_less_memory(job)}"
    )


def _with_less_memory(job: ForeseenJob) -> str:
    """The options to type for a job that needs less memory and trains the same."""
    plan = job.plan
    while (smaller := plan.with_less_memory()) is not None:
        plan = smaller
        estimate = job.estimate_of(job.spec, plan)
        if estimate is not None and estimate.memory.gib <= MOST_MEMORY * estimate.usable_gib:
            batch, steps = plan.per_device_train_batch_size, plan.gradient_accumulation_steps
            return options(per_device_train_batch_size=batch, gradient_accumulation_steps=steps)
    if job.spec.fine_tuning == "full":
        return options(fine_tuning="lora")
    return options(max_seq_length=max(4, job.spec.max_seq_length // 2))


def small_disk(job: ForeseenJob) -> str:
    """Warn if sagemaker.volume_size_in_gb is too small for what the job reads and writes, or has no effect."""
    spec = job.spec
    given_gib = spec.sagemaker.volume_size_in_gb
    if given_gib is None or job.disk_bytes is None or not spec.has_instances:
        return ""
    needed, local_gib = least_volume_gib(job.disk_bytes), spec.instance().local_storage_gib
    enlarge = options(**{"sagemaker.volume_size_in_gb": needed})
    if given_gib >= needed:
        return ""
    if local_gib >= needed:
        return (
            f"sagemaker.volume_size_in_gb {given_gib} changes nothing: {spec.instance_type} has disks of its own, "
            f"{local_gib} GiB, and gets no other volume; leave it out"
        )
    return (
        f"sagemaker.volume_size_in_gb {given_gib} is below {needed} GiB, which model, data and checkpoints may take "
        f"with {SPARE_GIB} GiB to spare: a full disk fails a job when most of it is paid; {enlarge}, "
        "or leave it out"
    )


_WARNINGS = (
    *(
        unscaled_rate,
        scaled_rate_without_warmup,
        full_rate_of_adapters,
        idle_devices,
        rare_class,
        unproven,
        inefficient,
    ),
    *(nearly_full, ended_by_its_limit, small_disk),
)


def doubtful_price(job: ForeseenJob) -> list[str]:
    """Warn if the price of an instance is uncertain, old or unknown."""
    if not job.spec.has_instances:
        return []
    return price_remarks(job.price, job.spec.instance_type, job.region, datetime.now(UTC).date())
