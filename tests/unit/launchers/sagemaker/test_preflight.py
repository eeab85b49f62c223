"""What is asked of an account before the first cent."""

import json
import re

import pytest

from paretune.core.checks import Verdict
from paretune.core.errors import LaunchRefused
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.preflight import account_faults, quota_findings
from paretune.specification.job import JobSpec
from tests.unit.launchers.sagemaker.aws import ACCOUNT, BUCKET, ROLE, Aws, Sts, error

CLUSTER = JobSpec(role=ROLE, sagemaker={"s3_bucket": BUCKET}, instance_type="ml.g5.xlarge", instance_count=4)
USAGE = "ml.g5.xlarge for training job usage"


def faults(cluster: JobSpec = CLUSTER) -> list[str]:
    return account_faults(cluster, Account(cluster, {}))


def test_nothing_stands_against_a_job_that_is_allowed_everything(aws: Aws) -> None:
    aws.quotas.values = {USAGE: 4, "something else": 0}

    assert faults() == []
    assert aws.count("PutObject", "CreateBucket", "CreateTrainingJob") == 0


def test_all_faults_come_at_once(aws: Aws) -> None:
    aws.iam.decision = "implicitDeny"
    aws.s3.buckets.clear()
    aws.quotas.values = {USAGE: 1, "x": 0}

    messages = faults()

    assert len(messages) == 3
    assert f"may not pass the role {ROLE} to SageMaker: add iam:PassRole" in messages[0]
    assert f"bucket {BUCKET} does not exist: create it in us-east-1, or leave bucket out" in messages[1]
    assert f"quota '{USAGE}' in us-east-1 is 1 and the job needs 4" in messages[2]
    code = f"L-{len(USAGE):04d}"
    assert (
        "`aws service-quotas request-service-quota-increase --service-code sagemaker "
        f"--quota-code {code} --desired-value 4 --region us-east-1`"
    ) in messages[2]


@pytest.mark.parametrize("operation", ["SimulatePrincipalPolicy", "ListServiceQuotas"])
@pytest.mark.parametrize("code", ["AccessDenied", "NoSuchEntity", "Throttling"])
def test_not_being_allowed_to_ask_is_no_fault(aws: Aws, operation: str, code: str) -> None:
    aws.refuse(operation, code, times=9)

    assert faults() == []


@pytest.mark.parametrize("code", ["InvalidClientTokenId", "ExpiredToken"])
def test_without_an_identity_nothing_else_is_asked(aws: Aws, code: str) -> None:
    aws.refuse("GetCallerIdentity", code, times=9)

    with pytest.raises(LaunchRefused):
        faults()

    assert aws.count() == 1


def test_a_bucket_of_another_region_is_a_fault_however_s3_tells_it(aws: Aws) -> None:
    expected = f"bucket {BUCKET} is in eu-west-1, the job would run in us-east-1: use a bucket of the same region"
    aws.s3.buckets[BUCKET] = "eu-west-1"
    assert faults() == [expected]

    elsewhere = {"BucketRegion": "eu-west-1", "ResponseMetadata": {"HTTPHeaders": {}}}
    aws.s3.head_bucket = lambda **_: elsewhere  # type: ignore[method-assign]
    assert faults() == [expected]


def test_a_bucket_that_may_not_be_used_is_a_fault(aws: Aws) -> None:
    aws.refuse("HeadBucket", error("403", "Forbidden", 403))

    use = f"use the bucket {BUCKET}, which must belong to account {ACCOUNT}"
    custom = "set bucket to one that `aws s3 ls` shows, or leave it out"
    assert faults() == [f"AWS does not allow this identity to {use}: Forbidden: {custom}"]


def test_a_default_bucket_that_is_not_there_yet_is_no_fault(aws: Aws) -> None:
    assert faults(JobSpec(role=ROLE, instance_type="ml.g5.xlarge")) == []


def test_a_missing_role_is_a_fault_beside_the_others(aws: Aws) -> None:
    aws.s3.buckets.clear()

    messages = faults(JobSpec(sagemaker={"s3_bucket": BUCKET}, instance_type="ml.g5.xlarge"))

    assert len(messages) == 2
    assert messages[0].startswith("role must be set")


