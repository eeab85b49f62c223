"""What is told of an AWS account: everything that can be asked, whatever else is wrong."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from botocore.exceptions import NoCredentialsError

from paretune.commands.doctor.cloud_checks import cloud_findings
from paretune.commands.doctor.request import DoctorRequest
from paretune.core.checks import Finding, Verdict
from tests.unit.launchers.sagemaker.aws import BUCKET, ROLE, Aws, error
from tests.unit.launchers.sagemaker.conftest import nothing_of_this_machine

__all__ = ["nothing_of_this_machine"]


TODAY = datetime(2026, 11, 20, tzinfo=UTC)
USAGE = "ml.m5.large for training job usage"
ACCOUNT = {"role": ROLE, "bucket": BUCKET}


def findings(environment: dict[str, str] | None = None, **typed: str) -> list[Finding]:
    request = DoctorRequest.from_text(typed, environment or {})
    return list(cloud_findings(request, environment or {}, TODAY))


def subjects(found: list[Finding], verdict: Verdict) -> list[str]:
    return [finding.subject for finding in found if finding.verdict is verdict]


def test_an_account_in_order_has_nothing_wrong(aws: Aws) -> None:
    aws.quotas.values = {USAGE: 2, "ml.g5.xlarge for training job usage": 1}

    found = findings(**ACCOUNT)

    expected = ["region", "credentials", "role", "role", "bucket", "quotas", "quotas", "image", "price"]
    assert subjects(found, Verdict.PASSED) == expected
    assert aws.count("CreateTrainingJob", "PutObject", "CreateBucket") == 0


def test_the_queue_that_a_profile_names_is_looked_at(aws: Aws, tmp_path: Path) -> None:
    profile = tmp_path / "paretune.toml"
    profile.write_text('queue = "team"')

    found = findings({"PARETUNE_PROFILE": str(profile)}, **ACCOUNT)

    (wrong,) = [finding for finding in found if finding.verdict is Verdict.FAILED]
    assert wrong.subject == "queue"
    assert "queue team does not exist in us-east-1" in wrong.text


def test_redacted_and_without_sagemaker_nothing_is_needed(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)

    (found,) = findings()

    assert found.verdict is Verdict.PASSED
    assert "no credentials are found: local and simulated jobs need nothing of AWS" in found.text
    assert aws.count() == 0


@pytest.mark.parametrize("typed", [{"launcher": "local"}, {"launcher": "simulated"}, {"instance_type": "local"}])
def test_nothing_of_aws_is_looked_at_for_local_and_simulated_jobs(aws: Aws, typed: dict[str, str]) -> None:
    (found,) = findings(**typed)

    assert found.verdict is Verdict.PASSED
    assert aws.count() == 0


@pytest.mark.parametrize(
    ("refusal", "command"),
    [
        (NoCredentialsError(), "aws configure"),
        (error("ExpiredToken", "The security token included in the request is expired"), "aws sso login"),
    ],
)
def test_without_usable_credentials_the_rest_is_told_all_the_same(aws: Aws, refusal: Exception, command: str) -> None:
    aws.refuse("GetCallerIdentity", refusal, times=9)

    found = findings(**ACCOUNT)

    (wrong,) = [finding for finding in found if finding.verdict is Verdict.FAILED]
    assert wrong.subject == "credentials"
    assert command in wrong.commands
    assert subjects(found, Verdict.NOT_CHECKED) == ["role", "bucket", "quotas"]
    assert subjects(found, Verdict.PASSED) == ["region", "image", "price"]


def test_without_a_region_image_and_price_of_the_usual_one_are_told(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")

    found = findings(**ACCOUNT)

    assert subjects(found, Verdict.FAILED) == ["region"]
    assert "aws configure set region us-east-1" in found[0].commands
    assert subjects(found, Verdict.PASSED) == ["image", "price"]


def test_role_bucket_and_quota_that_are_wrong_are_told_together(aws: Aws) -> None:
    aws.refuse("GetRole", "NoSuchEntity")
    aws.refuse("HeadBucket", error("403", "Forbidden", 403))
    aws.quotas.values = {"ml.g5.xlarge for training job usage": 0, "x": 0}

    found = findings(instance_type="ml.g5.xlarge", **ACCOUNT)

    assert subjects(found, Verdict.FAILED) == ["role", "bucket", "quotas"]
    assert all(finding.commands for finding in found if finding.verdict is Verdict.FAILED)


def test_a_strategy_without_an_image_and_a_type_without_a_price_are_wrong(aws: Aws) -> None:
    aws.s3.buckets[BUCKET] = "sa-east-1"
    aws.region = "sa-east-1"

    found = findings(instance_type="ml.g5.xlarge", strategy="smddp", region="sa-east-1", **ACCOUNT)

    assert subjects(found, Verdict.FAILED) == ["image", "price"]
    assert "paretune prices --refresh true --region sa-east-1" in found[-1].commands


def test_a_service_that_breaks_is_no_traceback(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    aws.refuse("HeadBucket", RuntimeError("an answer that nobody has foreseen"), times=9)

    found = findings(**ACCOUNT)

    assert [(one.subject, one.text) for one in found if one.subject == "bucket"] == [
        ("bucket", "RuntimeError: an answer that nobody has foreseen")
    ]
    assert "quotas" in subjects(found, Verdict.NOT_CHECKED)  # AWS lists none of that name here


def test_what_the_profile_says_of_the_account_is_checked(
    aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = tmp_path / "paretune.toml"
    profile.write_text('role = "Nobody"\nbucket = "never-made"\n')
    aws.refuse("GetRole", "NoSuchEntity")

    found = findings({"PARETUNE_PROFILE": str(profile)})

    assert subjects(found, Verdict.FAILED) == ["role", "bucket"]
    assert "aws s3 mb s3://never-made --region us-east-1" in found[-4].commands + found[-5].commands


def test_subnets_are_right_wrong_or_not_to_be_asked(aws: Aws) -> None:
    inside = {"subnets": "subnet-1", "security_group_ids": "sg-1", **ACCOUNT}
    assert subjects(findings(**inside), Verdict.FAILED) == ["network", "network"]

    aws.ec2.main = [{"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1"}]
    assert "network" in subjects(findings(**inside), Verdict.PASSED)

    aws.refuse("DescribeSubnets", "UnauthorizedOperation", times=9)
    assert "network" in subjects(findings(**inside), Verdict.NOT_CHECKED)


def test_a_training_plan_is_looked_at_and_its_instances_need_no_quota_on_demand(aws: Aws) -> None:
    p5, arn = "ml.p5.48xlarge", "arn:aws:sagemaker:us-east-1:123456789012:training-plan/mine"
    capacity = {"InstanceType": p5, "TotalInstanceCount": 2, "DurationHours": 24}
    told = {"TrainingPlanName": "mine", "Status": "Expired", "ReservedCapacitySummaries": [capacity]}
    aws.sagemaker.plans[arn] = told
    aws.quotas.values = {f"{p5} for training job usage": 0}
    typed = ACCOUNT | {"instance_type": p5, "training_plan": arn}

    (wrong,) = (one for one in findings(**typed) if one.verdict is Verdict.FAILED and one.subject == "training plan")
    assert "must be Active, and is Expired" in wrong.text

    told["Status"] = "Active"
    assert not [one for one in findings(**typed) if one.verdict is Verdict.FAILED and one.subject != "price"]
