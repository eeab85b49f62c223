"""What MLflow gets back: one project that runs on SageMaker, to be waited for, cancelled and asked."""

import sys
import threading
from collections.abc import Callable

from mlflow.exceptions import ExecutionException
from mlflow.projects.submitted_run import SubmittedRun

from paretune.core.commands import command_line
from paretune.core.errors import Interrupted, JobFailed, LostContact
from paretune.core.interruption import Interruption
from paretune.core.untrusted import printable
from paretune.jobs.recording import RUN_STATUS, JobRunWriter
from paretune.jobs.retrying_job import WATCH_INTERVAL_S, RetryingJob
from paretune.launchers.base import Job, JobState, job_name
from paretune.specification.container import Event, JobInputs


class SageMakerSubmittedRun(SubmittedRun):
    """A project on SageMaker. Whoever sees first that its job has ended fills its run.

    `inputs` makes what runs; it is not called when the job is there already.
    """

    def __init__(self, writer: JobRunWriter, inputs: Callable[[], JobInputs]) -> None:
        super().__init__()
        self._writer = writer
        self._job = RetryingJob(writer, self._show, inputs=inputs, halves=False)
        self._ended: JobState | None = None
        self._lock = threading.RLock()  # MLflow's runs may be waited for in threads of their own

    @property
    def run_id(self) -> str:
        """The MLflow run."""
        return self._writer.run.run_id

    @property
    def job_name(self) -> str:
        """The training job."""
        return job_name(self.run_id, 1)

    def start(self) -> None:
        """Create the job, or adopt it; an error closes the run, unless the job may be there.

        Raises:
            BadInput, LaunchRefused: it could not be created.
            Interrupted: nothing runs any more.
            LostContact: it may have been created; the run stays open for `sync`.
        """
        try:
            self._job.begin()
            self._writer.workplace.interruption.check()
        except BaseException as error:
            self._job.abandon(error)
            raise
        self._writer.leave()  # nobody watches it until `wait` is called

    def wait(self) -> bool:
        """Show what the job prints until it has ended; True when it is Completed. The run is filled then.

        Raises:
            ExecutionException: AWS no longer tells how the job does; it goes on.
        """
        return self.follow(Interruption())  # one that nothing is recorded in

    def follow(self, interruption: Interruption) -> bool:
        """Like `wait`; an interruption stops the job and fills the run.

        Raises:
            Interrupted: the job has been stopped.
        """
        if self._ended is None:
            self._writer.watch()
        try:
            while (state := self._poll()) is None:
                interruption.check()
                self._job.clock.sleep(WATCH_INTERVAL_S)
            return state is JobState.COMPLETED
        except Interrupted as error:
            tell(f"{error}: stopping {self.job_name}")
            self._abandon(error)
            raise

    def cancel(self) -> None:
        """Stop the job: SIGTERM, and up to two minutes until SageMaker says that it has stopped. The run is filled."""
        self._abandon(Interrupted("cancelled"))

    def get_status(self) -> str:
        """MLflow's word for the state of the run, such as RUNNING; the run is filled when it is over."""
        state = self._poll()
        return "RUNNING" if state is None else RUN_STATUS[state].value

    def _poll(self) -> JobState | None:
        """How the job ended; None while it runs."""
        with self._lock:
            if self._ended is None:
                try:
                    if self._job.poll() is None:
                        return None
                except JobFailed as error:
                    if self._current.state() is JobState.FAILED or self._current.failure() is not None:
                        tell(str(error))
                except LostContact as error:
                    raise self._lost(error) from error
                self._end()
            return self._ended

    def _abandon(self, error: Interrupted) -> None:
        with self._lock:
            if self._ended is None:
                try:
                    self._job.abandon(error)
                except LostContact as lost:
                    raise self._lost(lost) from lost
                self._end()

    def _end(self) -> None:
        self._ended = self._current.state()
        for remark in self._writer.remarks:
            tell(remark)

    @property
    def _current(self) -> Job:
        assert self._job.current is not None  # `start` has created or found it
        return self._job.current

    def _show(self, events: list[Event]) -> None:
        for event in events:
            tell(f"{self.job_name}: {event.message}")
        for line in self._current.printed():
            print(printable(_overwritten(line)), flush=True)

    def _lost(self, error: LostContact) -> ExecutionException:
        self._writer.leave()
        return ExecutionException(
            f"{str(error).splitlines()[0]}\n{self.job_name} may still be running; `{command_line('sync')}` collects "
            f'it, or watch it again with --backend-config \'{{"run_id": "{self.run_id}", ...}}\''
        )


def follow(submitted: SageMakerSubmittedRun) -> None:
    """Wait for a run that the command line has started; ends the process with 1 when it does not succeed."""
    interruption = Interruption()
    try:
        with interruption.listening():
            succeeded = submitted.follow(interruption)
    except Interrupted as error:
        raise KeyboardInterrupt(str(error)) from error  # MLflow's command line ends as after Ctrl-C
    except ExecutionException as error:
        tell(str(error))
        sys.exit(1)
    if not succeeded:
        tell(f"run {submitted.run_id} did not succeed")
        sys.exit(1)
    tell(f"run {submitted.run_id} succeeded")


def tell(sentence: str) -> None:
    """Say something beside what the project itself prints; both without what would command a terminal."""
    print(printable(f"paretune: {sentence}"), file=sys.stderr, flush=True)


def _overwritten(line: str) -> str:
    """What a terminal would show of a line whose bar returns to its beginning: the last state of the bar."""
    return line.rstrip("\r").rpartition("\r")[2]
