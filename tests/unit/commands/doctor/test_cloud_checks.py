"""What is told of an AWS account: everything that can be asked, whatever else is wrong."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from botocore.exceptions import NoCredentialsError

from paretune.commands.doctor.cloud_checks import cloud_findings, image_findings, subnet_findings, trust_finding
from paretune.commands.doctor.command import DoctorRequest
from paretune.core.checks import Finding, Verdict
from paretune.launchers.sagemaker.account import Account
from paretune.specification.job import JobSpec
from tests.unit.launchers.sagemaker.aws import ACCOUNT as ACCOUNT_ID
from tests.unit.launchers.sagemaker.aws import BUCKET, ROLE, Aws, error
from tests.unit.launchers.sagemaker.conftest import nothing_of_this_machine

__all__ = ["nothing_of_this_machine"]


TODAY = datetime(2026, 11, 20, tzinfo=UTC)
USAGE = "ml.m5.large for training job usage"
ACCOUNT = {"role": ROLE, "sagemaker.s3_bucket": BUCKET}
CLUSTER = JobSpec(role=ROLE, sagemaker={"s3_bucket": BUCKET}, instance_type="ml.g5.xlarge", instance_count=4)


def findings(environment: dict[str, str] | None = None, **typed: str) -> list[Finding]:
    request = DoctorRequest.from_text(typed, environment or {})
    return list(cloud_findings(request, environment or {}, TODAY))


def subjects(result: list[Finding], verdict: Verdict) -> list[str]:
    return [finding.subject for finding in result if finding.verdict is verdict]


def test_an_account_in_order_has_nothing_wrong(aws: Aws) -> None:
    aws.quotas.values = {USAGE: 2, "ml.g5.xlarge for training job usage": 1}

    checks = findings(**ACCOUNT)

    rights = ["permissions", "permissions"]
    expected = ["region", "credentials", "role", "role", *rights, "bucket", "quotas", "quotas", "image", "price"]
    assert subjects(checks, Verdict.PASSED) == expected
    assert aws.count("CreateTrainingJob", "PutObject", "CreateBucket") == 0


def test_redacted_and_without_sagemaker_nothing_is_needed(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)

    (checks,) = findings()

    assert checks.verdict is Verdict.PASSED
    assert "no credentials are found: local and simulated jobs need nothing of AWS" in checks.text
    assert aws.count() == 0


@pytest.mark.parametrize("typed", [{"launcher": "local"}, {"launcher": "simulated"}, {"instance_type": "local"}])
def test_nothing_of_aws_is_looked_at_for_local_and_simulated_jobs(aws: Aws, typed: dict[str, str]) -> None:
    (checks,) = findings(**typed)

    assert checks.verdict is Verdict.PASSED
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

    checks = findings(**ACCOUNT)

    (wrong,) = [finding for finding in checks if finding.verdict is Verdict.FAILED]
    assert wrong.subject == "credentials"
    assert command in wrong.commands
    assert subjects(checks, Verdict.NOT_CHECKED) == ["role", "bucket", "quotas"]
    assert subjects(checks, Verdict.PASSED) == ["region", "image", "price"]


def test_without_a_region_image_and_price_of_the_usual_one_are_told(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")

    checks = findings(**ACCOUNT)

    assert subjects(checks, Verdict.FAILED) == ["region"]
    assert "aws configure set region us-east-1" in checks[0].commands
    assert subjects(checks, Verdict.PASSED) == ["image", "price"]


def test_role_bucket_and_quota_that_are_wrong_are_told_together(aws: Aws) -> None:
    aws.refuse("GetRole", "NoSuchEntity")
    aws.refuse("HeadBucket", error("403", "Forbidden", 403))
    aws.quotas.values = {"ml.g5.xlarge for training job usage": 0, "x": 0}

    checks = findings(instance_type="ml.g5.xlarge", **ACCOUNT)

    assert subjects(checks, Verdict.FAILED) == ["role", "bucket", "quotas"]
    assert all(finding.commands for finding in checks if finding.verdict is Verdict.FAILED)


def test_a_strategy_without_an_image_and_a_type_without_a_price_are_wrong(aws: Aws) -> None:
    aws.s3.buckets[BUCKET] = "sa-east-1"
    aws.region = "sa-east-1"

    checks = findings(instance_type="ml.g5.xlarge", strategy="smddp", region="sa-east-1", **ACCOUNT)

    assert subjects(checks, Verdict.FAILED) == ["image", "price"]
    assert "paretune prices --refresh true --region sa-east-1" in checks[-1].commands


def test_a_service_that_breaks_is_no_traceback(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    aws.refuse("HeadBucket", RuntimeError("an answer that nobody has foreseen"), times=9)

    checks = findings(**ACCOUNT)

    assert [(item.subject, item.text) for item in checks if item.subject == "bucket"] == [
        ("bucket", "RuntimeError: an answer that nobody has foreseen")
    ]
    assert "quotas" in subjects(checks, Verdict.NOT_CHECKED)  # AWS lists none of that name here


def test_what_the_profile_says_of_the_account_is_checked(
    aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = tmp_path / "paretune.toml"
    profile.write_text('role = "Nobody"\nsagemaker = {s3_bucket = "never-made"}\n')
    aws.refuse("GetRole", "NoSuchEntity")

    checks = findings({"PARETUNE_PROFILE": str(profile)})

    assert subjects(checks, Verdict.FAILED) == ["role", "bucket"]
    assert "aws s3 mb s3://never-made --region us-east-1" in checks[-4].commands + checks[-5].commands


def test_subnets_are_right_wrong_or_not_to_be_asked(aws: Aws) -> None:
    inside = {"sagemaker.subnets": "subnet-1", "sagemaker.security_group_ids": "sg-1", **ACCOUNT}
    assert subjects(findings(**inside), Verdict.FAILED) == ["network", "network"]

    aws.ec2.main = [{"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1"}]
    assert "network" in subjects(findings(**inside), Verdict.PASSED)

    aws.refuse("DescribeSubnets", "UnauthorizedOperation", times=9)
    assert "network" in subjects(findings(**inside), Verdict.NOT_CHECKED)


def trusted(aws: Aws, *statements: dict[str, object]) -> Finding:
    """The finding about a role with these statements in its trust policy."""
    aws.iam.trust = {"Version": "2012-10-17", "Statement": list(statements)}
    return trust_finding(Account(CLUSTER, {}))


def test_a_role_must_be_trusted_by_sagemaker(aws: Aws) -> None:
    actual = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    glue = actual | {"Principal": {"Service": "glue.amazonaws.com"}}

    assert trusted(aws, actual).verdict is Verdict.PASSED
    assert (
        trusted(aws, glue, actual | {"Principal": {"Service": ["x", "sagemaker.amazonaws.com"]}}).verdict
        is Verdict.PASSED
    )
    for statements in ([], [glue], [actual | {"Effect": "Deny"}], [actual | {"Action": "sts:TagSession"}]):
        assert trusted(aws, *statements).verdict is Verdict.FAILED

    (command,) = trusted(aws, glue).commands
    assert command.startswith("aws iam update-assume-role-policy --role-name Trainer --policy-document ")
    policy = json.loads(command.rpartition("--policy-document ")[2].strip("'"))
    assert policy["Statement"] == [glue, actual]  # what trusted it before still does


def test_a_role_that_does_not_exist_is_created_by_the_command(aws: Aws) -> None:
    aws.refuse("GetRole", "NoSuchEntity")

    result = trust_finding(Account(CLUSTER, {}))

    assert result.verdict is Verdict.FAILED
    assert f"role {ROLE} does not exist" in result.text
    assert result.commands[1].startswith("aws iam create-role --role-name Trainer --assume-role-policy-document '{")


def test_a_role_that_may_not_be_read_is_not_known(aws: Aws) -> None:
    aws.refuse("GetRole", "AccessDenied", "no iam:GetRole")
    assert trust_finding(Account(CLUSTER, {})).verdict is Verdict.NOT_CHECKED

    elsewhere = JobSpec(role=ROLE.replace(ACCOUNT_ID, "999999999999"), sagemaker={"s3_bucket": BUCKET})
    assert trust_finding(Account(elsewhere, {})).verdict is Verdict.NOT_CHECKED


def test_the_image_is_found_without_asking_aws(aws: Aws) -> None:
    (result,) = image_findings(JobSpec(instance_type="ml.m5.large"), "us-east-1")
    assert (result.verdict, "pytorch-training:" in result.text) == (Verdict.PASSED, True)

    (result,) = image_findings(JobSpec(instance_type="ml.g5.xlarge", strategy="smddp"), "us-east-1")
    assert result.verdict is Verdict.FAILED
    assert aws.count() == 0


def test_the_network_of_a_job_is_a_finding_of_its_own(aws: Aws) -> None:
    inside = {"sagemaker.subnets": "subnet-1", "sagemaker.security_group_ids": "sg-1", "instance_type": "ml.m5.large"}
    spec = JobSpec(**inside)  # type: ignore[arg-type]
    account = Account(CLUSTER, {})
    local = {"DestinationCidrBlock": "10.0.0.0/16", "GatewayId": "local"}
    aws.ec2.main = [local, {"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1"}]
    assert [result.verdict for result in subnet_findings(spec, account)] == [Verdict.PASSED]

    aws.ec2.main = [local]

    assert [results.verdict for results in subnet_findings(spec, account)] == [Verdict.FAILED] * 2
    assert list(subnet_findings(JobSpec(instance_type="ml.m5.large"), account)) == []
