"""The answer: what is recommended, why and with which line, and the tables that it stands in."""

import csv
import io
import shlex
from dataclasses import replace
from typing import Any

import pytest

from paretune.specification.job import JobSpec
from paretune.studies.definition.objectives import with_quality
from paretune.studies.recorded_front import front
from paretune.studies.results.answer import StudyAnswer, failures
from paretune.studies.results.front import StudyFront
from paretune.studies.results.page import front_figure, page
from paretune.studies.results.recommendation import Pick, best_in, launch_command, recommend
from paretune.studies.results.result import StudyResult
from paretune.studies.results.tables import front_table, pareto_csv
from paretune.studies.results.trial_status import TrialStatus
from paretune.studies.results.trials import FOREIGN, PREDICTED, Trial
from tests.support.study_examples import COST_AND_F1, answer, failed, many_trials, trial_of


def test_the_text_names_what_to_take_what_it_costs_and_how_to_launch_it() -> None:
    trials = many_trials(40)
    result = answer(trials, COST_AND_F1, {}, name="s", budget_usd=500.0, committed_usd=3.0)
    text = result.text()

    pick = result.picks[0]
    experimental = "Experimental, no GPU cluster and no AWS account has run it: launcher=sagemaker."
    assert text.startswith(f"{experimental} Take trial {pick.point.number} (")
    assert pick.command in text
    assert text.count(f"rial {pick.point.number} (") == 1
    assert f"{pick.title}: trial" not in text  # the first paragraph has said it
    assert "Front over all objectives, cheapest first:" in text
    assert "committed to running jobs at worst 3.00 USD" in text
    assert "out of memory: batch does not fit 16 GiB" in text


def test_a_metric_of_ones_own_is_called_by_its_name() -> None:
    trials = [
        replace(trial, values={{"f1": "val_ndcg"}.get(name, name): value for name, value in trial.values.items()})
        for trial in many_trials(40)
    ]
    result = answer(trials, {"cost_usd": "minimize", "val_ndcg": "maximize"}, {}, name="own")

    assert "within noise of the best val_ndcg" in result.text()
    assert "val_ndcg,val_ndcg_low,val_ndcg_high" in pareto_csv(result.front)
    assert "val_ndcg is that of runs that trained" in page(result)
    assert "F1" not in result.text()

    loss = [replace(trial, values={**trial.values, "eval_loss": 0.6}) for trial in trials if trial.values]
    losses = answer(loss, {"cost_usd": "minimize", "eval_loss": "minimize"}, {}, name="own")
    assert {point.collapse_probability for point in losses.front.points} == {0.0}  # nothing of it can collapse


def test_a_row_per_finished_trial_with_exactly_these_columns() -> None:
    trials = [
        trial_of(1, 2.5, 0.91, repeats=0),
        trial_of(0, 1.5, 0.90),
        failed(2, TrialStatus.OUT_OF_MEMORY, "does not fit", cost=0.25),
    ]
    text = pareto_csv(answer(trials, {**COST_AND_F1, "train_seconds": "minimize"}, {}, name="a study").front)

    assert text.splitlines()[0] == (
        "trial,run_id,learning_rate,instance_type,global_batch_size,gradient_accumulation_steps,f1,f1_low,f1_high,"
        "train_seconds,train_seconds_low,train_seconds_high,status,origin,pareto_rank,"
        "cost_usd,cost_usd_low,cost_usd_high,spent_usd,collapse_probability,repeats"
    )
    rows = [
        {name: cell for name, cell in row.items() if name[-4:] not in ("_low", "high", "lity")} for row in read(text)
    ]
    assert [",".join(row.values()) for row in rows] == [
        "0,run0,1e-05,ml.g5.xlarge,1,1,0.9,,Completed,measured,,1.5,1.5,",
        "1,run1,1e-05,ml.g5.xlarge,1,1,0.91,,Completed,measured,,2.5,4.0,0",
        "2,run2,3.0000000000000004e-05,ml.g5.xlarge,3,1,,,OutOfMemory,measured,,0.25,4.25,",
    ]


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_an_interval_holds_what_a_configuration_reaches_and_is_that_of_its_mean() -> None:
    trials = [trial_of(0, 1.0, 0.90), trial_of(1, 1.0, 0.92, repeats=0), trial_of(2, 3.0, 0.95)]

    twice, again, once = read(pareto_csv(answer(trials, COST_AND_F1, {}, name="s").front))
    assert (twice["f1"], again["f1"]) == ("0.9", "0.92")
    assert (twice["f1_low"], twice["f1_high"]) == (again["f1_low"], again["f1_high"])
    low, high = float(twice["f1_low"]), float(twice["f1_high"])
    assert (low + high) / 2 == pytest.approx(0.91)
    assert (once["f1_low"], once["f1_high"], once["cost_usd_low"]) == ("", "", "")  # nobody knows after one run


