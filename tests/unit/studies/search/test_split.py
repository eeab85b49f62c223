"""A split search on tables whose fronts are known: what it pays for, and what it recommends."""

import itertools
import math
from pathlib import Path

import pytest

from paretune.studies.search.next_job import Split
from tests.workplaces import driver_of

RATES = (1e-5, 3e-5, 1e-4, 3e-4)
BATCHES = (16, 32, 64, 128)
TYPES = {"ml.g5.xlarge": (1.408, 1, 64), "ml.g5.12xlarge": (7.09, 4, 128)}
"""Dollars an hour, devices, largest per-device batch that fits."""
ROWS = 60_000


def smooth(global_batch: int, rate: float) -> float:
    """F1 that depends on batch and rate alone: best where the rate follows the root of the batch."""
    best = math.log(5e-5 * math.sqrt(global_batch / 32))
    return 0.92 - 0.01 * abs(math.log2(global_batch / 64)) - 0.015 * (math.log(rate) - best) ** 2


def write_table(path: Path) -> None:
    """The table of all jobs."""
    lines = ["instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1,status"]
    for (name, (_, devices, largest)), batch, rate in itertools.product(TYPES.items(), BATCHES, RATES):
        size = batch * devices
        seconds = 200 + ROWS / size * (0.02 + batch / 40)
        done = f"{seconds:.2f},{smooth(size, rate):.5f},Completed" if batch <= largest else ",,OutOfMemory"
        lines.append(f"{name},1,{batch},{rate},{done}")
    path.write_text("\n".join(lines) + "\n")


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


def test_a_type_whose_probe_is_refused_hides_no_other_type(workplace: Path) -> None:
    write_table(workplace / "table.csv")
    (workplace / "study.yaml").write_text(
        STUDY.replace("[ml.g5.xlarge, ml.g5.12xlarge]", "[ml.g5.12xlarge, ml.g5.xlarge]")
    )
    driver = driver_of(workplace, "study.yaml", {"budget_usd": "0.5"})  # twice a probe of the dear type: 0.52

    driver.run(Split(driver).propose)

    assert {trial.point["instance_type"] for trial in driver.trials.values()} == {"ml.g5.xlarge"}


def test_rows_of_data_that_nobody_has_counted_are_learnt_from_the_first_training(workplace: Path) -> None:
    write_table(workplace / "table.csv")
    lines = (workplace / "table.csv").read_text().splitlines()
    table = [f"{lines[0]},train_rows", *(f"{line},{ROWS}" for line in lines[1:])]
    (workplace / "table.csv").write_text("\n".join(table) + "\n")
    (workplace / "study.yaml").write_text(STUDY.replace(f"max_train_samples: {ROWS},", ""))
    driver = driver_of(workplace, "study.yaml", {"n_trials": "5"})
    searching = Split(driver)
    driver.run(searching.propose)

    predicted = searching.predicted()

    assert predicted
    for trial in predicted:
        assert trial.plan is not None
        usd, *_ = TYPES[str(trial.point["instance_type"])]
        true = 200 + ROWS / trial.plan.global_batch_size * (0.02 + trial.plan.per_device_train_batch_size / 40)
        assert trial.values["cost_usd"] == pytest.approx(true * usd / 3600, rel=0.25)


@pytest.mark.parametrize(("budget_usd", "trained"), [("0.5", 0), ("1.6", 1), ("6", 2)])
@pytest.mark.slow
def test_a_small_budget_goes_into_trainings_and_what_it_cannot_pay_is_never_asked(
    workplace: Path, budget_usd: str, trained: int
) -> None:
    write_table(workplace / "table.csv")
    (workplace / "study.yaml").write_text(STUDY)
    driver = driver_of(workplace, "study.yaml", {"budget_usd": budget_usd, "max_runtime_minutes": "10080"})

    assert "job fits what is left of the budget" in driver.run(Split(driver).propose)
    assert len([trial for trial in driver.trials.values() if "f1" in trial.values]) >= trained
    assert len(driver.table.study.get_trials()) == len(driver.trials)
    assert driver.table.balance().spent_usd <= float(budget_usd)
