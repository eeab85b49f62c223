"""The service jobs of one AWS Batch queue: submitted once, found by name, looked at within a rate, terminated.

Source of all that is said of AWS Batch: its API model in botocore 1.44.5 and the chapter "Service jobs" of its user
guide (read 2026-11-22). `TrainingQueue` of the SageMaker Python SDK (3.27.0) is not used: it takes region and
credentials of the default session, ends every job after a day, drops a priority of 0, and has no client token.
"""

import json
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from paretune.core.clock import Clock
from paretune.core.commands import command_line
from paretune.core.errors import LaunchRefused, LostContact
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_transient
from paretune.launchers.sagemaker.polling import CALLS_PER_MINUTE
from paretune.specification.limits import Limits

STOP_REASON = "stopped by paretune"
"""What AWS Batch is told on TerminateServiceJob, and tells whoever looks at the service job."""
REFUSED = "ClientException"
"""Code of every error of AWS Batch that is the request's: an unknown job, or a client token that was used before."""
_ENDED = {"SUCCEEDED", "FAILED"}
_BURST = 10.0
_INTERVAL_CALLS = 5.0  # between two looks at one job: what 5 calls take, 5 s at 60 a minute
_UNKNOWN_FOR_S = 60.0  # that long a job may be unknown to AWS itself: a new one, or between two of its machines


class ServiceJob:
    """What AWS Batch has last said of one service job.

    Attributes:
        is_wanted: whether it is to be looked at; not while its training job runs, which SageMaker tells of.
    """

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.description: Mapping[str, Any] = {}
        self.unknown_since: float | None = None
        self.asked_at = float("-inf")
        self.is_wanted = True

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
        """Name of the training job of the latest attempt; empty before there is one."""
        attempts = [*self.description.get("attempts", []), self.description.get("latestAttempt", {})]
        arns = [str(one.get("serviceResourceId", {}).get("value", "")) for one in attempts]
        return next((arn.rpartition("/")[2] for arn in reversed(arns) if arn), "")

    @property
    def reason(self) -> str:
        """AWS Batch's own sentence on the status."""
        return str(self.description.get("statusReason", ""))

    @property
    def was_preempted(self) -> bool:
        """Whether another job has taken its instances."""
        return bool(self.description.get("preemptionSummary", {}).get("preemptedAttemptCount"))

    def seconds(self, name: str) -> float | None:
        """A time that AWS Batch tells in milliseconds, in seconds since the epoch; None before it is there."""
        found = self.description.get(name)
        return float(found) / 1000 if found else None


