"""What earlier jobs have shown, read from their MLflow runs: seconds, memory, and batches that did not fit.

Nothing is measured for its own sake: every ordinary job, probe and imported run counts.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from paretune.core.errors import BadInput
from paretune.estimating.architecture import Architecture, config_in, well_known
from paretune.estimating.memory import MemorySetting
from paretune.estimating.memory_limits import Footprint
from paretune.estimating.timing import Measurement
from paretune.estimating.timing_features import USED_TOKENS, JobFeatures, describe
from paretune.estimating.traced_step import TracedSteps
from paretune.specification import metrics
from paretune.specification.batch_size import BatchPlan
from paretune.specification.fine_tuning import ADAPTERS
from paretune.specification.job import JobSpec
from paretune.tracking import RecordedJob, RecordedRun, Tracking, schema

NEWEST = {"params.instance_type = 'local'": 100, "params.instance_type != 'local'": 200}
"""Runs that are read: more would cost every launch more time (1.5 ms each) than they make its estimate better.

Local ones apart, which are many and cheap, so that they do not push out what was paid for or published.
"""
_OUT_OF_MEMORY = {
    f"tags.`{schema.FAILURE_REASON}` LIKE 'out of memory%'": 100,
    f"tags.`{schema.OUT_OF_MEMORY_RETRIES}` LIKE '%'": 100,
}
_OF_THE_DATA = ("train_rows", "train_tokens", "validation_rows", USED_TOKENS)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that is known from earlier jobs; empty where there were none."""

    times: Sequence[Measurement] = ()
    peaks: Sequence[tuple[MemorySetting, float]] = ()
    did_not_fit: Sequence[Footprint] = ()

    def runs_like(self, described: JobFeatures) -> tuple[list[Measurement], list[Measurement], list[Measurement]]:
        """Jobs of this model on this cluster, of this model anywhere, and of this accelerator."""
        time = described.time
        of_model = [item for item in self.times if item.setting.model == time.model]
        here = [item for item in of_model if (item.setting.cluster, item.setting.chip) == (time.cluster, time.chip)]
        return here, of_model, [item for item in self.times if item.setting.chip == time.chip]


def collect(
    tracking: Tracking, *, simulated: bool = False, machine: str = "", steps: TracedSteps | None = None
) -> Evidence:
    """The evidence of the newest runs that have ended, and of those that ran out of memory.

    With `simulated`, simulated runs are taken instead of measured and published ones; the two are never mixed.
    `machine` is the name of this one: local runs of another one say nothing about it. `steps` are those that were
    traced, which measured memory is compared with.

    Raises:
        TrackingUnavailable: MLflow does not answer.
    """
    ended = f"tags.`{schema.ORIGIN}` {'=' if simulated else '!='} 'simulated' and tags.`{schema.STATE}` != 'Running'"
    runs: dict[str, RecordedRun] = {}
    for condition, newest in (NEWEST | _OUT_OF_MEMORY).items():
        runs |= {run.run_id: run for run in tracking.runs(f"{ended} and {condition}", newest=newest)}
    return read((run for run in runs.values() if not machine or not _is_elsewhere(run, machine)), steps)


def _is_elsewhere(run: RecordedRun, machine: str) -> bool:
    """Whether a run was local to another machine; instances of SageMaker are the same from everywhere."""
    job = RecordedJob(run)
    return job.param("instance_type") in {"", "local"} and (job.cluster.machine or machine) != machine


def read(runs: Iterable[RecordedRun], steps: TracedSteps | None = None) -> Evidence:
    """The evidence of these runs; those that cannot be read, or are not paretune's, are passed over."""
    times: list[Measurement] = []
    peaks: list[tuple[MemorySetting, float]] = []
    did_not_fit: list[Footprint] = []
    for job in map(RecordedJob, runs):
        try:
            spec, plan, described = _read(job, steps)
        except (BadInput, ValueError, KeyError):
            continue
        if described is None:
            continue
        did_not_fit += _did_not_fit(job, spec, plan, described)
        if not job.is_completed:
            continue
        if job.is_of_shared_job and spec.fine_tuning in ADAPTERS:  # side by side, perhaps: its step was that of several
            continue
        if (measured := _time(job, plan, described)) is not None:
            times.append(measured)
        if not job.param("profile_steps") and (peak := job.metric(metrics.PEAK_MEMORY_GIB)):  # or the trace is in it
            peaks.append((described.memory, peak))
    return Evidence(times=times, peaks=peaks, did_not_fit=did_not_fit)


def _read(job: RecordedJob, steps: TracedSteps | None) -> tuple[JobSpec, BatchPlan, JobFeatures | None]:
    """The job of a run as it really ran: on the type and with the per-device batch that it ended with."""
    spec = job.request.spec_as_run()
    if spec.runs_own_training:
        raise BadInput(["a script of the user's own may do anything"])
    if job.request.used_precision and spec.has_instances and spec.instance().has_gpu:
        spec = replace(spec, precision=job.request.used_precision)  # `auto` may have gone on in fp32
    plan, measured = job.request.used_plan(spec), job.run.metrics
    built = _built(spec, measured)
    facts = {name: measured[name] for name in _OF_THE_DATA if name in measured}
    return spec, plan, describe(spec, plan, built, facts, steps) if built is not None else None


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
        config=config_in(spec.model),
    )


def _time(job: RecordedJob, plan: BatchPlan, described: JobFeatures) -> Measurement | None:
    """Seconds of the run; of one that was interrupted, tried again, profiled or on spot, only those of a step."""
    speed = job.metric(metrics.THROUGHPUT_SAMPLES)
    step = plan.global_batch_size / speed if speed else None
    is_whole = not (job.was_retried or job.cluster.is_spot or job.metric("resumed") or job.param("profile_steps"))
    is_whole = is_whole and not job.is_of_shared_job  # which has one start-up for all
    seconds = job.bill.billable_seconds if is_whole else None
    if step is None and seconds is None:
        return None
    if not all(value is None or 0 < value < math.inf for value in (step, seconds)):  # written by somebody else
        return None
    return Measurement(setting=described.time, seconds=seconds, step_seconds=step, origin=job.origin)


def _did_not_fit(job: RecordedJob, spec: JobSpec, plan: BatchPlan, described: JobFeatures) -> list[Footprint]:
    """The smallest batch of the run that ran out of memory."""
    batch = None
    if job.ran_out_of_memory:
        batch = plan.per_device_train_batch_size
    elif job.was_retried:
        batch = _tried_before(spec.plan(), plan)
    if batch is None or described.usable_gib <= 0:
        return []
    return [replace(Footprint.of(spec, plan, described.memory), rows=batch, run_id=job.run_id)]


def _tried_before(asked: BatchPlan, used: BatchPlan) -> int | None:
    """The per-device batch from which a lack of memory led to the one that was used; None if nothing did here."""
    step = asked
    while (smaller := step.with_less_memory()) is not None:
        if smaller.per_device_train_batch_size == used.per_device_train_batch_size:
            return step.per_device_train_batch_size
        step = smaller
    return None
