"""What a training plan costs against on demand, in an account in memory and by sums worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest

from paretune.commands.estimate.plans import break_even_hours, plan_remarks, sentence
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.training_plans import Reserved
from tests.unit.launchers.sagemaker.aws import Aws
from tests.unit.launchers.sagemaker.conftest import aws, clock, launcher, nothing_of_this_machine, package
from tests.unit.launchers.sagemaker.test_capacity import ON_PLAN, P5, plan, spec
from tests.unit.launchers.sagemaker.test_training_plans import DAY_S
from tests.unit.launchers.sagemaker.test_training_plans import PLAN as COSTLY

__all__ = ["aws", "clock", "launcher", "nothing_of_this_machine", "package", "plan"]


def test_a_plan_beats_on_demand_from_its_fee_over_the_price_of_all_its_instances() -> None:
    assert break_even_hours(COSTLY, 40.0) == pytest.approx(18.0)  # 18 h x 4 x 40 USD = 2,880 USD
    assert "beats on demand (40 USD an hour each) from 18.0 hours of use (25% of them)" in sentence(COSTLY, 40.0)
    assert "from 144.0 hours of use, more than it has" in sentence(COSTLY, 5.0)


def test_two_blocks_one_after_the_other_are_told_as_one_longer_one() -> None:
    block = Reserved(instance_type=P5, count=4, seconds=DAY_S)

    assert "960.00 USD upfront for 4 x ml.p5.48xlarge over 48 h" in sentence(
        replace(COSTLY, reserved=(block, block), upfront_usd=960.0), None
    )


def test_a_fee_in_another_currency_has_no_break_even() -> None:
    unknown = replace(COSTLY, upfront_usd=None)

    assert break_even_hours(unknown, 40.0) is None
    assert "a fee that AWS does not tell in USD" in sentence(unknown, 40.0)


def test_an_estimate_tells_from_how_many_hours_of_use_a_plan_beats_on_demand(
    launcher: SageMakerLauncher, aws: Aws, plan: dict[str, Any]
) -> None:
    on_demand = launcher.price(spec(instance_type=P5))
    assert on_demand is not None

    bought, marginal = plan_remarks(spec(**ON_PLAN), launcher)

    hours = 2880 / (on_demand.usd_per_hour * 4)
    assert f"2,880.00 USD upfront for 4 x {P5} over 72 h" in bought
    assert f"beats on demand ({on_demand.usd_per_hour:g} USD an hour each) from {hours:,.1f} hours of use" in bought
    assert "beyond the plan's fee" in marginal


def test_offers_are_asked_for_a_cluster_and_told_cheapest_first(launcher: SageMakerLauncher, aws: Aws) -> None:
    capacity = {"InstanceType": P5, "InstanceCount": 2}
    aws.sagemaker.offerings = [
        {
            "TrainingPlanOfferingId": f"tpo-{fee}",
            "TargetResources": ["training-job"],
            "UpfrontFee": fee,
            "CurrencyCode": "USD",
            "DurationHours": 24,
            "ReservedCapacityOfferings": [capacity],
        }
        for fee in ("2000", "960")
    ]

    first, second = plan_remarks(spec(**ON_PLAN | {"training_plan": "search"}), launcher)

    (result,) = aws.of("SearchTrainingPlanOfferings")
    assert result.parameters == {"InstanceType": P5, "InstanceCount": 2, "TargetResources": ["training-job"]}
    assert "tpo-960 (Offered): 960.00 USD upfront for 2 x" in first
    assert "tpo-2000" in second
    aws.sagemaker.offerings = []
    assert (
        "AWS offers no training plan of 2 x" in plan_remarks(spec(**ON_PLAN | {"training_plan": "search"}), launcher)[0]
    )


def test_a_launcher_that_knows_no_such_type_says_why_there_are_no_offers(launcher: SageMakerLauncher, aws: Aws) -> None:
    aws.refuse("SearchTrainingPlanOfferings", "ValidationException", "failed to satisfy enum value set")

    (plan_remark,) = plan_remarks(spec(instance_type="ml.g5.xlarge", training_plan="search"), launcher)

    assert "enum value set" in plan_remark
