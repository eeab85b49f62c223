"""What is recommended, why, and with which line."""

import shlex
from dataclasses import replace
from typing import Any

import pytest

from paretune.specification.job import JobSpec
from paretune.studies.results.answer import Pick, StudyAnswer, front_table, launch_command, recommend
from paretune.studies.results.front import StudyFront
from paretune.studies.results.trials import Trial, TrialStatus
from tests.study_examples import COST_AND_F1, failed, trial_of

LADDER = [
    trial_of(0, 1.0, 0.70, more={"train_seconds": 4000.0}),
    trial_of(1, 2.0, 0.90, more={"train_seconds": 2000.0}),  # the knee
    trial_of(2, 6.0, 0.930, more={"train_seconds": 1000.0}),  # within 0.014 of the best
    trial_of(3, 9.0, 0.935, more={"train_seconds": 3000.0}),
    trial_of(4, 20.0, 0.80, more={"train_seconds": 500.0}),
]
ALL_THREE = {**COST_AND_F1, "train_seconds": "minimize"}


def picks_of(trials: list[Trial], objectives: Any = COST_AND_F1, constraints: Any = None) -> dict[str, Pick]:
    picks = recommend(StudyFront.of(trials, objectives, constraints or {}))
    return {title: pick for pick in picks for title in pick.titles}


def words(trials: list[Trial], objectives: Any = COST_AND_F1, constraints: Any = None) -> str:
    front = StudyFront.of(trials, objectives, constraints or {})
    return " ".join(StudyAnswer(name="s", front=front).opening())


def test_the_cheapest_within_noise_of_the_best_the_fastest_and_the_knee_are_picked() -> None:
    picks = picks_of(LADDER, ALL_THREE)

    assert {title: pick.point.number for title, pick in picks.items()} == {
        "the cheapest within noise of the best F1": 2,
        "the fastest": 4,
        "the knee": 1,
    }
    assert "trial 3" in picks["the cheapest within noise of the best F1"].reason


def test_nothing_is_recommended_on_a_doubtful_or_missing_price_without_a_word() -> None:
    front = StudyFront.of(LADDER, COST_AND_F1, {})
    doubt = {"ml.g5.xlarge": "price of ml.g5.xlarge in us-east-1 is of 2020", "ml.p4d.24xlarge": "unknown"}

    said = set(StudyAnswer(name="s", front=front, prices=doubt).remarks())
    assert said - set(StudyAnswer(name="s", front=front).remarks()) == {
        "Its dollars are in doubt: price of ml.g5.xlarge in us-east-1 is of 2020."
    }


def test_the_probability_of_a_collapse_is_told_unless_repeats_or_certainty_speak_against_it() -> None:
    rows = [trial_of(0, 1.0, 0.9, point={"learning_rate": 1e-4}), trial_of(1, 9.0, 0.8)]
    again = [trial_of(n, 1.0, value, repeats=0) for n, value in ((2, 0.901), (3, 0.899))]
    equal = [trial_of(n, 1.0, 0.9, repeats=0) for n in (2, 3)]

    def risk(trials: list[Trial], probability: float, collapses: int = 0) -> str:
        front = StudyFront.of(trials, COST_AND_F1, {})
        points = tuple(replace(p, collapse_probability=probability, collapses=collapses) for p in front.points)
        (pick,) = recommend(told := replace(front, points=points))
        assert ("collapse probability" in front_table(told)) == bool(pick.risk)
        return pick.risk

    assert risk(rows, 0.04) == "A further run of it collapses with a probability of about 4%."
    assert "its learning rate may be too high" in risk([*rows, *again], 0.2)
    assert risk([*rows, *again], 0.04) == ""
    assert risk([*rows, *equal], 0.2) == ""  # the training does not depend on chance
    assert "1 of its runs: of 3, and the next one does with a probability of about 20%" in risk([*rows, *again], 0.2, 1)


def test_the_line_that_launches_is_that_of_the_job_and_survives_a_shell() -> None:
    parameters = {
        "learning_rate": "1e-4",
        "dataset": "my rows; rm $HOME.csv",
        "training_arguments": '{"weight_decay": 0.1}',
        "dry_run": "true",
    }
    command = picks_of([trial_of(0, 1.0, 0.9, given=parameters)])["the cheapest within noise of the best F1"].command

    words = shlex.split(command)[2:]
    told = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2], strict=True))
    assert shlex.split(command)[:2] == ["paretune", "train"]
    assert JobSpec.read(told).dataset == "my rows; rm $HOME.csv"
    assert set(told) == {"learning_rate", "dataset", "training_arguments"}


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
    assert words(trials).startswith("Simulated: nothing of this has run")


def test_without_a_completed_trial_the_reasons_are_counted() -> None:
    trials = [
        failed(0, TrialStatus.OUT_OF_MEMORY, "batch 64 does not fit."),
        failed(1, TrialStatus.OUT_OF_MEMORY, "batch 64 does not fit."),
        failed(2, TrialStatus.FAILED, "no such column: text"),
    ]

    assert words(trials) == (
        "No trial of 3 has completed, so there is no front and nothing to recommend. "
        "2 out of memory: batch 64 does not fit. 1 failed: no such column: text."
    )
    assert "No trial has been tried yet" in words([])


def test_where_no_point_meets_the_constraints_the_closest_is_named() -> None:
    said = words(LADDER, COST_AND_F1, {"f1": {"min": 0.99}})

    assert "5 configurations have completed, but none can be recommended" in said
    assert "the closest is trial 3: F1 is 0.9350, below 0.99." in said