def test_the_role_of_a_notebook_that_cannot_be_read_is_a_fault(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sts, "arn", f"arn:aws:sts::{ACCOUNT}:assumed-role/AmazonSageMaker-Role/SageMaker")
    aws.refuse("GetRole", "AccessDenied", "no iam:GetRole", times=9)

    (messages,) = faults(JobSpec(sagemaker={"s3_bucket": BUCKET}, instance_type="ml.g5.xlarge"))

    assert "read the execution role of this notebook; set role" in messages


def test_an_assumed_role_is_asked_about_as_the_role_behind_it(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sts, "arn", f"arn:aws:sts::{ACCOUNT}:assumed-role/Scientist/ada")

    faults()

    request = aws.of("SimulatePrincipalPolicy")[0]
    assert request.parameters["PolicySourceArn"] == f"arn:aws:iam::{ACCOUNT}:role/service-role/Scientist"
    assert request.parameters["ResourceArns"] == [ROLE]


@pytest.mark.parametrize(
    ("changes", "quota"),
    [
        ({}, "ml.g5.xlarge for training job usage"),
        ({"spot": True}, "ml.g5.xlarge for spot training job usage"),
        ({"keep_alive_minutes": 5.0}, "ml.g5.xlarge for training warm pool usage"),
        ({"fallback_instance_types": "ml.g6.xlarge"}, "ml.g6.xlarge for training job usage"),
    ],
)
def test_each_quota_that_the_job_uses_is_compared(aws: Aws, changes: dict[str, object], quota: str) -> None:
    everything = [
        f"{name} for {use}"
        for name in ("ml.g5.xlarge", "ml.g6.xlarge")
        for use in ("training job usage", "spot training job usage", "training warm pool usage")
    ]
    aws.quotas.values = {name: 3 if name == quota else 20 for name in everything}
    cluster = JobSpec(
        role=ROLE, sagemaker={"s3_bucket": BUCKET}, instance_type="ml.g5.xlarge", instance_count=4, **changes
    )  # type: ignore[arg-type]

    (messages,) = faults(cluster)

    assert f"quota '{quota}'" in messages


def test_an_unknown_quota_is_no_fault(aws: Aws) -> None:
    aws.quotas.values = {"ml.m5.large for training job usage": 0, "x": 0}

    assert faults() == []


