"""Who we are in AWS, found where a user would expect it: typed, configured, in the environment."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from paretune.core.errors import LaunchRefused
from paretune.launchers.sagemaker.account import Account
from paretune.specification.job import JobSpec
from tests.stand_ins.aws import ACCOUNT, Aws, Sts

CONFIGURED = f"arn:aws:iam::{ACCOUNT}:role/Configured"
CONFIGURATION = f"""
SchemaVersion: '1.0'
SageMaker:
  TrainingJob: {{RoleArn: '{CONFIGURED}'}}
  PythonSDK: {{Modules: {{Session: {{DefaultS3Bucket: configured}}}}}}
"""
ENVIRONMENT = {"PARETUNE_ROLE": "Environment", "PARETUNE_BUCKET": "environment"}


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The SageMaker SDK's own configuration file."""
    path = tmp_path / "config.yaml"
    path.write_text(CONFIGURATION)
    monkeypatch.setenv("SAGEMAKER_USER_CONFIG_OVERRIDE", str(path))
    return path


def test_what_is_typed_wins_over_everything(aws: Aws, configuration: Path) -> None:
    account = Account(JobSpec(role="Typed", sagemaker={"s3_bucket": "typed"}), ENVIRONMENT)

    assert account.role_arn == f"arn:aws:iam::{ACCOUNT}:role/service-role/Typed"
    assert account.bucket == "typed"


@pytest.mark.parametrize(
    ("role", "arn"),
    [
        ("Trainer", f"arn:aws:iam::{ACCOUNT}:role/service-role/Trainer"),  # as IAM tells it
        ("service-role/Trainer", f"arn:aws:iam::{ACCOUNT}:role/service-role/Trainer"),
        ("arn:aws:iam::999999999999:role/Trainer", "arn:aws:iam::999999999999:role/Trainer"),
    ],
)
def test_a_role_may_be_given_as_name_or_arn(aws: Aws, role: str, arn: str) -> None:
    assert Account(JobSpec(role=role), {}).role_arn == arn


def test_a_notebook_trains_with_its_own_role(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sts, "arn", f"arn:aws:sts::{ACCOUNT}:assumed-role/AmazonSageMaker-Role/SageMaker")

    assert Account(JobSpec(), {}).role_arn == f"arn:aws:iam::{ACCOUNT}:role/service-role/AmazonSageMaker-Role"


def test_every_request_to_s3_names_the_account_that_must_own_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    account = Account(JobSpec(region="us-east-1", sagemaker={"s3_bucket": "models"}), {})
    vars(account)["identity"] = {"Account": ACCOUNT, "Arn": ""}
    sent: list[AWSPreparedRequest] = []

    def answer(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        sent.append(request)
        return AWSResponse(request.url, 200, {}, SimpleNamespace(stream=lambda: [b""]))

    s3 = account.client("s3")
    s3.meta.events.register("before-send.s3", answer)
    s3.head_bucket(Bucket="models")
    s3.head_object(Bucket="models", Key="a")
    s3.delete_object(Bucket="models", Key="a")
    s3.create_bucket(Bucket="models")  # which nobody owns yet

    owners = [request.headers.get("x-amz-expected-bucket-owner") for request in sent]
    assert owners == [ACCOUNT.encode(), ACCOUNT.encode(), ACCOUNT.encode(), None]


def test_a_bucket_that_may_be_a_stranger_s_is_refused_with_the_account_it_must_belong_to(aws: Aws) -> None:
    aws.refuse("HeadBucket", "403", "Forbidden")

    with pytest.raises(LaunchRefused, match=rf"use the bucket .*, which must belong to account {ACCOUNT}: Forbidden"):
        Account(JobSpec(), {}).create_default_bucket()
