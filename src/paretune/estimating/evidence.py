"""What earlier jobs have shown, read from their MLflow runs: seconds, memory, and batches that did not fit.

Nothing is measured for its own sake: every ordinary job, probe and imported run counts.
"""

import gc
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace

from paretune.core.errors import BadInput
from paretune.estimating.architecture import Architecture, well_known
from paretune.estimating.memory import MemorySetting
from paretune.estimating.timing import Measurement
from paretune.estimating.timing_features import JobFeatures, describe
from paretune.spec import metrics
from paretune.spec.batch_size import BatchPlan
from paretune.spec.job import JobSpec
from paretune.tracking import RecordedRun, Tracking, schema

NEWEST = {"params.instance_type = 'local'": 100, "params.instance_type != 'local'": 200}
"""Runs that are read: more would cost every launch more time (1.5 ms each) than they make its estimate better.

Local ones apart, which are many and cheap, so that they do not push out what was paid for or published.
"""
_OUT_OF_MEMORY = {
    "tags.`paretune.failure_reason` LIKE 'out of memory%'": 100,
    "tags.`paretune.out_of_memory_retries` LIKE '%'": 100,
}
_OF_THE_DATA = ("train_rows", "train_tokens", "validation_rows")


@dataclass(frozen=True, kw_only=True)
class DidNotFit:
    """A job that ran out of memory.

    `batch` is its per-device batch, `units_per_row` what the activations of a row grow with, `usable_gib` what a device
    had.
    """

    what: tuple[str, ...]
    dataset: str
    batch: int
    max_seq_length: int
    units_per_row: float
    sharers: tuple[int, int]
    usable_gib: float
    run_id: str

    def rules_out(self, spec: JobSpec, batch: int, memory: MemorySetting, usable_gib: float) -> bool:
        """Whether a job that needs as much, or more, has no more memory."""
        return (
            self.what == _what(spec)
            and batch >= self.batch
            and spec.max_seq_length >= self.max_seq_length
            and (spec.dataset == self.dataset or memory.units / batch >= 0.999 * self.units_per_row)
            and memory.weight_sharers <= self.sharers[0]
            and memory.state_sharers <= self.sharers[1]
            and usable_gib <= self.usable_gib * 1.001
        )


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that is known from earlier jobs; empty where there were none."""

    times: Sequence[Measurement] = ()
    peaks: Sequence[tuple[MemorySetting, float]] = ()
    did_not_fit: Sequence[DidNotFit] = ()

    def runs_like(self, described: JobFeatures) -> tuple[list[Measurement], list[Measurement], list[Measurement]]:
        """Jobs of this model on this cluster, of this model anywhere, and of this accelerator."""
        time = described.time
        of_model = [item for item in self.times if item.setting.model == time.model]
        return (
            [item for item in of_model if item.setting.cluster == time.cluster and item.setting.chip == time.chip],
            of_model,
            [item for item in self.times if item.setting.chip == time.chip],
        )


def collect(tracking: Tracking, *, simulated: bool = False, machine: str = "") -> Evidence:
    """The evidence of the newest runs that have ended, and of those that ran out of memory.

    Args:
        tracking: where the runs are.
        simulated: take simulated runs instead of measured and published ones; the two are never mixed.
        machine: name of this machine; local runs of another one say nothing about it.

    Raises:
        TrackingUnavailable: MLflow does not answer.
    """
    ended = f"tags.`paretune.origin` {'=' if simulated else '!='} 'simulated' and tags.`paretune.state` != 'Running'"
    runs: dict[str, RecordedRun] = {}
    with _without_collecting_garbage():  # MLflow makes a hundred objects a run: three quarters of the time went there
        for condition, newest in (NEWEST | _OUT_OF_MEMORY).items():
            runs |= {run.run_id: run for run in tracking.runs(f"{ended} and {condition}", newest=newest)}
    return read(run for run in runs.values() if not machine or not _is_elsewhere(run, machine))


@contextmanager
def _without_collecting_garbage() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _is_elsewhere(run: RecordedRun, machine: str) -> bool:
    """Whether a run was local to another machine; instances of SageMaker are the same from everywhere."""
    is_local = run.params.get("instance_type", "local") == "local"
    return is_local and run.tags.get("paretune.machine", machine) != machine


def read(runs: Iterable[RecordedRun]) -> Evidence:
    """The evidence of these runs; those that cannot be read, or are not paretune's, are passed over."""
    times: list[Measurement] = []
    peaks: list[tuple[MemorySetting, float]] = []
    did_not_fit: list[DidNotFit] = []
    for run in runs:
        try:
            spec, plan, described = _read(run)
        except (BadInput, ValueError, KeyError):
            continue
        if described is None:
            continue
        did_not_fit += _did_not_fit(run, spec, plan, described)
        if run.tags.get("paretune.state") != "Completed":
            continue
        measured = _time(run, plan, described)
        if measured is not None:
            times.append(measured)
        peak = run.metrics.get(metrics.PEAK_MEMORY_GIB)
        if peak:
            peaks.append((described.memory, peak))
    return Evidence(times=times, peaks=peaks, did_not_fit=did_not_fit)


