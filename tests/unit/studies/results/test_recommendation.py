"""What a study recommends, and the commands that launch it."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.objectives import with_quality
from paretune.studies.definition.space import read_entry
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.front import StudyFront
from paretune.studies.results.page import page
from paretune.studies.results.recommendation import Pick, launch_command, pick, recommend
from paretune.studies.results.tables import configurations_table
from paretune.studies.results.trials import FOREIGN, Trial
from tests.support.study_examples import COST_AND_F1, LADDER, answer, trial_of, words

ALL_THREE = {**COST_AND_F1, "train_seconds": "minimize"}


def picks_of(trials: list[Trial], objectives: Any = COST_AND_F1, constraints: Any = None) -> dict[str, Pick]:
    picks = recommend(StudyFront.of(trials, objectives, constraints or {}))
    return {title: pick for pick in picks for title in pick.roles}


def test_the_best_trade_of_quality_for_dollars_the_fastest_and_the_knee_are_picked() -> None:
    picks = picks_of(LADDER, ALL_THREE)

    assert {title: pick.point.number for title, pick in picks.items()} == {
        "recommended": 3,
        "the fastest of at least median F1": 2,  # trial 4 is faster, and worse than most
        "the knee": 1,
    }


def test_a_saving_is_taken_if_it_costs_less_than_a_twentieth_of_the_spread_per_halving() -> None:
    """The spread, from the median to the best, is 0.1 here."""
    others = [trial_of(0, 9.0, 0.8), trial_of(1, 8.0, 0.7), trial_of(2, 8.0, 0.8)]
    saving = picks_of([*others, trial_of(3, 4.0, 0.900), trial_of(4, 2.0, 0.896)])["recommended"]
    dear = picks_of([*others, trial_of(3, 4.0, 0.900), trial_of(4, 2.0, 0.894)])["recommended"]

    assert (saving.point.number, dear.point.number) == (4, 3)
    words = "The runs cannot tell its F1 from that of trial 3, whose mean is 0.004 better, and it is 2.00 USD cheaper."
    assert saving.reason == words


def test_without_dollars_among_the_objectives_the_best_is_recommended() -> None:
    for goals in ({"f1": "maximize"}, {"train_seconds": "minimize", "f1": "maximize"}):
        assert pick(StudyFront.of(LADDER, goals, {})).number == 3


def test_that_better_ones_were_left_out_by_a_constraint_is_said() -> None:
    reason = picks_of(LADDER, COST_AND_F1, {"cost_usd": {"max": 8.0}})["recommended"].reason

    assert reason.startswith("Nothing else that was trained and meets the constraints has a better mean F1.")


def test_nothing_is_recommended_on_a_doubtful_or_missing_price_without_a_word() -> None:
    front = StudyFront.of(LADDER, COST_AND_F1, {})
    doubt = {"ml.g5.xlarge": "price of ml.g5.xlarge in us-east-1 is of 2020", "ml.p4d.24xlarge": "unknown"}

    said = set(StudyAnswer(name="s", front=front, prices=doubt).remarks())
    assert said - set(StudyAnswer(name="s", front=front).remarks()) == {
        "Its dollars are in doubt: price of ml.g5.xlarge in us-east-1 is of 2020."
    }


def test_the_probability_of_a_collapse_is_stated_unless_repeats_or_certainty_speak_against_it() -> None:
    rows = [trial_of(0, 1.0, 0.9), trial_of(1, 9.0, 0.8)]
    again = [trial_of(n, 1.0, value, repeats=0) for n, value in ((2, 0.901), (3, 0.899))]
    equal = [trial_of(n, 1.0, 0.9, repeats=0) for n in (2, 3)]

    def risk(trials: list[Trial], probability: float, collapses: int = 0) -> str:
        front = StudyFront.of(trials, COST_AND_F1, {})
        points = tuple(replace(p, collapse_probability=probability, collapses=collapses) for p in front.points)
        (pick,) = recommend(changed := replace(front, points=points))
        assert ("collapse probability" in configurations_table(changed)) == bool(pick.risk)
        return pick.risk

    assert risk(rows, 0.04) == (
        "Another run of it collapses (F1 far below what the other runs suggest) with a probability of about 4%."
    )
    assert "its learning rate may be too high" in risk([*rows, *again], 0.2)
    assert "learning rate" not in risk([replace(trial, given=FOREIGN) for trial in rows], 0.2)  # another program's run
    assert risk([*rows, *again], 0.04) == ""
    assert risk([*rows, *equal], 0.2) == ""  # the training does not depend on chance
    assert risk([*rows, *again], 0.2, 1).startswith(
        "1 of its 3 runs collapsed (F1 far below what the other runs suggest), and the next run collapses with a "
        "probability of about 20%"
    )
    assert risk([*rows, *again], 0.2, 1).endswith("; the F1 above is the mean of runs that trained.")
    assert risk(rows, 0.9, 1).endswith("; none trained, so the F1 above is that of collapsed runs.")


def test_the_line_that_launches_is_that_of_the_job_and_survives_a_shell() -> None:
    parameters = {
        "learning_rate": "1e-4",
        "dataset": "my rows; rm $HOME.csv",
        "training_arguments": '{"weight_decay": 0.1}',
        "dry_run": "true",
    }
    command = picks_of([trial_of(0, 1.0, 0.9, given=parameters)])["recommended"].command

    words = shlex.split(command)[2:]
    given = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2], strict=True))
    assert shlex.split(command)[:2] == ["paretune", "train"]
    assert JobSpec.read(given).dataset == "my rows; rm $HOME.csv"
    assert set(given) == {"learning_rate", "dataset", "training_arguments"}


@pytest.mark.parametrize(("seconds", "minutes"), [(100.0, 3), (17_000.0, 355)])
def test_the_line_has_a_limit_that_a_careful_person_would_type(seconds: float, minutes: int) -> None:
    trials = [
        trial_of(0, 1.0, 0.9, measured={"job_seconds": seconds}),
        trial_of(1, 1.0, 0.9, repeats=0, measured={"estimated_seconds_high": 0.9 * seconds}),
    ]

    assert launch_command(StudyFront.of(trials, COST_AND_F1, {}).points[0]).endswith(f"--max_runtime_minutes {minutes}")


def test_a_simulated_recommendation_says_so_and_shows_the_real_line_too() -> None:
    parameters = {"learning_rate": "1e-4", "launcher": "simulated", "simulation.runs": "runs.csv"}
    trials = [trial_of(0, 1.0, 0.9, given=parameters, origin="simulated")]
    front = StudyFront.of(trials, COST_AND_F1, {})
    (pick,) = recommend(front)

    assert "--launcher simulated" in pick.command
    assert pick.real_command == "paretune train --learning_rate 0.0001"
    assert words(trials).startswith("Simulated: none of this has run")


@pytest.mark.parametrize(("rate", "text"), [(3.003717e-5, "3e-5"), (5.081e-5, "5.08e-5"), (0.0154, "0.0154")])
def test_a_rate_has_three_digits_at_most_and_no_empty_fraction(rate: float, text: str) -> None:
    assert trial_of(0, 1.0, 0.9, point={"learning_rate": rate}).setting() == f"rate {text}, batch 1"


FLOOR = {"f1": {"min": 0.9}}


def test_the_cheapest_that_is_good_enough_is_recommended_and_its_quality_stated() -> None:
    """Dollars are the only objective: enough F1 is required, not the most."""
    trials = [trial_of(0, 1.0, 0.80), trial_of(1, 2.0, 0.91), trial_of(2, 9.0, 0.95)]
    goals = with_quality({"cost_usd": "minimize"}, FLOOR)
    result = StudyAnswer(name="s", front=StudyFront.of(trials, goals, FLOOR, is_floor=True))

    (pick, *_) = result.picks
    assert pick.point.number == 1
    assert "It is the cheapest with F1 at least 0.9. Its F1 is 0.91" in result.text()
    assert "Wanted: minimize cost, F1 at least 0.9." in page(result)


@pytest.mark.parametrize(
    ("name", "entry", "value", "line"),
    [
        ("learning_rate", {"low": 1e-3, "high": 0.1, "log": True}, 0.0995, "{low: 0.001, high: 1.0, log: true}"),
        ("learning_rate", {"low": 1e-3, "high": 0.1, "log": True}, 0.001, "{low: 0.0001, high: 0.1, log: true}"),
        ("learning_rate", {"low": 1e-3, "high": 0.1, "log": True}, 0.01, ""),
        ("training_arguments.depth", {"low": 4, "high": 8}, 8, "{low: 4, high: 10}"),
        ("training_arguments.dropout", {"low": 0.1, "high": 0.9}, 0.1, ""),  # no positive number is left below
        ("training_arguments.batch", {"choices": [8, 16, 32, 64, 128]}, 8, "{choices: [4, 8, 16, 32, 64, 128]}"),
        ("training_arguments.batch", {"choices": [1, 2, 4, 8]}, 1, ""),
        ("training_arguments.batch", {"choices": [8, 16]}, 16, ""),  # two values are chosen on purpose
        ("training_arguments.net", {"choices": ["a", "b", "c", "d"]}, "d", ""),
    ],
)
def test_a_recommended_value_at_an_end_of_what_was_searched_is_named_with_the_line_that_searches_beyond_it(
    name: str, entry: dict[str, Any], value: float | str, line: str, tmp_path: Path
) -> None:
    trials = [trial_of(0, 1.0, 0.9, point={name: value}), trial_of(1, 2.0, 0.8, point={name: value})]
    search = {name: read_entry(name, entry)}

    remarks = answer(trials, COST_AND_F1, {}, name="s", search=search).remarks()
    said = [text for text in remarks if "lies at an end" in text]

    assert [re.findall("`(.+)`", text) for text in said] == ([[f"{name}: {line}"]] if line else [])
    if said:
        script, line = tmp_path / "t.py", re.findall("`(.+)`", said[0])[0]
        script.write_text("print('f1: 1')\n")
        head = (
            f"name: s\nn_trials: 3\nobjectives: {{cost_usd: minimize, f1: maximize}}\njob: {{entry_script: {script}}}"
        )
        (tmp_path / "study.yaml").write_text(f"{head}\nsearch:\n  {line}\n")
        assert StudyFile.read(str(tmp_path / "study.yaml")).search[name] != search[name]
