"""What MLflow gets back: one project that runs on SageMaker, to be waited for, cancelled and asked."""

import sys
import tempfile
import threading
from pathlib import Path

from mlflow import MlflowClient
from mlflow.exceptions import ExecutionException, MlflowException
from mlflow.projects.submitted_run import SubmittedRun

from paretune.core.clock import Clock
from paretune.core.errors import LostContact, ParetuneError
from paretune.launchers.base import JobState
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain
from paretune.mlflow_backend.collection import collect
from paretune.mlflow_backend.jobs import ProjectJob
from paretune.mlflow_backend.recording import ProjectRecord
from paretune.tracking import without_password

_INTERVAL_S = 0.5  # between two looks; the poller limits the calls that they cost
_ATTEMPTS = 5  # to read results and copy them
_PAUSE_S = 5.0
_STATUS = {JobState.COMPLETED: "FINISHED", JobState.FAILED: "FAILED", JobState.STOPPED: "KILLED"}


class SageMakerSubmittedRun(SubmittedRun):
    """A project on SageMaker. Whoever sees first that its job has ended fills its run.

    Args:
        job: the training job.
        record: its run.
        account: where its results lie.
        client: of the tracking server.
        clock: for pauses.
        collects: whether the command records into a store of the job's.
    """

    def __init__(
        self,
        job: ProjectJob,
        record: ProjectRecord,
        account: Account,
        client: MlflowClient,
        clock: Clock,
        *,
        collects: bool,
    ) -> None:
        super().__init__()
        self.job = job
        self._record = record
        self._account = account
        self._client = client
        self._clock = clock
        self._collects = collects
        self._finished = False
        self._lock = threading.Lock()

    @property
    def run_id(self) -> str:
        """The MLflow run."""
        return self._record.run.run_id

    def wait(self) -> bool:
        """Show what the job prints until it has ended; True when it is Completed. The run is filled then.

        Raises:
            ExecutionException: AWS no longer tells how the job does; it goes on.
        """
        return self._follow() is JobState.COMPLETED

    def cancel(self) -> None:
        """Stop the job: SIGTERM, and up to two minutes until SageMaker says that it has stopped. The run is filled."""
        try:
            self.job.stop()
        except LostContact as error:
            raise self._lost(error) from error
        except AWS_ERRORS as error:
            raise ExecutionException(explain(error, f"stop {self.job.name}")) from error
        self._follow()

    def get_status(self) -> str:
        """MLflow's word for the state of the run, such as RUNNING; the run is filled when it is over."""
        try:
            state = self.job.state()
        except LostContact as error:
            raise self._lost(error) from error
        if not state.is_terminal:
            return "RUNNING"
        self._finish(state)
        return _STATUS[state]

    def _follow(self) -> JobState:
        try:
            while not (state := self.job.state()).is_terminal:
                self._show()
                self._clock.sleep(_INTERVAL_S)
            self._show()
        except LostContact as error:
            raise self._lost(error) from error
        self._finish(state)
        return state

    def _show(self) -> None:
        status = self._record.follow(self.job)
        if status:
            tell(f"{self.job.name}: {status}")
        for line in self.job.new_lines():
            print(line, flush=True)

    def _finish(self, state: JobState) -> None:
        """Fill the run, once."""
        with self._lock:
            if self._finished:
                return
            kind_and_reason = self.job.failure()
            reason = kind_and_reason[1] if kind_and_reason else ""
            remarks = self._collect() if self._collects else []
            self._record.end(self.job, reason, remarks)
            self._finished = True
        for remark in remarks:
            tell(remark)
        if state is JobState.FAILED or reason:
            lines = [f"{self.job.name} failed: {reason}", "last lines of its log:"]
            lines += [f"    {line}" for line in self.job.log_tail()]
            tell("\n".join([*lines, f"whole log: {self.job.log_location()}"]))

    def _collect(self) -> list[str]:
        """Copy what the command has recorded; a sentence where that did not succeed."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._copy()
            except (*AWS_ERRORS, MlflowException, OSError) as error:
                if attempt == _ATTEMPTS:
                    said = without_password((str(error).splitlines() or [""])[0])
                    return [
                        f"what the command has recorded could not be copied ({said}); try again with "
                        f'--backend-config \'{{"run_id": "{self.run_id}", ...}}\''
                    ]
                self._clock.sleep(_PAUSE_S)
        return []

    def _copy(self) -> list[str]:
        with tempfile.TemporaryDirectory(prefix="paretune-") as folder:
            archive = Path(folder) / "output.tar.gz"
            try:
                self._account.client("s3").download_file(self._account.bucket, self.job.results_key(), str(archive))
            except AWS_ERRORS as error:
                if code(error) in {"404", "NoSuchKey"}:  # it has ended before it had any
                    return []
                raise
            return collect(archive, self.run_id, self._client)

    def _lost(self, error: ParetuneError) -> ExecutionException:
        return ExecutionException(
            f"{str(error).splitlines()[0]}\n{self.job.name} may still be running; to watch it again: "
            f'--backend-config \'{{"run_id": "{self.run_id}", ...}}\''
        )


def tell(sentence: str) -> None:
    """Say something beside what the project itself prints."""
    print(f"paretune: {sentence}", file=sys.stderr, flush=True)
