"""One recommendation: of two that the runs cannot tell apart in quality, the one that is better in all else."""

from dataclasses import replace

import pytest

from paretune.studies.results.front import StudyFront
from paretune.studies.results.page import page, study_name, study_note
from paretune.studies.results.recommendation import pick, recommend
from paretune.studies.results.result import StudyResult
from paretune.studies.results.trials import Trial
from tests.support.study_examples import COST_AND_F1, answer, twins, words

GOALS = {**COST_AND_F1, "job_seconds": "minimize"}
REASON = (
    "The runs cannot tell its F1 from that of trial 4, whose mean is 0.002 better, and it is 1.00 USD cheaper and "
    "twice as fast."
)


def test_the_cheaper_and_faster_one_that_is_as_good_is_recommended_everywhere_and_the_best_mean_stands_below() -> None:
    shown = answer(twins(), GOALS, {}, name="s")
    result = StudyResult(answer=shown, run_id="r", ending="e", open_command="o")

    first, second, *_ = shown.picks
    assert (first.point.number, second.point.number) == (6, 4)
    assert next(iter(second.roles)) == "the best mean F1"
    assert second.reason.startswith("Compared with it, the recommended one is 1.00 USD cheaper and twice as fast.")
    for text in (str(result), page(shown), study_note(shown)):
        assert text.count("Take trial") == 1
        assert "Take trial 6" in text
        assert REASON in text
    assert "b7" in study_name(shown)
    assert "alternative" not in str(result) + page(shown) + study_note(shown)
    assert (first.command in str(result), second.command in str(result)) == (True, True)


@pytest.mark.parametrize(
    "trials",
    [
        twins(f1=0.890),  # the runs can tell it
        twins(cost=3.99),  # they cannot tell its dollars
    ],
)
def test_one_that_is_worse_or_hardly_cheaper_is_not_recommended(
    trials: list[Trial],
) -> None:
    assert "Take trial 4" in words(trials, GOALS)


def test_one_is_not_as_good_only_because_runs_are_noisy() -> None:
    front = StudyFront.of(twins(noise=0.06), GOALS, {})
    by_means = replace(front, points=tuple(replace(point, believed=None) for point in front.points))

    assert pick(by_means).number == 4


def test_of_what_only_has_to_be_good_enough_the_cheapest_is_recommended() -> None:
    front = StudyFront.of(twins(), GOALS, {"f1": {"min": 0.8}}, is_floor=True)

    first, *_ = recommend(front)
    assert first.point.means["cost_usd"] == min(point.means["cost_usd"] for point in front.feasible)
