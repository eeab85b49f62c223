"""A split search on tables whose fronts are known: what it pays for, and what it recommends."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from paretune.ledger.trial_entry import TrialStatus
from paretune.studies.results.hypervolume import hypervolume
from paretune.studies.search.driver import Driver
from paretune.studies.search.split import search as split
from paretune.studies.search.split.actions import LEARN, PROBE, VERIFY, Action, Actions
from paretune.studies.search.split.search import Split
from tests.conftest import copy_store
from tests.study_rig import driver_of

RATES = (1e-5, 3e-5, 1e-4, 3e-4)
BATCHES = (16, 32, 64, 128)
TYPES = {"ml.g5.xlarge": (1.408, 1, 1.0, 64), "ml.g5.12xlarge": (7.09, 4, 1.0, 128)}
"""Dollars an hour, devices, speed of one device, largest per-device batch that fits."""
ROWS = 60_000

Quality = Callable[[str, int, float], float]


def smooth(_: str, global_batch: int, rate: float) -> float:
    """F1 that depends on batch and rate alone: best where the rate follows the root of the batch."""
    best = math.log(5e-5 * math.sqrt(global_batch / 32))
    return 0.92 - 0.01 * abs(math.log2(global_batch / 64)) - 0.015 * (math.log(rate) - best) ** 2


def write_table(path: Path, quality: Quality) -> list[tuple[float, float]]:
    """The table of all jobs; dollars and negative F1 of those that complete."""
    lines = ["instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1,status"]
    points = []
    for name, (usd, devices, speed, largest) in TYPES.items():
        for batch in BATCHES:
            for rate in RATES:
                if batch > largest:
                    lines.append(f"{name},1,{batch},{rate},,,OutOfMemory")
                    continue
                size = batch * devices
                seconds = 200 + ROWS / size * (0.02 + batch / (40 * speed))
                f1 = quality(name, size, rate)
                lines.append(f"{name},1,{batch},{rate},{seconds:.2f},{f1:.5f},Completed")
                points.append((seconds * usd / 3600, -f1))
    path.write_text("\n".join(lines) + "\n")
    return points


STUDY = f"""
name: split
job: {{launcher: simulated, simulation.runs: table.csv, dataset: someone/reviews, max_train_samples: {ROWS},
  max_runtime_minutes: 3000}}
search:
  instance_type: {{choices: [{", ".join(TYPES)}]}}
  per_device_train_batch_size: {{choices: [{", ".join(map(str, BATCHES))}]}}
  learning_rate: {{choices: [{", ".join(map(str, RATES))}]}}
