"""What MLflow gets back: one project that runs on SageMaker, to be waited for, cancelled and asked."""

import sys
import threading
from collections.abc import Callable

from mlflow.exceptions import ExecutionException
from mlflow.projects.submitted_run import SubmittedRun

from paretune.core.commands import command_line
from paretune.core.errors import Interrupted, LostContact
from paretune.core.interruption import Interruption
from paretune.core.untrusted import printable
from paretune.jobs.ending import RUN_STATUS, JobEnd
from paretune.jobs.record import JobRecord
from paretune.jobs.retrying_job import WATCH_INTERVAL_S, RetryingJob
from paretune.launchers.base import JobState, job_name
from paretune.specification.container import Event, JobInputs


class SageMakerSubmittedRun(SubmittedRun):
    """A project on SageMaker. Whoever sees first that its job has ended fills its run.

    `inputs` makes what runs; it is not called when the job is there already.
    """

    def __init__(self, record: JobRecord, inputs: Callable[[], JobInputs]) -> None:
        super().__init__()
        self._record = record
        self._job = RetryingJob(record, self._show, inputs=inputs)
        self._lock = threading.RLock()  # MLflow's runs may be waited for in threads of their own

    @property
    def run_id(self) -> str:
        """The MLflow run."""
        return self._record.run.run_id

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
            self._record.workplace.interruption.check()
        except BaseException as error:
            self._job.abandon(error)
            raise
        self._record.leave()  # nobody watches it until `wait` is called

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
        if self._job.end is None:
            self._record.watch()
        try:
            while (end := self._poll()) is None:
                interruption.check()
                self._record.workplace.clock.sleep(WATCH_INTERVAL_S)
            return end.state is JobState.COMPLETED
        except Interrupted as error:
            tell(f"{error}: stopping {self.job_name}")
            self._abandon(error)
            raise

    def cancel(self) -> None:
        """Stop the job: SIGTERM, and up to two minutes until SageMaker says that it has stopped. The run is filled."""
        self._abandon(Interrupted("cancelled"))

    def get_status(self) -> str:
        """MLflow's word for the state of the run, such as RUNNING; the run is filled when it is over."""
        end = self._poll()
        return "RUNNING" if end is None else RUN_STATUS[end.state].value

    def _poll(self) -> JobEnd | None:
        """How the job ended; None while it runs."""
        with self._lock:
            was_open = self._job.end is None
            try:
                end = self._job.poll()
            except LostContact as error:
                raise self._lost(error) from error
            if end is not None and was_open:
                self._report(end)
            return end

    def _abandon(self, error: Interrupted) -> None:
        with self._lock:
            if self._job.end is not None:
                return
            try:
                self._job.abandon(error)
            except LostContact as lost:
                raise self._lost(lost) from lost
            if self._job.end is not None:
                self._report(self._job.end)

    def _report(self, end: JobEnd) -> None:
        """Print why the job failed, if it did, and what its record lacks."""
        if end.failure is not None:
            tell(str(end.error()))
        for remark in end.remarks:
            tell(remark)

    def _show(self, events: list[Event]) -> None:
        for event in events:
            tell(f"{self.job_name}: {event.message}")
        for line in self._job.current.printed() if self._job.current is not None else ():
            print(printable(_overwritten(line)), flush=True)

    def _lost(self, error: LostContact) -> ExecutionException:
        self._record.leave()
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
