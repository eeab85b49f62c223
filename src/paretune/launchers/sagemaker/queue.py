"""Training jobs that wait their turn in an AWS Batch queue: the parameter `queue`.

`QueuedJobs` submits jobs to a queue and finds them again. `QueuedJob` is one of them, followed to the end of the
training jobs that AWS Batch creates for it. `ServiceJobs` are AWS Batch's own jobs of the queue: submitted once, found
by name, described at a limited rate, terminated.

Source of all statements about AWS Batch: its API model in botocore 1.44.5 and the chapter "Service jobs" of its user
guide (read 2026-11-22). `TrainingQueue` of the SageMaker Python SDK (3.27.0) is not used: it takes region and
credentials of the default session, ends every job after a day, drops a priority of 0, and has no client token.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from paretune.core.clock import Clock
from paretune.core.commands import command_line
from paretune.core.errors import LaunchRefused, LostContact
from paretune.launchers.base import BATCH_JOB_PREFIX, CREATED_WITHIN_S, JobState, ProjectOutput
from paretune.launchers.sagemaker.account import PREFIX, Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_transient, refused_to
from paretune.launchers.sagemaker.failures import classify
from paretune.launchers.sagemaker.jobs import AwsJob, SageMakerJob
from paretune.launchers.sagemaker.polling import CALLS_PER_MINUTE, CallBudget
from paretune.launchers.sagemaker.staging import Staging
from paretune.launchers.sagemaker.training_jobs import TrainingJobs, look_for
from paretune.specification.container import Event, FailureKind, JobDocument, JobReport
from paretune.specification.limits import Limits
from paretune.specification.placement import Placement

STOP_REASON = "stopped by paretune"  # for TerminateServiceJob; AWS Batch shows it with the service job
REFUSED = "ClientException"  # code of a request that AWS Batch refuses: an unknown job, or a client token used before
_ENDED = {"SUCCEEDED", "FAILED"}
_INTERVAL_CALLS = 5.0  # between two looks at one job: what 5 calls take, 5 s at 60 a minute
_UNKNOWN_FOR_S = 60.0  # that long a job may be unknown to AWS itself: a new one, or between two of its machines
_SHOWN_WITHIN_S = 6.0  # a service job that another process has just submitted
_FORGOTTEN_S = 5 * 86_400.0
"""AWS Batch is assumed to know a job at least this long; its user guide does not say how long (read 2026-11-22)."""
_WAITING = {"SUBMITTED", "PENDING", "RUNNABLE"}
_PREEMPTED = "preempted: the queue has given its instances to a job with more right to them"
_Value = TypeVar("_Value")
_KEPT_CHARACTERS = 31  # of the 63 of a training job's name; AWS Batch makes up the rest


class ServiceJob:
    """The last description of one service job."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.description: Mapping[str, Any] = {}
        self.unknown_since: float | None = None
        self.described_at = float("-inf")
        # whether it is to be described again; not while its training job runs, which SageMaker describes.
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
        """The service job with this name in any state; None if there is none. Raises LaunchRefused."""
        batch = self._account.client("batch")
        with refused_to(f"look for {name} in the queue {self.queue}"):
            # Without a filter, jobStatus is RUNNING by default; with one, AWS Batch lists jobs in all states.
            named = [{"name": "JOB_NAME", "values": [name]}]
            pages = batch.get_paginator("list_service_jobs").paginate(jobQueue=self.queue, filters=named)
            summaries = [entry for page in pages for entry in page["jobSummaryList"]]
            matches = [entry for entry in summaries if entry["jobName"] == name]  # the filter ignores case
            if not matches:
                return None
            first = min(matches, key=lambda entry: entry.get("createdAt", 0))
            return self._watch(first["jobId"], batch.describe_service_job(jobId=first["jobId"]))

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
        """Call TerminateServiceJob; False if it must be called again. Raises LostContact if AWS refuses."""
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


def _of_training(method: str, default: Callable[[], Any]) -> Any:
    """A method of `QueuedJob` that is answered by the training job, or by a default before there is one."""

    def answer(job: "QueuedJob", *arguments: Any) -> Any:
        training = job.training
        return default() if training is None else getattr(training, method)(*arguments)

    return answer


