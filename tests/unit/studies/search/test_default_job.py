"""What a study is weighed against, and begins with."""

from pathlib import Path

import pytest

from paretune.studies.results.trials import TrialStatus
from paretune.studies.search.default_job import default_point, default_trial
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


def test_it_is_nearest_to_the_defaults_on_the_cheapest_type(workplace: Path) -> None:
    result = default_point(driver_of(workplace, write(workplace), {}))

    assert result == {"instance_type": "ml.g5.xlarge", "per_device_train_batch_size": 16, "learning_rate": 3e-5}


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ("{low: 1e-5, high: 3e-4, log: true}", 5e-5),
        ("{low: 1e-4, high: 3e-4}", 1e-4),
        ("{low: 1e-5, high: 3e-5}", 3e-5),
    ],
)
def test_a_range_gives_the_default_or_the_end_that_is_nearest(workplace: Path, rate: str, expected: float) -> None:
    result = default_point(driver_of(workplace, write(workplace, rate=rate), {}))

    assert result is not None
    assert result["learning_rate"] == expected


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_search_begins_with_it(workplace: Path, sampler: str) -> None:
    driver = driver_of(workplace, write(workplace, sampler=sampler), {"n_trials": "3"})
    expected = default_point(driver)

    driver.run(Points(driver))

    assert driver.trials[0].point == expected
    assert len({tuple(trial.point.items()) for trial in driver.trials.values()}) == 3


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
