"""How the end of a trial is told to Optuna: values, a constraint that it missed, or nothing learnt."""

import math
from collections.abc import Mapping

from paretune.studies.definition.file import StudyFile
from paretune.studies.results.trials import TrialStatus
from paretune.studies.search.ledger import Entry
from paretune.studies.search.optuna_study import Study
from paretune.studies.search.trial_history import Memory

_HARMLESS = {"max_runtime_minutes", "seed"}
"""Changes with which a job still says what its point is worth."""
_MISSED = 1.0  # by how much a constraint is violated whose metric was not measured


class Telling:
    """Tells Optuna what the books say.

    Args:
        file: the study.
        study: its trials in Optuna.
        memory: what is known of it.
    """

    def __init__(self, file: StudyFile, study: Study, memory: Memory) -> None:
        self._file = file
        self._study = study
        self._memory = memory

    def tell(self, entry: Entry, number: int | None = None) -> None:
        """Tell how a trial has ended.

        A job that was stopped early teaches what it would have reached. What meets trouble, fails once or ran with
        other parameters than its point teaches nothing; what runs out of memory or fails again is impossible.

        Args:
            entry: its line of the books.
            number: of the trial that is told; by default the entry's own, otherwise one of an equal job.
        """
        number = entry.trial if number is None else number
        assert entry.ended is not None  # it was booked
        status = TrialStatus(entry.ended["status"])
        found = entry.ended["expected"] if status is TrialStatus.STOPPED else entry.ended["metrics"]
        values = self._memory.values(found, entry.parameters)
        if entry.ended["again"] or set(entry.note["changes"]) - _HARMLESS:
            self._study.tell_failed(number)
        elif set(self._file.objectives) <= set(values):
            self._study.tell(number, values, violations(values, self._file.constraints))
        elif self._memory.settled(entry.identity) is not None and self._is_impossible(status, found):
            self._study.tell_infeasible(number, out_of_memory=status is TrialStatus.OUT_OF_MEMORY)
        else:
            self._study.tell_failed(number)

    def _is_impossible(self, status: TrialStatus, found: Mapping[str, float]) -> bool:
        """Whether a job has shown that its point cannot be: memory, failures, an objective that is not finite."""
        if status is TrialStatus.COMPLETED:
            return any(not math.isfinite(found[name]) for name in self._file.objectives if name in found)
        return status in {TrialStatus.OUT_OF_MEMORY, TrialStatus.FAILED}


def violations(measured: Mapping[str, float], constraints: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """By how much each constraint is missed; 0 or less is met. One whose metric was not measured is missed."""
    amounts = {}
    for name, bounds in constraints.items():
        if "min" in bounds:
            amounts[f"{name} min"] = bounds["min"] - measured[name] if name in measured else _MISSED
        if "max" in bounds:
            amounts[f"{name} max"] = measured[name] - bounds["max"] if name in measured else _MISSED
    return amounts