class QueuedJob(AwsJob):
    """A service job and the training job of its latest attempt, which answers everything once it is created.

    Waiting costs nothing: before there is a training job, its seconds are 0. If SageMaker lacks capacity, AWS Batch
    creates another training job later under another name, so the job has ended only when AWS Batch says so.
    """

    def __init__(
        self,
        name: str,
        service_job: ServiceJob,
        service_jobs: ServiceJobs,
        staging: Staging,
        clock: Clock,
        follow: Callable[[str], SageMakerJob],  # makes the `SageMakerJob` of a training job's name
    ) -> None:
        self.name = name
        self.output = ProjectOutput(
            fetch=lambda folder: self._ask(lambda job: job.output.fetch(folder), None),
            printed=lambda: self._ask(lambda job: job.output.printed(), []),
        )
        self._service_job = service_job
        self._service_jobs = service_jobs
        self._clock = clock
        self._follow = follow
        self._training: SageMakerJob | None = None
        self._training_name = ""
        self._asked_to_stop = False
        self._must_stop_again = False
        self._last_phase = ""  # in the queue, as the last event reported it

    def state(self) -> JobState:
        """The state of the training job once AWS Batch agrees that it has ended; RUNNING while the job waits."""
        service_job = self._service_job
        if self._must_stop_again and not service_job.has_ended:
            self.stop()
        training = self.training
        running = JobState.STOPPING if self._is_stopping else JobState.RUNNING
        if training is None:
            service_job.is_polled = True
            if not service_job.has_ended:
                return running
            return JobState.STOPPED if self._is_stopping else JobState.FAILED
        state = training.state()
        service_job.is_polled = state.is_terminal
        if not state.is_terminal:
            if service_job.has_ended and self._is_stopping:  # AWS Batch should have stopped it
                training.stop()
            return running if state is JobState.RUNNING else state
        if not service_job.has_ended:
            return running
        return JobState.STOPPED if self._is_stopping and _lacked_capacity(training, state) else state

    def detail(self) -> str:
        """The phase in the queue, as far as AWS Batch tells, then SageMaker's secondary status."""
        return self._queue_phase() or self._ask(lambda job: job.detail(), "")

    def events(self) -> list[Event]:
        """Each new status in the queue as a message, then the events of the training."""
        phase = self._queue_phase()
        events = self.training.events() if self.training is not None else []
        if phase and phase != self._last_phase:
            self._last_phase = phase
            events = [Event(time=self._clock.now(), step=0, message=phase), *events]
        return events

    def stop(self) -> None:
        """Call TerminateServiceJob: out of the queue at once; a training job gets SIGTERM and two minutes."""
        training = self.training
        if self._service_job.has_ended:
            if training is not None:
                training.stop()
            return
        self._asked_to_stop = True
        self._must_stop_again = not self._service_jobs.terminate(self._service_job)

    def failure(self) -> tuple[FailureKind, str] | None:
        """The failure of the training job, or AWS Batch's reason if there never was one."""
        state, training = self.state(), self._training
        if training is not None:
            if state is JobState.STOPPED and self._service_job.was_preempted and not self._is_stopping:
                return FailureKind.CAPACITY, _PREEMPTED
            if not state.is_terminal or (state is JobState.STOPPED and self._is_stopping):
                return None
            return training.failure()
        if state is not JobState.FAILED:
            return None
        kind, reason = classify(self._service_job.reason or "AWS Batch gave no reason")
        return kind, f"it ended in the queue {self._service_jobs.queue}, before a training job was created: {reason}"

    def facts(self) -> dict[str, str]:
        """The place of the job in AWS, and how long it has waited."""
        facts = {"service_job": str(self._service_job.description.get("jobArn", ""))}
        created, scheduled = self._service_job.time("createdAt"), self._service_job.time("scheduledAt")
        if created is not None and scheduled is not None:
            facts["queue_seconds"] = f"{max(0.0, scheduled - created):.0f}"
        more = self._ask(lambda job: job.facts(), {"secondary_status": self.detail()})
        return {name: text for name, text in facts.items() if text} | more

    def log_location(self) -> str:
        """The command that shows the log; before there is one, the command that shows the service job."""
        return self._ask(lambda job: job.log_location(), self._service_jobs.command_to_look(self._service_job))

    def report(self) -> JobReport | None:
        """The report of the training job."""
        return self._ask(lambda job: job.report(), None) if self.state() is JobState.COMPLETED else None

    seconds = _of_training("seconds", float)  # without waiting in the queue
    billable_seconds = _of_training("billable_seconds", float)  # waiting is not billed
    phase_seconds = _of_training("phase_seconds", dict)
    log_tail = _of_training("log_tail", list)
    model_location = _of_training("model_location", str)
    profile = _of_training("profile", dict)
    clean_up = _of_training("clean_up", lambda: None)

    @property
    def _is_stopping(self) -> bool:
        job = self._service_job
        return self._asked_to_stop or (bool(job.description.get("isTerminated")) and STOP_REASON in job.reason)

    def _ask(self, question: Callable[[SageMakerJob], _Value], default: _Value) -> _Value:
        training = self.training
        return default if training is None else question(training)

    @property
    def training(self) -> SageMakerJob | None:
        """The training job of the latest attempt; None before there is one."""
        if not self._service_job.has_ended:
            self._service_jobs.look()
        name = self._service_job.training_job
        if name and name != self._training_name:
            self._training, self._training_name = self._follow(name), name
        return self._training

    def _queue_phase(self) -> str:
        """AWS Batch's status and reason as text; "" for a job that waits neither for its turn nor for capacity.

        AWS Batch does not tell the position in the queue.
        """
        training, job = self.training, self._service_job
        if training is not None and job.status not in _WAITING:
            return ""
        reason = f": {job.reason}" if job.reason else ""
        return (
            f"{'Ended' if job.has_ended else 'Waiting'} in the queue {self._service_jobs.queue} ({job.status}{reason})"
        )


