"""What a launch does with what earlier jobs have shown."""

from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from paretune.cli import main
from paretune.tracking.schema import unpacked

TABLE = """instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1,status
ml.g5.xlarge,1,16,5e-5,1000,0.9,Completed
ml.g5.xlarge,1,32,5e-5,700,0.89,Completed
ml.g5.xlarge,1,64,5e-5,,,OutOfMemory
ml.g5.xlarge,4,16,5e-5,400,0.88,Completed
"""


@pytest.fixture
def place(workplace: Path) -> Path:
    """A place with a table in which batch 64 does not fit."""
    (workplace / "table.csv").write_text(TABLE)
    return workplace


def job(*words: str) -> int:
    simulated = ("--launcher", "simulated", "--simulation.runs", "table.csv", "--instance_type", "ml.g5.xlarge")
    return main(["train", *simulated, *words])


def newest(folder: Path) -> Run:
    return MlflowClient(f"sqlite:///{folder / 'mlflow.db'}").search_runs(
        ["0"], order_by=["attributes.start_time DESC"]
    )[0]


def test_a_batch_that_ran_out_of_memory_before_is_warned_of(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert job("--per_device_train_batch_size", "64") == 0
    first = newest(place)
    capsys.readouterr()
    assert job("--per_device_train_batch_size", "64", "--seed", "7") == 0

    warning = capsys.readouterr().err
    assert f"ran out of memory on as much memory before (run {first.info.run_id})" in warning
    assert "--per_device_train_batch_size 32 --gradient_accumulation_steps 2" in warning


def test_every_job_records_its_own_estimate_which_gets_better_with_evidence(place: Path) -> None:
    off = []
    for seed in ("1", "2"):
        assert job("--per_device_train_batch_size", "32", "--seed", seed) == 0
        result = newest(place).data
        low, middle, high = (result.metrics[f"estimated_seconds{end}"] for end in ("_low", "", "_high"))
        assert low < middle < high
        assert result.metrics["estimated_cost_usd"] == pytest.approx(middle * 1.408 / 3600)
        assert result.metrics["estimated_memory_gib"] > 0
        basis = unpacked(result.tags)["paretune.estimate_basis"]
        off.append((abs(middle / result.metrics["billable_seconds"] - 1), high / low, basis))

    assert off[1][0] < 0.1 < off[0][0]
    assert off[1][1] < off[0][1]
    assert "1 simulated run of this model on this cluster" in off[1][2]


def test_runs_that_somebody_else_has_written_keep_no_job_from_running(place: Path) -> None:
    assert job("--per_device_train_batch_size", "32") == 0
    client = MlflowClient(f"sqlite:///{place / 'mlflow.db'}")
    for name in ("billable_seconds", "throughput_samples_per_second"):
        client.log_metric(newest(place).info.run_id, name, -5.0, timestamp=4_000_000_000_000)  # later than virtual time

    assert job("--per_device_train_batch_size", "32", "--seed", "7") == 0

    assert "nothing like it was measured" in unpacked(newest(place).data.tags)["paretune.estimate_basis"]
