"""The answer of a study in sentences, and how a study ends."""

import re
from dataclasses import replace

import pytest

from paretune.studies.recorded_front import front
from paretune.studies.results.answer import failures
from paretune.studies.results.page import page
from paretune.studies.results.result import StudyResult
from paretune.studies.results.tables import pareto_csv
from paretune.studies.results.trials import Trial
from paretune.studies.trial_status import TrialStatus
from tests.support.study_examples import (
    COST_AND_F1,
    LADDER,
    answer,
    failed,
    many_trials,
    trial_of,
    words,
)


def test_the_text_names_what_to_take_what_it_costs_and_how_to_launch_it() -> None:
    trials = many_trials(40)
    result = answer(trials, COST_AND_F1, {}, name="s", budget_usd=500.0, committed_usd=3.0)
    text = result.text()

    pick = result.picks[0]
    experimental = "Experimental, not yet run on a GPU cluster or in an AWS account: launcher=sagemaker."
    assert text.startswith(f"{experimental} Take trial {pick.point.number} (")
    assert pick.command in text
    assert text.count(f"rial {pick.point.number} (") == 1
    assert f"{pick.title}: trial" not in text  # the first paragraph contains it
    assert "Front, cheapest first:" in text
    assert "reserved 3.00 USD for running jobs and kept instances (worst case)" in text
    assert "out of memory: batch does not fit 16 GiB" in text


def test_a_metric_of_ones_own_is_called_by_its_name() -> None:
    trials = [
        replace(trial, values={{"f1": "val_ndcg"}.get(name, name): value for name, value in trial.values.items()})
        for trial in many_trials(40)
    ]
    result = answer(trials, {"cost_usd": "minimize", "val_ndcg": "maximize"}, {}, name="own")

    assert re.search("mean val_ndcg|its val_ndcg", result.text())
    assert "val_ndcg,val_ndcg_mean,val_ndcg_low,val_ndcg_high" in pareto_csv(result.front)
    assert "val_ndcg is the mean of the runs that trained" in page(result)
    assert "F1" not in result.text()

    loss = [replace(trial, values={**trial.values, "eval_loss": 0.6}) for trial in trials if trial.values]
    losses = answer(loss, {"cost_usd": "minimize", "eval_loss": "minimize"}, {}, name="own")
    assert {point.collapse_probability for point in losses.front.points} == {0.0}  # a loss cannot collapse


def test_after_one_run_of_each_an_answer_says_what_its_interval_is_judged_by() -> None:
    trials = [trial_of(0, 1.0, 0.90), trial_of(1, 3.0, 0.95), trial_of(2, 9.0, 0.97)]
    text = words(trials)

    assert re.search(r"is between 0\.\d+ and (0\.\d+|1\.0*) \(80%, judged by how much trials with similar", text)
    assert "unknown" not in text


def test_a_long_list_of_what_cannot_be_told_apart_is_counted() -> None:
    trials = [trial_of(n, 1.0 + n, 0.90 + 1e-5 * n) for n in range(12)]

    assert re.search(r"from that of trials \d+, \d+, \d+, \d+, \d+ and \d+ others\.", words(trials))


@pytest.mark.parametrize(("kind", "money"), [("local", ""), ("ml.g5.xlarge", ", which costs money")])
def test_the_real_command_of_a_simulated_job_costs_money_only_in_a_cloud(kind: str, money: str) -> None:
    parameters = {"launcher": "simulated", "simulation.runs": "runs.csv", "instance_type": kind}
    trials = [trial_of(0, 1.0, 0.9, given=parameters, origin="simulated")]

    assert f"for real{money}: paretune train" in answer(trials, COST_AND_F1, {}, name="s").text()


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


def test_without_a_completed_trial_the_reasons_are_counted() -> None:
    trials = [
        failed(0, TrialStatus.OUT_OF_MEMORY, "batch 64 does not fit."),
        failed(1, TrialStatus.OUT_OF_MEMORY, "batch 64 does not fit."),
        failed(2, TrialStatus.FAILED, "no such column: text"),
    ]

    assert words(trials) == (
        "0 of 3 trials completed, so there is no front and nothing to recommend. "
        "2 out of memory: batch 64 does not fit. 1 failed: no such column: text."
    )
    assert "Nothing has run yet" in words([])


def test_where_no_point_meets_the_constraints_the_closest_is_named() -> None:
    said = words(LADDER, COST_AND_F1, {"f1": {"min": 0.99}})

    assert "5 configurations have completed, but none can be recommended" in said
    assert "the closest is trial 3: F1 is 0.935, below 0.99." in said


def test_the_closest_point_says_what_it_has_not_measured_although_another_point_has() -> None:
    slow = trial_of(0, 1.0, 0.9, more={"job_seconds": 9000.0})
    without_f1 = trial_of(1, 1.0, 0.0, values={"cost_usd": 1.0, "job_seconds": 10.0})
    fast = {"job_seconds": {"max": 3600.0}}

    assert words([slow, without_f1], COST_AND_F1, fast).endswith(
        "the closest is trial 1: F1 was not measured or is not finite."
    )
    both = words([without_f1], COST_AND_F1, {"f1": {"min": 0.5}})
    assert both.endswith("the closest is trial 1: F1 was not measured or is not finite.")


def test_a_point_that_misses_a_bound_by_a_few_seconds_is_closer_than_one_without_half_its_f1() -> None:
    """Each miss counts as a share of its bound, so seconds do not outweigh F1 because they are large numbers."""
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
