"""Evidence from earlier jobs, read from their MLflow runs: seconds, memory, and batches that did not fit.

Jobs, probes and imported runs all count as evidence.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paretune.core.errors import BadInput
from paretune.core.reading import config_in
from paretune.estimating import counting, memory
from paretune.estimating.architecture import Architecture, adapted_widths, well_known
from paretune.estimating.counting import Work
from paretune.estimating.memory import Footprint, MemorySetting
from paretune.estimating.timing import Measurement
from paretune.estimating.workload import setting_of
from paretune.specification import metrics
from paretune.specification.ending import Cause
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import BatchPlan
from paretune.tracking import schema
from paretune.tracking.recorded_run import RecordedRun

if TYPE_CHECKING:
    from paretune.tracking.kept_runs import KeptRuns
    from paretune.tracking.store import Tracking

NEWEST = {"params.instance_type = 'local'": 100, "params.instance_type != 'local'": 200}
"""How many of the newest runs are read, by filter. Reading a run takes 1.5 ms at every launch, and more runs would
hardly improve the estimate.

Local runs have a separate limit, so that many cheap ones do not displace paid or published ones.
"""
_OUT_OF_MEMORY = {
    f"tags.`{schema.CAUSE}` = '{Cause.OUT_OF_MEMORY.value}'": 100,
    f"tags.`{schema.OUT_OF_MEMORY_RETRIES}` LIKE '%'": 100,
}
DATA_FACTS = ("train_rows", "train_tokens", metrics.TRAIN_PADDED_TOKENS, "validation_rows")
"""Numbers of a run that describe the prepared data."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Measurements from earlier jobs. Each of these sequences may be empty."""

    times: Sequence[Measurement] = ()
    peaks: Sequence[tuple[MemorySetting, float]] = ()
    did_not_fit: Sequence[Footprint] = ()
    of_user_code: Sequence[tuple[JobSpec, float]] = ()  # finished jobs that ran users' code, with their billed seconds

    def runs_like(self, work: Work) -> tuple[list[Measurement], list[Measurement], list[Measurement]]:
        """Return three lists: jobs of this model on this cluster, of this model anywhere, and on this accelerator.

        "This model" also means the same max_seq_length and kind of fine-tuning, and "this accelerator" the same
        precision.
        """
        of_model = [item for item in self.times if item.work.constants["model"] == work.constants["model"]]
        of_chip = [item for item in self.times if item.work.constants["chip"] == work.constants["chip"]]
        return [item for item in of_model if item in of_chip and item.work.cluster == work.cluster], of_model, of_chip

    def has_network(self, work: Work) -> bool:
        """Return whether one of the user's jobs has used the same kind of network between machines."""
        own = (item.work.constants["network"] for item in self.times if item.origin != "published")
        return work.constants["network"] in own


def collect(tracking: "Tracking | KeptRuns", *, simulated: bool = False, machine: str = "") -> Evidence:
    """Collect evidence from the newest runs that have ended, and from the newest that ran out of memory.

    Simulated runs are read only if `simulated` is True, because their seconds are estimates, which are evidence only
    for simulated jobs. `machine` is the name of this machine; local runs of other machines are ignored. Raises
    TrackingUnavailable.
    """
    runs: dict[str, RecordedRun] = {}
    for is_origin in ("!=", "=") if simulated else ("!=",):
        finished = f"tags.`{schema.ORIGIN}` {is_origin} 'simulated' and tags.`{schema.STATE}` != 'Running'"
        found = [tracking.runs(f"{finished} and {kind}", newest=newest) for kind, newest in NEWEST.items()]
        # If no limit was reached, all runs were read, including those that ran out of memory.
        if any(len(some) == newest for some, newest in zip(found, NEWEST.values(), strict=True)):
            found += [tracking.runs(f"{finished} and {kind}", newest=newest) for kind, newest in _OUT_OF_MEMORY.items()]
        runs |= {run.run_id: run for some in found for run in some}

    return read(run for run in runs.values() if not (machine and run.ran_elsewhere(machine)))


