"""Simulated jobs, from the command line to the record: like other jobs, but that nothing runs and nothing is paid."""

import csv
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from paretune.cli import main
from paretune.estimating.phases import usual
from paretune.tracking.schema import unpacked
from tests.conftest import sentences, write_csv

SMALL, LARGE = "ml.g5.xlarge", "ml.g5.2xlarge"


@pytest.fixture
def store(workplace: Path) -> MlflowClient:
    """A place with an empty experiment and a table of recorded runs, runs.csv."""
    client = MlflowClient()
    rows = [
        f"{kind},{count},{batch},{rate},2,{600 / count + 10 * batch},{0.9 - 0.001 * batch * count},Completed"
        for kind, count, batch, rate in itertools.product((SMALL, LARGE), (1, 4), (8, 16, 32), (2e-5, 8e-5))
    ]
    rows += [f"{SMALL},{count},64,{rate},2,140,,OutOfMemory" for count in (1, 4) for rate in (2e-5, 8e-5)]
    header = "instance_type,instance_count,per_device_train_batch_size,learning_rate,num_train_epochs,billable_seconds"
    Path("runs.csv").write_text("\n".join([f"{header},f1,status", *rows]) + "\n")
    return client


Simulate = Callable[..., Run]


@pytest.fixture
def simulate(store: MlflowClient) -> Simulate:
    """Run `paretune train` on the simulated launcher; the run it has recorded."""

    def run(expected: int = 0, **changes: object) -> Run:
        words = {
            "launcher": "simulated",
            "simulation.runs": "runs.csv",
            "instance_type": SMALL,
            "num_train_epochs": 2,
            "learning_rate": 4e-5,
            **changes,
        }
        before = {results.info.run_id for results in store.search_runs(["0"])}
        code = main(["train", *(part for name, value in words.items() for part in (f"--{name}", str(value)))])
        assert code == expected
        new = [result for result in store.search_runs(["0"]) if result.info.run_id not in before]
        assert len(new) == 1
        return new[0]

    return run


def tags(run: Run) -> dict[str, str]:
    return {
        name.removeprefix("paretune."): text for name, text in unpacked(run.data.tags).items() if "paretune." in name
    }


def test_an_hour_s_job_is_recorded_within_seconds_and_says_everywhere_that_it_is_simulated(
    simulate: Simulate, store: MlflowClient, capsys: pytest.CaptureFixture[str]
) -> None:
    start = time.monotonic()
    run = simulate(instance_count=2)
    printed = capsys.readouterr()

    assert time.monotonic() - start < 20
    assert run.info.status == "FINISHED"
    assert (tags(run)["origin"], tags(run)["launcher"], tags(run)["state"]) == ("simulated", "simulated", "Completed")
    assert "interpolated between the recorded runs in lines" in tags(run)["basis"]
    assert (run.info.run_name or "").startswith("simulated ")
    assert printed.err.startswith("simulated job paretune-")
    assert "\nsimulated job paretune-" in printed.out
    assert "simulated   " in printed.out
    assert "none: a simulated job trains nothing" in printed.out


def test_a_simulated_job_has_curve_metrics_price_and_report(simulate: Simulate, store: MlflowClient) -> None:
    run = simulate(per_device_train_batch_size=16, learning_rate=8e-5)
    result = run.data.metrics

    assert result["f1"] == pytest.approx(0.884)
    assert result["billable_seconds"] == pytest.approx(760)
    assert result["job_seconds"] == pytest.approx(760 + result["starting_seconds"])  # instances start unbilled
    assert result["starting_seconds"] == pytest.approx(usual("starting", "gpu").seconds, abs=0.01)
    assert 0 < result["downloading_seconds"] < 120  # of the start-up
    assert result["uploading_seconds"] == pytest.approx(usual("uploading", "gpu").seconds, abs=0.01)
    assert result["train_seconds"] == pytest.approx(640)
    price = float(tags(run)["price_usd_per_hour"])
    assert result["cost_usd"] == pytest.approx(760 * price / 3600, rel=1e-4)
    (point,) = store.get_metric_history(run.info.run_id, "eval/f1")
    assert (point.step, point.value) == (960, pytest.approx(0.884))
    assert {file.path for file in store.list_artifacts(run.info.run_id)} == {"report.json"}
    assert set(run.data.params) >= {
        "model",
        "dataset",
        "seed",
        "learning_rate",
        "global_batch_size",
        "scaled_learning_rate",
    }


def test_a_job_that_fails_is_booked_and_ends_with_exit_code_3(simulate: Simulate) -> None:
    run = simulate(3, simulation='{"failure_rate": 1}')

    assert (run.info.status, tags(run)["state"]) == ("FAILED", "Failed")
    assert tags(run)["failure_reason"] == "simulated, by failure_rate"
    assert 0 < run.data.metrics["billable_seconds"] < 760
    assert run.data.metrics["cost_usd"] > 0


@pytest.mark.slow
def test_simulated_and_local_launcher_leave_the_same_record(workplace: Path, tiny_model: Path, tmp_path: Path) -> None:
    """The local job is written into a table; replayed from it, it looks the same but for what nobody computed."""
    data = write_csv(tmp_path / "reviews.csv", sentences(120))
    words = {
        "model": tiny_model,
        "dataset": data,
        "max_seq_length": 32,
        "per_device_train_batch_size": 8,
        "learning_rate": 1e-3,
        "num_train_epochs": 2,
        "precision": "fp32",
    }
    typed = [part for name, value in words.items() for part in (f"--{name}", str(value))]
    assert main(["train", *typed]) == 0
    store = MlflowClient()
    (local,) = store.search_runs(["0"])
    _write_table(local, Path("runs.csv"))
    assert main(["train", *typed, "--launcher", "simulated", "--simulation.runs", "runs.csv"]) == 0
    simulated = next(run for run in store.search_runs(["0"]) if run.info.run_id != local.info.run_id)

    custom = {"launcher", "simulation"}
    assert set(simulated.data.params) - custom == set(local.data.params) - custom
    assert {name for name, text in local.data.params.items() if text != simulated.data.params[name]} <= custom
    headlines = ("f1", "billable_seconds", "job_seconds", "cost_usd", "train_seconds", "throughput_samples_per_second")
    assert {name: simulated.data.metrics[name] for name in headlines} == pytest.approx(
        {name: local.data.metrics[name] for name in headlines}, rel=1e-6
    )
    computed = {
        "dataset_key",
        "used_device",
        "used_precision",
        "used_versions",
        "machine",
        "estimate_basis",
    }
    computed |= {"model", "model_uri", "validation_rows"}  # it has none
    computed.add("verdict")  # that its F1 is below that of TF-IDF, which nothing simulated knows
    assert set(tags(local)) - set(tags(simulated)) <= computed
    assert set(tags(simulated)) - set(tags(local)) <= {"basis"}
    differing = {name for name in set(tags(local)) & set(tags(simulated)) if tags(local)[name] != tags(simulated)[name]}
    assert differing <= {"origin", "launcher", "command", "given", "claimed_at", "job_name", "estimate_basis"}
    assert (simulated.info.status, tags(simulated)["state"]) == (local.info.status, tags(local)["state"])


def _write_table(run: Run, path: Path) -> None:
    row = {"instance_type": "local", "instance_count": 1}
    row |= {
        name: run.data.params[name] for name in ("per_device_train_batch_size", "learning_rate", "num_train_epochs")
    }
    row |= {
        name: repr(run.data.metrics[name])
        for name in ("billable_seconds", "f1", "train_seconds", "throughput_samples_per_second", "train_rows")
    }
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(row))
        writer.writeheader()
        writer.writerow(row)
