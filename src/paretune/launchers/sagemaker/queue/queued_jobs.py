"""Jobs that are submitted to an AWS Batch queue, and followed to the end of the training jobs that it creates."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from paretune.core.clock import Clock
from paretune.core.errors import LaunchRefused, LostContact
from paretune.launchers.base import BATCH_JOB_PREFIX, CREATED_WITHIN_S, JobState, ProjectOutput, Trials
from paretune.launchers.sagemaker.account import PREFIX
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain
from paretune.launchers.sagemaker.failures import classify
from paretune.launchers.sagemaker.jobs import AwsJob, SageMakerJob, request_trial_stop
from paretune.launchers.sagemaker.queue.service_jobs import REFUSED, STOP_REASON, ServiceJob, ServiceJobs, submission
from paretune.launchers.sagemaker.staging import Claim, Staging
from paretune.launchers.sagemaker.training_jobs import TrainingJobs, look_for
from paretune.specification.container import TRIALS, Event, FailureKind, JobDocument, JobReport
from paretune.specification.placement import Placement

_SHOWN_WITHIN_S = 6.0  # a service job that another process has just submitted
_FORGOTTEN_S = 5 * 86_400.0
"""AWS Batch is assumed to know a job at least this long; its user guide does not say how long (read 2026-11-22)."""
_WAITING = {"SUBMITTED", "PENDING", "RUNNABLE"}
_PREEMPTED = "preempted: the queue has given its instances to a job with more right to them"
_Value = TypeVar("_Value")
_KEPT_CHARACTERS = 31  # of the 63 of a training job's name; AWS Batch makes up the rest


class QueuedJob(AwsJob):
    """A service job and the training job of its latest attempt, which answers everything once it is created.

    Waiting costs nothing: before there is a training job, its seconds are 0. If SageMaker lacks capacity, AWS Batch
    creates another training job later under another name, so the job has ended only when AWS Batch says so.

    Args:
        follow: makes the `SageMakerJob` of a training job's name.
    """

    def __init__(
        self,
        name: str,
        service_job: ServiceJob,
        service_jobs: ServiceJobs,
        staging: Staging,
        clock: Clock,
        follow: Callable[[str], SageMakerJob],
        *,
        trials: int = 1,
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
        self.trials = Trials(trials, partial(request_trial_stop, staging, name))
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
        """Where the job is in AWS, and how long it has waited."""
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

    def seconds(self) -> float:
        """The seconds of the training job, without waiting in the queue."""
        return self._ask(lambda job: job.seconds(), 0.0)

    def billable_seconds(self) -> float:
        """The billed seconds of the training job; waiting is not billed."""
        return self._ask(lambda job: job.billable_seconds(), 0.0)

    def phase_seconds(self) -> Mapping[str, float]:
        """The phases of the training job."""
        return self._ask(lambda job: job.phase_seconds(), {})

    def log_tail(self, lines: int = 15) -> list[str]:
        """The last lines of the training job."""
        return self._ask(lambda job: job.log_tail(lines), [])

    def model_location(self) -> str:
        """S3 URI of the training job's model."""
        return self._ask(lambda job: job.model_location(), "")

    def profile(self) -> Mapping[str, bytes]:
        """The profile of the training job."""
        return self._ask(lambda job: job.profile(), {})

    def clean_up(self) -> None:
        """Remove the checkpoints of the training job."""
        self._ask(lambda job: job.clean_up(), None)

    @property
    def _is_stopping(self) -> bool:
        """Whether it was asked to stop, here or by another process."""
        job = self._service_job
        return self._asked_to_stop or (bool(job.description.get("isTerminated")) and STOP_REASON in job.reason)

    def _ask(self, question: Callable[[SageMakerJob], _Value], default: _Value) -> _Value:
        """The latest training job's answer; the default if there is none."""
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
                    return self.adopt_after(error, name)
                # Two processes that submit a name at once send the same client token: AWS Batch refuses the second.
                job = look_for(_SHOWN_WITHIN_S, lambda: self.find(name), self.clock)
                if job is None:
                    raise LaunchRefused(explain(error, f"submit the job to the queue {self._queue}")) from error
                return job
        return self._queued_job(name, service_job, request)

    def find(self, name: str) -> AwsJob | None:
        """The service job in this queue; the training job of one that AWS Batch has forgotten.

        Raises:
            LostContact: it was submitted days ago and neither exists: it may have run, and been billed.
        """
        service_job = self._service_jobs.find(name)
        return self._forgotten(name) if service_job is None else self._queued_job(name, service_job)

    def is_alive(self, claim: Claim) -> bool:
        """Ask AWS Batch; a job that it does not know may still come for CREATED_WITHIN_S."""
        service_job = self._service_jobs.find(claim.owner)
        if service_job is None:
            return self.clock.now() - claim.since < CREATED_WITHIN_S
        return not service_job.has_ended

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
            return self.job(name, staging, description, description, training_job=training_job)
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
        """The description of the newest training job that AWS Batch has created for a job.

        Raises:
            LaunchRefused: AWS does not answer.
        """
        sagemaker = self.account.client("sagemaker")
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

    def _queued_job(self, name: str, service_job: ServiceJob, request: Mapping[str, Any] | None = None) -> QueuedJob:
        """A job by its request, or by the request that AWS Batch has kept."""
        payload = request or json.loads(service_job.description.get("serviceRequestPayload") or "{}")
        staging = self.staging()

        def follow(training_job: str) -> SageMakerJob:
            try:
                description = self.account.client("sagemaker").describe_training_job(TrainingJobName=training_job)
            except AWS_ERRORS:  # the poller asks again
                description = None
            return self.job(name, staging, payload, description, training_job=training_job)

        trials = int(payload.get("Environment", {}).get(TRIALS, 1))
        return QueuedJob(name, service_job, self._service_jobs, staging, self.clock, follow, trials=trials)


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


def _lacked_capacity(training: SageMakerJob, state: JobState) -> bool:
    """Whether a training job failed for lack of capacity: its service job was waiting again when it was stopped."""
    failure = training.failure() if state is JobState.FAILED else None
    return failure is not None and failure[0] is FailureKind.CAPACITY
