"""The service jobs of one AWS Batch queue: submitted once, found by name, described at a limited rate, terminated.

Source of all statements about AWS Batch: its API model in botocore 1.44.5 and the chapter "Service jobs" of its user
guide (read 2026-11-22). `TrainingQueue` of the SageMaker Python SDK (3.27.0) is not used: it takes region and
credentials of the default session, ends every job after a day, drops a priority of 0, and has no client token.
"""

import json
import threading
from collections.abc import Mapping
from typing import Any

from paretune.core.clock import Clock
from paretune.core.commands import command_line
from paretune.core.errors import LaunchRefused, LostContact
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_transient
from paretune.launchers.sagemaker.polling import CALLS_PER_MINUTE, CallBudget
from paretune.specification.limits import Limits

STOP_REASON = "stopped by paretune"
"""Reason given to TerminateServiceJob; AWS Batch shows it to whoever looks at the service job."""
REFUSED = "ClientException"
"""Error code of a request that AWS Batch refuses: an unknown job, or a client token that was used before."""
_ENDED = {"SUCCEEDED", "FAILED"}
_INTERVAL_CALLS = 5.0  # between two looks at one job: what 5 calls take, 5 s at 60 a minute
_UNKNOWN_FOR_S = 60.0  # that long a job may be unknown to AWS itself: a new one, or between two of its machines


class ServiceJob:
    """The last description of one service job.

    Attributes:
        is_polled: whether it is to be described again; not while its training job runs, which SageMaker describes.
    """

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.description: Mapping[str, Any] = {}
        self.unknown_since: float | None = None
        self.described_at = float("-inf")
        self.is_polled = True

    @property
    def status(self) -> str:
        """SUBMITTED, PENDING, RUNNABLE, SCHEDULED, STARTING, RUNNING, SUCCEEDED or FAILED."""
        return str(self.description.get("status", "SUBMITTED"))

    @property
    def has_ended(self) -> bool:
        """Whether AWS Batch says that the job has ended."""
        return self.status in _ENDED

    @property
    def training_job(self) -> str:
        """Name of the training job of the latest attempt; "" before there is one."""
        attempts = [*self.description.get("attempts", []), self.description.get("latestAttempt", {})]
        arns = [str(attempt.get("serviceResourceId", {}).get("value", "")) for attempt in attempts]
        return next((arn.rpartition("/")[2] for arn in reversed(arns) if arn), "")

    @property
    def reason(self) -> str:
        """AWS Batch's own sentence on the status."""
        return str(self.description.get("statusReason", ""))

    @property
    def was_preempted(self) -> bool:
        """Whether another job has taken its instances."""
        return bool(self.description.get("preemptionSummary", {}).get("preemptedAttemptCount"))

    def time(self, name: str) -> float | None:
        """A time stamp of the description in seconds since the epoch; None before it is set."""
        milliseconds = self.description.get(name)
        return float(milliseconds) / 1000 if milliseconds else None


