"""What is said of a metric of the user's own: the same as of F1, by its name, in its direction and on its scale."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from paretune.studies.definition.objectives import Objective
from paretune.studies.results.answer import StudyAnswer, pareto_csv
from paretune.studies.results.page import page
from paretune.studies.results.trials import Trial
from tests.study_examples import answer, many_trials

OWN = Objective(metric="val_ndcg", direction="maximize")


def told(trials: list[Trial], name: str, change: Callable[[float], float] = lambda value: value) -> list[Trial]:
    """The trials with their F1 under another name, changed."""
    return [
        replace(
            trial,
            values={
                name if key == "f1" else key: change(it) if key == "f1" else it for key, it in trial.values.items()
            },
        )
        for trial in trials
    ]


def answered(trials: list[Trial], name: str, direction: str, quality: Objective | None = None) -> StudyAnswer:
    goals = {"cost_usd": "minimize", name: direction}
    return answer(trials, goals, {}, name="own", default=trials[0], quality=quality)


def points_of(study_answer: StudyAnswer, name: str, sign: float = 1.0) -> list[tuple[int, float, float, int | None]]:
    return [
        (point.number, sign * point.means[name], point.errors[name], point.rank) for point in study_answer.front.points
    ]


TRIALS = many_trials(40)


def test_less_of_the_negative_metric_is_the_mirror_image() -> None:
    more = answered(told(TRIALS, "x"), "x", "maximize")
    less = answered(told(TRIALS, "x", lambda value: -value), "x", "minimize")

    assert points_of(less, "x", -1.0) == [
        (number, pytest.approx(mean), pytest.approx(error), rank) for number, mean, error, rank in points_of(more, "x")
    ]
    assert [pick.titles for pick in less.picks] == [pick.titles for pick in more.picks]
    assert [pick.point.number for pick in less.picks] == [pick.point.number for pick in more.picks]


def test_text_table_and_page_name_the_metric() -> None:
    trials = told(TRIALS, "val_ndcg")
    result = answer(trials, {"cost_usd": "minimize", "val_ndcg": "maximize"}, {}, name="own")

    assert "within noise of the best val_ndcg" in result.text()
    assert "val_ndcg,val_ndcg_low,val_ndcg_high" in pareto_csv(result.front)
    output = page(result)
    assert "F1" not in result.text()
    assert "F1 is the mean" not in output
    assert "val_ndcg is that of runs that trained" in output
