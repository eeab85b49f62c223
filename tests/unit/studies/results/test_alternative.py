"""The first sentence of an answer: another configuration is about as good, and better in everything else."""

import pytest

from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.front import StudyFront
from paretune.studies.results.page import page, study_note
from paretune.studies.results.result import StudyResult
from paretune.studies.results.trials import Trial
from tests.support.study_examples import COST_AND_F1, answer, twins, words

GOALS = {**COST_AND_F1, "job_seconds": "minimize"}
SENTENCE = (
    "Trial 6 (ml.g5.xlarge, rate 7e-5, batch 7) is as good as the runs can tell, 1.00 USD cheaper and twice as fast: "
    "take it unless F1 0.002 matters."
)


def test_a_cheaper_and_faster_one_that_is_as_good_is_said_first_everywhere_and_in_the_same_words() -> None:
    shown = answer(twins(), GOALS, {}, name="s")
    result = StudyResult(answer=shown, run_id="r", ending="e", open_command="o")

    assert shown.picks[0].point.number == 4
    assert shown.opening()[0] == SENTENCE
    assert str(result).split("\n\n")[1].startswith(SENTENCE)
    assert result.to_dict()["alternative"] == SENTENCE
    assert SENTENCE in study_note(shown).partition("\n\n")[0]
    assert page(shown).count(SENTENCE) == 1
    assert page(shown).index(SENTENCE) < page(shown).index("Take trial 4")
    (command,) = (pick.command for pick in shown.picks if pick.point.number == 6)
    assert command in str(result)


@pytest.mark.parametrize(
    "trials",
    [
        twins(f1=0.890),  # the runs can tell it
        twins(cost=3.99),  # they cannot tell its dollars
        twins(noise=0.06),  # they can tell hardly anything
    ],
)
def test_nothing_is_said_of_one_that_is_worse_hardly_cheaper_or_as_good_only_because_runs_are_noisy(
    trials: list[Trial],
) -> None:
    text = words(trials, GOALS)

    assert "Take trial 4" in text
    assert "as good as" not in text


def test_what_only_has_to_be_good_enough_has_no_alternative() -> None:
    front = StudyFront.of(twins(), GOALS, {"f1": {"min": 0.8}}, is_floor=True)

    assert StudyAnswer(name="s", front=front).alternative() == ""
