"""What `doctor` is asked, and the job that it would pay for."""

import pytest

from paretune.commands.doctor import DoctorRequest
from paretune.commands.doctor.paid import CHECKS, LIMIT_USD
from paretune.core.errors import BadInput
from paretune.pricing.budget import admit
from paretune.pricing.prices import PriceList
from tests.unit.launchers.sagemaker.conftest import nothing_of_this_machine

__all__ = ["nothing_of_this_machine"]


def test_the_paid_checks_but_the_last_fit_the_limit_and_keep_the_account() -> None:
    account = {"role": "Trainer", "sagemaker.s3_bucket": "models", "region": "us-east-1", "tags": '{"team": "search"}'}
    large = {"instance_type": "ml.p4d.24xlarge", "instance_count": "4", "spot": "true", "max_cost_usd": "500"}
    typed = {**account, **large, "paid": "true", "model": "some/model", "num_train_epochs": "9"}
    request, prices = DoctorRequest.from_text(typed, {}).spec, PriceList.read({})
    worst_usd = list[float]()
    for check in CHECKS:
        specs = [check.spec(request, job) for job in check.jobs]
        assert {(spec.role, spec.region, spec.spot, spec.num_train_epochs) for spec in specs} == {
            ("Trainer", "us-east-1", False, 1)
        }
        assert specs[-1].sagemaker.s3_bucket == "models"
        assert specs[0].tags == {"team": "search"}
        bills = [admit(each, prices.price(each.instance_type, "us-east-1"), 300.0) for each in specs]
        worst_usd.append(sum(filter(None, bills)))

    assert sum(worst_usd[:-1]) < LIMIT_USD < worst_usd[-1]


def test_all_faults_of_what_was_typed_come_at_once() -> None:
    with pytest.raises(BadInput) as refused:
        DoctorRequest.from_text({"paid": "perhaps", "instance_typ": "x", "region": "mars"}, {})

    assert len(refused.value.faults) >= 2
    with pytest.raises(BadInput, match="paid=true launches jobs on SageMaker"):
        DoctorRequest.from_text({"paid": "true", "launcher": "simulated"}, {})


@pytest.mark.parametrize(
    ("typed", "wants"),
    [({}, False), ({"launcher": "sagemaker"}, True), ({"role": "Trainer"}, True), ({"seed": "3"}, False)],
)
def test_an_account_is_needed_only_where_it_is_asked_for(typed: dict[str, str], wants: bool) -> None:
    assert DoctorRequest.from_text(typed, {}).wants_sagemaker is wants
