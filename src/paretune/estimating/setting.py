"""The description of a job from which its time and its memory are estimated: its work, and the device that does it."""

from collections.abc import Mapping
from dataclasses import dataclass

from paretune.estimating.architecture import Architecture
from paretune.estimating.formats import Formats
from paretune.estimating.hardware import DeviceShare
from paretune.estimating.workload import Workload, workload
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import BatchPlan


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A job with its batch plan, model and work, one of its devices, and the number formats of the model there."""

    spec: JobSpec
    plan: BatchPlan
    built: Architecture
    work: Workload
    share: DeviceShare
    formats: Formats


def setting_of(
    spec: JobSpec, plan: BatchPlan, built: Architecture, facts: Mapping[str, float] | None = None
) -> Setting | None:
    """Describe a job, given known facts of its data. Returns None if the number of training rows is unknown."""
    work = workload(spec, plan, built, facts)
    if work is None:
        return None
    share = DeviceShare(spec)
    return Setting(spec=spec, plan=plan, built=built, work=work, share=share, formats=share.formats(built))
