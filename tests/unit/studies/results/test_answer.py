"""The answer as a whole."""

import csv
import io
from dataclasses import replace

import pytest

from paretune.studies.results.answer import StudyResult, front_table, pareto_csv
from paretune.studies.results.page import front_figure, page
from paretune.studies.results.trials import PREDICTED, Trial, TrialStatus
from tests.study_examples import COST_AND_F1, answer, failed, many_trials, trial_of


def test_the_text_names_what_to_take_what_it_costs_and_how_to_launch_it() -> None:
    trials = many_trials(40)
    result = answer(trials, COST_AND_F1, {}, name="s", budget_usd=500.0, committed_usd=3.0)
    text = result.text()

    pick = result.picks[0]
    assert text.startswith(f"Take trial {pick.point.number} (")
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
        "cost_usd,cost_usd_low,cost_usd_high,spent_usd,collapse_probability"
    )
    rows = [
        {name: cell for name, cell in row.items() if name[-4:] not in ("_low", "high", "lity")} for row in read(text)
    ]
    assert [",".join(row.values()) for row in rows] == [
        "0,run0,1e-05,ml.g5.xlarge,1,1,0.9,,Completed,measured,,1.5,1.5",
        "1,run1,2e-05,ml.g5.xlarge,1,1,0.91,,Completed,measured,,2.5,4.0",
        "2,run2,3.0000000000000004e-05,ml.g5.xlarge,3,1,,,OutOfMemory,measured,,0.25,4.25",
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


def test_probes_are_counted_apart_from_the_trials_that_n_trials_limits() -> None:
    probes = [trial_of(number, 1.0, 0.0, values={}, given={"probe_steps": "40"}) for number in (0, 1)]
    result = answer([*probes, trial_of(2, 1.0, 0.9), trial_of(3, 1.0, 0.9, repeats=2)], COST_AND_F1, {}, name="s")

    assert "1 trial, 2 probes and 1 repeat, " in result.state()


def test_the_error_of_one_run_is_not_known_yet_and_that_of_several_is_stated() -> None:
    trials = [trial_of(0, 1.0, 0.90), trial_of(1, 1.1, 0.92, repeats=0), trial_of(2, 3.0, 0.95)]
    shown = answer(trials, COST_AND_F1, {}, name="s")
    twice, once = shown.front.points

    assert shown.front.figures(once) == {"cost": "3.000 USD (± not known yet)", "F1": "0.950 (± not known yet)"}
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
    first, _ = answer(trials, COST_AND_F1, {}, name="s").front.points

    assert first.stated_errors.keys() == {"cost_usd"}
