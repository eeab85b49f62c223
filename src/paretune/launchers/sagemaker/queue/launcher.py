"""The launcher of training jobs that wait in an AWS Batch queue."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from paretune.core.errors import LaunchRefused
from paretune.core.finding import faults_of
from paretune.launchers.base import CREATED_WITHIN_S
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain
from paretune.launchers.sagemaker.jobs import AwsJob, SageMakerJob
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.queue.checks import queue_findings
from paretune.launchers.sagemaker.queue.job import QueuedJob
from paretune.launchers.sagemaker.queue.service_jobs import REFUSED, ServiceJob, ServiceJobs, submission
from paretune.launchers.sagemaker.staging import Claim, Staging
from paretune.spec.cluster import Cluster
from paretune.spec.container import TRIALS, JobDocument, JobInputs
from paretune.spec.job import JobSpec

_SHOWN_WITHIN_S = 6.0  # a service job that another process has just submitted


class QueueLauncher(SageMakerLauncher):
    """Submits jobs to a queue, and finds those that were submitted before. The cluster that it is made for names it."""

    def __init__(self, cluster: Cluster, *args: Any, **options: Any) -> None:
        super().__init__(cluster, *args, **options)
        self._queue = cluster.queue or ""
        self._calls = {name: value for name, value in options.items() if name == "calls_per_minute"}

    def location_tags(self) -> Mapping[str, str]:
        """Account, region, bucket and queue."""
        return {**super().location_tags(), "queue": self._queue}

    def attach(self, job_name: str) -> AwsJob | None:
        """The service job of that name in this queue, in whatever state it is."""
        found = self._service_jobs.find(job_name)
        return None if found is None else self._queued(job_name, found)

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
        there = self._service_jobs.find(name)
        if there is not None:
            return self._queued(name, there)
        try:
            submitted = self._service_jobs.submit(submission(document.spec, request))
        except AWS_ERRORS as error:
            if code(error) != REFUSED:
                return self._after(error, name)
            # Two processes that submit the same name at once send the same client token: AWS Batch refuses the second.
            found = self._within(_SHOWN_WITHIN_S, lambda: self.attach(name))
            if found is None:
                raise LaunchRefused(explain(error, f"submit the job to the queue {self._queue}")) from error
            return found
        return self._queued(name, submitted, request)

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


def launcher_class(cluster: Cluster) -> type[SageMakerLauncher]:
    """What starts the jobs of a cluster on SageMaker: itself, or its queue."""
    return SageMakerLauncher if cluster.queue is None else QueueLauncher
