"""What to know of a job before it is paid for: a function for each warning, with its reason and what mends it.

No warning stops a job. `foreseen` gathers what is known of a job, `warnings_of` says what there is to say of one job or
of many. What is said of a job that has ended is in `notes.verdicts`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

from paretune.core.commands import options
from paretune.core.errors import BadInput, TrackingUnavailable
from paretune.estimating.estimator import Estimate
from paretune.estimating.forecast import Forecast, known_architecture
from paretune.estimating.traced_step import TracedSteps
from paretune.estimating.workload import training_rows
from paretune.jobs.notes.rates import is_full_rate, is_unscaled
from paretune.jobs.workplace import Workplace
from paretune.launchers.storage import SPARE_GIB, bytes_of_weights, bytes_on_disk, least_volume_gib
from paretune.pricing.prices import Price, price_remarks
from paretune.specification import catalog
from paretune.specification.batch_size import BatchPlan
from paretune.specification.container import JobInputs
from paretune.specification.fine_tuning import default_learning_rate
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import single_device_defaults
from paretune.specification.placement import Placement
from paretune.specification.program import OWN_TRAINING
from paretune.specification.regions import usual_region
from paretune.tracking import Tracking, schema

LEAST_EFFICIENCY, MOST_MEMORY = 0.5, 0.9
"""Shares below and above which an estimate is worth a warning."""
_THE_JOB = ("model", "dataset", "task", "fine_tuning")
"""What two jobs have in common of which one shows that the other works, beside a training of the user's own."""
_WHICH_TRAINING = (*OWN_TRAINING, "entry_point")
_MOST_LOOKED_AT = 50


@dataclass(frozen=True, kw_only=True)
class ForeseenJob:
    """A job before its launch, and what is known of it.

    Attributes:
        plan: the batch that it begins with.
        region: of its price.
        rows: that it trains on in an epoch; None where they are not known.
        disk_bytes: most bytes that lie on an instance at one time; None where the model is not known.
        price: of one instance; None where it is not known.
        estimate_of: the estimate of this job or one like it; None where none can be made.
        has_worked: whether such a job has completed on an instance; None where nobody has looked.
    """

    spec: JobSpec
    plan: BatchPlan
    region: str
    rows: float | None
    disk_bytes: float | None
    price: Price | None
    estimate_of: Callable[[JobSpec, BatchPlan], Estimate | None]
    has_worked: bool | None = None

    @cached_property
    def estimate(self) -> Estimate | None:
        """What it is predicted to take; BadInput where its training arguments say no number of steps."""
        return self.estimate_of(self.spec, self.plan)

    @property
    def devices(self) -> int:
        """Devices of all its instances, which are paid whatever they do."""
        return self.spec.processes * self.spec.instance_count


def foreseen(
    spec: JobSpec, inputs: JobInputs, workplace: Workplace, *, plan: BatchPlan | None = None, with_store: bool = True
) -> ForeseenJob:
    """What is known of a job but for `has_worked`; its estimate without the MLflow store, if need be."""
    launcher = workplace.launcher
    forecast = workplace.forecast if with_store else Forecast(None, steps=TracedSteps(workplace.home))
    price = launcher.price(spec)
    built = known_architecture(spec, inputs)
    return ForeseenJob(
        spec=spec,
        plan=plan or spec.plan(),
        region=(price.region if price else "") or usual_region(spec.region, workplace.environment),
        rows=training_rows(spec, None if inputs.dataset is None else inputs.dataset.facts),
        disk_bytes=disk_bytes(spec, inputs, None if built is None else built.parameters),
        price=price,
        estimate_of=lambda one, its_plan: forecast.of(one, its_plan, inputs, price),
    )


def disk_bytes(spec: JobSpec, inputs: JobInputs, parameters: int | None) -> float | None:
    """Bytes on an instance, from what was prepared, else from the number of weights; None where that is unknown."""
    if inputs.model is not None:
        return bytes_on_disk(spec, inputs)
    return None if parameters is None else bytes_of_weights(spec, parameters)