class QueuedJobs(TrainingJobs):
    """Submits jobs to one queue, which creates their training jobs, and finds them again.

    Args:
        queue: name or ARN.
        calls_per_minute: the most calls about the queue, averaged over a minute.
        arguments: those of `TrainingJobs`.
    """

    def __init__(self, queue: str, calls_per_minute: float, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._queue = queue
        self._service_jobs = ServiceJobs(queue, self.account, self.clock, calls_per_minute)
        self.location_tags = {"queue": queue}

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
                    return self.adopt_after(error, name)
                # Two processes that submit a name at once send the same client token: AWS Batch refuses the second.
                job = look_for(_SHOWN_WITHIN_S, lambda: self.find(name), self.clock)
                if job is None:
                    raise LaunchRefused(explain(error, f"submit the job to the queue {self._queue}")) from error
                return job
        return self._queued_job(name, service_job)

    def find(self, name: str) -> AwsJob | None:
        """The service job in this queue; the training job of one that AWS Batch has forgotten.

        Raises:
            LostContact: it was submitted days ago and neither exists: it may have run, and been billed.
        """
        service_job = self._service_jobs.find(name)
        return self._forgotten(name) if service_job is None else self._queued_job(name, service_job)

    def preview(self, cluster: Placement, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The SubmitServiceJob request, with its payload as an object in place of a text."""
        sent = submission(cluster, request)
        return {**sent, "serviceRequestPayload": json.loads(sent["serviceRequestPayload"])}

    def _forgotten(self, name: str) -> AwsJob | None:
        """The training job of a name that AWS Batch does not know; None if it was never submitted."""
        staging = self.staging()
        mark = staging.claim(_mark(name))
        age_s = 0.0 if mark is None else self.clock.now() - mark.since
        if mark is None or age_s < CREATED_WITHIN_S:  # AWS Batch may show it in a moment
            return None
        description = self._created_for(name)
        if description is not None:
            training_job = description["TrainingJobName"]
            return self.job(name, staging, description, training_job=training_job)
        if age_s < _FORGOTTEN_S:
            return None
        raise LostContact(
            f"{name} was submitted to the queue {self._queue} {age_s / 86_400:.0f} days ago, and neither AWS Batch nor "
            "SageMaker knows it any more: it may have run and been billed, so it is not submitted again, and its worst "
            "case stays reserved; look for it (`aws sagemaker list-training-jobs --name-contains "
            f"{_training_job_prefix(name)} --region {self.account.region}`), and if it never ran: "
            f"`aws s3 rm {staging.uri(_mark(name))}`"
        )

    def _created_for(self, name: str) -> Mapping[str, Any] | None:
        sagemaker = self.account.client("sagemaker")
        with refused_to(f"look for the training job of {name}"):
            pages = sagemaker.get_paginator("list_training_jobs").paginate(NameContains=_training_job_prefix(name))
            summaries = [entry for page in pages for entry in page["TrainingJobSummaries"]]
            for entry in sorted(summaries, key=lambda entry: entry["CreationTime"], reverse=True):
                description: Mapping[str, Any] = sagemaker.describe_training_job(
                    TrainingJobName=entry["TrainingJobName"]
                )
                if _reads_document_of(name, description):
                    return description
        return None

    def _queued_job(self, name: str, service_job: ServiceJob) -> QueuedJob:
        staging = self.staging()

        def follow(training_job: str) -> SageMakerJob:
            try:
                description = self.account.client("sagemaker").describe_training_job(TrainingJobName=training_job)
            except AWS_ERRORS:  # the poller asks again
                description = None
            return self.job(name, staging, description, training_job=training_job)

        return QueuedJob(name, service_job, self._service_jobs, staging, self.clock, follow)


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
    return f"{BATCH_JOB_PREFIX}{name}"[:_KEPT_CHARACTERS]


def _reads_document_of(name: str, description: Mapping[str, Any]) -> bool:
    """Whether a training job was created for the job `name`; the names of all jobs of one run start alike."""
    sources = [entry.get("DataSource", {}).get("S3DataSource", {}) for entry in description.get("InputDataConfig", [])]
    return any(f"/jobs/{name}/" in source.get("S3Uri", "") for source in sources)


def _lacked_capacity(training: SageMakerJob, state: JobState) -> bool:
    """Whether a training job failed for lack of capacity: its service job was waiting again when it was stopped."""
    failure = training.failure() if state is JobState.FAILED else None
    return failure is not None and failure[0] is FailureKind.CAPACITY