budget_usd: 500
"""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[tuple[Driver, str]]:
    """A driver that has searched the smooth table to its end, and what the search said; one for all who only look."""
    folder = tmp_path_factory.mktemp("searched")
    write_table(folder / "table.csv", smooth)
    (folder / "study.yaml").write_text(STUDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", copy_store(empty_store, folder))
        driver = driver_of(folder, "study.yaml", {})
        yield driver, split.search(driver)


@pytest.fixture
def driver(searched: tuple[Driver, str]) -> Driver:
    """The driver of the study on the smooth table."""
    return searched[0]


@pytest.mark.slow
def test_it_finds_the_front_for_a_part_of_what_the_table_costs(driver: Driver, tmp_path: Path) -> None:
    points = write_table(tmp_path / "table.csv", smooth)
    reference = (max(usd for usd, _ in points), max(f1 for _, f1 in points))

    found = [(trial.values["cost_usd"], -trial.values["f1"]) for trial in split.recommended(driver)]
    whole = hypervolume(points, reference)
    assert hypervolume(found, reference) > 0.97 * whole
    ran = [trial for trial in driver.trials.values() if "f1" in trial.values]
    fronts = [[(one.values["cost_usd"], -one.values["f1"]) for one in ran[: place + 1]] for place in range(len(ran))]
    first = next(place for place, points in enumerate(fronts) if hypervolume(points, reference) > 0.95 * whole)
    assert ran[first].spent_usd < 0.5 * sum(usd for usd, _ in points)


def test_the_first_dollars_buy_a_training_and_f1_is_learnt_where_it_is_cheapest(driver: Driver) -> None:
    kinds = {number: note.kind for number, note in driver.history.notes.items() if number in driver.trials}
    learnt = [driver.trials[number] for number, kind in kinds.items() if kind == LEARN]
    cheap = [trial for trial in learnt if trial.point["instance_type"] == "ml.g5.xlarge"]
    assert kinds[0] == LEARN
    assert driver.trials[0].plan is not None
    assert (driver.trials[0].plan.global_batch_size, driver.trials[0].plan.learning_rate) == (32, 3e-5)  # as published
    assert len(cheap) > len(learnt) / 2
    assert all("f1" not in driver.history.measured.get(number, {}) for number, kind in kinds.items() if kind == PROBE)


@pytest.mark.parametrize(("fine_tuning", "rate"), [("full", 3e-5), ("lora", 3e-4)])
def test_the_usual_rate_is_that_of_the_way_of_fine_tuning(workplace: Path, fine_tuning: str, rate: float) -> None:
    write_table(workplace / "table.csv", smooth)
    (workplace / "study.yaml").write_text(STUDY.replace("job: {", f"job: {{fine_tuning: {fine_tuning}, "))
    knowledge = Split(driver_of(workplace, "study.yaml", {})).learner.learn()
    actions = Actions(knowledge, lambda _: False, None, 0.0)

    first = actions.first(is_learning=False, has_pending=False)
    assert first is not None
    assert (first.spec.plan().global_batch_size, first.spec.learning_rate) == (32, rate)


def test_a_batch_that_did_not_fit_is_not_tried_again_on_its_type(driver: Driver) -> None:
    full = [trial for trial in driver.trials.values() if trial.status is TrialStatus.OUT_OF_MEMORY]
    places = [(trial.point["instance_type"], trial.point["per_device_train_batch_size"]) for trial in full]
    assert len(places) == len(set(places)) <= 1


def test_a_front_may_reach_beyond_the_dollars_where_better_f1_is_expected(driver: Driver) -> None:
    cheap = np.array([[1.0, -0.90], [1.1, -0.91]])

    assert Split(driver).learner.learn()._reference(cheap, cheap)[0] >= 3.0


def test_a_job_is_made_and_hashed_once_however_often_it_is_compared(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    searching, point = Split(driver), next(iter(driver.file.points_in_turn()))
    action = Action(
        kind=LEARN, spec=driver.file.spec_at(point), limit_minutes=None, point=point, changes={}, cost_usd=1
    )
    made = Mock(wraps=split._job_of)
    monkeypatch.setattr(split, "_job_of", made)

    assert searching._is_closed(action) == searching._is_closed(action)
    assert made.call_count == 1


@pytest.mark.slow
def test_where_f1_depends_on_the_cluster_it_says_so_and_trains_on_each_type(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = {"ml.g5.xlarge": (1.408, 1, 1.0, 64), "ml.g5.2xlarge": (1.94, 1, 3.0, 64)}  # the same batches on both
    monkeypatch.setitem(globals(), "TYPES", types)

    def spoilt(name: str, size: int, rate: float) -> float:
        return smooth(name, size, rate) - (0.2 if name == "ml.g5.2xlarge" else 0.0)

    write_table(workplace / "table.csv", spoilt)
    text = STUDY.replace("ml.g5.12xlarge", "ml.g5.2xlarge").replace(
        "budget_usd", "objectives: {billable_seconds: minimize, f1: maximize}\nn_trials: 45\nbudget_usd"
    )
    (workplace / "study.yaml").write_text(text)

    said = split.search(driver_of(workplace, "study.yaml", {}))

    assert "F1 depends on the instance type by more than noise, so each type was trained on for its own" in said


def test_a_type_whose_probe_is_refused_hides_no_other_type(workplace: Path) -> None:
    write_table(workplace / "table.csv", smooth)
    (workplace / "study.yaml").write_text(
        STUDY.replace("[ml.g5.xlarge, ml.g5.12xlarge]", "[ml.g5.12xlarge, ml.g5.xlarge]")
    )
    driver = driver_of(workplace, "study.yaml", {"budget_usd": "0.5"})  # twice a probe of the dear type: 0.52

    split.search(driver)

    assert {trial.point["instance_type"] for trial in driver.trials.values()} == {"ml.g5.xlarge"}


def test_rows_of_data_that_nobody_has_counted_are_learnt_from_the_first_training(workplace: Path) -> None:
    write_table(workplace / "table.csv", smooth)
    lines = (workplace / "table.csv").read_text().splitlines()
    table = [f"{lines[0]},train_rows", *(f"{line},{ROWS}" for line in lines[1:])]
    (workplace / "table.csv").write_text("\n".join(table) + "\n")
    (workplace / "study.yaml").write_text(STUDY.replace(f"max_train_samples: {ROWS},", ""))
    driver = driver_of(workplace, "study.yaml", {"n_trials": "8"})
    searching = Split(driver)
    searching.search()

    told = searching.forecast()

    assert told
    for trial in told:
        assert trial.plan is not None
        size, (usd, _, speed, _) = trial.plan.per_device_train_batch_size, TYPES[str(trial.point["instance_type"])]
        true = 200 + ROWS / trial.plan.global_batch_size * (0.02 + size / (40 * speed))
        assert trial.values["cost_usd"] == pytest.approx(true * usd / 3600, rel=0.25)


def test_jobs_that_are_limited_to_a_minute_are_begun_and_few_dollars_pay_for_several(workplace: Path) -> None:
    write_table(workplace / "table.csv", smooth)
    rows = [line.split(",") for line in (workplace / "table.csv").read_text().splitlines()]
    for row in rows[1:]:
        row[4] = f"{float(row[4]) / 60:.2f}" if row[4] else ""
    (workplace / "table.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    (workplace / "study.yaml").write_text(STUDY.replace(f"max_train_samples: {ROWS}", "max_train_samples: 1000"))
    dollars = sorted(float(row[4]) * TYPES[row[0]][0] / 3600 for row in rows[1:] if row[4])
    # Each reserves its minute and six to stop and upload.
    budget = {"budget_usd": f"{40 * dollars[len(dollars) // 2]:.6f}", "max_runtime_minutes": "1"}
    driver = driver_of(workplace, "study.yaml", budget)

    split.search(driver)

    assert len([trial for trial in driver.trials.values() if "f1" in trial.values]) >= 3
    assert driver.ledger.balance().spent_usd <= float(budget["budget_usd"])


@pytest.mark.slow
def test_a_training_that_takes_little_longer_than_a_probe_is_not_probed(workplace: Path) -> None:
    write_table(workplace / "table.csv", smooth)
    (workplace / "study.yaml").write_text(STUDY.replace(f"max_train_samples: {ROWS}", "max_train_samples: 1500"))
    driver = driver_of(workplace, "study.yaml", {"n_trials": "6"})

    split.search(driver)

    assert PROBE not in {note.kind for note in driver.history.notes.values()}


@pytest.mark.parametrize(("budget_usd", "trained"), [("0.5", 0), ("1.6", 1), ("4", 3)])
@pytest.mark.slow
def test_a_small_budget_goes_into_trainings_and_what_it_cannot_pay_is_never_asked(
    workplace: Path, budget_usd: str, trained: int
) -> None:
    write_table(workplace / "table.csv", smooth)
    (workplace / "study.yaml").write_text(STUDY)
    driver = driver_of(workplace, "study.yaml", {"budget_usd": budget_usd, "max_runtime_minutes": "10080"})

    said = split.search(driver)

    assert "fits what is left of the budget" in said
    assert len([trial for trial in driver.trials.values() if "f1" in trial.values]) >= trained
    assert len(driver.study._study.get_trials()) == len(driver.trials)
    assert driver.ledger.balance().spent_usd <= float(budget_usd)


@pytest.mark.slow
def test_no_job_costs_more_than_what_it_may_add_is_worth(workplace: Path) -> None:
    write_table(workplace / "table.csv", smooth)
    (workplace / "study.yaml").write_text(STUDY)
    spent = {}
    for value in ("2", "20"):
        alone = {"name": f"worth {value}", "value_of_front_usd": value, "borrow": "false"}
        driver = driver_of(workplace, "study.yaml", alone)
        said = split.search(driver)
        assert f"the whole front being worth {value} USD" in said
        spent[value] = sum(trial.cost_usd or 0.0 for trial in driver.trials.values())

    assert spent["2"] < 0.75 * spent["20"]


@pytest.mark.slow
def test_with_several_jobs_at_a_time_no_two_are_the_same(workplace: Path) -> None:
    write_table(workplace / "table.csv", smooth)
    (workplace / "study.yaml").write_text(STUDY)
    driver = driver_of(workplace, "study.yaml", {"n_parallel": "4", "n_trials": "20"})

    split.search(driver)

    jobs = [
        (
            driver.history.notes[number].kind,
            trial.parameters.get("gradient_accumulation_steps"),
            tuple(trial.point.items()),
        )
        for number, trial in driver.trials.items()
    ]
    assert len(jobs) == len(set(jobs))


@pytest.mark.slow
def test_predictions_and_what_came_of_them_are_in_the_books(workplace: Path) -> None:
    write_table(workplace / "table.csv", smooth)  # F1 is learnt on cheap clusters, and predicted of fast ones
    (workplace / "study.yaml").write_text(f"{STUDY}objectives: {{job_seconds: minimize, f1: maximize}}\n")
    driver = driver_of(workplace, "study.yaml", {})
    said = split.search(driver)

    verified = [number for number, note in driver.history.notes.items() if note.kind == VERIFY]
    assert verified
    for number in verified:
        trial, predicted = driver.trials[number], driver.history.notes[number].predicted
        assert trial.values["f1"] == pytest.approx(predicted["f1"], abs=0.03)
        assert f"trial {number}: F1 {trial.values['f1']:.4f}" in said


def test_what_is_recommended_was_run_but_for_a_small_part(driver: Driver, tmp_path: Path) -> None:
    points = write_table(tmp_path / "table.csv", smooth)
    reference = (max(usd for usd, _ in points), max(f1 for _, f1 in points))

    everything = [(trial.values["cost_usd"], -trial.values["f1"]) for trial in split.recommended(driver)]
    ran = [
        (trial.values["cost_usd"], -trial.values["f1"])
        for trial in split.recommended(driver)
        if trial.origin != "predicted"
    ]
    assert hypervolume(ran, reference) > 0.97 * hypervolume(everything, reference)


@pytest.mark.slow
def test_the_forecast_has_what_was_not_run_with_intervals_that_hold_it(workplace: Path) -> None:
    write_table(workplace / "table.csv", smooth)
    (workplace / "study.yaml").write_text(STUDY)
    driver = driver_of(workplace, "study.yaml", {"n_trials": "9"})
    searching = Split(driver)
    searching.search()

    told = searching.forecast()

    ran = [trial.point for trial in driver.trials.values() if "f1" in trial.values]
    assert told
    assert all(trial.origin == "predicted" and trial.point not in ran for trial in told)
    for trial in told:
        low, high = trial.intervals["f1"]
        assert low < trial.values["f1"] < high
        assert trial.intervals["cost_usd"][0] < trial.values["cost_usd"] < trial.intervals["cost_usd"][1]
        assert trial.plan is not None
        true = smooth("", trial.plan.global_batch_size, trial.plan.learning_rate)
        assert low - (high - low) < true < high + (high - low)


@pytest.mark.slow
def test_points_that_miss_a_constraint_are_neither_verified_nor_recommended(workplace: Path) -> None:
    write_table(workplace / "table.csv", smooth)
    (workplace / "study.yaml").write_text(STUDY + "constraints: {f1: {min: 0.9}}\n")
    driver = driver_of(workplace, "study.yaml", {})

    split.search(driver)

    found = split.recommended(driver)
    assert found
    assert min(trial.values["f1"] for trial in found) >= 0.9
    verified = [note for note in driver.history.notes.values() if note.kind == VERIFY]
    assert all(note.predicted["f1"] >= 0.9 for note in verified)


@pytest.mark.slow
def test_what_did_not_fit_beside_running_jobs_is_begun_when_they_have_ended(workplace: Path) -> None:
    write_table(workplace / "table.csv", smooth)
    (workplace / "study.yaml").write_text(STUDY)
    limits = {"n_parallel": "4", "budget_usd": "6", "max_runtime_minutes": "60"}  # up to 7.09 dollars a job
    driver = driver_of(workplace, "study.yaml", limits)

    said = split.search(driver)

    assert driver.ledger.balance().spent_usd <= 6
    assert sorted(driver.trials) == list(range(len(driver.trials)))  # nothing was asked for that could not be paid
    assert len([trial for trial in driver.trials.values() if "f1" in trial.values]) > 4
    assert "fits what is left of the budget" in said