def has_worked(spec: JobSpec, tracking: Tracking) -> bool | None:
    """Whether a job of the same model, data and script has completed on an instance; None for one instance.

    A simulated job shows only that another simulated one works.
    """
    if not spec.has_instances or spec.instance_count == 1:
        return None
    origin = "!= 'published'" if spec.is_simulated else "= 'measured'"
    condition = f"tags.`{schema.ORIGIN}` {origin} and tags.`{schema.STATE}` = 'Completed'"
    condition += " and params.instance_type LIKE 'ml.%'"
    texts = spec.as_text()
    alike = {name: texts[name] for name in (_THE_JOB if spec.project is None else ("project",))}
    condition += "".join(f" and params.{name} = '{text}'" for name, text in alike.items() if "'" not in text)
    try:
        found = tracking.runs(condition, newest=_MOST_LOOKED_AT)
    except TrackingUnavailable:  # the job's own record will say so
        return None
    wanted = {**alike, **{name: texts[name] for name in _WHICH_TRAINING}}
    return any(all(run.params.get(name, "") == text for name, text in wanted.items()) for run in found)


def with_history(jobs: Sequence[ForeseenJob], tracking: Tracking) -> list[ForeseenJob]:
    """The jobs with what the store says of earlier ones; jobs that are alike are looked up once."""
    known: dict[tuple[str, ...], bool | None] = {}
    found = []
    for job in jobs:
        texts = job.spec.as_text()
        alike = (*(texts[name] for name in (*_THE_JOB, *_WHICH_TRAINING)), str(job.spec.instance_count > 1))
        if alike not in known:
            known[alike] = has_worked(job.spec, tracking)
        found.append(replace(job, has_worked=known[alike]))
    return found


def warnings_of(jobs: Sequence[ForeseenJob], *, only_common: bool = False) -> list[str]:
    """What to know of jobs before they are paid for, a sentence for each kind of warning.

    Of several jobs the first one that a warning is about is described, and the others are counted. With `only_common`,
    for a search that finds out itself what is bad, only that which is true of all of them.
    """
    found = []
    for warning in (unscaled_rate, full_rate_of_adapters, idle_devices, unproven, inefficient, nearly_full, small_disk):
        said = [(job, text) for job in jobs if job.spec.probe_steps is None and (text := warning(job))]
        if not said or (only_common and len(said) < len(jobs)):
            continue
        (first, text), others = said[0], len({text for _, text in said}) > 1
        cluster = f"{first.spec.instance_count} x {first.spec.instance_type}"
        found.append(f"{len(said)} of {len(jobs)} jobs, the first on {cluster}: {text}" if others else text)
    return [*found, *dict.fromkeys(text for job in jobs for text in doubtful_price(job))]


def unscaled_rate(job: ForeseenJob) -> str:
    """That a large batch is trained with the rate of a small one, unless somebody has raised it by hand."""
    if not is_unscaled(job.spec, job.plan):
        return ""
    size, reference = job.plan.global_batch_size, job.spec.reference_batch_size
    return (
        f"global batch size {size} is above reference_batch_size {reference} and learning rate "
        f"{job.plan.learning_rate:g} is not scaled: fewer steps of the same size usually learn less; "
        f"{options(learning_rate_scaling='sqrt')}, or {options(reference_batch_size=size)} if this rate suits that "
        "batch"
    )


def full_rate_of_adapters(job: ForeseenJob) -> str:
    """That adapters are trained with a learning rate that is nearer to that of full fine-tuning than to their own."""
    if not is_full_rate(job.spec):
        return ""
    return (
        f"learning rate {job.spec.unscaled_learning_rate:g} is one for full fine-tuning, and "
        f"fine_tuning={job.spec.fine_tuning} needs about ten times that to learn as much; "
        f"{options(learning_rate=f'{default_learning_rate(job.spec.fine_tuning):g}')}, or leave learning_rate out"
    )


def idle_devices(job: ForeseenJob) -> str:
    """That some devices have no row of their own in any step."""
    if job.rows is None or job.plan.devices <= job.rows:
        return ""
    count = f"{job.rows:,.0f} row{'s' if job.rows > 1 else ''}"
    return (
        f"{job.plan.devices} devices share {count} in a batch: the others repeat a row and add nothing; "
        f"{options(max_train_samples=job.plan.global_batch_size)} or more, or fewer devices "
        f"({options(instance_count=1)})"
    )


def unproven(job: ForeseenJob) -> str:
    """That a job on several instances is the first of its kind on any: each of them pays for a mistake."""
    spec = job.spec
    if job.has_worked is not False:
        return ""
    what = f"{spec.model} on {spec.dataset}" if spec.project is None else spec.project
    return (
        f"instance_count {spec.instance_count}, and no run of {what} has completed on an "
        f"instance yet: a mistake would cost {spec.instance_count} times as much; first {options(instance_count=1)}"
    )


