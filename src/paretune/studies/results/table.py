"""The table of a study's trials as CSV: a row per trial that has ended."""

import csv
import io

from paretune.spec import metrics
from paretune.spec.parameters import spell
from paretune.studies.results.front import StudyFront
from paretune.studies.results.points import value_of
from paretune.studies.results.trials import Trial, TrialStatus


def columns(front: StudyFront) -> list[str]:
    """Of pareto.csv: trial, run_id, searched parameters, objectives, status, pareto_rank, cost_usd, spent_usd.

    `cost_usd` stands once, in its place at the end, also where it is an objective.
    """
    searched = searched_parameters(front)
    objectives = [name for name in front.objectives if name != metrics.COST_USD]
    return ["trial", "run_id", *searched, *objectives, "status", "pareto_rank", metrics.COST_USD, "spent_usd"]


def searched_parameters(front: StudyFront) -> list[str]:
    """Names of all parameters that any trial has varied, in the order of the study."""
    return list(dict.fromkeys(name for trial in front.trials for name in trial.point))


def as_csv(front: StudyFront) -> str:
    """A row per finished trial, by number, with its own values, not means; what is not known is an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns(front), lineterminator="\n")
    writer.writeheader()
    writer.writerows(_row(front, trial) for trial in front.trials if trial.status is not TrialStatus.RUNNING)
    return text.getvalue()


def _row(front: StudyFront, trial: Trial) -> dict[str, object]:
    return {
        "trial": trial.number,
        "run_id": trial.run_id,
        **{name: spell(value) for name, value in trial.point.items()},
        **{name: value_of(trial, name) for name in front.objectives},
        "status": trial.status.value,
        "pareto_rank": front.rank(trial),
        metrics.COST_USD: trial.cost_usd if trial.cost_usd is not None else value_of(trial, metrics.COST_USD),
        "spent_usd": trial.spent_usd,
    }
