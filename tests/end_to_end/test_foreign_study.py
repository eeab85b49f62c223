"""A study of a project that knows nothing of paretune, on the emulated SageMaker, whose driver is killed."""

import shutil
import signal
from pathlib import Path

import pytest
from mlflow.entities import Run

from paretune.pricing.prices import PriceList
from tests.end_to_end.cloud import WITHIN_S, Cloud
from tests.processes import wait_until

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[1] / "foreign" / "nested_folds"


def test_a_killed_driver_s_job_is_taken_over_paid_once_and_its_own_metric_is_recorded(cloud: Cloud) -> None:
    shutil.copytree(PROJECT, cloud.folder / PROJECT.name)
    request = {"study": "nested_folds/study.yaml", "instance_type": "ml.m5.large", "n_parallel": 1}
    with cloud.start("study", **request) as running:
        wait_until(
            lambda: cloud.emulator.jobs() or running.process.poll() is not None,
            within_s=WITHIN_S,
            what="the first job is created",
        )
        assert running.process.poll() is None, running.text
        running.process.send_signal(signal.SIGKILL)
        running.process.wait()

    done = cloud.run("study", **request)

    assert done.code == 0, done.text
    assert "trial 0: taken over" in done.text
    trials = [run for run in cloud.runs() if "paretune.trial" in run.data.tags]
    assert len(trials) >= 2  # and repeats of what is recommended
    assert len(cloud.created()) == len(trials)  # one for each
    for run in trials:
        assert_recorded(cloud, run)
    study = next(run for run in cloud.runs() if run.data.tags.get("paretune.kind") == "study")
    assert {run.data.tags["mlflow.parentRunId"] for run in trials} == {study.info.run_id}


def assert_recorded(cloud: Cloud, run: Run) -> None:
    """Metric, curve's end, nested runs, parameters and SageMaker's own bill."""
    job = cloud.described(run.data.tags["paretune.job_name"])
    price = PriceList.read({}).price("ml.m5.large", "us-east-1")
    assert price is not None
    assert (run.info.status, run.data.tags["paretune.state"]) == ("FINISHED", "Completed")
    assert run.data.metrics["cost_usd"] == pytest.approx(job["BillableTimeInSeconds"] * price.usd_per_hour / 3600)
    assert 0.5 < run.data.metrics["cv_accuracy"] <= 1.0
    assert run.data.params["project_parameters.neighbours"]
    assert "f1" not in run.data.metrics
    inside = [item for item in cloud.runs() if item.data.tags.get("mlflow.parentRunId") == run.info.run_id]
    assert inside, "what the command has opened itself lies below the run of its job"
