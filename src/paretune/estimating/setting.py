"""A job as its estimate sees it: what it computes and on which device, described once for time and memory."""

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
    """A job with its batch, its model, its work, one of its devices, and the number formats of the model there."""

    spec: JobSpec
    plan: BatchPlan
    built: Architecture
    work: Workload
    share: DeviceShare
    formats: Formats


def setting_of(
    spec: JobSpec, plan: BatchPlan, built: Architecture, facts: Mapping[str, float] | None = None
) -> Setting | None:
    """Describe a job with these facts of its data; None if the number of its training rows is unknown."""
    work = workload(spec, plan, built, facts)
    if work is None:
        return None
    share = DeviceShare(spec)
    return Setting(spec=spec, plan=plan, built=built, work=work, share=share, formats=share.formats(built))
