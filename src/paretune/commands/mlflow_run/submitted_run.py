"""The run of a project on SageMaker, as MLflow waits for it and cancels it."""

import sys
import threading
from collections.abc import Callable

from mlflow.exceptions import ExecutionException
from mlflow.projects.submitted_run import SubmittedRun

from paretune.core.commands import command_line
from paretune.core.errors import Interrupted, LostContact
from paretune.core.interruption import Interruption
from paretune.core.untrusted import printable
from paretune.jobs.attempts import WATCH_INTERVAL_S, Attempts
from paretune.jobs.ending import RUN_STATUS
from paretune.jobs.outcome import JobOutcome
from paretune.jobs.record import JobRecord
from paretune.launchers.base import JobState, job_name
from paretune.specification.container import Event, JobDocument, JobInputs


class SageMakerSubmittedRun(SubmittedRun):
    """A project that runs on SageMaker. The first call that sees the end of its job fills its run.

    `inputs` makes the inputs of the job; it is not called if the job exists already.
    """

    def __init__(self, record: JobRecord, inputs: Callable[[], JobInputs]) -> None:
        super().__init__()
        self._record = record
        document = JobDocument.first(job_name(record.run.run_id, 1), record.spec, attribution=record.attribution)
        self._job = Attempts(record, document, self._show, inputs)
        self._lock = threading.RLock()  # MLflow's runs may be waited for in threads of their own

    @property
    def run_id(self) -> str:
        """Id of the MLflow run."""
        return self._record.run.run_id

    @property
    def job_name(self) -> str:
        """Name of the training job."""
        return job_name(self.run_id, 1)

    def start(self) -> None:
        """Create the job, or adopt it; an error closes the run, unless the job may exist.

        Raises:
            BadInput, LaunchRefused: the job could not be created.
            Interrupted: nothing runs any more.
            LostContact: the job may have been created; the run stays open for `sync`.
        """
        try:
            self._job.begin()
            self._record.workplace.interruption.check()
        except BaseException as error:
            self._job.abandon(error)
            raise
        self._record.leave()  # nobody watches it until `wait` is called

    def wait(self) -> bool:
        """Print the job's output until it ends and fill the run; True if it is Completed. Raises ExecutionException."""
        return self.follow(Interruption())  # which never happens

    def follow(self, interruption: Interruption) -> bool:
        """Like `wait`; an interruption stops the job, fills the run and raises Interrupted."""
        if self._job.end is None:
            self._record.watch()
        try:
            while (end := self._poll()) is None:
                interruption.check()
                self._record.workplace.clock.sleep(WATCH_INTERVAL_S)
            return end.state is JobState.COMPLETED
        except Interrupted as error:
            if self._record.is_beside:
                self._record.leave()
                raise Interrupted(f"{error}; {self.job_name} goes on: another process watches it, too") from error
            tell(f"{error}: stopping {self.job_name}")
            self._abandon(error)
            raise

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

    def _report(self, end: JobOutcome) -> None:
        """Print why the job failed, if it did, and the remarks on its record."""
        if end.failure is not None:
            tell(str(end.error()))
        for remark in end.remarks:
            tell(remark)

    def _show(self, events: list[Event]) -> None:
        for event in events:
            tell(f"{self.job_name}: {event.message}")
        output = None if self._job.current is None else self._job.current.output
        for line in output.printed() if output is not None else ():
            # A progress bar returns to the beginning of its line: print its last state.
            print(printable(line.rstrip("\r").rpartition("\r")[2]), flush=True)

    def _lost(self, error: LostContact) -> ExecutionException:
        self._record.leave()
        return ExecutionException(
            f"{str(error).splitlines()[0]}\n{self.job_name} may still be running; `{command_line('sync')}` collects "
            f'it, or watch it again with --backend-config \'{{"run_id": "{self.run_id}", ...}}\''
        )


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
    if not succeeded:
        tell(f"run {submitted.run_id} did not succeed")
        sys.exit(1)
    tell(f"run {submitted.run_id} succeeded")


def tell(sentence: str) -> None:
    """Print a sentence on standard error, without control characters for a terminal."""
    print(printable(f"paretune: {sentence}"), file=sys.stderr, flush=True)