class ServiceJobs:
    """The service jobs of one queue, as one process sees them.

    Args:
        queue: name or ARN.
        calls_per_minute: never more looks than this, averaged over a minute.
    """

    def __init__(self, queue: str, account: Account, clock: Clock, calls_per_minute: float = CALLS_PER_MINUTE) -> None:
        self.queue = queue
        self._account = account
        self._clock = clock
        self._rate = calls_per_minute / 60
        self._budget = _BURST
        self._refilled = clock.monotonic()
        self._jobs: dict[str, ServiceJob] = {}
        self._lock = threading.RLock()

    def submit(self, request: Mapping[str, Any]) -> ServiceJob:
        """Send a request that `submission` has made; boto's errors are the caller's."""
        answer = self._account.client("batch").submit_service_job(**request)
        return self._watch(answer["jobId"], None)

    def find(self, name: str) -> ServiceJob | None:
        """The service job of that name, waiting, running or ended; None when there is none.

        Raises:
            LaunchRefused: AWS Batch does not answer.
        """
        try:
            # In all states: with a filter, AWS Batch leaves jobStatus aside, which else is RUNNING.
            found = [
                entry for entry in self._listed(name) if entry["jobName"] == name
            ]  # it ignores upper and lower case
            if not found:
                return None
            first = min(found, key=lambda entry: entry.get("createdAt", 0))
            return self._watch(first["jobId"], self._account.client("batch").describe_service_job(jobId=first["jobId"]))
        except AWS_ERRORS as error:
            raise LaunchRefused(explain(error, f"look for {name} in the queue {self.queue}")) from error

    def look(self) -> None:
        """Spend what the rate allows now on the jobs that were looked at longest ago; passing trouble is waited out."""
        with self._lock:
            self._refill()
            wanted = [job for job in self._jobs.values() if job.is_wanted and not job.has_ended]
            for job in sorted(wanted, key=lambda job: job.asked_at):
                is_time = self._clock.monotonic() - job.asked_at >= _INTERVAL_CALLS / self._rate
                if not is_time or self._budget < 1:
                    return
                self._budget -= 1
                self._describe(job)

    def terminate(self, job: ServiceJob) -> bool:
        """TerminateServiceJob, in whatever state it is; False where it must be asked again, for AWS was in trouble.

        Raises:
            LostContact: AWS refuses.
        """
        try:
            self._account.client("batch").terminate_service_job(jobId=job.job_id, reason=STOP_REASON)
        except AWS_ERRORS as error:
            if not is_transient(error) and code(error) != REFUSED:  # which says that it has ended
                raise LostContact(
                    f"{explain(error, 'terminate the service job')}\nit may still wait or run: `aws batch "
                    f"terminate-service-job --job-id {job.job_id} --reason '{STOP_REASON}' --region "
                    f"{self._account.region}`"
                ) from error
            return not is_transient(error)
        finally:
            job.is_wanted, job.asked_at = True, float("-inf")
        return True

    def command_to_look(self, job: ServiceJob) -> str:
        """The command line that shows a job, in whichever state."""
        return f"aws batch describe-service-job --job-id {job.job_id} --region {self._account.region}"

    def _watch(self, job_id: str, description: Mapping[str, Any] | None) -> ServiceJob:
        """What is known of a job; one object for all who look at it."""
        with self._lock:
            job = self._jobs.setdefault(job_id, ServiceJob(job_id))
            if description is not None:
                job.description, job.asked_at = description, self._clock.monotonic()
            return job

    def _listed(self, name: str) -> list[Mapping[str, Any]]:
        """Summaries of the jobs in this queue with this name."""
        ask = partial(
            self._account.client("batch").list_service_jobs,
            jobQueue=self.queue,
            filters=[{"name": "JOB_NAME", "values": [name]}],
        )
        answer = ask()
        found = list(answer["jobSummaryList"])
        while answer.get("nextToken"):
            answer = ask(nextToken=answer["nextToken"])
            found += answer["jobSummaryList"]
        return found

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._budget = min(_BURST, self._budget + (now - self._refilled) * self._rate)
        self._refilled = now

    def _describe(self, job: ServiceJob) -> None:
        now = self._clock.monotonic()
        job.asked_at = now
        try:
            job.description = self._account.client("batch").describe_service_job(jobId=job.job_id)
            job.unknown_since = None
        except AWS_ERRORS as error:
            if is_transient(error):
                self._budget = 0.0  # and come back later
            elif code(error) != REFUSED:
                raise LostContact(
                    f"{explain(error, f'look at the queue {self.queue}')}\nits jobs may still wait or run: sign in "
                    f"again, then `{command_line('sync')}`"
                ) from error
            else:
                job.unknown_since = now if job.unknown_since is None else job.unknown_since
                if now - job.unknown_since >= _UNKNOWN_FOR_S:
                    gone = {"status": "FAILED", "statusReason": "AWS Batch no longer knows the service job"}
                    job.description = {**job.description, **gone}


def submission(cluster: Limits, training: Mapping[str, Any]) -> dict[str, Any]:
    """The SubmitServiceJob request of a CreateTrainingJob request.

    Its tags are those of the service job, which AWS Batch passes on. AWS Batch neither tries a failed job again nor
    puts one back whose instances were taken: the next attempt is paretune's, with a name and an admission of its own.
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