def _read(run: RecordedRun) -> tuple[JobSpec, BatchPlan, JobFeatures | None]:
    """The job of a run as it really ran: on the type and with the per-device batch that it ended with."""
    if schema.LOGGING in run.tags:
        raise BadInput(["the command of somebody's project may do anything"])
    texts = {item.name: run.params[item.name] for item in fields(JobSpec) if item.name in run.params}
    texts["launcher"] = "auto"  # a simulated cluster is described like a real one
    texts.pop("recorded_runs", None)
    texts.pop("simulation", None)
    spec = JobSpec.from_text(texts)
    if spec.entry_script is not None:
        raise BadInput(["a script of the user's own may do anything"])
    used = run.tags.get("paretune.used_instance_type")
    if used:
        spec = spec.on(used)
    plan = spec.plan()
    batch = run.tags.get("paretune.used_per_device_train_batch_size")
    if batch:
        steps = int(run.tags["paretune.used_gradient_accumulation_steps"])
        plan = replace(plan, per_device_train_batch_size=int(batch), gradient_accumulation_steps=steps)
    built = _built(spec, run.metrics)
    facts = {name: run.metrics[name] for name in _OF_THE_DATA if name in run.metrics}
    return spec, plan, describe(spec, plan, built, facts) if built is not None else None


def _built(spec: JobSpec, measured: Mapping[str, float]) -> Architecture | None:
    """The model of a run: a well-known one, or one whose job has counted its weights."""
    known = well_known(spec.model)
    if known is not None or "total_parameters" not in measured:
        return known
    total = int(measured["total_parameters"])
    return Architecture(
        parameters=total,
        matrices=int(measured.get("matrix_parameters", 0.8 * total)),
        layers=int(measured.get("layers", 12)),
        hidden_size=int(measured.get("hidden_size", 768)),
        vocabulary=int(measured.get("vocabulary", 30_000)),
    )


def _time(run: RecordedRun, plan: BatchPlan, described: JobFeatures) -> Measurement | None:
    """Seconds of the run; of one that was interrupted, tried again or on spot, only those of a step."""
    speed = run.metrics.get(metrics.THROUGHPUT_SAMPLES)
    step = plan.global_batch_size / speed if speed else None
    seconds = run.metrics.get(metrics.BILLABLE_SECONDS)
    undisturbed = "paretune.out_of_memory_retries" not in run.tags and run.params.get("spot", "false") == "false"
    if not undisturbed or run.metrics.get("resumed"):
        seconds = None
    if step is None and seconds is None:
        return None
    if not all(value is None or 0 < value < math.inf for value in (step, seconds)):  # written by somebody else
        return None
    origin = run.tags.get("paretune.origin", "measured")
    return Measurement(setting=described.time, seconds=seconds, step_seconds=step, origin=origin)


def _did_not_fit(run: RecordedRun, spec: JobSpec, plan: BatchPlan, described: JobFeatures) -> list[DidNotFit]:
    """The smallest batch of the run that ran out of memory."""
    reason = run.tags.get("paretune.failure_reason", "")
    batch = None
    if run.tags.get("paretune.state") == "Failed" and reason.startswith("out of memory"):
        batch = plan.per_device_train_batch_size
    elif "paretune.out_of_memory_retries" in run.tags:
        batch = _tried_before(spec.plan(), plan)
    if batch is None or described.usable_gib <= 0:
        return []
    return [
        DidNotFit(
            what=_what(spec),
            dataset=spec.dataset,
            batch=batch,
            max_seq_length=spec.max_seq_length,
            units_per_row=described.memory.units / plan.per_device_train_batch_size,
            sharers=(described.memory.weight_sharers, described.memory.state_sharers),
            usable_gib=described.usable_gib,
            run_id=run.run_id,
        )
    ]


def _tried_before(asked: BatchPlan, used: BatchPlan) -> int | None:
    """The per-device batch from which a lack of memory led to the one that was used; None if nothing did here."""
    step: BatchPlan | None = asked
    while step is not None:
        smaller = step.with_less_memory()
        if smaller is not None and smaller.per_device_train_batch_size == used.per_device_train_batch_size:
            return step.per_device_train_batch_size
        step = smaller
    return None


def _what(spec: JobSpec) -> tuple[str, ...]:
    """What, besides batch, length and cluster, decides how much memory a job needs."""
    return spec.model, spec.task, spec.fine_tuning, spec.precision, spec.compiler
