"""Simulated jobs, from the command line to the record: like other jobs, but nothing runs and nothing is paid."""

import itertools
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from paretune.cli import main
from paretune.estimating.phases import usual
from paretune.specification.metrics import BASELINES, FACTS
from tests.support.cloud import job_of_seconds, spelled
from tests.support.tags import tags_of

SMALL, LARGE = "ml.g5.xlarge", "ml.g5.2xlarge"


@pytest.fixture
def store(workplace: Path) -> MlflowClient:
    """Return the client of an empty experiment, in a folder with a table of recorded runs, runs.csv."""
    client = MlflowClient()
    rows = [
        f"{kind},{count},{batch},{rate},2,{600 / count + 10 * batch},{0.9 - 0.001 * batch * count},Completed"
        for kind, count, batch, rate in itertools.product((SMALL, LARGE), (1, 4), (8, 16, 32), (2e-5, 8e-5))
    ]
    rows += [f"{SMALL},{count},64,{rate},2,140,,OutOfMemory" for count in (1, 4) for rate in (2e-5, 8e-5)]
    header = "instance_type,instance_count,per_device_train_batch_size,learning_rate,num_train_epochs,billable_seconds"
    Path("runs.csv").write_text("\n".join([f"{header},f1,status", *rows]) + "\n")
    return client


def simulate(store: MlflowClient, expected: int = 0, **changes: object) -> Run:
    """Run `paretune train` on the simulated launcher, and return the run that it has recorded."""
    runs = {"launcher": "simulated", "simulation.runs": "runs.csv", "instance_type": SMALL, "num_train_epochs": 2}
    assert main(["train", *spelled(runs | changes)]) == expected
    (run,) = store.search_runs(["0"])
    return run


def tags(run: Run) -> dict[str, str]:
    return {name.removeprefix("paretune."): text for name, text in tags_of(run).items() if "paretune." in name}


def test_a_job_of_minutes_is_recorded_within_seconds_with_curve_metrics_price_and_report_as_a_simulated_one(
    store: MlflowClient, capsys: pytest.CaptureFixture[str]
) -> None:
    start = time.monotonic()
    run = simulate(store, per_device_train_batch_size=16, learning_rate=8e-5)
    printed = capsys.readouterr()

    assert time.monotonic() - start < 20
    assert run.info.status == "FINISHED"
    assert (tags(run)["origin"], tags(run)["launcher"], tags(run)["state"]) == ("simulated", "simulated", "Completed")
    assert tags(run)["basis"]
    assert " simulated: F1 .884, " in (run.info.run_name or "")
    assert printed.err.startswith("simulated job paretune-")
    for text in ("\nsimulated job paretune-", "simulated   ", "none: a simulated job trains nothing"):
        assert text in printed.out
    result = run.data.metrics
    assert result["f1"] == pytest.approx(0.884)
    assert result["billable_seconds"] == pytest.approx(760)
    assert result["job_seconds"] == pytest.approx(760 + result["starting_seconds"])  # instances start unbilled
    assert result["starting_seconds"] == pytest.approx(usual("starting", "gpu").seconds, abs=0.01)
    assert 0 < result["downloading_seconds"] < 120  # a part of the startup
    assert result["uploading_seconds"] == pytest.approx(usual("uploading", "gpu").seconds, abs=0.01)
    assert result["train_seconds"] == pytest.approx(640)
    price = float(tags(run)["price_usd_per_hour"])
    assert result["cost_usd"] == pytest.approx(760 * price / 3600, rel=1e-4)
    (point,) = store.get_metric_history(run.info.run_id, "eval/f1")
    assert (point.step, point.value) == (960, pytest.approx(0.884))
    assert {file.path for file in store.list_artifacts(run.info.run_id)} == {"plan.json", "report.json"}
    names = {"model", "dataset", "seed", "learning_rate", "global_batch_size", "scaled_learning_rate"}
    assert names <= set(run.data.params)


def test_mlflow_compares_jobs_by_results_first_and_has_sizes_and_estimates_as_tags(store: MlflowClient) -> None:
    run = simulate(store, per_device_train_batch_size=16, learning_rate=8e-5)

    assert [*run.data.metrics][:3] == ["f1", "cost_usd", "throughput_samples_per_second"]  # Compare draws the first one
    assert not FACTS & run.data.metrics.keys()
    assert float(tags(run)["estimated_seconds_low"]) < float(tags(run)["estimated_seconds_high"])


def test_a_job_that_fails_is_recorded_and_ends_with_exit_code_3(store: MlflowClient) -> None:
    run = simulate(store, 3, learning_rate=4e-5, simulation='{"failure_rate": 1}')

    assert (run.info.status, tags(run)["state"]) == ("FAILED", "Failed")
    assert tags(run)["failure_reason"] == "simulated failure (simulation.failure_rate)"
    assert 0 < run.data.metrics["billable_seconds"] < 760
    assert run.data.metrics["cost_usd"] > 0


@pytest.mark.essential
@pytest.mark.slow
def test_simulated_and_local_launcher_leave_the_same_record(workplace: Path, tiny_model: Path, reviews: Path) -> None:
    """Replay a local job from a table of its results: the record is the same except for what nobody computed."""
    job = job_of_seconds(tiny_model, reviews) | {"num_train_epochs": 2}
    typed = spelled({name: value for name, value in job.items() if name != "instance_type"})
    assert main(["train", *typed]) == 0
    store = MlflowClient()
    (local,) = store.search_runs(["0"])
    params = ("per_device_train_batch_size", "learning_rate", "num_train_epochs")
    metrics = ("billable_seconds", "f1", "train_seconds", "throughput_samples_per_second")
    row = {"instance_type": "local", "instance_count": 1, **{name: local.data.params[name] for name in params}}
    row |= {name: repr(local.data.metrics[name]) for name in metrics} | {"train_rows": tags(local)["train_rows"]}
    Path("runs.csv").write_text(f"{','.join(row)}\n{','.join(map(str, row.values()))}\n")
    assert main(["train", *typed, "--launcher", "simulated", "--simulation.runs", "runs.csv"]) == 0
    simulated = next(run for run in store.search_runs(["0"]) if run.info.run_id != local.info.run_id)

    custom = {"launcher", "simulation"}
    assert set(simulated.data.params) - custom == set(local.data.params) - custom
    assert {name for name, text in local.data.params.items() if text != simulated.data.params[name]} <= custom
    headlines = ("f1", "billable_seconds", "job_seconds", "cost_usd", "train_seconds", "throughput_samples_per_second")
    assert {name: simulated.data.metrics[name] for name in headlines} == pytest.approx(
        {name: local.data.metrics[name] for name in headlines}, rel=1e-6
    )
    computed = {"dataset_key", "used_device", "used_precision", "used_versions", "machine", "estimate_basis"}
    computed |= {"model", "model_uri"}  # it has no model
    computed |= FACTS | BASELINES  # of rows and weights that nobody read
    computed |= {"verdict", "warnings"}  # its F1 is below that of TF-IDF, and the machine of these tests is busy
    assert set(tags(local)) - set(tags(simulated)) <= computed
    assert set(tags(simulated)) - set(tags(local)) <= {"basis"}
    differing = {name for name in set(tags(local)) & set(tags(simulated)) if tags(local)[name] != tags(simulated)[name]}
    expected = {"origin", "launcher", "command", "given", "claimed_at", "job_name", "estimate_basis"}
    assert {name for name in differing if not name.startswith("estimated_")} <= expected
    assert (simulated.info.status, tags(simulated)["state"]) == (local.info.status, tags(local)["state"])
