"""Simulated jobs without a table: seconds from the estimate."""

from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from paretune.cli import main
from paretune.specification.job import JobSpec

TABLE = """instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1
ml.g5.xlarge,1,16,1e-5,400,0.80
ml.g5.xlarge,1,16,1e-3,420,0.60
ml.g5.xlarge,1,16,1e-3,440,0.64
"""


def bring(path: str, without: str = "") -> int:
    """Imports a table, said to be of runs with the defaults; `without` is a column that it has."""
    defaults = JobSpec().as_text()
    report = [
        name for name in ("model", "dataset", "num_train_epochs", "max_seq_length", "precision") if name != without
    ]
    return main(
        ["import", "--recorded_runs", path, *(word for name in report for word in (f"--{name}", defaults[name]))]
    )


@pytest.fixture
def place(workplace: Path) -> Path:
    """A workplace whose store holds three published runs."""
    (workplace / "published.csv").write_text(TABLE)
    assert bring("published.csv") == 0
    return workplace


def simulate(*words: str) -> int:
    return main(["train", "--launcher", "simulated", "--instance_type", "ml.g5.xlarge", *words])


def newest(folder: Path) -> Run:
    return MlflowClient(f"sqlite:///{folder / 'mlflow.db'}").search_runs(
        ["0"], order_by=["attributes.start_time DESC"]
    )[0]


def test_seconds_are_those_of_the_estimate_that_has_learnt_from_the_runs(place: Path) -> None:
    assert simulate() == 0

    result = newest(place).data
    assert result.metrics["billable_seconds"] == pytest.approx(420, rel=0.1)
    assert "3 published runs of this model on this cluster" in result.tags["paretune.basis"]


def test_without_a_table_f1_is_absent(place: Path) -> None:
    assert simulate() == 0

    result = newest(place).data
    assert "f1" not in result.metrics
    assert result.tags["paretune.origin"] == "simulated"
