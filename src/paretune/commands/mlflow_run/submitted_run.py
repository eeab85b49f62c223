"""The run of a project on SageMaker, as MLflow waits for it and cancels it."""

import sys
import threading

from mlflow.exceptions import ExecutionException
from mlflow.projects.submitted_run import SubmittedRun

from paretune.core.clock import Interruption
from paretune.core.errors import Interrupted, LostContact
from paretune.core.untrusted import printable
from paretune.jobs.attempts import WATCH_INTERVAL_S, Attempts
from paretune.jobs.launch import leave_or_abandon
from paretune.jobs.outcome import RUN_STATUS, JobOutcome
from paretune.launchers.base import JobState
from paretune.specification.container import Event


class SageMakerSubmittedRun(SubmittedRun):
    """A project's job under way. The first call that sees its end fills its run and says how it ended."""

    def __init__(self, job: Attempts) -> None:
        super().__init__()
        self._job = job
        self._lock = threading.RLock()  # MLflow's runs may be waited for in threads of their own

    @property
    def run_id(self) -> str:
        """Id of the MLflow run."""
        return self._job.record.run.run_id

    @property
    def job_name(self) -> str:
        """Name of the training job."""
        return self._job.document.job_name

    def wait(self) -> bool:
        """Print the job's output until it ends and fill the run; True if it is Completed. Raises ExecutionException."""
        return self.follow(Interruption())  # which never happens

    def follow(self, interruption: Interruption) -> bool:
        """Like `wait`; an interruption stops the job, or leaves it as `on_interrupt` says, and raises Interrupted."""
        if self._job.end is None:
            self._job.record.watch()
        try:
            while (end := self._poll()) is None:
                interruption.check()
                self._job.record.workplace.clock.sleep(WATCH_INTERVAL_S)
        except Interrupted as error:
            self._abandon(error)
            raise
        return end.state is JobState.COMPLETED

    def cancel(self) -> None:
        """Stop the job with SIGTERM, wait up to two minutes until SageMaker has stopped it, and fill the run."""
        self._abandon(Interrupted("cancelled"))

    def get_status(self) -> str:
        """MLflow's status of the run, such as RUNNING; fills the run if the job has ended."""
        end = self._poll()
        return "RUNNING" if end is None else RUN_STATUS[end.state].value

    def _poll(self) -> JobOutcome | None:
        """The end of the job; None while it runs."""
        with self._lock:
            was_open = self._job.end is None
            try:
                end = self._job.poll()
            except LostContact as error:
                self._job.record.leave()
                raise ExecutionException(str(error)) from error
            if was_open:
                self._report(end)
            return end

    def _abandon(self, error: Interrupted) -> None:
        with self._lock:
            if self._job.end is not None:
                return
            tell(f"{error}: stopping {self.job_name}")
            try:
                leave_or_abandon(self._job, error)
            except LostContact as lost:
                raise ExecutionException(str(lost)) from lost
            self._report(self._job.end)

    def _report(self, end: JobOutcome | None) -> None:
        """Print what the command has printed, and at the end why the job failed, if it did, and remarks."""
        for line in [] if self._job.current is None else self._job.current.printed():
            # A progress bar returns to the beginning of its line: print its last state.
            print(printable(line.rstrip("\r").rpartition("\r")[2]), flush=True)
        if end is not None:
            for sentence in ([str(end.error())] if end.failure is not None else []) + list(end.remarks):
                tell(sentence)


def follow(submitted: SageMakerSubmittedRun) -> None:
    """Wait for a run that the command line has started; ends the process with code 1 if it does not succeed."""
    interruption = Interruption()
    try:
        with interruption.listening():
            succeeded = submitted.follow(interruption)
    except Interrupted as error:
        raise KeyboardInterrupt(str(error)) from error  # MLflow's command line ends as after Ctrl-C
    except ExecutionException as error:
        tell(str(error))
        sys.exit(1)
    tell(f"run {submitted.run_id} {'succeeded' if succeeded else 'did not succeed'}")
    if not succeeded:
        sys.exit(1)


def show(events: list[Event]) -> None:
    """Print the messages of a job."""
    for event in events:
        if event.message:
            tell(event.message)


def tell(sentence: str) -> None:
    """Print a sentence on standard error, without control characters for a terminal."""
    print(printable(f"paretune: {sentence}"), file=sys.stderr, flush=True)
