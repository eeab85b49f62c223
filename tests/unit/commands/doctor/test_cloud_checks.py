"""What is told of an AWS account: everything that can be asked, whatever else is wrong."""

import pytest
from botocore.exceptions import NoCredentialsError

from paretune.commands.doctor import DoctorRequest
from paretune.commands.doctor.checks import cloud_findings
from paretune.core.checks import Finding, Verdict
from tests.stand_ins.aws import BUCKET, ROLE, Aws, error
from tests.unit.launchers.sagemaker.conftest import nothing_of_this_machine

__all__ = ["nothing_of_this_machine"]


USAGE = "ml.m5.large for training job usage"
ACCOUNT = {"role": ROLE, "sagemaker.s3_bucket": BUCKET}


def findings(environment: dict[str, str] | None = None, **typed: str) -> list[Finding]:
    request = DoctorRequest.from_text(typed, environment or {})
    return list(cloud_findings(request, environment or {}))


def subjects(result: list[Finding], verdict: Verdict) -> list[str]:
    return [finding.subject for finding in result if finding.verdict is verdict]


def test_an_account_in_order_has_nothing_wrong(aws: Aws) -> None:
    aws.quotas.values = {USAGE: 2}

    checks = findings(**ACCOUNT)

    expected = ["region", "credentials", "role", "bucket", "quotas"]
    assert subjects(checks, Verdict.PASSED) == expected
    assert aws.count("CreateTrainingJob", "PutObject", "CreateBucket") == 0


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
    assert subjects(checks, Verdict.PASSED) == ["region"]


def test_role_bucket_and_quota_that_are_wrong_are_told_together(aws: Aws) -> None:
    aws.refuse("GetRole", "NoSuchEntity")
    aws.refuse("HeadBucket", error("403", "Forbidden", 403))
    aws.refuse("ListObjectsV2", error("AccessDenied", "Forbidden", 403))
    aws.quotas.values = {"ml.g5.xlarge for training job usage": 0, "x": 0}

    checks = findings(instance_type="ml.g5.xlarge", **ACCOUNT)

    assert subjects(checks, Verdict.FAILED) == ["role", "bucket", "quotas"]
    assert all(finding.commands for finding in checks if finding.verdict is Verdict.FAILED)
