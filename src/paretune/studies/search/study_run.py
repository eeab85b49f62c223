"""What a study writes to MLflow and to the terminal: its run with page and table, ranks of its trials, its progress."""

import json
import time
from collections.abc import Callable
from contextlib import suppress

from paretune.core.errors import ParetuneError
from paretune.jobs.progress import say_on_stderr
from paretune.spec.job import BUNDLED, BUNDLED_BEFORE
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.answer import StudyAnswer, StudyResult, answer
from paretune.studies.results.page import page
from paretune.studies.results.trials import Trial
from paretune.studies.search.default_job import default_trial
from paretune.studies.search.driver import Driver
from paretune.studies.search.joint import front_of
from paretune.studies.search.ledger import Ledger
from paretune.tracking import RunStatus, Tracking, schema

_BETWEEN_PAGES = 8.0
"""Times as long as a page takes to make, until the next one is made: pages of long studies take seconds."""


class StudyRunWriter:
    """Writes the MLflow run of one study, the one that the ledger knows if the study was begun before."""

    def __init__(
        self, file: StudyFile, ledger: Ledger, tracking: Tracking, say: Callable[[str], None] = say_on_stderr
    ) -> None:
        self.say = say
        self._file = file
        self._ledger = ledger
        self._tracking = tracking
        self.run_id = self._opened()
        self._run = tracking.run(self.run_id)
        self._run.reopen()
        self._run.set_tags({schema.KIND: "study", schema.STUDY: file.name})
        self._run.log_params(file.as_text())
        self._driver: Driver  # `watch` comes before everything else
        self._ranks: dict[str, int | None] = {}  # as they were written
        self._next_page = 0.0

    def watch(self, driver: Driver) -> None:
        """Whose trials these are."""
        self._driver = driver

    def trial_ended(self, trial: Trial) -> None:
        """Print that a trial has ended; now and then write page, table and ranks anew."""
        said = ", ".join(f"{name} {value:.4g}" for name, value in trial.values.items())
        point = ", ".join(f"{name}={value}" for name, value in trial.point.items())
        self.say(f"trial {trial.number} {trial.shown_status}: {said or trial.reason[:120]} ({point}); {self._so_far()}")
        if time.monotonic() >= self._next_page:
            began = time.monotonic()
            self._write(self.answer())
            self._next_page = time.monotonic() + _BETWEEN_PAGES * (time.monotonic() - began)

    def answer(self) -> StudyAnswer:
        """The answer so far."""
        return answer(
            list(self._driver.trials.values()),
            self._file.objectives,
            self._file.constraints,
            name=self._file.name,
            budget_usd=self._file.budget_usd,
            committed_usd=self._ledger.balance().committed_usd,
            later_runs=self._file.later_runs or None,
            default=default_trial(self._driver),
        )

    def finish(self, reason: str, repeats: int) -> StudyResult:
        """Write the final page, table, ranks and bill; the answer with them."""
        found = self.answer()
        self._write(found, is_last=True)
        others = len(self._driver.others())
        self._close(None if others else RunStatus.FINISHED)
        again = f"; {repeats} of the front were trained again with another seed" if repeats else ""
        again += f"; {others} other driver{'s' if others > 1 else ''} of this study still at work" if others else ""
        return StudyResult(
            answer=found,
            run_id=self.run_id,
            ending=f"{reason}{again}",
            open_command=self._tracking.open_command(self.run_id),
        )

    def interrupted(self, error: BaseException) -> None:
        """Write what there is, and how to go on."""
        with suppress(ParetuneError):  # what ended the study may be the storage itself
            if self._driver.trials:
                self._write(self.answer(), is_last=True)
            self._run.set_tags({schema.FAILURE_REASON: str(error)})
            self._close(None if self._driver.others() else RunStatus.KILLED)
        self.say("the same command goes on with the study")

    def _opened(self) -> str:
        """The study's run: that of `mlflow run`, the one that another driver has opened, or a new one."""
        tracking, ledger = self._tracking, self._ledger
        name = f"study {self._file.name}"
        own = tracking.begin(name) if tracking.opened_run_id() else None
        run_id = ledger.open(own.run_id if own is not None else "", described(self._file))
        if not run_id:
            mark = {schema.STUDY_MARK: ledger.mark()}
            there = tracking.runs(f"tags.`{schema.STUDY_MARK}` = '{mark[schema.STUDY_MARK]}'")
            made = tracking.run(there[-1].run_id) if there else tracking.create(name, mark)
            run_id = ledger.name_run(made.run_id)
            if run_id != made.run_id:  # another driver was faster
                made.set_tags({schema.KIND: "study driver", schema.STUDY_RUN: run_id})
                made.end(RunStatus.FINISHED)
        if own is not None and own.run_id != run_id:  # `mlflow run` opens a run for every command
            own.set_tags({schema.KIND: "study driver", schema.STUDY_RUN: run_id})
        return run_id

    def _so_far(self) -> str:
        best = front_of(self._driver.trials.values(), self._file.objectives, self._file.constraints)
        balance = self._ledger.balance()
        left = "" if self._file.budget_usd is None else f", left {balance.left_usd(self._file.budget_usd):.4g}"
        said = f"{len(self._driver.trials)} trials, {len(best)} on the front; USD spent {balance.spent_usd:.4g}"
        return f"{said}, committed {balance.committed_usd:.4g}{left}"

    def _close(self, status: RunStatus | None) -> None:
        """Write the bill and end the run; None leaves it open, for other drivers."""
        balance = self._ledger.balance()
        self._run.log_metrics({"cost_usd": balance.spent_usd, "trials": float(len(self._driver.trials))})
        self._run.log_text(self._file.as_yaml(), "study.yaml")
        if status is not None:
            self._run.end(status)

    def _write(self, found: StudyAnswer, *, is_last: bool = False) -> None:
        """Page, table and ranks; until the last time only the ranks of runs that come to the front or leave it."""
        self._run.log_text(page(found), "pareto.html")
        self._run.log_text(found.csv(), "pareto.csv")
        ranks = found.ranks()
        for run_id in {*ranks, *self._ranks}:
            before, now = self._ranks.get(run_id), ranks.get(run_id)
            if before != now and (is_last or 0 in (before, now)):
                self._tracking.run(run_id).set_tags({schema.PARETO_RANK: "" if now is None else str(now)})
                self._ranks[run_id] = now


def described(file: StudyFile) -> str:
    """What makes two files one study: not its budget, nor how many jobs run at a time."""
    texts = {name: text for name, text in file.as_text().items() if name in {"job", "search", "objectives"}}
    return json.dumps({name: text.replace(f'"{BUNDLED}', f'"{BUNDLED_BEFORE}') for name, text in texts.items()})
