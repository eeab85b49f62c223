"""The launcher of training jobs that wait in an AWS Batch queue."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

from paretune.core.checks import faults_of
from paretune.core.errors import LaunchRefused, LostContact
from paretune.launchers.base import CREATED_WITHIN_S, NAMED_BY_QUEUE
from paretune.launchers.sagemaker.account import PREFIX
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain
from paretune.launchers.sagemaker.jobs import AwsJob, SageMakerJob
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.queue.checks import queue_findings
from paretune.launchers.sagemaker.queue.job import QueuedJob
from paretune.launchers.sagemaker.queue.service_jobs import REFUSED, ServiceJob, ServiceJobs, submission
from paretune.launchers.sagemaker.staging import Claim, Staging
from paretune.specification.container import TRIALS, JobDocument, JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.placement import Placement

_SHOWN_WITHIN_S = 6.0  # a service job that another process has just submitted
_FORGOTTEN_S = 5 * 86_400.0
"""So long AWS Batch is taken to know a job at least; how long it does its user guide does not say (read 2026-11-22)."""
_BEGINNING = 31  # characters of a training job's name, of 63, that AWS Batch does not make up


class QueueLauncher(SageMakerLauncher):
    """Submits jobs to a queue, and finds those that were submitted before. The cluster that it is made for names it."""

    def __init__(self, cluster: Placement, *args: Any, **options: Any) -> None:
        super().__init__(cluster, *args, **options)
        self._queue = cluster.queue or ""
        self._calls = {name: value for name, value in options.items() if name == "calls_per_minute"}

    def location_tags(self) -> Mapping[str, str]:
        """Account, region, bucket and queue."""
        return {**super().location_tags(), "queue": self._queue}

    def attach(self, job_name: str) -> AwsJob | None:
        """The service job of that name in this queue; the training job of one that AWS Batch has forgotten.

        Raises:
            LostContact: it was submitted days ago and neither is found: it may have run, and been billed.
        """
        found = self._service_jobs.find(job_name)
        return self._forgotten(job_name) if found is None else self._queued(job_name, found)

    def preview(self, document: JobDocument, inputs: JobInputs) -> Mapping[str, Any]:
        """The SubmitServiceJob request, with its payload as what it is; nothing is uploaded."""
        request = submission(document.spec, super().preview(document, inputs))
        return {**request, "serviceRequestPayload": json.loads(request["serviceRequestPayload"])}

    @cached_property
    def _service_jobs(self) -> ServiceJobs:
        return ServiceJobs(self._queue, self.account, self._clock, **self._calls)

    def _account_faults(self, spec: JobSpec, installed: Sequence[str]) -> list[str]:
        return super()._account_faults(spec, installed) + faults_of(queue_findings(spec, self.account))

    def _create(self, document: JobDocument, request: Mapping[str, Any], staging: Staging) -> AwsJob:
        name = document.job_name
        there = self.attach(name)
        if there is not None:
            return there
        with _marked(name, staging):
            try:
                submitted = self._service_jobs.submit(submission(document.spec, request))
            except AWS_ERRORS as error:
                if code(error) != REFUSED:
                    return self._after(error, name)
                # Two processes that submit a name at once send the same client token: AWS Batch refuses the second.
                found = self._within(_SHOWN_WITHIN_S, lambda: self.attach(name))
                if found is None:
                    raise LaunchRefused(explain(error, f"submit the job to the queue {self._queue}")) from error
                return found
        return self._queued(name, submitted, request)

    def _forgotten(self, name: str) -> AwsJob | None:
        """The training job of a name that AWS Batch does not know; None of one that it was never given."""
        staging = self._staging()
        submitted = staging.claim(_mark(name))
        age = 0.0 if submitted is None else self._clock.now() - submitted.since
        if submitted is None or age < CREATED_WITHIN_S:  # AWS Batch may show it in a moment
            return None
        described = self._created_for(name)
        if described is not None:
            return self._job(name, staging, described, described, training_job=described["TrainingJobName"])
        if age < _FORGOTTEN_S:
            return None
        region, shown = self.account.region, _beginning(name)
        raise LostContact(
            f"{name} was submitted to the queue {self._queue} {age / 86_400:.0f} days ago, and neither AWS Batch nor "
            "SageMaker knows it any more: it may have run and been billed, so it is not submitted again, and its worst "
            f"case stays reserved; look for it (`aws sagemaker list-training-jobs --name-contains {shown} --region "
            f"{region}`), and if it never ran: `aws s3 rm {staging.uri(_mark(name))}`"
        )

    def _created_for(self, name: str) -> Mapping[str, Any] | None:
        """What DescribeTrainingJob says of the newest training job that AWS Batch has created for a job.

        Raises:
            LaunchRefused: AWS does not answer.
        """
        sagemaker = self.account.client("sagemaker")
        try:
            pages = sagemaker.get_paginator("list_training_jobs").paginate(NameContains=_beginning(name))
            listed = [entry for page in pages for entry in page["TrainingJobSummaries"]]
            for entry in sorted(listed, key=lambda entry: entry["CreationTime"], reverse=True):
                told: Mapping[str, Any] = sagemaker.describe_training_job(TrainingJobName=entry["TrainingJobName"])
                if _is_of(name, told):
                    return told
        except AWS_ERRORS as error:
            raise LaunchRefused(explain(error, f"look for the training job of {name}")) from error
        return None

    def _queued(self, name: str, found: ServiceJob, request: Mapping[str, Any] | None = None) -> QueuedJob:
        """A job by its request, or by what AWS Batch has kept of it."""
        payload = request or json.loads(found.description.get("serviceRequestPayload") or "{}")

        staging = self._staging()

        def follow(training_job: str) -> SageMakerJob:
            described = self._told_of(training_job)
            return self._job(name, staging, payload, described, training_job=training_job)

        trials = int(payload.get("Environment", {}).get(TRIALS, 1))
        return QueuedJob(name, found, self._service_jobs, staging, self._clock, follow, trials=trials)

    def _told_of(self, training_job: str) -> Mapping[str, Any] | None:
        """What SageMaker says of a training job; None where it does not, so that the poller asks again."""
        try:
            told: Mapping[str, Any] = self.account.client("sagemaker").describe_training_job(
                TrainingJobName=training_job
            )
        except AWS_ERRORS:
            return None
        return told

    def _checkpoint_place(self, key: str) -> str:
        # Of this queue alone: whether a job of another one is alive cannot be asked here.
        digest = hashlib.sha256(self._queue.rpartition("/")[2].encode()).hexdigest()[:8]
        return f"{super()._checkpoint_place(key)}-{digest}"

    def _is_alive(self, claim: Claim) -> bool:
        found = self._service_jobs.find(claim.owner)
        if found is None:
            return self._clock.now() - claim.since < CREATED_WITHIN_S
        return not found.has_ended


def _mark(name: str) -> str:
    """Key of the object that says since when a job is submitted."""
    return f"{PREFIX}/jobs/{name}/submitted"


@contextmanager
def _marked(name: str, staging: Staging) -> Iterator[None]:
    """Say that a job is submitted, before it is; what AWS Batch has refused is not."""
    staging.text(_mark(name), name)
    try:
        yield
    except LaunchRefused:
        with suppress(*AWS_ERRORS):
            staging.remove(_mark(name))
        raise


def _beginning(name: str) -> str:
    """How the names of the training jobs begin that AWS Batch creates for a job."""
    return f"{NAMED_BY_QUEUE}{name}"[:_BEGINNING]


def _is_of(name: str, described: Mapping[str, Any]) -> bool:
    """Whether a training job was created for the job `name`: by the document that it reads.

    Names of the jobs of one run begin alike.
    """
    sources = [one.get("DataSource", {}).get("S3DataSource", {}) for one in described.get("InputDataConfig", [])]
    return any(f"/jobs/{name}/" in one.get("S3Uri", "") for one in sources)


def launcher_class(cluster: Placement) -> type[SageMakerLauncher]:
    """What starts the jobs of a cluster on SageMaker: itself, or its queue."""
    return SageMakerLauncher if cluster.queue is None else QueueLauncher
