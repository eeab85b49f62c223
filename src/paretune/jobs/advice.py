"""Why a job did not end well, and what its user can do about it."""

from paretune.launchers.base import Job
from paretune.spec.container import FailureKind
from paretune.spec.job import JobSpec


def advise(job: Job, spec: JobSpec) -> str:
    """Why the job did not end well, and what to do; empty when it did, or was stopped as asked."""
    failure = job.failure()
    if failure is None:
        return ""
    kind, reason = failure
    if kind is FailureKind.OUT_OF_MEMORY:
        return (
            "out of memory, with the smallest per-device batch that could be tried: lower max_seq_length, set "
            f"fine_tuning to lora or head, or use a larger instance ({reason})"
        )
    if kind is FailureKind.CAPACITY:
        return (
            f"AWS has no capacity for {' or '.join(spec.instance_types())}: set capacity_wait_minutes to go on asking, "
            f"fallback_instance_types to try others, or another region ({reason})"
        )
    if kind is FailureKind.DISK_FULL and spec.on_sagemaker:
        return f"{reason}: give the instances a larger volume with volume_gib (model, data and checkpoints lie on it)"
    return reason


def ran_out_of_memory(job: Job) -> bool:
    """Whether the job failed for lack of memory."""
    failure = job.failure()
    return failure is not None and failure[0] is FailureKind.OUT_OF_MEMORY
