"""The MLflow run of a study or a design, under which the runs of its trials are nested, and its driver."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from paretune.core.errors import BudgetRefused, JobFailed, ParetuneError
from paretune.jobs.workplace import Workplace
from paretune.ledger.study_ledger import StudyLedger
from paretune.specification import metrics
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.trials import Trial
from paretune.studies.search.driver import Driver
from paretune.studies.search.optuna_study import OptunaStudy
from paretune.tracking import Run, RunStatus, Tracking, schema

_MAY_CHANGE = ("budget", "user")


class ParentRun(ABC):
    """The run of a study or a design; one that was begun before keeps its run."""

    def __init__(
        self,
        kind: str,  # study or design
        name: str,
        ledger: StudyLedger,
        tracking: Tracking,
        say: Callable[[str], None],
        *,
        described: str,  # text that is equal for all drivers, see `StudyLedger.open`
        yaml: str,  # text of its file
    ) -> None:
        self.say = say
        self._kind = kind
        self._yaml = yaml
        self._ledger = ledger
        self._tracking = tracking
        self.run_id = _open(tracking, ledger, kind, name, described)
        self._run = tracking.run(self.run_id)
        self._run.reopen()
        self._driver: Driver  # set by `watch`, which is called first

    @property
    def run(self) -> Run:
        """The run in MLflow."""
        return self._run

    @abstractmethod
    def trial_ended(self, trial: Trial) -> None:
        """Print that a trial has ended, and write what follows from it."""

    @abstractmethod
    def write_results(self) -> None:
        """Write the results so far."""

    def new_driver(self, file: StudyFile, study: OptunaStudy, workplace: Workplace) -> Driver:
        """A driver whose trials are written here."""
        driver = Driver(
            file,
            study,
            self._ledger,
            run_id=self.run_id,
            workplace=workplace,
            on_trial=self.trial_ended,
            say=self.say,
        )
        self.watch(driver)
        return driver

    def watch(self, driver: Driver) -> None:
        """Set the driver whose trials are written."""
        self._driver = driver
        self._run.set_tags({schema.ORIGIN: driver.workplace.launcher.origin})

    def interrupted(self, error: BaseException) -> None:
        """Write the results so far, and say how to go on."""
        with suppress(ParetuneError):  # the storage itself may have failed
            self.write_results()
            self._run.set_tags({schema.FAILURE_REASON: str(error)})
            self._close(RunStatus.KILLED)
        if not isinstance(error, (BudgetRefused, JobFailed)):  # their messages say what helps
            self.say(f"the same command continues the {self._kind}")

    def _write_pick(self, f1: float | None, cost_usd: float | None) -> None:
        """Write F1 and dollars of what is recommended; each is left out if it is not known."""
        values = {metrics.PICK_F1: f1, metrics.PICK_COST_USD: cost_usd}
        self._run.log_metrics({name: value for name, value in values.items() if value is not None})

    def _close(self, status: RunStatus | None) -> None:
        """Write the bill and end the run; a `status` of None leaves it open."""
        balance = self._ledger.balance()
        self._run.log_metrics({metrics.COST_USD: balance.spent_usd, "trials": float(len(self._driver.trials))})
        self._run.log_text(self._yaml, f"{self._kind}.yaml")
        if status is not None:
            self._run.end(status)


def without_payer(job: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a job without those that say who pays: they may change while a study goes on."""
    return {name: value for name, value in job.items() if name not in _MAY_CHANGE}


def _open(tracking: Tracking, ledger: StudyLedger, kind: str, name: str, described: str) -> str:
    """Id of the parent run: that of `mlflow run`, the one of an earlier driver, or a new one."""
    title = f"{kind} {name}"
    command_run = tracking.begin(title) if tracking.opened_run_id() else None  # `mlflow run` opens one per command
    run_id = ledger.open(command_run.run_id if command_run is not None else "", described)
    if not run_id:
        mark = {schema.STUDY_MARK: ledger.mark()}
        marked = tracking.runs(f"tags.`{schema.STUDY_MARK}` = '{mark[schema.STUDY_MARK]}'")
        run_id = marked[-1].run_id if marked else tracking.create(title, mark).run_id
        ledger.name_run(run_id)
    if command_run is not None and command_run.run_id != run_id:
        command_run.set_tags({schema.KIND: f"{kind} driver", schema.STUDY_RUN: run_id})
    return run_id
