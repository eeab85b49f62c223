"""Where the checkpoints of jobs lie in S3, and which job may continue from them."""

from paretune.launchers.base import parse_job_name
from paretune.launchers.sagemaker.account import PREFIX
from paretune.launchers.sagemaker.staging import Staging
from paretune.launchers.sagemaker.training_jobs import Submission
from paretune.specification.container import JobDocument, JobInputs


def checkpoints_uri(document: JobDocument, inputs: JobInputs, staging: Staging, submission: Submission) -> str:
    """S3 URI for a job's checkpoints, shared by all jobs of one specification and data set, one after the other.

    The first job claims it. A later job takes the claim over if the owner has ended; else it gets a place of its own.
    """
    run = run_id(document.job_name)
    separate = staging.uri(f"{PREFIX}/checkpoints/{run}/")
    if inputs.project is not None or document.members:  # no other job has the same trials
        return separate
    data = inputs.dataset.key[:12] if inputs.dataset else "script"
    key = f"{document.checkpoint_key or document.spec.spec_hash()}-{data}{submission.checkpoint_suffix}"
    prefix = f"{PREFIX}/checkpoints/{key}"
    shared = staging.uri(f"{prefix}/")
    if staging.dry:
        return shared
    claim = staging.claim(f"{prefix}.claim")
    if claim is not None:
        if claim.owner == document.job_name:
            return shared
        if run_id(claim.owner) != run and submission.is_alive(claim):
            return separate
    return shared if staging.take(f"{prefix}.claim", document.job_name, claim) else separate


def run_id(job_name: str) -> str:
    """The run that a job's name was made from, or the name itself if it was made from none."""
    parsed = parse_job_name(job_name)
    return parsed[0] if parsed is not None else job_name
