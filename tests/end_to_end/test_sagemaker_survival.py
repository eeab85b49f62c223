"""Whatever happens to the launcher or to its instances: one job, one run, everything recorded, and the right bill."""

from contextlib import ExitStack

import pytest
from mlflow.entities import Run

from paretune.pricing import PriceList
from tests.support.cloud import WITHIN_S, Cloud
from tests.support.processes import wait_until
from tests.support.tags import tags_of

pytestmark = pytest.mark.slow

PRICE = PriceList.read({}).price("ml.m5.large", "us-east-1")


def assert_complete(cloud: Cloud, run: Run, instances: int = 1) -> None:
    """Check that there is one job, and one finished run with complete curves, each point once, and SageMaker's bill."""
    assert len(cloud.created()) == 1
    job = cloud.described()
    assert run.info.status == "FINISHED"
    assert tags_of(run)["paretune.state"] == "Completed"
    assert PRICE is not None
    dollars = job["BillableTimeInSeconds"] * instances * PRICE.usd_per_hour / 3600
    assert run.data.metrics["cost_usd"] == pytest.approx(dollars)
    assert {"f1", "throughput_samples_per_second", "train_seconds", "baseline_f1_tfidf"} <= set(run.data.metrics)
    steps = [point.step for point in cloud.history(run, "train/loss")]
    assert steps == sorted(set(steps))
    assert steps[-1] == len(steps) * (steps[1] - steps[0])  # every point, evenly spaced


def test_the_same_command_and_sync_adopt_what_runs_and_collect_what_has_ended(
    cloud: Cloud, tiny_job: dict[str, object]
) -> None:
    job = tiny_job | {"num_train_epochs": 25, "training_arguments": {"eval_strategy": "no", "logging_steps": 5}}
    cloud.start_and_kill(**job)
    with cloud.start(**job) as again:
        wait_until(lambda: "following it" in again.text, within_s=WITHIN_S, what="the same command finds the job")
        again.process.kill()
        again.process.wait()

    done = cloud.run("sync")

    assert done.code == 0, done.text
    assert_complete(cloud, cloud.the_run())
    assert "nothing to do" in cloud.run("sync").text


def test_five_who_type_the_same_command_together_pay_for_one_job(cloud: Cloud, tiny_job: dict[str, object]) -> None:
    job = tiny_job | {"num_train_epochs": 25}  # a command typed after its end starts another one
    with ExitStack() as together:
        typed = [together.enter_context(cloud.start(**job)) for _ in range(5)]
        codes = [each.wait(WITHIN_S) for each in typed]

    assert codes == [0] * 5, "\n".join(each.text for each in typed)
    (run,) = [run for run in cloud.runs() if tags_of(run).get("paretune.kind") != "watcher"]
    assert_complete(cloud, run)
    assert {run.info.status for run in cloud.runs()} == {"FINISHED"}


def test_a_job_is_stopped_from_another_terminal_and_recorded(cloud: Cloud, long_job: dict[str, object]) -> None:
    with cloud.start(**long_job) as running:
        name = cloud.until_it_trains(running)
        run_id = cloud.the_run().info.run_id
        assert run_id[:8] in cloud.run("status").text
        assert "loss" in cloud.run("logs", run_id).text

        done = cloud.run("stop", name)

        assert done.code == 0, done.text
        assert running.wait(WITHIN_S) == 3, running.text
    job = cloud.described(name)
    assert job["TrainingJobStatus"] == "Stopped"
    run = cloud.the_run()
    assert (run.info.status, tags_of(run)["paretune.state"]) == ("KILLED", "Stopped")
    assert PRICE is not None
    assert run.data.metrics["cost_usd"] == pytest.approx(job["BillableTimeInSeconds"] * PRICE.usd_per_hour / 3600)


def test_spot_instances_that_are_taken_away_continue_from_the_checkpoint(
    cloud: Cloud, tiny_job: dict[str, object]
) -> None:
    arguments = {"eval_strategy": "no", "logging_steps": 10, "save_strategy": "steps", "save_steps": 20}
    job = tiny_job | {"num_train_epochs": 15, "training_arguments": arguments, "spot": "true"}
    with cloud.start(**job) as running:
        name = cloud.until_it_trains(running)
        cloud.emulator.interrupt(name)
        assert running.wait(WITHIN_S) == 0, running.text
        assert "Interrupted" in running.text
        assert "continuing from checkpoint-" in running.text

    run, report = cloud.the_run(), cloud.described()
    assert report["BillableTimeInSeconds"] < report["TrainingTimeInSeconds"]
    assert tags_of(run)["paretune.spot_saving"].endswith("%")
    assert_complete(cloud, run)
    bucket, _, prefix = report["CheckpointConfig"]["S3Uri"].removeprefix("s3://").partition("/")
    assert cloud.client_of("s3").list_objects_v2(Bucket=bucket, Prefix=prefix)["KeyCount"] == 0
