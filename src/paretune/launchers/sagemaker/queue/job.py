"""A job from an AWS Batch queue to the end of the training job that AWS Batch creates for it."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from paretune.core.clock import Clock
from paretune.launchers.base import JobState, ProjectOutput, Trials
from paretune.launchers.sagemaker.aws_errors import classify
from paretune.launchers.sagemaker.jobs import AwsJob, SageMakerJob, request_trial_stop
from paretune.launchers.sagemaker.queue.service_jobs import STOP_REASON, ServiceJob, ServiceJobs
from paretune.launchers.sagemaker.staging import Staging
from paretune.specification.container import Event, FailureKind, JobReport

_WAITING = {"SUBMITTED", "PENDING", "RUNNABLE"}
_PREEMPTED = "preempted: the queue has given its instances to a job with more right to them"
_Value = TypeVar("_Value")


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
        self.output = _QueuedJobOutput(self._ask)
        self._service_job = service_job
        self._service_jobs = service_jobs
        self._clock = clock
        self._follow = follow
        self._trials = Trials(trials, partial(request_trial_stop, staging, name))
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
        training = self._latest()
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
        training = self._latest()
        return self._queue_phase() if training is None or self._is_waiting else training.detail()

    def events(self) -> list[Event]:
        """Each new status in the queue as a message, then the events of the training."""
        training = self._latest()
        phase = self._queue_phase() if training is None or self._is_waiting else ""
        fresh = []
        if phase and phase != self._last_phase:
            self._last_phase = phase
            fresh = [Event(time=self._clock.now(), step=0, message=phase)]
        return fresh + (training.events() if training is not None else [])

    def stop(self) -> None:
        """Call TerminateServiceJob: out of the queue at once; a training job gets SIGTERM and two minutes."""
        training = self._latest()
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

    @property
    def trials(self) -> Trials:
        """The trials in its request; one can be asked to end before it begins."""
        return self._trials

    def report(self) -> JobReport | None:
        """The report of the training job."""
        is_completed = self.state() is JobState.COMPLETED
        return self._training.report() if is_completed and self._training is not None else None

    def seconds(self) -> float:
        """The seconds of the training job, without waiting in the queue."""
        return self._ask(lambda job: job.seconds(), 0.0)

    def billable_seconds(self) -> float:
        """The billed seconds of the training job; waiting is not billed."""
        return self._ask(lambda job: job.billable_seconds(), 0.0)

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
    def description(self) -> Mapping[str, Any]:
        """The last answer of DescribeTrainingJob; empty before there is a training job."""
        return self._ask(lambda job: job.description, {})

    def logged_events(self) -> list[Event]:
        """The events that the training job has logged."""
        return self._ask(lambda job: job.logged_events(), [])

    def written_events(self) -> list[Event]:
        """The events in the results of the training job."""
        return self._ask(lambda job: job.written_events(), [])

    @property
    def _is_waiting(self) -> bool:
        """Whether it waits for its turn, or for capacity that its last training job lacked."""
        return self._service_job.status in _WAITING

    @property
    def _is_stopping(self) -> bool:
        """Whether it was asked to stop, here or by another process."""
        job = self._service_job
        return self._asked_to_stop or (bool(job.description.get("isTerminated")) and STOP_REASON in job.reason)

    def _ask(self, question: Callable[[SageMakerJob], _Value], default: _Value) -> _Value:
        """The latest training job's answer; the default if there is none."""
        training = self._latest()
        return default if training is None else question(training)

    def _latest(self) -> SageMakerJob | None:
        """The training job of the latest attempt; None before there is one."""
        if not self._service_job.has_ended:
            self._service_jobs.look()
        name = self._service_job.training_job
        if name and name != self._training_name:
            self._training, self._training_name = self._follow(name), name
        return self._training

    def _queue_phase(self) -> str:
        """AWS Batch's status and reason as text; it does not tell the position in the queue."""
        job = self._service_job
        reason = f": {job.reason}" if job.reason else ""
        return (
            f"{'Ended' if job.has_ended else 'Waiting'} in the queue {self._service_jobs.queue} ({job.status}{reason})"
        )


class _QueuedJobOutput(ProjectOutput):
    """The output of the latest training job."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def printed(self) -> list[str]:
        lines: list[str] = self._ask(lambda job: job.output.printed(), [])
        return lines

    def fetch(self, folder: Path) -> Path | None:
        path: Path | None = self._ask(lambda job: job.output.fetch(folder), None)
        return path


def _lacked_capacity(training: SageMakerJob, state: JobState) -> bool:
    """Whether a training job failed for lack of capacity: its service job was waiting again when it was stopped."""
    failure = training.failure() if state is JobState.FAILED else None
    return failure is not None and failure[0] is FailureKind.CAPACITY