class ServiceJobs:
    """The service jobs of one queue, as one process sees them.

    Args:
        queue: name or ARN.
        calls_per_minute: the most descriptions, averaged over a minute.
    """

    def __init__(self, queue: str, account: Account, clock: Clock, calls_per_minute: float = CALLS_PER_MINUTE) -> None:
        self.queue = queue
        self._account = account
        self._clock = clock
        self._calls = CallBudget(clock, calls_per_minute)
        self._jobs: dict[str, ServiceJob] = {}
        self._lock = threading.RLock()

    def submit(self, request: Mapping[str, Any]) -> ServiceJob:
        """Send a request made by `submission`; raises boto's errors."""
        answer = self._account.client("batch").submit_service_job(**request)
        return self._watch(answer["jobId"], None)

    def find(self, name: str) -> ServiceJob | None:
        """The service job with this name, waiting, running or ended; None if there is none.

        Raises:
            LaunchRefused: AWS Batch does not answer.
        """
        batch = self._account.client("batch")
        try:
            # Without a filter, jobStatus is RUNNING by default; with one, AWS Batch lists jobs in all states.
            named = [{"name": "JOB_NAME", "values": [name]}]
            pages = batch.get_paginator("list_service_jobs").paginate(jobQueue=self.queue, filters=named)
            summaries = [entry for page in pages for entry in page["jobSummaryList"]]
            matches = [entry for entry in summaries if entry["jobName"] == name]  # the filter ignores case
            if not matches:
                return None
            first = min(matches, key=lambda entry: entry.get("createdAt", 0))
            return self._watch(first["jobId"], batch.describe_service_job(jobId=first["jobId"]))
        except AWS_ERRORS as error:
            raise LaunchRefused(explain(error, f"look for {name} in the queue {self.queue}")) from error

    def look(self) -> None:
        """Describe as many jobs as the rate allows now, longest ago first; passing trouble is waited out."""
        with self._lock:
            due = [job for job in self._jobs.values() if job.is_polled and not job.has_ended]
            for job in sorted(due, key=lambda job: job.described_at):
                is_time = self._clock.monotonic() - job.described_at >= _INTERVAL_CALLS / self._calls.per_second
                if not is_time or not self._calls.spend():
                    return
                self._describe(job)

    def terminate(self, job: ServiceJob) -> bool:
        """Call TerminateServiceJob; returns False if AWS was in trouble and must be asked again.

        Raises:
            LostContact: AWS refuses.
        """
        try:
            self._account.client("batch").terminate_service_job(jobId=job.job_id, reason=STOP_REASON)
        except AWS_ERRORS as error:
            if not is_transient(error) and code(error) != REFUSED:  # REFUSED says that it has ended
                raise LostContact(
                    f"{explain(error, 'terminate the service job')}\nit may still wait or run: `aws batch "
                    f"terminate-service-job --job-id {job.job_id} --reason '{STOP_REASON}' --region "
                    f"{self._account.region}`"
                ) from error
            return not is_transient(error)
        finally:
            job.is_polled, job.described_at = True, float("-inf")
        return True

    def command_to_look(self, job: ServiceJob) -> str:
        """The command that shows a job in any state."""
        return f"aws batch describe-service-job --job-id {job.job_id} --region {self._account.region}"

    def _watch(self, job_id: str, description: Mapping[str, Any] | None) -> ServiceJob:
        """The one object for this job that all of this process share."""
        with self._lock:
            job = self._jobs.setdefault(job_id, ServiceJob(job_id))
            if description is not None:
                job.description, job.described_at = description, self._clock.monotonic()
            return job

    def _describe(self, job: ServiceJob) -> None:
        now = job.described_at = self._clock.monotonic()
        try:
            job.description = self._account.client("batch").describe_service_job(jobId=job.job_id)
            job.unknown_since = None
        except AWS_ERRORS as error:
            if is_transient(error):
                self._calls.exhaust()
            elif code(error) != REFUSED:
                raise LostContact(
                    f"{explain(error, f'look at the queue {self.queue}')}\nits jobs may still wait or run: sign in "
                    f"again, then `{command_line('sync')}`"
                ) from error
            else:
                job.unknown_since = now if job.unknown_since is None else job.unknown_since
                if now - job.unknown_since >= _UNKNOWN_FOR_S:
                    ending = {"status": "FAILED", "statusReason": "AWS Batch no longer knows the service job"}
                    job.description = {**job.description, **ending}


def submission(cluster: Limits, training: Mapping[str, Any]) -> dict[str, Any]:
    """The SubmitServiceJob request with a CreateTrainingJob request as its payload.

    The tags become those of the service job, which AWS Batch passes on. AWS Batch retries no failed or preempted job:
    the next attempt is paretune's, with its own name and admission.
    """
    payload = {name: value for name, value in training.items() if name != "Tags"}
    shares = {"shareIdentifier": cluster.share_identifier, "quotaShareName": cluster.quota_share_name}
    shares["schedulingPriority"] = cluster.scheduling_priority  # type: ignore[assignment]  # a number
    preempted = {"preemptionConfiguration": {"preemptionRetriesBeforeTermination": 0}}
    return {
        "jobName": training["TrainingJobName"],
        "jobQueue": cluster.queue,
        "serviceJobType": "SAGEMAKER_TRAINING",
        "serviceRequestPayload": json.dumps(payload),
        "clientToken": training["TrainingJobName"],  # at most 64 characters; a name has 63
        "retryStrategy": {"attempts": 1},
        "tags": {tag["Key"]: tag["Value"] for tag in training.get("Tags", [])},
        **{name: value for name, value in shares.items() if value is not None},
        **(preempted if cluster.quota_share_name else {}),
    }
