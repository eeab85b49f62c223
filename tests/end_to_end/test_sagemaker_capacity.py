"""Jobs that take what capacity there is, or what has been paid for already, in the emulated account."""

import time

import pytest

from tests.end_to_end.cloud import Cloud
from tests.end_to_end.test_sagemaker_trouble import write

pytestmark = pytest.mark.slow

PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/mine"
P5 = "ml.p5.48xlarge"
SCRIPT: dict[str, object] = {"instance_type": "ml.m5.large", "entry_script": "train.py"}


def test_one_job_names_all_types_and_trains_as_planned_for_the_one_that_sagemaker_takes(
    cloud: Cloud,
) -> None:
    there = "(arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps)"
    write(cloud, f"assert {there} == (8, 2), {there}")  # one process in place of two
    cloud.emulator.lack_capacity("ml.m5.large", times=1)

    job = SCRIPT | {"processes_per_instance": 2, "global_batch_size": 16, "per_device_train_batch_size": 8}
    done = cloud.run(**job, fallback_instance_types="ml.m5.xlarge,ml.m5.2xlarge")

    assert done.code == 0, done.text
    assert "SageMaker has taken 1 x ml.m5.xlarge: global batch size 16 = 8 x 1 x 2" in done.text
    run, report = cloud.the_run(), cloud.described()
    preferred = report["ResourceConfig"]["InstancePreferences"]
    assert [item["InstanceType"] for item in preferred] == ["ml.m5.large", "ml.m5.xlarge", "ml.m5.2xlarge"]
    assert run.data.tags["paretune.used_instance_type"] == "ml.m5.xlarge"
    assert run.data.tags["paretune.price_usd_per_hour"] == "0.23"
    assert run.data.metrics["cost_usd"] == pytest.approx(report["BillableTimeInSeconds"] * 0.23 / 3600)


def test_a_job_on_a_training_plan_costs_nothing_more_and_an_estimate_tells_from_when_the_plan_pays(
    cloud: Cloud,
) -> None:
    write(cloud, "")
    cloud.environment["PARETUNE_ALLOW_NO_GPU"] = "1"
    cloud.emulator.set_quota(P5, 0)  # on demand
    capacity = {"InstanceType": P5, "TotalInstanceCount": 4, "Status": "Active", "DurationHours": 72}
    capacity["ReservedCapacityArn"] = PLAN.replace("training-plan", "reserved-capacity")
    times = {"StartTime": time.time() - 3600, "EndTime": time.time() + 71 * 3600}
    report = {"UpfrontFee": "2880", "CurrencyCode": "USD", "ReservedCapacitySummaries": [capacity], **times}
    cloud.emulator.buy_plan({"TrainingPlanArn": PLAN, "TrainingPlanName": "mine", "Status": "Active", **report})

    job = {"instance_type": P5, "processes_per_instance": 1, "training_plan": PLAN}
    done = cloud.run(**SCRIPT | job, max_cost_usd=0)

    assert done.code == 0, done.text
    described, run = cloud.described(), cloud.the_run()
    assert described["ResourceConfig"]["TrainingPlanArn"] == PLAN
    assert run.data.metrics["cost_usd"] == 0
    assert run.data.metrics["plan_share_usd"] == pytest.approx(described["BillableTimeInSeconds"] * 10 / 3600)
    assert "share of the training plan's fee" in done.text

    result = cloud.run("estimate", instance_type=P5, training_plan=PLAN, max_train_samples=1000, region="us-east-1")

    assert result.code == 0, result.text
    assert f"2,880.00 USD upfront for 4 x {P5} over 72 h" in result.text
    assert "hours of use" in result.text
