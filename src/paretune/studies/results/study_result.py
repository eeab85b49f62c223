"""What running a study gives: its answer, and where it is recorded."""

from dataclasses import dataclass

from paretune.core.result import Result, Row, as_json, read_rows
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.recommendation import Pick, headline


@dataclass(frozen=True, kw_only=True)
class StudyResult(Result):
    """A study that has ended: its front, what it recommends, and its bill.

    Attributes:
        answer: front, recommendation and bill; `answer.html()` is the page pareto.html.
        run_id: MLflow run that holds pareto.html and pareto.csv.
        ending: why the study ended, and what was repeated.
        open_command: what to type or open to look at it.
    """

    answer: StudyAnswer
    run_id: str
    ending: str
    open_command: str

    @property
    def title(self) -> str:
        """The study and why it has ended."""
        return f"study {self.answer.name}: {self.ending}"

    def rows(self) -> list[Row]:
        """The rows of pareto.csv: one per trial, by number."""
        return read_rows(self.answer.csv())

    def to_dict(self) -> dict[str, object]:
        """Run, ending, objectives, dollars, the recommended trials and all trials."""
        front = self.answer.front
        return {
            "study": self.answer.name,
            "run_id": self.run_id,
            "ending": self.ending,
            "origin": " and ".join(sorted({trial.origin for trial in front.trials})) or None,
            "objectives": dict(front.objectives),
            "spent_usd": front.spent_usd,
            "committed_usd": self.answer.committed_usd,
            "budget_usd": self.answer.budget_usd,
            "hypervolume": as_json(self.answer.hypervolume),
            "recommended": [_recommended(pick) for pick in self.answer.picks],
            "trials": as_json(self.rows()),
            "open_command": self.open_command,
        }

    def notes(self) -> list[str]:
        """The answer in words, and where to look."""
        return [*headline(self.answer.front, self.answer.picks), self.open_command]

    def __str__(self) -> str:
        """Recommendation, front and bill for a terminal."""
        return f"\n{self.title}\n\n{self.answer.text()}\n  {self.open_command}"


def _recommended(pick: Pick) -> dict[str, object]:
    point = pick.point
    return {
        "trial": point.number,
        "titles": list(pick.titles),
        "why": pick.why,
        "parameters": as_json(point.trial.point),
        "means": as_json(point.means),
        "standard_errors": as_json(point.errors),
        "command": pick.command or None,
        "real_command": pick.real_command or None,
    }