def predicted(number: int, cost: float, f1: float) -> Trial:
    intervals = {"f1": (f1 - 0.01, f1 + 0.02), "cost_usd": (cost - 0.1, cost + 0.1)}
    return trial_of(number, cost, f1, cost_usd=None, origin=PREDICTED, run_id="", intervals=intervals)


def test_predicted_points_that_nothing_beats_are_in_the_table_with_their_intervals() -> None:
    trials = [trial_of(0, 1.0, 0.8), trial_of(1, 5.0, 0.9)]
    guesses = [predicted(10, 3.0, 0.93), predicted(11, 3.5, 0.92), predicted(12, 0.5, 0.7)]
    result = answer(trials, COST_AND_F1, {}, name="s", predicted=guesses)

    *ran, cheap, good = read(pareto_csv(result.front))
    assert [row["origin"] for row in ran] == ["measured", "measured"]
    assert (good["origin"], good["status"], good["trial"], good["run_id"], good["pareto_rank"]) == (
        *("predicted", "Predicted", "", "", ""),
    )
    assert [float(good[name]) for name in ("f1", "f1_low", "f1_high")] == pytest.approx([0.93, 0.92, 0.95])
    assert (cheap["cost_usd"], good["cost_usd"]) == ("0.5", "3.0")
    assert [pick.point.number for pick in result.picks] == [1]
    assert result.front.spent_usd == 6.0


def result_of(*trials: Trial, budget_usd: float | None = None) -> StudyResult:
    result = answer(trials, COST_AND_F1, {}, name="s", budget_usd=budget_usd, committed_usd=0.0)
    return StudyResult(answer=result, run_id="r", ending="e", open_command="o")


def test_a_study_without_a_recommendation_ends_with_3_and_one_that_cost_more_than_its_budget_with_4() -> None:
    broken, full = failed(0, TrialStatus.FAILED, "broken"), failed(1, TrialStatus.OUT_OF_MEMORY, "full")
    done = [trial_of(0, 1.0, 0.8), trial_of(1, 2.0, 0.9)]

    without_f1 = [trial_of(number, 1.0, 0.0, values={"cost_usd": 1.0}) for number in (0, 1)]
    assert [result_of(*trials).exit_code for trials in ([], [broken, full], without_f1)] == [3, 3, 3]
    assert result_of(broken, done[1]).exit_code == 0
    retained, exceeded = (result_of(*done, budget_usd=budget_usd) for budget_usd in (3.0, 2.95))
    assert (retained.exit_code, exceeded.exit_code) == (0, 4)
    assert "The study has cost 0.0500 USD more than its budget." in str(exceeded)
    assert "more than its budget" not in str(retained)


def test_no_probe_and_no_failed_trial_is_on_a_front_of_dollars_alone() -> None:
    probe = trial_of(0, 0.1, 0.0, values={}, given={"probe_steps": "40"})
    result = result_of(probe, failed(1, TrialStatus.FAILED, "broken", cost=0.2), trial_of(2, 1.0, 0.8))

    cheapest = front(result, {"cost_usd": "minimize"})

    assert [row["run_id"] for row in cheapest.rows()] == ["run2"]
    assert cheapest.title.startswith("front of study s: 1 of 1 runs")


def test_a_repeat_that_logged_no_f1_is_not_on_the_front_of_its_point() -> None:
    result = result_of(trial_of(0, 1.0, 0.8), trial_of(1, 1.0, 0.0, repeats=0, values={"cost_usd": 1.0}))

    assert [row["run_id"] for row in front(result).rows()] == ["run0"]


def test_probes_are_counted_apart_from_the_trials_that_n_trials_limits() -> None:
    probes = [trial_of(number, 1.0, 0.0, values={}, given={"probe_steps": "40"}) for number in (0, 1)]
    result = answer([*probes, trial_of(2, 1.0, 0.9), trial_of(3, 1.0, 0.9, repeats=2)], COST_AND_F1, {}, name="s")

    assert "1 trial, 2 probes and 1 repeat, " in result.state()


def test_the_error_of_one_run_is_unknown_and_that_of_several_is_stated() -> None:
    trials = [trial_of(0, 1.0, 0.90), trial_of(1, 1.1, 0.92, repeats=0), trial_of(2, 3.0, 0.95)]
    shown = answer(trials, COST_AND_F1, {}, name="s")
    twice, once = shown.front.points

    assert shown.front.figures(once) == {"cost": "3.000 USD", "F1": "0.950"}
    assert shown.front.in_words(once) == "cost 3.000 USD; F1 0.950 (± unknown after one run)"
    assert shown.front.stated(once, "f1") == "0.950 (± unknown after one run)"
    assert all(" ± 0" in text for text in shown.front.figures(twice).values())
    assert [" ± " in text for text in front_table(shown.front)["F1"]] == [True, False]
    drawn = {trace.name: trace.error_y.array for trace in front_figure(shown.front, shown.picks, str).data}
    assert [value is None or value != value for value in drawn["on the front (2)"]] == [False, True]


