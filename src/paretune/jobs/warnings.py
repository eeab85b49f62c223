"""Warnings and refusals about a job before it is paid for, from its price, its estimate and its inputs.

Warnings never stop a launch, but `limit_refusal` can.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from paretune.core.errors import BadInput
from paretune.core.shell import options
from paretune.estimating.estimator import Estimate
from paretune.estimating.forecast import known_architecture
from paretune.estimating.workload import whole_argument
from paretune.jobs.workplace import Workplace
from paretune.launchers.disk import SPARE_GIB, bytes_on_disk, least_volume_gib
from paretune.launchers.offers import region_of
from paretune.presentation.text import duration
from paretune.pricing import price_remarks
from paretune.specification.container import Command, JobInputs
from paretune.specification.job import JobSpec, default_learning_rate
from paretune.specification.parallelism import OF_THE_BATCH, REFERENCE_BATCH_SIZE, BatchPlan
from paretune.specification.price import Price

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
    launcher, built = workplace.launcher, known_architecture(spec.model, spec.task, inputs.model)
    return ForeseenJob(
        spec=spec,
        region=region_of(spec, launcher, workplace.environment),
        disk_bytes=None if inputs.model is None and built is None else bytes_on_disk(spec, inputs, built),
        price=launcher.price(spec),
        estimate=_estimate(spec, inputs, workplace),
        command=inputs.command,
    )


def _estimate(spec: JobSpec, inputs: JobInputs, workplace: Workplace) -> Estimate | None:
    """Return the estimate of a job, whose batch fits on each of its instance types if the job leaves its batch open."""
    forecast, price = workplace.forecast, workplace.launcher.price
    estimate = forecast.of(spec, inputs, price)
    if not spec.leaves_batch_open or estimate is None:
        return estimate
    fewest = estimate.plan.per_device_train_batch_size
    for moved in (each.replace(per_device_train_batch_size=None) for each in spec.clusters()[1:]):
        other = forecast.of(moved, inputs, price)
        if other is not None and other.plan != moved.plan():
            fewest = min(fewest, other.plan.per_device_train_batch_size)
    if fewest == estimate.plan.per_device_train_batch_size:
        return estimate
    return forecast.of(spec, inputs, price, plan=estimate.plan.in_parts(fewest))


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


def data_warnings(spec: JobSpec, inputs: JobInputs) -> list[str]:
    """Return warnings about the rows of a job, including one if a global batch has more rows than an epoch.

    That one is left out if max_steps sets the number of steps.
    """
    rows, size = (inputs.dataset.facts if inputs.dataset else {}).get("train_rows"), spec.plan().global_batch_size
    if rows is None or size <= rows or whole_argument(spec.training_arguments, "max_steps"):
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
