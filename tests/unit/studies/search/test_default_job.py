"""What a study is weighed against."""

from pathlib import Path

import pytest

from paretune.studies.results.trials import TrialStatus
from paretune.studies.search.default_job import default_trial
from paretune.studies.search.points import Points
from tests.study_rig import driver_of
from tests.unit.studies.search.test_split import BATCHES, RATES, smooth, write_table

STUDY = """
name: default
job: {{launcher: simulated, simulation.runs: table.csv, dataset: someone/reviews, max_train_samples: 60000}}
search:
  instance_type: {{choices: [ml.g5.12xlarge, ml.g5.xlarge]}}
  per_device_train_batch_size: {{choices: [{batches}]}}
  learning_rate: {rate}
n_trials: 32
sampler: {sampler}
"""
CHOICES = f"{{choices: [{', '.join(map(str, RATES))}]}}"


def write(folder: Path, *, batches: tuple[int, ...] = BATCHES, rate: str = CHOICES, sampler: str = "random") -> str:
    write_table(folder / "table.csv", smooth)
    (folder / "study.yaml").write_text(
        STUDY.format(batches=", ".join(map(str, batches)), rate=rate, sampler=sampler).replace("{{", "{")
    )
    return "study.yaml"


def test_what_it_costs_is_known_without_running_it(workplace: Path) -> None:
    driver = driver_of(workplace, write(workplace), {"learning_rate": "5e-5"})

    result = default_trial(driver)

    assert result is not None
    assert (result.origin, result.spec.per_device_train_batch_size) == ("simulated", None)
    assert result.values["cost_usd"] > 0


@pytest.mark.slow
def test_no_more_rows_than_ran_out_of_memory_are_run_on_as_large_a_device(workplace: Path) -> None:
    driver = driver_of(workplace, write(workplace, batches=(32, 64, 128)), {"instance_type": "ml.g5.xlarge"})

    driver.run(Points(driver))

    finished = [trial.status for trial in driver.trials.values()]
    assert finished.count(TrialStatus.OUT_OF_MEMORY) == 1
    assert finished.count(TrialStatus.COMPLETED) == 2 * len(RATES)