def inefficient(job: ForeseenJob) -> str:
    """That several devices are estimated to be less than half as fast as that many could be, if one could do it."""
    spec, plan, own = job.spec, job.plan, _predicted(job)
    if own is None or job.devices == 1 or not spec.has_instances:
        return ""
    alone = None
    with suppress(BadInput):  # no such job
        on_one = on_one_device(spec, plan)
        alone = job.estimate_of(on_one, on_one.plan())
    if alone is None or alone.fits == "no" or not own.time.seconds:
        return ""
    speed_up = alone.time.seconds / own.time.seconds
    if speed_up >= LEAST_EFFICIENCY * job.devices:
        return ""
    start = own.time.startup_seconds
    why = f", of which {start:.0f} s are start-up" if start > own.time.seconds / 2 else ""
    return (
        f"estimated efficiency {speed_up / job.devices:.0%} (below {LEAST_EFFICIENCY:.0%}): {job.devices} devices take "
        f"{own.time.seconds:.0f} s{why}, one would take {alone.time.seconds:.0f} s; {_with_fewer_devices(spec)}"
    )


def _predicted(job: ForeseenJob) -> Estimate | None:
    """The estimate; None where the job's arguments make none, which its launch says."""
    with suppress(BadInput):
        return job.estimate
    return None


def on_one_device(spec: JobSpec, plan: BatchPlan) -> JobSpec:
    """The same training on one device of the same type."""
    return spec.replace(
        **single_device_defaults(),
        instance_count=1,
        processes_per_instance=1,
        fallback_instance_types=None,
        global_batch_size=plan.global_batch_size,
        per_device_train_batch_size=plan.per_device_train_batch_size,
        gradient_accumulation_steps=None,
    )


def _with_fewer_devices(spec: Placement) -> str:
    """What to type for a cluster of fewer devices."""
    if spec.instance_count > 1:
        return options(instance_count=1)
    own = spec.instance()
    known = [one for one in catalog.instances().values() if one.family == own.family and one.accelerator_count]
    smaller = [one for one in known if one.accelerator_count < own.accelerator_count]
    if not smaller:
        return "take an instance_type with fewer GPUs"
    return options(instance_type=min(smaller, key=lambda one: (one.accelerator_count, one.vcpus)).instance_type)


def nearly_full(job: ForeseenJob) -> str:
    """That a device has hardly enough memory, or too little, by the estimate."""
    found = _predicted(job)
    if found is None or found.memory.gib <= MOST_MEMORY * found.usable_gib:
        return ""
    share = (
        f"{found.memory.gib:.1f} of {found.usable_gib:.1f} GiB per device, {found.memory.gib / found.usable_gib:.0%}"
    )
    return (
        f"estimated memory {share} (above {MOST_MEMORY:.0%}): a job that runs out of memory is paid until then; "
        f"{_with_less_memory(job)}"
    )


def _with_less_memory(job: ForeseenJob) -> str:
    """What to type for a job that needs less memory and trains the same."""
    plan = job.plan
    while (smaller := plan.with_less_memory()) is not None:
        plan = smaller
        found = job.estimate_of(job.spec, plan)
        if found is not None and found.memory.gib <= MOST_MEMORY * found.usable_gib:
            batch, steps = plan.per_device_train_batch_size, plan.gradient_accumulation_steps
            return options(per_device_train_batch_size=batch, gradient_accumulation_steps=steps)
    if job.spec.fine_tuning == "full":
        return options(fine_tuning="lora")
    return options(max_seq_length=max(4, job.spec.max_seq_length // 2))


def small_disk(job: ForeseenJob) -> str:
    """That a volume is smaller than what the job reads and writes, or that there is none for an instance with disks."""
    spec = job.spec
    if spec.volume_gib is None or job.disk_bytes is None or not spec.has_instances:
        return ""
    needed, own = least_volume_gib(job.disk_bytes), spec.instance().local_storage_gib
    if spec.volume_gib >= needed:
        return ""
    if own >= needed:
        return (
            f"volume_gib {spec.volume_gib} changes nothing: {spec.instance_type} has disks of its own, {own} GiB, and "
            "gets no other volume; leave it out"
        )
    return (
        f"volume_gib {spec.volume_gib} is below {needed} GiB, which model, data and checkpoints may take with "
        f"{SPARE_GIB} GiB to spare: a full disk fails a job when most of it is paid; {options(volume_gib=needed)}, "
        "or leave it out"
    )


def doubtful_price(job: ForeseenJob) -> list[str]:
    """That the price of an instance is uncertain, old or not known."""
    if not job.spec.has_instances:
        return []
    return price_remarks(job.price, job.spec.instance_type, job.region, datetime.now(UTC).date())
