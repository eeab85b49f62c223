"""What `doctor` asks an AWS account, and the job that it would pay for."""

import json

import boto3
import pytest

from paretune.commands.doctor import DoctorRequest, cloud_findings, paid_job
from paretune.core.checks import Finding, Verdict
from paretune.pricing import PriceList
from tests.support.admission import admitted
from tests.support.aws_account import nothing_of_this_machine
from tests.support.stand_ins.aws import BUCKET, ROLE, Aws
from tests.support.stand_ins.sagemaker.emulator import ACCOUNT as ACCOUNT_ID
from tests.support.typed import Run

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
    assert f"allow you {action}" in wrong.text


@pytest.mark.usefixtures("workplace")
def test_what_newcomers_lack_to_launch_is_named_with_the_policy_and_ends_the_command_with_2(
    aws: Aws, typed: Run
) -> None:
    for action in ("sagemaker:CreateTrainingJob", "iam:PassRole"):
        aws.deny(action)

    code, out, _ = typed("doctor", "--role", ROLE, "--sagemaker.s3_bucket", BUCKET, "--json")

    assert code == 2
    checks = {finding["text"]: finding for finding in json.loads(out)["checks"] if finding["verdict"] == "wrong"}
    statements = [json.loads(text[text.index("{") :]) for text in checks]
    assert [statement["Action"] for statement in statements] == ["sagemaker:CreateTrainingJob", "iam:PassRole"]
    assert statements[0]["Resource"].endswith(":training-job/paretune-*")
    assert statements[1]["Resource"] == ROLE
    assert statements[1]["Condition"] == {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
    assert aws.count("CreateTrainingJob") == 0


def test_what_iam_cannot_decide_is_not_checked(aws: Aws) -> None:
    aws.deny("iam:SimulatePrincipalPolicy")
    unasked = [finding for finding in findings(**ACCOUNT) if finding.verdict is Verdict.NOT_CHECKED]
    aws._denied = {"sagemaker:CreateTrainingJob"}
    aws.conditions = ["aws:RequestTag/team"]
    undecided = [finding for finding in findings(**ACCOUNT) if finding.verdict is Verdict.NOT_CHECKED]

    assert [finding.text.split(":")[1].split()[0] for finding in unasked] == ["CreateTrainingJob", "PassRole"]
    assert ["aws:RequestTag/team" in finding.text for finding in undecided] == [True]


def test_without_a_role_it_is_not_checked_whether_one_may_be_passed(aws: Aws) -> None:
    checks = findings(**{"sagemaker.s3_bucket": BUCKET})

    assert subjects(checks, Verdict.FAILED) == ["role"]
    (permission,) = [finding for finding in checks if finding.subject == "permissions"]
    assert (permission.verdict, permission.text) == (Verdict.NOT_CHECKED, "iam:PassRole: needs a role first")


def test_a_role_that_somebody_has_assumed_is_asked_for_by_its_own_arn(aws: Aws) -> None:
    aws.arn = f"arn:aws:sts::{ACCOUNT_ID}:assumed-role/Trainer/ada"

    findings(**ACCOUNT)

    assert {call.parameters["PolicySourceArn"] for call in aws.of("SimulatePrincipalPolicy")} == {ROLE}


@pytest.mark.parametrize(
    ("quotas", "verdict", "words"),
    [
        ({"ml.g5.xlarge for training job usage": 0.0}, Verdict.FAILED, "is 0, and the job needs 2"),
        ({"ml.g5.xlarge for training job usage": 2.0}, Verdict.PASSED, "is 2, and the job needs 2"),
        ({"ml.g5.xlarge for spot training job usage": 9.0}, Verdict.NOT_CHECKED, "AWS lists no quota"),
    ],
)
def test_the_quota_of_a_named_type_is_looked_up(
    aws: Aws, quotas: dict[str, float], verdict: Verdict, words: str
) -> None:
    aws.quotas = quotas

    (finding,) = [
        each
        for each in findings(instance_type="ml.g5.xlarge", instance_count="2", **ACCOUNT)
        if each.subject == "quotas"
    ]

    assert finding.verdict is verdict
    assert words in finding.text
    if verdict is Verdict.FAILED:
        (command,) = finding.commands
        assert "request-service-quota-increase --service-code sagemaker --quota-code L-0 --desired-value 2" in command


def test_who_may_not_list_quotas_learns_that_they_are_not_checked(aws: Aws) -> None:
    aws.refuse("ListServiceQuotas", "AccessDeniedException", "not authorized: servicequotas:ListServiceQuotas")

    (finding,) = [each for each in findings(instance_type="ml.g5.xlarge", **ACCOUNT) if each.subject == "quotas"]

    assert finding.verdict is Verdict.NOT_CHECKED


@pytest.mark.parametrize("typed", [{"launcher": "local"}, {"launcher": "simulated"}, {"instance_type": "local"}])
def test_nothing_of_aws_is_looked_at_for_local_and_simulated_jobs(aws: Aws, typed: dict[str, str]) -> None:
    (checks,) = findings(**typed)

    assert checks.verdict is Verdict.PASSED
    assert aws.count() == 0


def test_with_expired_credentials_the_rest_is_still_reported(aws: Aws) -> None:
    aws.refuse("GetCallerIdentity", "ExpiredToken", "The security token included in the request is expired", times=9)

    checks = findings(**ACCOUNT)

    (wrong,) = [finding for finding in checks if finding.verdict is Verdict.FAILED]
    assert wrong.subject == "credentials"
    assert "aws sso login" in wrong.commands
    assert subjects(checks, Verdict.NOT_CHECKED) == ["role", "bucket", "permissions"]
    assert subjects(checks, Verdict.PASSED) == ["region"]


def test_role_and_bucket_that_are_wrong_are_reported_together(aws: Aws) -> None:
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
    assert admitted(job, PriceList.read({}).price("ml.m5.large", "us-east-1"), 300.0) is not None  # fits 0.50 USD


def test_the_paid_job_reads_the_data_as_the_request_does() -> None:
    typed = {"paid": "true", "task": "multi-label", "missing_rows": "drop", "max_train_samples": "9000"}
    job = paid_job(DoctorRequest.from_text(typed, {}).spec)

    assert (job.task, job.missing_rows, job.max_train_samples) == ("multi-label", "drop", 64)


PLAN = f"arn:aws:sagemaker:us-east-1:{ACCOUNT_ID}:training-plan/autumn"


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({}, Verdict.PASSED, "with 4 free instances of ml.p5.48xlarge; sagemaker.training_plan_usd_per_hour=31.25 is"),
        ({"AvailableInstanceCount": 1}, Verdict.FAILED, "the job needs 2 of ml.p5.48xlarge in an active plan"),
        ({"Status": "Expired"}, Verdict.FAILED, f"{PLAN} is Expired"),
        (
            {"ReservedCapacitySummaries": [{"InstanceType": "ml.p4d.24xlarge"}]},
            Verdict.FAILED,
            "the job needs 2 of ml.p5",
        ),
    ],
)
def test_a_training_plan_is_checked_for_its_instances_and_its_price(
    aws: Aws, changes: dict[str, object], verdict: Verdict, words: str
) -> None:
    capacity = {"ReservedCapacitySummaries": [{"InstanceType": "ml.p5.48xlarge"}]}
    fee = {"UpfrontFee": "3000", "CurrencyCode": "USD", "DurationHours": 24, "TotalInstanceCount": 4}
    aws.plans["autumn"] = {"Status": "Active", "AvailableInstanceCount": 4, **capacity, **fee, **changes}

    checks = findings(
        instance_type="ml.p5.48xlarge", instance_count="2", **{"sagemaker.training_plan": PLAN}, **ACCOUNT
    )

    (finding,) = [each for each in checks if each.subject == "training plan"]
    assert finding.verdict is verdict
    assert words in finding.text


def test_the_security_group_of_several_instances_must_allow_its_own_members(aws: Aws) -> None:
    ec2 = boto3.Session("testing", "testing").client("ec2", region_name="us-east-1")
    (network,) = ec2.describe_vpcs()["Vpcs"]
    group = ec2.create_security_group(GroupName="jobs", Description="jobs", VpcId=network["VpcId"])["GroupId"]
    (subnet, *_) = ec2.describe_subnets()["Subnets"]
    typed = {"sagemaker.security_group_ids": group, "sagemaker.subnets": subnet["SubnetId"], **ACCOUNT}

    def of_network(count: str) -> list[Finding]:
        checks = findings(instance_type="ml.g5.xlarge", instance_count=count, **typed)
        return [each for each in checks if each.subject == "network"]

    (finding,) = of_network("2")
    assert finding.verdict is Verdict.FAILED
    assert "aws ec2 authorize-security-group-ingress --group-id" in finding.text
    assert of_network("1") == []
    ec2.authorize_security_group_ingress(
        GroupId=group, IpPermissions=[{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    )
    (finding,) = of_network("2")
    assert finding.verdict is Verdict.PASSED
