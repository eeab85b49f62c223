"""The answer of a study whose runs are noisy: the best mean is on the front, and nothing worse is called the best."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paretune.studies.results.front import StudyFront
from paretune.studies.results.page import page
from paretune.studies.results.recommendation import recommend
from tests.support.study_examples import COST_AND_F1, answer, many_trials, mnist_trials, trial_of


def test_the_best_of_six_noisy_trials_is_on_the_front_although_repeats_show_much_noise() -> None:
    front = StudyFront.of(mnist_trials(), {"cost_usd": "minimize", "Test_Accuracy": "maximize"}, {})

    assert front.noises["Test_Accuracy"].deviation > 0.05
    assert {point.number: point.rank for point in front.points} == {0: 0, 1: 1, 2: 0, 3: 0, 4: 0, 5: 0}
    assert {point.number: point.beaten_by for point in front.points if point.rank} == {1: 0}


@given(st.lists(st.tuples(st.floats(1, 9), st.floats(0, 1), st.integers(0, 3)), min_size=1, max_size=9), st.data())
def test_what_is_off_the_front_is_beaten_by_one_on_it_and_the_best_mean_is_never_off(
    points: list[tuple[float, float, int]], data: st.DataObject
) -> None:
    trials = [trial_of(number, usd, f1) for number, (usd, f1, _) in enumerate(points)]
    for number, (usd, f1, repeats) in enumerate(points):
        for _ in range(repeats):
            noise = data.draw(st.floats(-0.3, 0.3))
            trials.append(trial_of(len(trials), usd, f1 + noise, repeats=number))
    front = StudyFront.of(trials, COST_AND_F1, {})

    best = {point.number: point for point in front.best}
    assert max(point.means["f1"] for point in best.values()) == max(point.means["f1"] for point in front.points)
    for point in front.points:
        assert (point.beaten_by is None) == (point.number in best)
        if point.beaten_by is not None:
            winner = best[point.beaten_by].means
            assert winner["cost_usd"] <= point.means["cost_usd"]
            assert winner["f1"] >= point.means["f1"]
            assert (winner["cost_usd"], winner["f1"]) != (point.means["cost_usd"], point.means["f1"])


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_called_the_best_that_another_exceeds(seed: int) -> None:
    front = StudyFront.of(many_trials(60, seed), COST_AND_F1, {})
    best = front.best_in_quality()

    assert best is not None
    assert best.means["f1"] == max(point.means["f1"] for point in front.points)
    first, *_ = recommend(front)
    if "Nothing else" in first.reason:
        assert first.point.means["f1"] == best.means["f1"]
    else:
        assert f"trial {best.number}" in first.reason
    named = {title: each.point.number for each in recommend(front) for title in each.roles if "best" in title}
    assert named == ({} if first.point.number == best.number else {"the best mean F1": best.number})


def test_six_noisy_trials_are_answered_by_the_best_of_them_and_what_the_runs_cannot_tell_is_said() -> None:
    """The answer was once trial 0, the second worst, with the words that it has the best accuracy itself."""
    result = answer(mnist_trials(), {"cost_usd": "minimize", "Test_Accuracy": "maximize"}, {}, name="mnist")
    text = " ".join(result.opening())

    assert text.startswith("Take trial 3 (rate 0.1, batch 32): cost 0.860")
    assert re.search(r"; Test_Accuracy 0\.4(37|4) ± 0\.", text)
    assert "Nothing else that was trained has a better mean Test_Accuracy." in text
    assert "This rests on 2 runs." in text
    assert re.search(r"Its true Test_Accuracy is between 0\.[123]\d+ and 0\.[567]\d+ \(80%\)\.", text)
    assert re.search(r"These runs cannot tell its Test_Accuracy from that of trials .*2.* and \d\.", text)
    assert "best Test_Accuracy 0.4" in result.state()
    assert "within noise" not in text + page(result)