INSIDE = CLUSTER.replace(sagemaker={"subnets": "subnet-1,subnet-2", "security_group_ids": "sg-1"})
LOCAL = {"DestinationCidrBlock": "10.0.0.0/16", "GatewayId": "local"}
NAT = {"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1"}
INTERNET = {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1"}
TRANSIT = {"DestinationCidrBlock": "0.0.0.0/0", "TransitGatewayId": "tgw-1"}
S3 = {"DestinationPrefixListId": "pl-1", "GatewayId": "vpce-1"}
NO_S3, NO_INDEX = "do not reach S3", "have no route to the internet"


def in_subnets(cluster: JobSpec = INSIDE, installed: tuple[str, ...] = ("transformers==5.3.0",)) -> list[str]:
    return account_faults(cluster, Account(cluster, {}), installed=installed)


@pytest.mark.parametrize(
    ("routes", "parts"),
    [
        ([LOCAL, NAT], []),
        ([LOCAL, TRANSIT], []),
        ([LOCAL, S3], [NO_INDEX]),
        ([LOCAL, INTERNET, S3], [NO_INDEX]),  # the job has no public address
        ([LOCAL, INTERNET], [NO_S3, NO_INDEX]),
        ([LOCAL, {**NAT, "State": "blackhole"}], [NO_S3, NO_INDEX]),
        ([LOCAL], [NO_S3, NO_INDEX]),
    ],
)
def test_subnets_that_lead_nowhere_are_refused_before_the_job_costs(
    aws: Aws, routes: list[dict[str, str]], parts: list[str]
) -> None:
    aws.ec2.main = routes

    result = in_subnets()

    assert len(result) == len(parts)
    assert all(part in fault for part, fault in zip(parts, result, strict=True))
    assert all("subnets subnet-1, subnet-2" in fault and ": " in fault for fault in result)


def test_a_table_of_a_subnet_s_own_comes_before_the_main_one_and_each_subnet_is_judged(aws: Aws) -> None:
    aws.ec2.main, aws.ec2.own = [LOCAL, NAT], {"subnet-2": [LOCAL, S3]}

    (fault,) = in_subnets()

    assert "subnets subnet-2 have no route" in fault
    assert "install transformers==5.3.0" in fault
    assert "package_index" in fault
    assert "training_image" in fault


def test_what_needs_no_index_or_has_one_is_no_fault(aws: Aws) -> None:
    aws.ec2.main = [LOCAL, S3]

    assert in_subnets(installed=()) == []
    assert in_subnets(INSIDE.replace(sagemaker={"package_index": "https://packages.example.com/simple"})) == []


def test_an_interface_endpoint_is_a_way_to_s3(aws: Aws) -> None:
    aws.ec2.main, aws.ec2.endpoints = [LOCAL], [{"VpcEndpointId": "vpce-2"}]

    assert in_subnets(installed=()) == []


@pytest.mark.parametrize("operation", ["DescribeSubnets", "DescribeRouteTables", "DescribeVpcEndpoints"])
def test_a_network_that_may_not_be_looked_at_is_left_to_the_job(aws: Aws, operation: str) -> None:
    aws.refuse(operation, "UnauthorizedOperation", times=9)

    assert in_subnets() == []


def test_a_subnet_that_is_not_there_is_a_fault(aws: Aws) -> None:
    (fault,) = in_subnets(INSIDE.replace(sagemaker={"subnets": "subnet-9", "security_group_ids": "sg-1"}))

    assert fault == "subnets must be subnets of us-east-1: The subnet ID 'subnet-9' does not exist"


def test_a_job_without_subnets_asks_nothing_of_the_network(aws: Aws) -> None:
    assert account_faults(CLUSTER, Account(CLUSTER, {}), installed=("x",)) == []
    assert aws.count("DescribeSubnets") == 0


def test_the_command_that_lets_a_user_pass_the_role_names_both(aws: Aws) -> None:
    aws.iam.decision = "implicitDeny"

    (messages,) = faults()

    (command,) = re.findall("`(.*)`", messages)
    assert command.startswith("aws iam put-user-policy --user-name ada --policy-name paretune-pass-role ")
    policy = json.loads(command.rpartition("--policy-document ")[2].strip("'"))
    assert policy["Statement"][0]["Resource"] == ROLE


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("s3:GetObject", f"arn:aws:s3:::{BUCKET}/paretune/"),
        ("s3:ListBucket", f"arn:aws:s3:::{BUCKET}"),
        ("ecr:BatchGetImage", "arn:aws:ecr:us-east-1:763104351884:repository/huggingface-pytorch-training"),
        ("logs:PutLogEvents", f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:/aws/sagemaker/TrainingJobs"),
    ],
)
def test_a_job_role_without_a_right_that_the_job_needs_is_a_fault(aws: Aws, action: str, resource: str) -> None:
    aws.iam.denied.add((ROLE, action))

    (messages,) = faults()

    assert messages.startswith(f"job role {ROLE} may not {action} on {resource}")
    assert "`aws iam put-role-policy --role-name Trainer" in messages


def test_a_policy_of_the_bucket_may_allow_what_the_role_s_own_do_not(aws: Aws) -> None:
    aws.iam.denied.add((ROLE, "s3:GetObject"))
    aws.s3.policy = "{}"

    assert faults() == []


def test_metrics_that_the_job_role_may_not_write_are_no_fault(aws: Aws) -> None:
    aws.iam.denied.add((ROLE, "cloudwatch:PutMetricData"))

    assert faults() == []


@pytest.mark.parametrize(("spot", "kind"), [(False, "training"), (True, "spot training")])
def test_the_quota_over_all_jobs_is_compared_where_aws_lists_it(aws: Aws, spot: bool, kind: str) -> None:
    name = f"Number of instances across all {kind} jobs"
    aws.quotas.values = {USAGE: 9, "ml.g5.xlarge for spot training job usage": 9, name: 3}

    (messages,) = faults(CLUSTER.replace(spot=spot))

    assert f"quota '{name}' in us-east-1 is 3 and the job needs 4" in messages


def test_quotas_that_the_job_does_not_use_are_shown_and_no_fault(aws: Aws) -> None:
    aws.quotas.values = {USAGE: 4, "ml.m5.large for training job usage": 0, "x": 0}

    custom, others = quota_findings(CLUSTER, Account(CLUSTER, {}), ["ml.m5.large", "ml.p4d.24xlarge"])

    assert (custom.verdict, custom.text) == (Verdict.PASSED, f"{USAGE} in us-east-1: 4, and the job needs 4")
    assert (others.verdict, others.text) == (Verdict.PASSED, "of others for training job usage: ml.m5.large 0")
