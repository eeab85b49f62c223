"""What `doctor` is asked, and the job that it would pay for."""

import pytest

from paretune.commands.doctor.command import DoctorRequest
from paretune.core.errors import BadInput
from paretune.estimating.uploading import billed_after_limit_s
from paretune.pricing.budget import admit
from paretune.pricing.prices import PriceList
from tests.unit.launchers.sagemaker.conftest import nothing_of_this_machine

__all__ = ["nothing_of_this_machine"]


def test_the_paid_job_fits_its_limit_and_keeps_the_account() -> None:
    account = {"role": "Trainer", "sagemaker.s3_bucket": "models", "region": "us-east-1", "tags": '{"team": "search"}'}
    large = {"instance_type": "ml.p4d.24xlarge", "instance_count": "4", "spot": "true", "max_cost_usd": "500"}
    typed = {**account, **large, "paid": "true", "model": "some/model", "num_train_epochs": "9"}
    spec = DoctorRequest.from_text(typed, {}).paid_spec()
    price = PriceList.read({}).price("ml.m5.large", "us-east-1")

    assert (spec.role, spec.region, spec.tags) == ("Trainer", "us-east-1", {"team": "search"})
    assert (spec.sagemaker.s3_bucket, spec.model, spec.num_train_epochs) == ("models", "some/model", 1)
    assert (spec.instance_type, spec.instance_count, spec.spot) == ("ml.m5.large", 1, False)
    worst = admit(spec, price, billed_after_limit_s(spec, {"HF_HUB_OFFLINE": "1"}))
    assert 0 < (worst or 0.0) < (spec.max_cost_usd or 0.0)


def test_all_faults_of_what_was_typed_come_at_once() -> None:
    with pytest.raises(BadInput) as refused:
        DoctorRequest.from_text({"paid": "perhaps", "instance_typ": "x", "region": "mars"}, {})

    assert len(refused.value.faults) >= 2
    with pytest.raises(BadInput, match="paid=true launches a job on SageMaker"):
        DoctorRequest.from_text({"paid": "true", "launcher": "simulated"}, {})


@pytest.mark.parametrize(
    ("typed", "wants"),
    [({}, False), ({"launcher": "sagemaker"}, True), ({"role": "Trainer"}, True), ({"seed": "3"}, False)],
)
def test_an_account_is_needed_only_where_it_is_asked_for(typed: dict[str, str], wants: bool) -> None:
    assert DoctorRequest.from_text(typed, {}).wants_sagemaker is wants
