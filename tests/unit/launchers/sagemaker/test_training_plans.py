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


def test_a_plan_beats_on_demand_from_its_fee_over_the_price_of_all_its_instances() -> None:
    assert PLAN.break_even_hours(40.0) == pytest.approx(18.0)  # 18 h x 4 x 40 USD = 2,880 USD
    assert "beats on demand (40 USD an hour each) from 18.0 hours of use (25% of them)" in PLAN.sentence(40.0)
    assert "from 144.0 hours of use, more than it has" in PLAN.sentence(5.0)


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
    assert "960.00 USD upfront for 4 x ml.p5.48xlarge over 48 h" in two.sentence(None)


def test_what_is_not_known_is_absent() -> None:
    unknown = TrainingPlan(name="x", status="Active", reserved=PLAN.reserved, upfront_usd=None, targets=())

    assert unknown.share_usd(10.0) is None
    assert unknown.break_even_hours(40.0) is None
    assert "a fee that AWS does not tell in USD" in unknown.sentence(40.0)
