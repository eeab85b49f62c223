"""Evidence from earlier jobs, read from their MLflow runs: seconds, memory, and batches that did not fit.

Every ordinary job, probe and imported run counts.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paretune.core.errors import BadInput
from paretune.estimating.architecture import Architecture, config_in, well_known
from paretune.estimating.features import Footprint, JobFeatures, describe
from paretune.estimating.memory import MemorySetting
from paretune.estimating.timing import Measurement
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import BatchPlan
from paretune.tracking import RecordedJob, RecordedRun, schema

if TYPE_CHECKING:
    from paretune.tracking import Tracking

NEWEST = {"params.instance_type = 'local'": 100, "params.instance_type != 'local'": 200}
"""Numbers of runs that are read: more would cost every launch more time (1.5 ms each) than they improve its estimate.

Local runs have a limit of their own, so that many cheap ones do not push out paid or published ones.
"""
_OUT_OF_MEMORY = {
    f"tags.`{schema.FAILURE_REASON}` LIKE 'out of memory%'": 100,
    f"tags.`{schema.OUT_OF_MEMORY_RETRIES}` LIKE '%'": 100,
}
_DATA_FACTS = ("train_rows", "train_tokens", "validation_rows")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Measurements from earlier jobs; may be empty."""

    times: Sequence[Measurement] = ()
    peaks: Sequence[tuple[MemorySetting, float]] = ()
    did_not_fit: Sequence[Footprint] = ()

    def runs_like(self, described: JobFeatures) -> tuple[list[Measurement], list[Measurement], list[Measurement]]:
        """Return jobs of this model on this cluster, of this model anywhere, and of any model on this accelerator."""
        time = described.time
        of_model = [item for item in self.times if item.setting.model == time.model]
        here = [item for item in of_model if (item.setting.cluster, item.setting.chip) == (time.cluster, time.chip)]
        return here, of_model, [item for item in self.times if item.setting.chip == time.chip]


def collect(tracking: "Tracking", *, simulated: bool = False, machine: str = "") -> Evidence:
    """Return the evidence of the newest runs that have ended, and of those that ran out of memory.

    Simulated runs are read only for jobs that are `simulated`, too: their clock follows estimates from the other runs.
    `machine` is the name of this machine; local runs of others are ignored.

    Raises:
        TrackingUnavailable: MLflow does not answer.
    """
    runs: dict[str, RecordedRun] = {}
    for is_origin in ("!=", "=") if simulated else ("!=",):
        finished = f"tags.`{schema.ORIGIN}` {is_origin} 'simulated' and tags.`{schema.STATE}` != 'Running'"
        for condition, newest in (NEWEST | _OUT_OF_MEMORY).items():
            runs |= {run.run_id: run for run in tracking.runs(f"{finished} and {condition}", newest=newest)}
    return read(run for run in runs.values() if not machine or not _ran_on_another_machine(run, machine))


def _ran_on_another_machine(run: RecordedRun, machine: str) -> bool:
    """Whether a run was local to another machine; SageMaker instances are the same from everywhere."""
    job = RecordedJob(run)
    return job.param("instance_type") in {"", "local"} and (job.machine or machine) != machine


def read(runs: Iterable[RecordedRun]) -> Evidence:
    """Return the evidence of these runs; those that cannot be read, or run other trainings, are skipped."""
    times: list[Measurement] = []
    peaks: list[tuple[MemorySetting, float]] = []
    did_not_fit: list[Footprint] = []
    for job in map(RecordedJob, runs):
        try:
            spec, plan, described = _read(job)
        except (BadInput, ValueError, KeyError):
            continue
        if described is None:
            continue
        did_not_fit += _did_not_fit(job, spec, plan, described)
        if not job.is_completed:
            continue
        if (measured := _time(job, plan, described)) is not None:
            times.append(measured)
        if not job.param("profile_steps") and (peak := job.metric(metrics.PEAK_MEMORY_GIB)):  # a profile adds memory
            peaks.append((described.memory, peak))
    return Evidence(times=times, peaks=peaks, did_not_fit=did_not_fit)


def _read(job: RecordedJob) -> tuple[JobSpec, BatchPlan, JobFeatures | None]:
    """Return the job of a run as it ended: with its instance type and per-device batch."""
    spec = job.spec_as_run()
    if spec.runs_own_training:
        raise BadInput(["a script of the user's own may do anything"])
    if job.used_precision and spec.has_instances and spec.instance().has_gpu:
        spec = spec.replace(precision=job.used_precision)  # `auto` may have gone on in fp32
    plan, measured = job.used_plan(spec), job.run.metrics
    built = _built(spec, measured)
    facts = {name: measured[name] for name in _DATA_FACTS if name in measured}
    return spec, plan, describe(spec, plan, built, facts) if built is not None else None


def _built(spec: JobSpec, measured: Mapping[str, float]) -> Architecture | None:
    """Return the model of a run: a well-known one, or one whose job has counted its weights."""
    architecture = well_known(spec.model)
    if architecture is not None or "total_parameters" not in measured:
        return architecture
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
    """Return the seconds of the run; if it was interrupted, retried, profiled or on spot, only those of a step."""
    speed = job.metric(metrics.THROUGHPUT_SAMPLES)
    step = plan.global_batch_size / speed if speed else None
    is_whole = not (job.was_retried or job.is_spot or job.metric("resumed") or job.param("profile_steps"))
    seconds = job.billable_seconds if is_whole else None
    if step is None and seconds is None:
        return None
    if not all(value is None or 0 < value < math.inf for value in (step, seconds)):  # written by another program
        return None
    return Measurement(setting=described.time, seconds=seconds, step_seconds=step, origin=job.origin)


def _did_not_fit(job: RecordedJob, spec: JobSpec, plan: BatchPlan, described: JobFeatures) -> list[Footprint]:
    """Return the smallest batch of the run that ran out of memory, if any did."""
    batch = None
    if job.ran_out_of_memory:
        batch = plan.per_device_train_batch_size
    elif job.was_retried:
        batch = _tried_before(spec.plan(), plan)
    if batch is None or described.usable_gib <= 0:
        return []
    return [replace(Footprint.of(spec, plan, described.memory), rows=batch, run_id=job.run_id)]


def _tried_before(first: BatchPlan, last: BatchPlan) -> int | None:
    """Return the per-device batch that was halved, for lack of memory, to the last one; None if none was."""
    step = first
    while (smaller := step.with_less_memory()) is not None:
        if smaller.per_device_train_batch_size == last.per_device_train_batch_size:
            return step.per_device_train_batch_size
        step = smaller
    return None