def test_seconds_and_dollars_of_equal_clusters_are_several_runs_of_one_figure() -> None:
    same = {"per_device_train_batch_size": "8", "instance_type": "ml.g5.xlarge"}
    trials = [
        trial_of(n, usd, 0.9, given={**same, "learning_rate": rate})
        for n, (usd, rate) in enumerate([(1.0, "1e-5"), (1.1, "1e-4")])
    ]
    trials.append(trial_of(2, 1.2, 0.9, given={**same, "learning_rate": "1e-5", "seed": "43"}, repeats=0))
    first, once = answer(trials, COST_AND_F1, {}, name="s").front.points

    assert first.means["cost_usd"] == once.means["cost_usd"] == pytest.approx(1.1)
    assert first.errors["cost_usd"] == once.errors["cost_usd"]
    assert (first.stated_errors.keys(), once.stated_errors.keys()) == ({"cost_usd", "f1"}, set())  # one has run once


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
    rows = [trial_of(0, 1.0, 0.9), trial_of(1, 9.0, 0.8)]
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
    assert "learning rate" not in risk([replace(trial, given=FOREIGN) for trial in rows], 0.2)  # of any function
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


@pytest.mark.parametrize(("rate", "text"), [(3.003717e-5, "3e-5"), (5.081e-5, "5.08e-5"), (0.0154, "0.0154")])
def test_a_rate_has_three_digits_at_most_and_no_empty_fraction(rate: float, text: str) -> None:
    assert trial_of(0, 1.0, 0.9, point={"learning_rate": rate}).setting() == f"rate {text}, batch 1"


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


FLOOR = {"f1": {"min": 0.9}}


def test_the_cheapest_that_is_good_enough_is_recommended_and_its_quality_stated() -> None:
    """Dollars are the only objective: the most F1 is not asked for, only enough of it."""
    trials = [trial_of(0, 1.0, 0.80), trial_of(1, 2.0, 0.91), trial_of(2, 9.0, 0.95)]
    goals = with_quality({"cost_usd": "minimize"}, FLOOR)
    result = StudyAnswer(name="s", front=StudyFront.of(trials, goals, FLOOR, is_floor=True))

    (pick, *_) = result.picks
    assert pick.point.number == 1
    assert "It is the cheapest with F1 at least 0.9. Its F1 is 0.91" in result.text()
    assert "Wanted: minimize cost, F1 at least 0.9." in page(result)


def test_the_best_that_is_named_is_the_best_that_is_stated_of_the_front() -> None:
    for seed in range(5):
        front = StudyFront.of(many_trials(60, seed), COST_AND_F1, {})
        best, _ = best_in(front, "f1")
        assert best.means["f1"] == max(point.means["f1"] for point in front.best)
        (pick, *_) = recommend(front)
        assert pick.point.means["f1"] <= best.means["f1"]


def test_a_point_that_misses_a_bound_by_a_few_seconds_is_closer_than_one_without_half_its_f1() -> None:
    """Each miss counts as a share of its bound: seconds do not outweigh F1 because they are large numbers."""
    slow = trial_of(0, 1.0, 0.89, more={"job_seconds": 3660.0})
    poor = trial_of(1, 1.0, 0.45, more={"job_seconds": 3500.0})
    bounds = {"f1": {"min": 0.9}, "job_seconds": {"max": 3600.0}}
    text = " ".join(answer([slow, poor], COST_AND_F1, bounds, name="s").opening())

    assert "the closest is trial 0: F1 is 0.89" in text
    assert "above 60 min" in text or "above 1 h" in text
    assert "1 configuration has completed" in " ".join(answer([slow], COST_AND_F1, bounds, name="s").opening())


def test_failures_that_differ_in_line_numbers_are_one_reason_and_none_is_named_twice() -> None:
    broken = [failed(n, TrialStatus.FAILED, f"train.py:{n + 3}: KeyError 'text'") for n in range(3)]
    full = failed(9, TrialStatus.OUT_OF_MEMORY, "out of memory, with 16 rows a device")
    assert failures([*broken, full]) == [
        "3 failed: train.py:3: KeyError 'text'",
        "1 out of memory: with 16 rows a device",
    ]


def test_a_repeat_says_in_pareto_csv_which_trial_it_repeats() -> None:
    trials = [trial_of(0, 1.0, 0.9), trial_of(1, 1.0, 0.91, repeats=0)]
    rows = list(csv.DictReader(io.StringIO(pareto_csv(StudyFront.of(trials, COST_AND_F1, {})))))
    assert [row["repeats"] for row in rows] == ["", "0"]
