"""What a training plan costs, by sums worked out by hand."""

import pytest

from paretune.launchers.sagemaker.training_plans import Reserved, TrainingPlan

DAY_S = 24 * 3600.0
PLAN = TrainingPlan(
    name="mine",
    status="Active",
    reserved=(Reserved(instance_type="ml.p5.48xlarge", count=4, seconds=3 * DAY_S),),
    upfront_usd=2880.0,
    targets=("training-job",),
)


def test_the_share_of_a_job_is_that_of_its_instance_seconds() -> None:
    assert PLAN.instance_seconds == 4 * 72 * 3600  # 288 instance-hours at 10 USD
    assert PLAN.share_usd(2 * 1800.0) == pytest.approx(10.0)  # two instances for half an hour


def test_two_blocks_one_after_the_other_count_as_one_longer_one() -> None:
    two = TrainingPlan(
        name="two",
        status="Active",
        reserved=(Reserved(instance_type="ml.p5.48xlarge", count=4, seconds=DAY_S),) * 2,
        upfront_usd=960.0,
        targets=(),
    )

    assert two.share_usd(3600.0) == pytest.approx(5.0)
    assert two.count_of("ml.p5.48xlarge") == 4


def test_what_is_not_known_is_absent() -> None:
    unknown = TrainingPlan(name="x", status="Active", reserved=PLAN.reserved, upfront_usd=None, targets=())

    assert unknown.share_usd(10.0) is None
