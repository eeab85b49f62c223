"""Jobs and studies that wait in an AWS Batch queue of the emulated account, and whoever ends their driver."""

import signal
import time

import pytest

from tests.end_to_end.cloud import WITHIN_S, Cloud
from tests.end_to_end.test_sagemaker_survival import PRICE
from tests.processes import wait_until

pytestmark = pytest.mark.slow

QUEUE = "team"
WAITED_S = 2.0
"""At least, in the queue: its seconds are whole ones."""


def test_a_job_in_a_queue_outlives_its_driver_is_adopted_and_recorded_like_any_other(
    cloud: Cloud, tiny_job: dict[str, object]
) -> None:
    cloud.emulator.add_queue(QUEUE, capacity=1, taken=1)
    with cloud.start(**tiny_job, queue=QUEUE) as running:
        wait_until(lambda: "Waiting in the queue team" in running.text, within_s=WITHIN_S, what="the job waits")
        running.process.send_signal(signal.SIGKILL)
        running.process.wait()
    time.sleep(WAITED_S)
    cloud.emulator.add_queue(QUEUE, capacity=1)

    done = cloud.run("sync")

    assert done.code == 0, done.text
    (service_job,) = cloud.emulator.service_jobs()
    (training_job,) = cloud.emulator.jobs()
    described, run = cloud.described(), cloud.the_run()
    request = {item.operation for item in cloud.emulator.requests() if "paretune" in item.headers.get("User-Agent", "")}
    batch = {item.operation for item in cloud.emulator.requests() if item.service == "batch"}
    looks = {"DescribeJobQueues", "DescribeServiceEnvironments", "ListServiceJobs", "DescribeServiceJob"}
    assert batch == looks | {"SubmitServiceJob"}  # of a least-privilege policy, beside TerminateServiceJob
    assert "CreateTrainingJob" not in request
    assert service_job["status"] == "SUCCEEDED"
    assert service_job["jobName"] == run.data.tags["paretune.job_name"]
    assert training_job.startswith("AWSBatch")
    assert (run.info.status, run.data.tags["paretune.state"]) == ("FINISHED", "Completed")
    assert run.data.tags["paretune.queue"] == QUEUE
    assert int(run.data.tags["paretune.queue_seconds"]) >= int(WAITED_S)
    assert PRICE is not None
    dollars = described["BillableTimeInSeconds"] * PRICE.usd_per_hour / 3600
    assert run.data.metrics["cost_usd"] == pytest.approx(dollars)
    assert {"f1", "train_seconds"} <= set(run.data.metrics)
    assert len(cloud.history(run, "train/loss")) > 1
    tags = cloud.client_of("sagemaker").list_tags(ResourceArn=described["TrainingJobArn"])["Tags"]
    assert {"Key": "paretune:run", "Value": run.info.run_id} in tags


def test_ctrl_c_takes_a_waiting_job_out_of_the_queue_and_nothing_is_paid(
    cloud: Cloud, tiny_job: dict[str, object]
) -> None:
    cloud.emulator.add_queue(QUEUE, capacity=1, taken=1)
    with cloud.start(**tiny_job, queue=QUEUE) as running:
        wait_until(lambda: "Waiting in the queue team" in running.text, within_s=WITHIN_S, what="the job waits")
        running.process.send_signal(signal.SIGINT)
        assert running.wait(WITHIN_S) == 130, running.text

    (service_job,) = cloud.emulator.service_jobs()
    run = cloud.the_run()
    assert (service_job["status"], service_job["isTerminated"]) == ("FAILED", True)
    assert cloud.emulator.jobs() == []
    assert (run.info.status, run.data.tags["paretune.state"]) == ("KILLED", "Stopped")
    assert run.data.metrics["cost_usd"] == 0
