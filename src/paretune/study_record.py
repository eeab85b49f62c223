"""What a study leaves in MLflow and in the terminal: its run with page and table, ranks of its trials, its progress."""

import json
import sys
import time

from paretune.driver import Driver
from paretune.joint import front_of
from paretune.ledger import Ledger
from paretune.study_answer import StudyAnswer, answer
from paretune.study_file import StudyFile
from paretune.tracking import RunStatus, Tracking
from paretune.trials import Trial

_BETWEEN_PAGES = 8.0
"""Times as long as a page takes to make, until the next one is made: pages of long studies take seconds."""


class StudyRecord:
    """The record of one study.

    Args:
        file: the study.
        ledger: its books; they know the study's run, if it was begun before.
        tracking: where it is recorded.
    """

    def __init__(self, file: StudyFile, ledger: Ledger, tracking: Tracking) -> None:
        self._file = file
        self._ledger = ledger
        self._tracking = tracking
        described = json.dumps(_of_the_search(file))
        known = ledger.known_run()
        own = tracking.begin(f"study {file.name}") if known is None or tracking.opened_run_id() else None
        self.run_id = ledger.open(own.run_id if own is not None and known is None else known or "", described)
        self._run = tracking.run(self.run_id)
        if own is not None and own.run_id != self.run_id:  # of `mlflow run`, which opens a run for every command
            own.set_tags({"paretune.kind": "study driver", "paretune.study_run": self.run_id})
        self._run.set_tags({"paretune.kind": "study", "paretune.study": file.name})
        self._run.log_params(file.as_text())
        self._driver: Driver | None = None
        self._ranks: dict[str, int] = {}
        self._next_page = 0.0

    def watch(self, driver: Driver) -> None:
        """Whose trials these are."""
        self._driver = driver

    def say(self, text: str) -> None:
        """One line for the terminal."""
        print(text, file=sys.stderr, flush=True)

    def trial_ended(self, trial: Trial) -> None:
        """Tell that a trial has ended; now and then bring page, table and ranks up to date."""
        assert self._driver is not None  # `watch` comes before any trial
        trials = list(self._driver.trials.values())
        balance = self._ledger.balance()
        left = (
            ""
            if self._file.budget_usd is None
            else (f", left {self._file.budget_usd - balance.spent_usd - balance.committed_usd:.4g}")
        )
        said = ", ".join(f"{name} {value:.4g}" for name, value in trial.values.items())
        best = front_of(trials, self._file.objectives)
        self.say(
            f"trial {trial.number} {trial.status.value}: {said or trial.reason[:120]} "
            f"({', '.join(f'{name}={value}' for name, value in trial.point.items())}); "
            f"{len(trials)} trials, {len(best)} on the front; USD spent {balance.spent_usd:.4g}, "
            f"committed {balance.committed_usd:.4g}{left}"
        )
        if time.monotonic() >= self._next_page:
            began = time.monotonic()
            self._write(self.answer())
            self._next_page = time.monotonic() + _BETWEEN_PAGES * (time.monotonic() - began)

    def answer(self) -> StudyAnswer:
        """The answer so far."""
        assert self._driver is not None  # `watch` comes first
        return answer(
            list(self._driver.trials.values()),
            self._file.objectives,
            self._file.constraints,
            name=self._file.name,
            budget_usd=self._file.budget_usd,
            committed_usd=self._ledger.balance().committed_usd,
            later_runs=self._file.later_runs or None,
        )

    def finish(self, reason: str, repeats: int) -> None:
        """Write the final page, table, ranks and bill; print the answer."""
        found = self.answer()
        self._write(found)
        self._close(RunStatus.FINISHED)
        again = f"; {repeats} of the front were trained again with another seed" if repeats else ""
        print(
            f"\nstudy {self._file.name}: {reason}{again}\n\n{found.text()}\n  {self._tracking.open_command(self.run_id)}"
        )

    def interrupted(self, error: BaseException) -> None:
        """Write what there is, and how to go on."""
        assert self._driver is not None  # `watch` comes first
        if self._driver.trials:
            self._write(self.answer())
        self._run.set_tags({"paretune.failure_reason": str(error)})
        self._close(RunStatus.KILLED)
        self.say("the same command goes on with the study")

    def _close(self, status: RunStatus) -> None:
        balance = self._ledger.balance()
        self._run.log_metrics({"cost_usd": balance.spent_usd, "trials": float(len(self._ledger.entries()))})
        self._run.end(status)

    def _write(self, found: StudyAnswer) -> None:
        self._run.log_text(found.html(), "pareto.html")
        self._run.log_text(found.csv(), "pareto.csv")
        ranks = found.ranks()
        for run_id, rank in ranks.items():
            if self._ranks.get(run_id) != rank:
                self._tracking.run(run_id).set_tags({"paretune.pareto_rank": str(rank)})
        for run_id in set(self._ranks) - set(ranks):  # a constraint that its repeats have not met
            self._tracking.run(run_id).set_tags({"paretune.pareto_rank": ""})
        self._ranks = ranks


def _of_the_search(file: StudyFile) -> dict[str, str]:
    """What makes two files one study: not its budget, nor how many jobs run at a time."""
    return {name: text for name, text in file.as_text().items() if name in {"job", "search", "objectives"}}
