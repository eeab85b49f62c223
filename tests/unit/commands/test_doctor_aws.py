"""What `doctor` asks of an AWS account and of budgets, and the job that it would pay for."""

import pytest

from paretune.commands.doctor import DoctorRequest, cloud_findings, paid_job
from paretune.core.checks import Finding, Verdict
from paretune.pricing import PriceList, admit
from tests.stand_ins.aws import BUCKET, ROLE, Aws
from tests.unit.launchers.sagemaker.conftest import nothing_of_this_machine

__all__ = ["nothing_of_this_machine"]

ACCOUNT = {"role": ROLE, "sagemaker.s3_bucket": BUCKET}


def findings(environment: dict[str, str] | None = None, **typed: str) -> list[Finding]:
    request = DoctorRequest.from_text(typed, environment or {})
    return list(cloud_findings(request, environment or {}))


def subjects(result: list[Finding], verdict: Verdict) -> list[str]:
    return [finding.subject for finding in result if finding.verdict is verdict]


def test_an_account_in_order_has_nothing_wrong(aws: Aws) -> None:
    checks = findings(**ACCOUNT)

    expected = ["region", "credentials", "role", "bucket", "permissions"]
    assert subjects(checks, Verdict.PASSED) == expected
    assert aws.count("CreateTrainingJob", "CreateBucket") == 0
    assert aws.objects == {}


@pytest.mark.parametrize(
    "action",
    [
        *("sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob", "logs:FilterLogEvents"),
        *("s3:PutObject", "s3:DeleteObject"),
    ],
)
def test_an_action_that_a_policy_denies_is_wrong_and_named(aws: Aws, action: str) -> None:
    aws.deny(action)

    (wrong,) = [finding for finding in findings(**ACCOUNT) if finding.verdict is Verdict.FAILED]

    assert action in wrong.text
    assert "user/ada" in wrong.text
    assert f"allow {action} to you" in wrong.text


@pytest.mark.parametrize("typed", [{"launcher": "local"}, {"launcher": "simulated"}, {"instance_type": "local"}])
def test_nothing_of_aws_is_looked_at_for_local_and_simulated_jobs(aws: Aws, typed: dict[str, str]) -> None:
    (checks,) = findings(**typed)

    assert checks.verdict is Verdict.PASSED
    assert aws.count() == 0


def test_with_expired_credentials_the_rest_is_told_all_the_same(aws: Aws) -> None:
    aws.refuse("GetCallerIdentity", "ExpiredToken", "The security token included in the request is expired", times=9)

    checks = findings(**ACCOUNT)

    (wrong,) = [finding for finding in checks if finding.verdict is Verdict.FAILED]
    assert wrong.subject == "credentials"
    assert "aws sso login" in wrong.commands
    assert subjects(checks, Verdict.NOT_CHECKED) == ["role", "bucket", "permissions"]
    assert subjects(checks, Verdict.PASSED) == ["region"]


def test_role_and_bucket_that_are_wrong_are_told_together(aws: Aws) -> None:
    aws.iam.roles.clear()
    aws.deny("s3:ListBucket")

    checks = findings(instance_type="ml.g5.xlarge", **ACCOUNT)

    assert subjects(checks, Verdict.FAILED) == ["role", "bucket"]
    assert all(finding.commands for finding in checks if finding.verdict is Verdict.FAILED)


def test_the_paid_job_is_small_and_keeps_account_and_data() -> None:
    account = {"role": "Trainer", "sagemaker.s3_bucket": "models", "region": "us-east-1", "tags": '{"team": "search"}'}
    large = {"instance_type": "ml.p4d.24xlarge", "instance_count": "4", "spot": "true", "max_cost_usd": "500"}
    large |= {"sagemaker.keep_alive_minutes": "60"}
    typed = {**account, **large, "paid": "true", "model": "some/model", "num_train_epochs": "9"}
    job = paid_job(DoctorRequest.from_text(typed, {}).spec)

    assert (job.role, job.region, job.sagemaker.s3_bucket, job.tags) == (
        *("Trainer", "us-east-1", "models"),
        {"team": "search"},
    )
    assert (job.model, job.spot, job.num_train_epochs, job.max_cost_usd) == ("some/model", False, 1, 0.5)
    assert (job.instance_type, job.instance_count, job.sagemaker.keep_alive_minutes) == ("ml.m5.large", 1, 0)
    assert admit(job, PriceList.read({}).price("ml.m5.large", "us-east-1"), 300.0) is not None  # fits 0.50 USD
