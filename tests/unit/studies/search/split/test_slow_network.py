"""A split search where further instances gain nothing or take longer: it reaches the front of seconds and F1."""

import itertools
import math
from pathlib import Path

import pytest

from paretune.core.pareto import front
from paretune.studies.results.hypervolume import hypervolume, reference_point
from paretune.studies.search.split import search as split
from tests.study_rig import driver_of

TYPES = {"ml.g5.xlarge": 1, "ml.g5.12xlarge": 4}
COUNTS, BATCHES, RATES = (1, 2, 4, 8), (16, 32, 64), (3e-5, 1e-4, 3e-4)
ROWS = 60_000
EXCHANGE_S = 0.2
STUDY = f"""
name: network
job: {{launcher: simulated, simulation.runs: table.csv, dataset: someone/reviews, max_train_samples: {ROWS},
  max_runtime_minutes: 300}}
search:
  instance_type: {{choices: [{", ".join(TYPES)}]}}
  instance_count: {{choices: [{", ".join(map(str, COUNTS))}]}}
  per_device_train_batch_size: {{choices: [{", ".join(map(str, BATCHES))}]}}
  learning_rate: {{choices: [{", ".join(map(str, RATES))}]}}
objectives: {{billable_seconds: minimize, f1: maximize}}
budget_usd: 500
"""


def seconds_of(devices: int, count: int, batch: int, exchange_s: float) -> float:
    """An exchange of gradients that takes longer in proportion to the square of the instances beside the first."""
    step = 0.02 + batch / 60 + exchange_s * (count - 1) ** 2
    return 200 + 3 * ROWS / (batch * devices * count) * step


def f1_of(size: int, rate: float) -> float:
    """Best where the rate follows the root of the global batch; large batches lose."""
    best = math.log(5e-5 * math.sqrt(size / 32))
    return 0.92 - 0.004 * abs(math.log2(size / 64)) - 0.015 * (math.log(rate) - best) ** 2


def write_table(path: Path, exchange_s: float) -> list[tuple[float, float]]:
    """The table of all jobs; seconds and negative F1."""
    names = "instance_type,instance_count,per_device_train_batch_size,learning_rate"
    lines, points = [f"{names},billable_seconds,f1"], []
    for (name, devices), count, batch, rate in itertools.product(TYPES.items(), COUNTS, BATCHES, RATES):
        seconds = seconds_of(devices, count, batch, exchange_s)
        f1 = f1_of(batch * devices * count, rate)
        lines.append(f"{name},{count},{batch},{rate},{seconds:.2f},{f1:.5f}")
        points.append((seconds, -f1))
    path.write_text("\n".join(lines) + "\n")
    return points


@pytest.mark.slow
def test_where_four_instances_are_slower_than_two_the_front_is_reached(workplace: Path) -> None:
    points = write_table(workplace / "table.csv", EXCHANGE_S)
    (workplace / "study.yaml").write_text(STUDY)
    driver = driver_of(workplace, "study.yaml", {})

    split.search(driver)

    best = [point for point, retained in zip(points, front(points, (False, False)), strict=True) if retained]
    reference = reference_point(best)
    ran = [trial.values for trial in driver.trials.values() if "f1" in trial.values]
    result = [(values["billable_seconds"], -values["f1"]) for values in ran]
    assert seconds_of(4, 4, 64, EXCHANGE_S) > seconds_of(4, 2, 64, EXCHANGE_S)
    assert hypervolume(result, reference) > 0.97 * hypervolume(best, reference)
