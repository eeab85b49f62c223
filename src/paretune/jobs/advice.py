"""Warnings about a job before it is paid for, of which only `limit_refusal` stops it; verdicts on its model after it.

Verdicts are printed at the end of the job, are the tag `paretune.verdict` of its run, and are part of its note. A study
prints those of the jobs that it recommends.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from paretune.core.commands import options
from paretune.estimating.architecture import Architecture
from paretune.estimating.estimator import Estimate, TimeEstimate, known_architecture
from paretune.estimating.noise import binomial_error
from paretune.launchers.storage import SPARE_GIB, bytes_of_weights, bytes_on_disk, host_bytes, least_volume_gib
from paretune.presentation.numbers import duration
from paretune.pricing.prices import Price, price_remarks
from paretune.specification import metrics
from paretune.specification.catalog import usual_region
from paretune.specification.container import JobInputs
from paretune.specification.job import JobSpec, default_learning_rate
from paretune.specification.parallelism import BatchPlan

if TYPE_CHECKING:
    from paretune.jobs.workplace import Workplace

MOST_MEMORY = 0.9  # share of a device's memory; an estimate above it is warned of
_COUNTING_MODEL = {metrics.TOKEN_CLASSIFICATION: "the most frequent label of each word"}
"""Task to its baseline, where that is not TF-IDF with logistic regression."""
_TRIVIAL_ANSWERS = {
    metrics.CLASSIFICATION: "always answering the most frequent class",
    metrics.MULTI_LABEL: "always answering the most frequent set of labels",
}
_TIMES_THE_EPOCHS = 3
_ROUNDED_DOWN = 0.9  # share of a scaled learning rate from which on a rate counts as scaled by hand and rounded
_USUAL_RATES = (0.3, 30.0)  # times the default learning rate; one outside is the first suspect if nothing was learnt


@dataclass(frozen=True, kw_only=True)
class ForeseenJob:
    """A job before its launch, and what is known about it."""

    spec: JobSpec
    region: str  # region of its price
    disk_bytes: float | None  # most bytes on an instance at one time; None if the model is unknown
    price: Price | None  # price of one instance; None if unknown
    estimate: TimeEstimate | None  # None if its model or its rows are unknown, or its own training has never run
    host_bytes: tuple[float, float] | None = None  # most bytes of main memory while a known model is loaded, and saved


def foreseen(spec: JobSpec, inputs: JobInputs, workplace: "Workplace") -> ForeseenJob:
    """The facts about a job; raises BadInput if its training arguments do not determine the number of steps."""
    price, built = workplace.launcher.price(spec), known_architecture(spec, inputs)
    return ForeseenJob(
        spec=spec,
        region=(price.region if price else "") or usual_region(spec.region, workplace.environment),
        disk_bytes=disk_bytes(spec, inputs, built),
        host_bytes=None if built is None or spec.runs_own_training else host_bytes(spec, built),
        price=price,
        estimate=workplace.estimate(spec, inputs),
    )


def disk_bytes(spec: JobSpec, inputs: JobInputs, built: Architecture | None) -> float | None:
    """Bytes on an instance, from the prepared model, else from the architecture; None if both are unknown."""
    if inputs.model is not None:
        return bytes_on_disk(spec, inputs)
    return None if built is None else bytes_of_weights(spec, built)


def warnings_of(jobs: Sequence[ForeseenJob], *, only_common: bool = False) -> list[str]:
    """The warnings about these jobs, one sentence for each kind.

    A sentence describes the first job that it is about and counts the others. `only_common` leaves out warnings that
    are not about all jobs, for a search, which finds out itself which of its jobs are bad.
    """
    warnings = []
    for warning in (unscaled_rate, nearly_full, ended_by_its_limit, small_disk):
        cases = [(job, text) for job in jobs if job.spec.probe_steps is None and (text := warning(job))]
        if not cases or (only_common and len(cases) < len(jobs)):
            continue
        (first, text), differ = cases[0], len({text for _, text in cases}) > 1
        cluster = f"{first.spec.instance_count} x {first.spec.instance_type}"
        warnings.append(f"{len(cases)} of {len(jobs)} jobs, the first on {cluster}: {text}" if differ else text)
    return [*warnings, *dict.fromkeys(text for job in jobs for text in doubtful_price(job))]


def unscaled_rate(job: ForeseenJob) -> str:
    """Warn if a large batch is trained with the learning rate of a small one."""
    plan = job.spec.plan()
    if not is_unscaled(job.spec, plan):
        return ""
    size, reference = plan.global_batch_size, job.spec.reference_batch_size
    return (
        f"global batch size {size} is above reference_batch_size {reference} and learning rate "
        f"{plan.learning_rate:g} is not scaled: fewer steps of the same size usually learn less; "
        f"{options(learning_rate_scaling='sqrt')}, or {options(reference_batch_size=size)} if this rate suits that "
        "batch"
    )


def ended_by_its_limit(job: ForeseenJob) -> str:
    """Warn if a job is estimated to take longer than max_runtime_minutes."""
    spec, estimate, limit_s = job.spec, job.estimate, job.spec.max_runtime_minutes * 60
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
    spec, estimate = job.spec, job.estimate
    if estimate is None or not estimate.exceeds_limit:
        return ""
    least = math.ceil(estimate.time.seconds_low / 60)
    return (
        f"max_runtime_minutes must be at least {least} for this job, got {spec.max_runtime_minutes:g}: it is estimated "
        f"to take {_with_interval(estimate)} and would be paid without leaving a model; {_higher_limit(estimate)}, "
        f"fewer rows or epochs, or {options(force='true')} to launch it all the same"
    )


def _with_interval(estimate: TimeEstimate) -> str:
    time = estimate.time
    interval = f"80 % interval {duration(time.seconds_low)} to {duration(time.seconds_high)}"
    return f"{duration(time.seconds)} ({interval})"


def _higher_limit(estimate: TimeEstimate) -> str:
    return options(max_runtime_minutes=math.ceil(estimate.time.seconds_high / 60))


def nearly_full(job: ForeseenJob) -> str:
    """Warn if an earlier job ran out of memory although it needed no more, or if 90 % of a device are estimated."""
    estimate = job.estimate
    if not isinstance(estimate, Estimate):
        return ""
    gib, usable_gib, failed = estimate.memory.gib, estimate.usable_gib, estimate.did_not_fit
    if failed is None and gib <= MOST_MEMORY * usable_gib:
        return ""
    reason = f"estimated memory {gib:.1f} of {usable_gib:.1f} GiB per device (above {MOST_MEMORY:.0%})"
    if failed is not None:
        reason = f"per-device batch {failed.rows} ran out of memory on as much memory before (run {failed.run_id})"
    mended = options(fine_tuning="lora") if job.spec.fine_tuning == "full" else "a shorter max_seq_length"
    if (smaller := job.spec.plan().with_less_memory()) is not None:
        batch, steps = smaller.per_device_train_batch_size, smaller.gradient_accumulation_steps
        mended = options(per_device_train_batch_size=batch, gradient_accumulation_steps=steps)
    if estimate.largest_batch == 0:
        other = "a larger instance" if job.spec.fine_tuning == "qlora" else options(fine_tuning="qlora")
        mended = f"no batch fits: {other}, or a strategy that divides the model"
    return f"{reason}: a job that runs out of memory is paid until then; {mended}"


def small_disk(job: ForeseenJob) -> str:
    """Warn if sagemaker.volume_size_in_gb is too small for what the job reads and writes."""
    spec, given_gib = job.spec, job.spec.sagemaker.volume_size_in_gb
    if given_gib is None or job.disk_bytes is None or not spec.has_instances:
        return ""
    needed = least_volume_gib(job.disk_bytes)
    if max(given_gib, spec.instance().local_storage_gib) >= needed:
        return ""
    return (
        f"sagemaker.volume_size_in_gb {given_gib} is below {needed} GiB, which model, data and checkpoints may take "
        f"with {SPARE_GIB} GiB to spare: a full disk fails a job when most of it is paid; "
        f"{options(**{'sagemaker.volume_size_in_gb': needed})}, or leave it out"
    )


def doubtful_price(job: ForeseenJob) -> list[str]:
    """Warn if the price of an instance is uncertain, old or unknown."""
    if not job.spec.has_instances:
        return []
    return price_remarks(job.price, job.spec.instance_type, job.region, datetime.now(UTC).date())


def verdicts(spec: JobSpec, values: Mapping[str, float]) -> list[str]:
    """A verdict on a completed job if its model is no better than a constant answer, or worse than TF-IDF.

    `values` are metrics of the job and baselines of its data. A difference to TF-IDF below the standard error of so few
    validation rows shows nothing. A script or a project, whose F1 is computed elsewhere, is not judged.
    """
    if spec.runs_own_training:
        return []
    task = metrics.TASKS[spec.task]
    measured, counted, trivial = (values.get(name or "") for name in (task.quality, task.baseline, task.trivial))
    if measured is None:
        return []
    if trivial is not None and measured <= trivial:
        comparison = f"no better than {trivial:.4f}, which {_TRIVIAL_ANSWERS[spec.task]} reaches"
        meaning = "the model has learnt nothing"
    elif counted is not None and measured < counted:
        rows = int(values.get("validation_rows", 0))
        is_shown = abs(measured - counted) >= (binomial_error(measured, rows) if rows > 0 else 0.0)
        model = _COUNTING_MODEL.get(spec.task, "TF-IDF with logistic regression")
        comparison = (
            f"{'below' if is_shown else 'no better than'} {counted:.4f}, which {model} reaches on the same rows"
        )
        meaning = "the model has not learnt what single words tell"
        if not is_shown:
            meaning = "whether the model has learnt more than single words tell is not shown"
    else:
        return []
    remedies, usual = [], default_learning_rate(spec.fine_tuning)
    lowest, highest = _USUAL_RATES
    if not lowest * usual <= spec.unscaled_learning_rate <= highest * usual:
        remedies.append(options(learning_rate=f"{usual:g}"))
    elif is_unscaled(spec, spec.plan()):
        remedies.append(options(learning_rate_scaling="sqrt"))
    if spec.fine_tuning == "head":
        remedies.append(options(fine_tuning="full"))
    remedies.append(options(num_train_epochs=f"{_TIMES_THE_EPOCHS * spec.num_train_epochs:g}"))
    return [f"F1 {measured:.4f} is {comparison}: {meaning}; try {', '.join(remedies)}"]


def is_unscaled(spec: JobSpec, plan: BatchPlan) -> bool:
    """Whether a large batch is trained with the rate of a small one, and nobody has raised it by hand."""
    size, reference = plan.global_batch_size, spec.reference_batch_size
    usual = default_learning_rate(spec.fine_tuning) * (size / reference) ** 0.5
    return spec.learning_rate_scaling == "none" and size > reference and plan.learning_rate < _ROUNDED_DOWN * usual
