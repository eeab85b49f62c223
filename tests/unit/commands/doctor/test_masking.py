"""A report names nobody's account."""

import pytest

from paretune.commands.doctor.report import Mask
from paretune.launchers.sagemaker.account import Account
from paretune.specification.job import JobSpec
from tests.unit.launchers.sagemaker.aws import ACCOUNT, Aws
from tests.unit.launchers.sagemaker.conftest import nothing_of_this_machine

__all__ = ["nothing_of_this_machine"]


CLUSTER = JobSpec(
    role="Trainer",
    bucket="acme-models",
    subnets="subnet-0abc1234def",
    security_group_ids="sg-0abc1234def",
    kms_key="alias/acme",
    package_index="https://packages.acme.com/simple",
    tags={"team": "rocket"},
)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("role Trainer of user/ada", "role <role> of user/<user>"),
        (f"arn:aws:iam::{ACCOUNT}:role/service-role/Trainer", "<role>"),
        (f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-job/paretune-1, and", "<arn>, and"),
        ("s3://acme-models/paretune/jobs", "s3://<bucket>/paretune/jobs"),
        ("s3://another/key", "s3://<bucket>/key"),
        ("sagemaker-us-east-1-210987654321", "sagemaker-us-east-1-<account>"),
        ("of 1234-5678-9012 AKIAIOSFODNN7EXAMPLE", "of <account> <key>"),
        ("subnet-0abc1234def alias/acme rocket", "<private> <private> <private>"),
        ("host ip-10-0-1-2 at 10.0.1.2, https://mlflow.acme.com/x", "host <address> at <address>, https://<server>/x"),
        ("from https://packages.acme.com/simple", "from <private>"),
        ("ada@acme.com", "<e-mail>"),
        ("bob@acme.com", "<e-mail>"),
        (
            "0.210987654321 s, torch 2.13.0, paretune-afb1fca8037f4e7b-1",
            "0.210987654321 s, torch 2.13.0, paretune-afb1fca8037f4e7b-1",
        ),
        ("Completed Trainers ml.m5.large", "Completed Trainers ml.m5.large"),
    ],
)
def test_what_tells_whose_account_it_is_is_masked(aws: Aws, text: str, masked: str) -> None:
    mask = Mask.of(CLUSTER, Account(CLUSTER, {}))
    custom = {name: sign for name, sign in mask.names.items() if sign not in {"~", "<host>"}}

    assert Mask(names=custom)(text) == masked


def test_what_cannot_be_asked_is_masked_by_its_look(aws: Aws) -> None:
    aws.refuse("GetCallerIdentity", "ExpiredToken", times=99)

    assert Mask.of(CLUSTER, Account(CLUSTER, {}))(f"arn:aws:iam::{ACCOUNT}:user/ada {ACCOUNT}") == "<arn> <account>"
