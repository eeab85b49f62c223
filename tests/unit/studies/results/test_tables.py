"""The tables of a study: pareto.csv and its front."""

import csv
import io
import re

import pytest

from paretune.studies.results.front import StudyFront
from paretune.studies.results.page import front_figure
from paretune.studies.results.tables import configurations_table, pareto_csv
from paretune.studies.trial_status import PROBED, TrialStatus
from tests.support.study_examples import COST_AND_F1, answer, expected, failed, trial_of


def test_a_row_per_finished_trial_with_exactly_these_columns() -> None:
    trials = [
        trial_of(1, 2.5, 0.91, repeats=0),
        trial_of(0, 1.5, 0.90),
        failed(2, TrialStatus.OUT_OF_MEMORY, "does not fit", cost=0.25),
    ]
    text = pareto_csv(answer(trials, {**COST_AND_F1, "train_seconds": "minimize"}, {}, name="a study").front)

    assert text.splitlines()[0] == (
        "trial,run_id,learning_rate,instance_type,global_batch_size,gradient_accumulation_steps,"
        "f1,f1_mean,f1_low,f1_high,train_seconds,train_seconds_mean,train_seconds_low,train_seconds_high,"
        "status,evidence,origin,pareto_rank,beaten_by,"
        "cost_usd,cost_usd_mean,cost_usd_low,cost_usd_high,spent_usd,collapse_probability,repeats"
    )
    rows = [
        {name: cell for name, cell in row.items() if name[-4:] not in ("_low", "high", "lity", "mean", "n_by")}
        for row in read(text)
    ]
    assert [",".join(row.values()) for row in rows] == [
        "0,run0,1e-05,ml.g5.xlarge,1,1,0.9,,Completed,trained,measured,,1.5,1.5,",
        "1,run1,1e-05,ml.g5.xlarge,1,1,0.91,,Completed,trained,measured,,2.5,4.0,0",
        "2,run2,3.0000000000000004e-05,ml.g5.xlarge,3,1,,,OutOfMemory,,measured,,0.25,4.25,",
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
    assert [row["f1_mean"] for row in (twice, again)] == ["0.91", "0.91"]
    assert float(once["f1_low"]) < 0.95 < float(once["f1_high"])
    assert once["cost_usd_low"] == ""  # unknown after one run


def test_what_is_expected_of_configurations_that_were_not_trained_is_in_the_table_with_its_intervals() -> None:
    trials = [trial_of(0, 1.0, 0.8), trial_of(1, 5.0, 0.9)]
    guesses = [expected(10, 3.0, 0.93, PROBED), expected(11, 3.5, 0.92), expected(12, 0.5, 0.7)]
    result = answer(trials, COST_AND_F1, {}, name="s", expected=guesses)

    *ran, good, worse, cheap = read(pareto_csv(result.front))
    assert [row["origin"] for row in ran] == ["measured", "measured"]
    assert [row["evidence"] for row in (*ran, good, worse)] == ["trained", "trained", "probed", "estimated"]
    assert (good["origin"], good["status"], good["trial"], good["run_id"]) == ("estimated", "Expected", "", "")
    assert [row["pareto_rank"] for row in (good, worse, cheap)] == ["0", "", "0"]
    table = configurations_table(result.front)
    assert table["known from"].tolist() == ["estimate", "1 run", "probe", "1 run"]
    assert table["F1"].tolist()[2] == "0.930 (0.920 to 0.950)"
    assert [float(good[name]) for name in ("f1", "f1_low", "f1_high")] == pytest.approx([0.93, 0.92, 0.95])
    assert (cheap["cost_usd"], good["cost_usd"]) == ("0.5", "3.0")
    assert [pick.point.number for pick in result.picks] == [1]
    assert result.front.spent_usd == 6.0


def test_the_error_of_quality_is_stated_after_one_run_and_that_of_dollars_after_two() -> None:
    trials = [trial_of(0, 1.0, 0.90), trial_of(1, 1.1, 0.92, repeats=0), trial_of(2, 3.0, 0.95)]
    shown = answer(trials, COST_AND_F1, {}, name="s")
    twice, once = shown.front.points

    assert shown.figures.of(once) == {"cost": "3.000 USD", "F1": shown.figures.stated(once, "f1")}
    assert re.fullmatch(r"0\.950 ± 0\.0\d\d", shown.figures.stated(once, "f1"))
    assert shown.figures.in_words(once).startswith("cost 3.000 USD; F1 0.950 ± 0.0")
    assert all(" ± 0" in text for text in shown.figures.of(twice).values())
    assert [" ± " in text for text in configurations_table(shown.front)["F1"]] == [True, True]
    assert [" ± " in text for text in configurations_table(shown.front)["cost (USD)"]] == [True, False]
    drawn = {trace.name: trace.error_x.array for trace in front_figure(shown.front, shown.picks, str).data}
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
    # `once` has run once.
    assert (first.errors.keys(), once.errors.keys()) == ({"cost_usd", "f1"}, {"f1"})


def test_a_repeat_says_in_pareto_csv_which_trial_it_repeats() -> None:
    trials = [trial_of(0, 1.0, 0.9), trial_of(1, 1.0, 0.91, repeats=0)]
    rows = list(csv.DictReader(io.StringIO(pareto_csv(StudyFront.of(trials, COST_AND_F1, {})))))
    assert [row["repeats"] for row in rows] == ["", "0"]


def test_a_trial_that_is_no_row_of_a_design_has_no_levels_in_pareto_csv() -> None:
    trials = [trial_of(0, 1.0, 0.9), trial_of(1, 2.0, 0.91)]

    queued, of_design = read(pareto_csv(StudyFront.of(trials, COST_AND_F1, {}), {0: {}, 1: {"cluster": "two"}}))

    assert (queued["cluster"], of_design["cluster"]) == ("", "two")
