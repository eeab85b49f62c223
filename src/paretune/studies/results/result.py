"""The result of an ended study, which `run_study` and the command `study` return."""

from dataclasses import dataclass

import pandas as pd

from paretune.core.errors import BudgetRefused, JobFailed
from paretune.core.result import Result, Row, as_json, read_rows
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.recommendation import Pick
from paretune.studies.results.tables import pareto_csv
from paretune.studies.results.trials import EXPECTED


@dataclass(frozen=True, kw_only=True)
class StudyResult(Result):
    """The result of an ended study: its answer, its MLflow run, why it ended, and the command that shows the run."""

    answer: StudyAnswer
    run_id: str
    ending: str
    open_command: str

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # every other result has a constant
        """4 if the study cost more than its budget, 3 if it recommends nothing, else 0."""
        if self.answer.over_budget_usd:
            return BudgetRefused.exit_code
        return 0 if self.answer.picks else JobFailed.exit_code

    @property
    def title(self) -> str:
        """The study's name and why it ended."""
        return f"study {self.answer.name}: {self.ending}"

    def rows(self) -> list[Row]:
        """Return the rows of pareto.csv: one per trial, then one per configuration that was not trained."""
        return read_rows(pareto_csv(self.answer.front, self.answer.levels))

    @property
    def front(self) -> pd.DataFrame:
        """The rows of `trials_dataframe` whose configurations are on the Pareto front."""
        trials = self.trials_dataframe()
        return trials[trials["pareto_rank"] == 0].reset_index(drop=True)

    @property
    def best(self) -> dict[str, object] | None:
        """The first recommendation, with `trial`, `parameters`, `means`, `command` and more, or None."""
        return _recommended(self.answer.picks[0]) if self.answer.picks else None

    def trials_dataframe(self) -> pd.DataFrame:
        """Return a table with a row per ended trial, including failed ones, but without what is expected."""
        frame = self.to_frame()
        return frame[frame["origin"] != EXPECTED].reset_index(drop=True)

    def to_dict(self) -> dict[str, object]:
        """Return the run, ending, objectives, dollars, recommended trials, and the rows of pareto.csv."""
        front = self.answer.front
        return {
            "study": self.answer.name,
            "run_id": self.run_id,
            "ending": self.ending,
            "origin": front.trials[0].origin if front.trials else None,
            "objectives": dict(front.objectives),
            "quality": front.quality,
            "spent_usd": front.spent_usd,
            "committed_usd": self.answer.committed_usd,
            "budget_usd": self.answer.budget_usd,
            "budget_s": self.answer.budget_s,
            "hypervolume": as_json(front.hypervolume),
            "cost_of_the_search": self.answer.cost_of_search() or None,
            "recommended": [_recommended(pick) for pick in self.answer.picks],
            "trials": as_json(self.rows()),
            "open_command": self.open_command,
        }

    def notes(self) -> list[str]:
        """Return the answer in words and the command that shows more."""
        return [*self.answer.opening(), self.open_command]

    def __str__(self) -> str:
        """Format the recommendation, front and bill for a terminal."""
        return f"\n{self.title}\n\n{self.answer.text()}\n  {self.open_command}"


def _recommended(pick: Pick) -> dict[str, object]:
    point = pick.point
    return {
        "trial": None if point.is_expected else point.number,
        "evidence": point.evidence,
        "titles": list(pick.roles),
        "why": pick.reason,
        "runs": pick.runs,
        "parameters": as_json(point.trial.point),
        "means": as_json(point.means),
        "standard_errors": as_json(point.errors),
        "collapse_probability": point.collapse_probability,
        "command": pick.command or None,
        "real_command": pick.real_command or None,
    }
