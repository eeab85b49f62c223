"""What AWS is sure to refuse in a request is refused before anything is uploaded, by the name of what was typed."""

from collections.abc import Callable
from typing import Any

import pytest

from paretune.core.errors import BadInput
from paretune.launchers.offers import order_of
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.place import place_of
from paretune.specification.order import Order
from tests.support.sagemaker_jobs import job_of
from tests.support.stand_ins.aws import Aws

Make = Callable[..., Order]
NETWORK = {"sagemaker.subnets": "subnet-1", "sagemaker.security_group_ids": "sg-1"}
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/"


def several(count: int, prefix: str) -> str:
    return ",".join(f"{prefix}-{number}" for number in range(count))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"sagemaker.subnets": "subnet-1"},
            "sagemaker.security_group_ids must be set for AWS, because sagemaker.subnets is set",
        ),
        ({"sagemaker.security_group_ids": "sg-1"}, "sagemaker.subnets must be set for AWS"),
        (NETWORK | {"sagemaker.subnets": several(17, "subnet")}, "sagemaker.subnets must have 1 to 16 entries, got 17"),
        (NETWORK | {"sagemaker.security_group_ids": several(6, "sg")}, "group_ids must have 1 to 5 entries, got 6"),
        (
            NETWORK | {"sagemaker.subnets": "subnet_1"},
            "sagemaker.subnets must match [-0-9a-zA-Z]+ for AWS, got 'subnet_1'",
        ),
        ({"environment": {"MODE": "m" * 513}}, "environment.MODE must have at most 512 characters, got 513"),
        (
            {"environment": {f"V{number}": "v" for number in range(101)}},
            "environment must have at most 100 entries, got 107 with the variables that paretune adds",
        ),
        (
            {"tags": {f"tag{number}": "v" for number in range(49)}},
            "tags must have at most 50 entries, got 51 with the tags that paretune adds",
        ),
        ({"tags": {"k" * 129: "v"}}, f"the name of tags.{'k' * 60} must have 1 to 128 characters, got 129"),
        ({"tags": {"team": "v" * 257}}, "the value of tags.team must have at most 256 characters, got 257"),
        ({"tags": {"team": "a?"}}, "the value of tags.team must match"),
        ({"sagemaker.training_image": IMAGE + "i" * 256}, "sagemaker.training_image must have at most 255 characters"),
        ({"sagemaker.kms_key_id": "alias/my.key"}, "sagemaker.kms_key_id must match [a-zA-Z0-9:/_-]* for AWS"),
        ({"sagemaker.package_index": f"https://h/{'x' * 512}"}, "sagemaker.package_index must have at most 512"),
        (
            {"spot": True, "sagemaker.keep_alive_minutes": 5.0},
            "spot and sagemaker.keep_alive_minutes cannot be combined",
        ),
    ],
)
def test_what_aws_would_refuse_is_refused_by_check_and_dry_run_and_nothing_is_uploaded(
    launcher: SageMakerLauncher, aws: Aws, changes: dict[str, Any], fault: str
) -> None:
    spec = job_of(**changes)
    place = place_of(spec, launcher.account, {}, is_sound=False)
    too_much = order_of(spec, job_name="paretune-run1-1", run_id="run1", place=place)

    for ask in (lambda: launcher.place(spec), lambda: launcher.preview(too_much), lambda: launcher.submit(too_much)):
        with pytest.raises(BadInput) as refused:
            ask()
        assert len(refused.value.faults) == 1
        assert fault in refused.value.faults[0]
    assert not aws.of("PutObject")
    assert not aws.of("CreateTrainingJob")


def test_all_faults_of_a_request_are_named_at_once(launcher: SageMakerLauncher) -> None:
    faulty = {"sagemaker.subnets": "subnet-1", "tags": {"team": "a?"}, "environment": {"A": "a" * 600, "B": "b" * 600}}
    with pytest.raises(BadInput) as refused:
        launcher.place(job_of(**faulty))

    assert [fault.split(" must ")[0] for fault in refused.value.faults] == [
        "environment.A",
        "environment.B",
        "sagemaker.security_group_ids",
        "the value of tags.team",
    ]


def test_a_missing_member_is_explained_by_all_members_that_are_set(launcher: SageMakerLauncher, order: Make) -> None:
    request = launcher.preview(order())

    (fault,) = launcher._limits_broken({**request, "VpcConfig": {"Subnets": ["subnet-1"], "Zone": "a"}})[:1]
    assert fault.endswith("because sagemaker.subnets and VpcConfig.Zone of the request are set")


def test_letters_of_any_language_and_a_type_that_boto_does_not_list_are_taken(
    launcher: SageMakerLauncher, order: Make
) -> None:
    request = launcher.preview(order(tags={"Größe": "zwei\u00a0Meter ½"}))

    assert {"Key": "Größe", "Value": "zwei\u00a0Meter ½"} in request["Tags"]
    assert not launcher._limits_broken({**request, "ResourceConfig": {"InstanceType": "ml.z9.xlarge"}})
