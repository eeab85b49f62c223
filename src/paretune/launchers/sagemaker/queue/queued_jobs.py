"""Jobs that are submitted to an AWS Batch queue, which creates their training jobs."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from paretune.core.checks import Finding
from paretune.core.errors import LaunchRefused, LostContact
from paretune.launchers.base import BATCH_JOB_PREFIX, CREATED_WITHIN_S
from paretune.launchers.sagemaker.account import PREFIX
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain
from paretune.launchers.sagemaker.jobs import AwsJob, SageMakerJob
from paretune.launchers.sagemaker.queue.checks import queue_findings
from paretune.launchers.sagemaker.queue.job import QueuedJob
from paretune.launchers.sagemaker.queue.service_jobs import REFUSED, ServiceJob, ServiceJobs, submission
from paretune.launchers.sagemaker.staging import Claim, Staging
from paretune.launchers.sagemaker.training_jobs import Submission, TrainingJobs, adopt_after, look_for
from paretune.specification.container import TRIALS, JobDocument
from paretune.specification.placement import Placement

_SHOWN_WITHIN_S = 6.0  # a service job that another process has just submitted
_FORGOTTEN_S = 5 * 86_400.0
"""AWS Batch is assumed to know a job at least this long; its user guide does not say how long (read 2026-11-22)."""
_KEPT_CHARACTERS = 31  # of the 63 of a training job's name; AWS Batch makes up the rest


class QueuedJobs(Submission):
    """Submits jobs to one queue and finds them again.

    Args:
        queue: name or ARN.
        training_jobs: makes the `SageMakerJob` of a training job that the queue has created.
    """

    def __init__(self, queue: str, training_jobs: TrainingJobs, calls_per_minute: float) -> None:
        self._queue = queue
        self._training_jobs = training_jobs
        self._account = training_jobs.account
        self._clock = training_jobs.clock
        self._service_jobs = ServiceJobs(queue, self._account, self._clock, calls_per_minute)
        self.location_tags = {"queue": queue}
        # The state of a job in another queue cannot be asked here, so its checkpoints are kept apart.
        self.checkpoint_suffix = f"-{hashlib.sha256(queue.rpartition('/')[2].encode()).hexdigest()[:8]}"

    def create(self, document: JobDocument, request: Mapping[str, Any], staging: Staging) -> AwsJob:
        """Submit a service job with the request, or adopt the one that has this name."""
        name = document.job_name
        existing = self.find(name)
        if existing is not None:
            return existing
        with _marked(name, staging):
            try:
                service_job = self._service_jobs.submit(submission(document.spec, request))
            except AWS_ERRORS as error:
                if code(error) != REFUSED:
                    return adopt_after(error, name, lambda: self.find(name), self._clock)
                # Two processes that submit a name at once send the same client token: AWS Batch refuses the second.
                job = look_for(_SHOWN_WITHIN_S, lambda: self.find(name), self._clock)
                if job is None:
                    raise LaunchRefused(explain(error, f"submit the job to the queue {self._queue}")) from error
                return job
        return self._job(name, service_job, request)

    def find(self, name: str) -> AwsJob | None:
        """The service job in this queue; the training job of one that AWS Batch has forgotten.

        Raises:
            LostContact: it was submitted days ago and neither exists: it may have run, and been billed.
        """
        service_job = self._service_jobs.find(name)
        return self._forgotten(name) if service_job is None else self._job(name, service_job)

    def is_alive(self, claim: Claim) -> bool:
        """Ask AWS Batch; a job that it does not know may still come for CREATED_WITHIN_S."""
        service_job = self._service_jobs.find(claim.owner)
        if service_job is None:
            return self._clock.now() - claim.since < CREATED_WITHIN_S
        return not service_job.has_ended

    def findings(self, cluster: Placement) -> Iterable[Finding]:
        """Whether the queue takes the job."""
        return queue_findings(cluster, self._account)

    def preview(self, cluster: Placement, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The SubmitServiceJob request, with its payload as an object in place of a text."""
        sent = submission(cluster, request)
        return {**sent, "serviceRequestPayload": json.loads(sent["serviceRequestPayload"])}

    def _forgotten(self, name: str) -> AwsJob | None:
        """The training job of a name that AWS Batch does not know; None if it was never submitted."""
        staging = self._training_jobs.staging()
        mark = staging.claim(_mark(name))
        age_s = 0.0 if mark is None else self._clock.now() - mark.since
        if mark is None or age_s < CREATED_WITHIN_S:  # AWS Batch may show it in a moment
            return None
        description = self._created_for(name)
        if description is not None:
            training_job = description["TrainingJobName"]
            return self._training_jobs.job(name, staging, description, description, training_job=training_job)
        if age_s < _FORGOTTEN_S:
            return None
        raise LostContact(
            f"{name} was submitted to the queue {self._queue} {age_s / 86_400:.0f} days ago, and neither AWS Batch nor "
            "SageMaker knows it any more: it may have run and been billed, so it is not submitted again, and its worst "
            "case stays reserved; look for it (`aws sagemaker list-training-jobs --name-contains "
            f"{_training_job_prefix(name)} --region {self._account.region}`), and if it never ran: "
            f"`aws s3 rm {staging.uri(_mark(name))}`"
        )

    def _created_for(self, name: str) -> Mapping[str, Any] | None:
        """The description of the newest training job that AWS Batch has created for a job.

        Raises:
            LaunchRefused: AWS does not answer.
        """
        sagemaker = self._account.client("sagemaker")
        try:
            pages = sagemaker.get_paginator("list_training_jobs").paginate(NameContains=_training_job_prefix(name))
            summaries = [entry for page in pages for entry in page["TrainingJobSummaries"]]
            for entry in sorted(summaries, key=lambda entry: entry["CreationTime"], reverse=True):
                description: Mapping[str, Any] = sagemaker.describe_training_job(
                    TrainingJobName=entry["TrainingJobName"]
                )
                if _reads_document_of(name, description):
                    return description
        except AWS_ERRORS as error:
            raise LaunchRefused(explain(error, f"look for the training job of {name}")) from error
        return None

    def _job(self, name: str, service_job: ServiceJob, request: Mapping[str, Any] | None = None) -> QueuedJob:
        """A job by its request, or by the request that AWS Batch has kept."""
        payload = request or json.loads(service_job.description.get("serviceRequestPayload") or "{}")
        staging = self._training_jobs.staging()

        def follow(training_job: str) -> SageMakerJob:
            try:
                description = self._account.client("sagemaker").describe_training_job(TrainingJobName=training_job)
            except AWS_ERRORS:  # the poller asks again
                description = None
            return self._training_jobs.job(name, staging, payload, description, training_job=training_job)

        trials = int(payload.get("Environment", {}).get(TRIALS, 1))
        return QueuedJob(name, service_job, self._service_jobs, staging, self._clock, follow, trials=trials)


def _mark(name: str) -> str:
    """Key of the object that says since when a job is submitted."""
    return f"{PREFIX}/jobs/{name}/submitted"


@contextmanager
def _marked(name: str, staging: Staging) -> Iterator[None]:
    """Write the mark before a job is submitted; remove it if AWS Batch refuses the job."""
    staging.text(_mark(name), name)
    try:
        yield
    except LaunchRefused:
        with suppress(*AWS_ERRORS):
            staging.remove(_mark(name))
        raise


def _training_job_prefix(name: str) -> str:
    """Start of the names of the training jobs that AWS Batch creates for a job."""
    return f"{BATCH_JOB_PREFIX}{name}"[:_KEPT_CHARACTERS]


def _reads_document_of(name: str, description: Mapping[str, Any]) -> bool:
    """Whether a training job was created for the job `name`; the names of all jobs of one run start alike."""
    sources = [entry.get("DataSource", {}).get("S3DataSource", {}) for entry in description.get("InputDataConfig", [])]
    return any(f"/jobs/{name}/" in source.get("S3Uri", "") for source in sources)
