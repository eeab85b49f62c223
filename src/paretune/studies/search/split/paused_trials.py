"""The room for the paused trials of a job that searches, shown and checked before a study begins."""

import math
from collections.abc import Iterable

from paretune.core.errors import BadInput, collecting, refuse
from paretune.estimating.architecture import Architecture
from paretune.estimating.forecast import known_architecture
from paretune.estimating.paused_states import free_bytes, place_paused, state_bytes
from paretune.estimating.workload import trained_weights
from paretune.jobs.advice import ForeseenJob, disk_bytes, foreseen
from paretune.jobs.preparation import known_inputs
from paretune.jobs.workplace import Workplace
from paretune.launchers.shared_jobs import MAY_DIFFER
from paretune.launchers.storage import search_volume_faults, volume_for_gib
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.rules import SEARCH_IN_JOB
from paretune.studies.search.split.in_job import most_trials


def paused_trials(file: StudyFile, jobs: Iterable[JobSpec], workplace: Workplace) -> list[str]:
    """A line for each instance type: how many trials of its job pause where, or a warning that it has no room.

    Types whose model is not known have none.

    Raises:
        BadInput: no type has room for the checkpoints.
    """
    if file.in_job != SEARCH_IN_JOB:
        return []
    choices = [len(entry.corners) for name, entry in file.search.items() if name in MAY_DIFFER]
    count = min(most_trials(file.n_trials), math.prod(choices) if not file.ranges() else most_trials(None))
    types = {spec.instance_type: spec.replace(trials_per_job=count) for spec in jobs}
    sentences, faults = list[str](), list[str]()
    for name, spec in types.items():
        inputs = known_inputs(spec, workplace)
        built = known_architecture(spec, inputs)
        size = disk_bytes(spec, inputs, built, searches=True)
        if built is None or size is None:
            continue
        with collecting(faults):
            disk = _disk(spec, size)
            places = _places(foreseen(spec, inputs, workplace), built)
            sentences.append(f"in_job=search on {name}: {count} trial{'s' * (count > 1)} at most; {places}{disk}")
    if faults and not sentences:
        raise BadInput(faults)
    return sentences + [f"warning: {text}" for text in faults]


def _disk(spec: JobSpec, size: float) -> str:
    """The disk for `size` bytes, in words; raises BadInput if an instance has less."""
    if not spec.has_instances:
        return f"checkpoints up to {size / 2**30:.2g} GiB"
    refuse(search_volume_faults(spec, size))
    volume_gib = spec.volume_gib or volume_for_gib(size)
    return "its own disks" if spec.instance().local_storage_gib else f"a volume of {volume_gib} GiB"


def _places(job: ForeseenJob, built: Architecture) -> str:
    """The memory of the trials that are paused while one trains, in words; empty if none is, or without an estimate."""
    spec, estimate = job.spec, job.estimate
    if estimate is None or spec.trials_per_job == 1:
        return ""
    each, used = state_bytes(trained_weights(spec, built)), estimate.memory.gib_high * 2**30
    usable = estimate.usable_gib * 2**30
    has_gpu = spec.has_instances and spec.instance().accelerator_count > 0
    memory = spec.instance().memory_gib * 2**30 / spec.processes if has_gpu else usable
    places = place_paused(
        spec.trials_per_job - 1,
        each,
        device_bytes=free_bytes(usable, used) if has_gpu else 0.0,
        memory_bytes=free_bytes(memory, 0.0 if has_gpu else used),
    )
    counts = {"on the GPU": places.on_device, "in main memory": places.in_memory, "on disk": places.on_disk}
    text = ", ".join(f"{count} {memory_kind}" for memory_kind, count in counts.items() if count)
    return f"a paused one takes about {each / 2**30:.2g} GiB ({text}); "
