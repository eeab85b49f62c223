"""A job from the queue to the end of the training job that AWS Batch creates for it."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from paretune.core.clock import Clock
from paretune.launchers.base import JobState, ProjectOutput, Trials
from paretune.launchers.sagemaker.aws_errors import classify
from paretune.launchers.sagemaker.jobs import AwsJob, SageMakerJob, request_trial_stop
from paretune.launchers.sagemaker.queue.service_jobs import STOP_REASON, ServiceJob, ServiceJobs
from paretune.launchers.sagemaker.staging import Staging
from paretune.specification.container import Event, FailureKind, JobReport

_WAITING = {"SUBMITTED", "PENDING", "RUNNABLE"}
_PREEMPTED = "preempted: the queue has given its instances to a job with more right to them"


class QueuedJob(AwsJob):
    """A service job, and the training job of its latest attempt, which tells everything from its creation on.

    Waiting costs nothing: until there is a training job, its seconds are 0. Where SageMaker lacks capacity, AWS Batch
    creates another training job later, under another name: the job has ended when AWS Batch says so.

    Args:
        follow: makes the SageMaker job of a training job's name.
        trials: how many trials of a study it trains.
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
        self._service_job = service_job
        self._service_jobs = service_jobs
        self._clock = clock
        self._follow = follow
        self._trials = Trials(trials, partial(request_trial_stop, staging, name))
        self.output = _QueuedJobOutput(self._latest)
        self._training: SageMakerJob | None = None
        self._training_name = ""
        self._asked_to_stop = False
        self._must_stop_again = False
        self._told = ""  # what the last event has said of the queue

    def state(self) -> JobState:
        """The state of the training job, once AWS Batch agrees that it has ended; RUNNING while it waits."""
        job = self._service_job
        if self._must_stop_again and not job.has_ended:
            self.stop()
        training = self._latest()
        running = JobState.STOPPING if self._is_stopping else JobState.RUNNING
        if training is None:
            job.is_wanted = True
            return self._end_state() if job.has_ended else running
        state = training.state()
        job.is_wanted = state.is_terminal
        if not state.is_terminal:
            if job.has_ended and self._is_stopping:  # which AWS Batch should have done
                training.stop()
            return running if state is JobState.RUNNING else state
        if not job.has_ended:
            return running
        return JobState.STOPPED if self._is_stopping and _lacked_capacity(training, state) else state

    def detail(self) -> str:
        """Where in the queue it is, as far as AWS Batch tells, then SageMaker's secondary status."""
        training = self._latest()
        return self._place() if training is None or self._waits else training.detail()

    def events(self) -> list[Event]:
        """Each new status in the queue as a message, then what the training tells."""
        training = self._latest()
        said = self._place() if training is None or self._waits else ""
        fresh = []
        if said and said != self._told:
            self._told = said
            fresh = [Event(time=self._clock.now(), step=0, message=said)]
        return fresh + (training.events() if training is not None else [])

    def stop(self) -> None:
        """TerminateServiceJob: out of the queue at once; a training job gets SIGTERM and two minutes."""
        training = self._latest()
        if self._service_job.has_ended:
            if training is not None:
                training.stop()
            return
        self._asked_to_stop = True
        self._must_stop_again = not self._service_jobs.terminate(self._service_job)

    def failure(self) -> tuple[FailureKind, str] | None:
        """That of the training job; of a job that never got one, AWS Batch's reason."""
        state, training = self.state(), self._training
        if training is not None:
            if state is JobState.STOPPED and self._service_job.was_preempted and not self._is_stopping:
                return FailureKind.CAPACITY, _PREEMPTED
            found = training.failure() if state.is_terminal else None
            return None if state is JobState.STOPPED and self._is_stopping else found
        if state is not JobState.FAILED:
            return None
        kind, reason = classify(self._service_job.reason or "AWS Batch gave no reason")
        return kind, f"it ended in the queue {self._service_jobs.queue}, before a training job was created: {reason}"

    def facts(self) -> dict[str, str]:
        """Where the job is in AWS, and how long it has waited for its turn."""
        facts = {"service_job": str(self._service_job.description.get("jobArn", ""))}
        created, scheduled = self._service_job.seconds("createdAt"), self._service_job.seconds("scheduledAt")
        if created is not None and scheduled is not None:
            facts["queue_seconds"] = f"{max(0.0, scheduled - created):.0f}"
        training = self._latest()
        told = training.facts() if training is not None else {"secondary_status": self.detail()}
        return {name: text for name, text in facts.items() if text} | told

    def log_location(self) -> str:
        """The command that shows the log; before there is one, the command that shows the service job."""
        training = self._latest()
        if training is not None:
            return training.log_location()
        return self._service_jobs.command_to_look(self._service_job)

    @property
    def trials(self) -> Trials:
        """The trials in its request; one can be asked to end before it begins."""
        return self._trials

    def report(self) -> JobReport | None:
        """What came out of the training job."""
        completed = self.state() is JobState.COMPLETED
        return self._training.report() if completed and self._training is not None else None

    def seconds(self) -> float:
        """Those of the training job; waiting in the queue is not among them."""
        training = self._latest()
        return training.seconds() if training is not None else 0.0

    def billable_seconds(self) -> float:
        """Those of the training job: waiting is not billed."""
        training = self._latest()
        return training.billable_seconds() if training is not None else 0.0

    def log_tail(self, lines: int = 15) -> list[str]:
        """Of the training job."""
        training = self._latest()
        return training.log_tail(lines) if training is not None else []

    def model_location(self) -> str:
        """Of the training job."""
        training = self._latest()
        return training.model_location() if training is not None else ""

    def profile(self) -> Mapping[str, bytes]:
        """Of the training job."""
        training = self._latest()
        return training.profile() if training is not None else {}

    def clean_up(self) -> None:
        """As the training job does."""
        training = self._latest()
        if training is not None:
            training.clean_up()

    @property
    def description(self) -> Mapping[str, Any]:
        """What DescribeTrainingJob said last; empty before there is a training job."""
        training = self._latest()
        return training.description if training is not None else {}

    def logged_events(self) -> list[Event]:
        """Of the training job."""
        training = self._latest()
        return training.logged_events() if training is not None else []

    def written_events(self) -> list[Event]:
        """Of the training job."""
        training = self._latest()
        return training.written_events() if training is not None else []

    @property
    def _waits(self) -> bool:
        """Whether it waits for its turn, or for capacity that its last training job has not found."""
        return self._service_job.status in _WAITING

    @property
    def _is_stopping(self) -> bool:
        """Whether it was asked to stop, here or by another process."""
        job = self._service_job
        return self._asked_to_stop or (bool(job.description.get("isTerminated")) and STOP_REASON in job.reason)

    def _latest(self) -> SageMakerJob | None:
        """The training job of the latest attempt; None before there is one."""
        if not self._service_job.has_ended:
            self._service_jobs.look()
        name = self._service_job.training_job
        if name and name != self._training_name:
            self._training, self._training_name = self._follow(name), name
        return self._training

    def _end_state(self) -> JobState:
        """How it ended without a training job: taken out of the queue as asked, or for a reason."""
        return JobState.STOPPED if self._is_stopping else JobState.FAILED

    def _place(self) -> str:
        """That it waits, or has ended there, and AWS Batch's word and reason for it; its position is not told."""
        job = self._service_job
        why = f": {job.reason}" if job.reason else ""
        return f"{'Ended' if job.has_ended else 'Waiting'} in the queue {self._service_jobs.queue} ({job.status}{why})"


class _QueuedJobOutput(ProjectOutput):
    """The output of the latest training job."""

    def __init__(self, latest: Callable[[], SageMakerJob | None]) -> None:
        self._latest = latest

    def printed(self) -> list[str]:
        training = self._latest()
        return training.output.printed() if training is not None else []

    def fetch(self, folder: Path) -> Path | None:
        training = self._latest()
        return training.output.fetch(folder) if training is not None else None


def _lacked_capacity(training: SageMakerJob, state: JobState) -> bool:
    """Whether a training job has failed for lack of capacity: its service job was waiting again when it was stopped."""
    failure = training.failure() if state is JobState.FAILED else None
    return failure is not None and failure[0] is FailureKind.CAPACITY
