"""The answer as a whole."""

import csv
import io

import pytest

from paretune.studies.results.answer import answer
from paretune.studies.results.page import page
from paretune.studies.results.trials import TrialStatus
from tests.study_examples import COST_AND_F1, failed, many_trials, trial_of


def test_ranks_name_the_runs_that_have_one() -> None:
    trials = [trial_of(0, 1.0, 0.9), trial_of(1, 2.0, 0.8), failed(2, TrialStatus.FAILED, "x"), trial_of(3, 1.0, 0.1)]
    found = answer(trials, COST_AND_F1, {"f1": {"min": 0.5}}, name="s", budget_usd=None)

    assert found.ranks() == {"run0": 0, "run1": 1}
    assert found.hypervolume == pytest.approx((1.1 - 1.0) * (0.9 - 0.81))  # a tenth beyond the only best point


def test_the_text_names_what_to_take_what_it_costs_and_how_to_launch_it() -> None:
    trials = many_trials(40)
    found = answer(
        trials, COST_AND_F1, {}, name="s", budget_usd=500.0, committed_usd=3.0, later_runs=9, default=trials[0]
    )
    text = found.text()

    pick = found.picks[0]
    assert text.startswith(f"Take trial {pick.point.number} (")
    assert pick.command in text
    assert "Front over all objectives, cheapest first:" in text
    assert "committed 3.00 USD" in text
    assert "out of memory: batch does not fit 16 GiB" in text


def test_a_simulated_text_says_so_in_each_block_of_numbers() -> None:
    text = answer(many_trials(20, origin="simulated"), COST_AND_F1, {}, name="s", budget_usd=9.0).text()

    assert text.startswith("Simulated: ")
    assert "Simulated front over" in text
    assert "Simulated budget:" in text


def test_no_trials_are_an_answer_too() -> None:
    found = answer([], COST_AND_F1, {}, name="s", budget_usd=10.0)

    assert found.ranks() == {}
    assert found.hypervolume == 0.0
    assert found.picks == ()
    assert "No trial has been tried yet" in found.text()
    assert "<html" in page(found)


def test_a_row_per_finished_trial_with_exactly_these_columns() -> None:
    trials = [
        trial_of(1, 2.5, 0.91, repeats=0),
        trial_of(0, 1.5, 0.90),
        failed(2, TrialStatus.OUT_OF_MEMORY, "does not fit", cost=0.25),
    ]
    text = answer(trials, {**COST_AND_F1, "train_seconds": "minimize"}, {}, name="a study").csv()

    assert text.splitlines() == [
        "trial,run_id,learning_rate,instance_type,f1,train_seconds,status,pareto_rank,cost_usd,spent_usd",
        "0,run0,1e-05,ml.g5.xlarge,0.9,,Completed,,1.5,10.0",
        "1,run1,2e-05,ml.g5.xlarge,0.91,,Completed,,2.5,20.0",
        "2,run2,3.0000000000000004e-05,ml.g5.xlarge,,,OutOfMemory,,0.25,30.0",
    ]


def test_a_probe_is_no_completed_row() -> None:
    probe = trial_of(0, 0.5, 0.0, values={}, parameters={"probe_steps": "24"})
    rows = csv.DictReader(io.StringIO(answer([probe, trial_of(1, 1.5, 0.9)], COST_AND_F1, {}, name="a study").csv()))

    assert [row["status"] for row in rows] == ["Probe", "Completed"]


def test_ranks_are_in_it_and_odd_texts_survive() -> None:
    odd = 'a, "b"\nc'
    text = answer([trial_of(0, 1.0, 0.9, point={"dataset": odd})], COST_AND_F1, {}, name="a study").csv()

    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["dataset"], row["pareto_rank"]) == (odd, "0")


def test_without_trials_it_is_its_header() -> None:
    text = answer([], COST_AND_F1, {}, name="a study").csv()

    assert text == "trial,run_id,f1,status,pareto_rank,cost_usd,spent_usd\n"