def read(runs: Iterable[RecordedRun]) -> Evidence:
    """Return the evidence in these runs. Runs that cannot be read are skipped."""
    times, peaks, did_not_fit = list[Measurement](), list[tuple[MemorySetting, float]](), list[Footprint]()
    of_user_code = list[tuple[JobSpec, float]]()
    for job in runs:
        try:
            spec = job.spec_as_run()
            if spec.runs_user_code:
                if (
                    job.is_completed
                    and job.origin == "measured"
                    and job.billable_seconds
                    and is_whole(job)
                    and not job.is_spot
                ):
                    of_user_code.append((spec, job.billable_seconds))
                continue
            spec, plan, work, setting = _read(job, spec)
        except (BadInput, ValueError, KeyError):
            continue
        if work is None or setting is None:
            continue
        if (batch := _batch_that_did_not_fit(job, spec.plan(), plan)) is not None and setting.usable_gib > 0:
            did_not_fit.append(replace(Footprint.of(spec, plan, setting), rows=batch, run_id=job.run_id))
        if not job.is_completed:
            continue
        if (measured := _time(job, plan, work)) is not None:
            times.append(measured)
        is_profiled = bool(job.param("profile_steps"))  # profiling itself uses memory
        if not is_profiled and (peak := job.metrics.get(metrics.PEAK_MEMORY_GIB)):
            peaks.append((setting, peak))
    return Evidence(times=times, peaks=peaks, did_not_fit=did_not_fit, of_user_code=of_user_code)


def _read(job: RecordedRun, spec: JobSpec) -> tuple[JobSpec, BatchPlan, Work | None, MemorySetting | None]:
    if job.used_precision and spec.has_instances and spec.instance().has_gpu:
        spec = spec.replace(precision=job.used_precision)  # a job with `auto` may have continued in fp32
    plan, measured = job.used_plan(spec.plan()), job.metrics
    built = built_of(spec.model, spec.task, measured)
    if built is None:
        return spec, plan, None, None
    facts = {name: measured[name] for name in DATA_FACTS if name in measured}
    setting = setting_of(spec, plan, built, facts)
    if setting is None:
        return spec, plan, None, None
    is_foreign = job.origin == "published" and spec.trained_by.is_paretune  # an unknown program
    work = counting.describe(setting, stack="published" if is_foreign else None)
    return spec, plan, work, memory.describe(setting)


def built_of(model: str, task: str, measured: Mapping[str, float]) -> Architecture | None:
    """Return the architecture of a run's model: a well-known one, or one with the sizes that the run has recorded.

    Returns None if the model is not well known and the run has not recorded its number of weights.
    """
    architecture = well_known(model, task)
    if architecture is not None or metrics.TOTAL_PARAMETERS not in measured:
        return architecture
    total = int(measured[metrics.TOTAL_PARAMETERS])
    layers, hidden = int(measured.get(metrics.LAYERS, 12)), int(measured.get(metrics.HIDDEN_SIZE, 768))
    return Architecture(
        parameters=total,
        matrices=int(measured.get(metrics.MATRIX_PARAMETERS, 0.8 * total)),
        layers=layers,
        hidden_size=hidden,
        vocabulary=int(measured.get(metrics.VOCABULARY, 30_000)),
        adapted_widths=adapted_widths(config_in(model) or {}, hidden, layers),
    )


def _time(job: RecordedRun, plan: BatchPlan, work: Work) -> Measurement | None:
    """Return the measured seconds of a run, or None if it has none.

    If the run was resumed, retried, repeated or profiled, or used spot instances, only its seconds per step are used.
    """
    speed = job.metrics.get(metrics.THROUGHPUT_SAMPLES)
    step = plan.global_batch_size / speed if speed else None
    seconds = job.billable_seconds if is_whole(job) and not job.is_spot else None
    values = [value for value in (step, seconds) if value is not None]
    if not values or not all(0 < value < math.inf for value in values):  # another program may have written them
        return None
    return Measurement(work=work, seconds=seconds, step_seconds=step, origin=job.origin)


def is_whole(job: RecordedRun) -> bool:
    """Return whether the seconds of a run are those of one job from its beginning to its end, without a profile."""
    # An attempt that was repeated has been billed, too. Runs without the tag show a repetition on the first type only.
    is_again_on_first = job.attempts > 1 and job.instance_type == job.param("instance_type")
    was_repeated = schema.REPEATED in job.tags or is_again_on_first
    is_resumed = bool(job.metrics.get("resumed"))
    return not (job.was_retried or was_repeated or is_resumed or job.param("profile_steps"))


def _batch_that_did_not_fit(job: RecordedRun, tried: BatchPlan, plan: BatchPlan) -> int | None:
    """Return the smallest per-device batch with which the run ran out of memory, or None if it never did.

    If a retry with a smaller batch succeeded, this is the batch before the last reduction.
    """
    if job.ran_out_of_memory:
        return plan.per_device_train_batch_size
    while job.was_retried and (smaller := tried.with_less_memory()) is not None:
        if smaller.per_device_train_batch_size == plan.per_device_train_batch_size:
            return tried.per_device_train_batch_size
        tried = smaller
    return None
