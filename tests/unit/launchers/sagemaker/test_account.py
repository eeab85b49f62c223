"""The AWS identity, found where users expect it, and what is checked in an account before anything is paid."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import EndpointConnectionError

from paretune.core.checks import Finding, Verdict
from paretune.core.errors import BadInput, NoAccount
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.account_checks import account_faults, bucket_findings, role_findings
from paretune.launchers.sagemaker.storage import s3_client
from paretune.specification.job import JobSpec, SageMaker
from tests.support.stand_ins.aws import ACCOUNT, BUCKET, ROLE, Aws, error

CONFIGURED = f"arn:aws:iam::{ACCOUNT}:role/Configured"
CONFIGURATION = f"""
SchemaVersion: '1.0'
SageMaker:
  TrainingJob:
    RoleArn: '{CONFIGURED}'
    VpcConfig: {{Subnets: [subnet-0a], SecurityGroupIds: [sg-0a]}}
    OutputDataConfig: {{KmsKeyId: theirs}}
    EnableNetworkIsolation: true
    EnableInterContainerTrafficEncryption: true
    Tags: [{{Key: cost-center, Value: '7'}}, {{Key: team, Value: all}}]
  PythonSDK: {{Modules: {{Session: {{DefaultS3Bucket: configured}}}}}}
"""
ENVIRONMENT = {"PARETUNE_ROLE": "Environment", "PARETUNE_BUCKET": "environment"}


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the SageMaker SDK's own configuration file."""
    path = tmp_path / "config.yaml"
    path.write_text(CONFIGURATION)
    monkeypatch.setenv("SAGEMAKER_USER_CONFIG_OVERRIDE", str(path))
    return path


def test_what_is_typed_wins_over_everything(aws: Aws, configuration: Path) -> None:
    role = aws.add_role("Typed")
    typed = {"s3_bucket": "typed", "kms_key_id": "mine", "subnets": "subnet-1", "security_group_ids": "sg-1"}
    spec = JobSpec(role="Typed", sagemaker=typed, tags={"team": "nlp"})

    whole = spec.replace(**Account(None, ENVIRONMENT).settings(spec.role, spec.sagemaker, spec.tags))

    assert whole.role == role
    assert whole.sagemaker == spec.sagemaker.replace(network_isolation=True, encrypt_traffic=True)
    assert whole.tags == {"team": "nlp", "cost-center": "7"}


def test_what_the_administrator_s_file_of_the_sdk_sets_is_set(aws: Aws, configuration: Path) -> None:
    assert Account(None, ENVIRONMENT).settings(None, SageMaker(), {}) == {
        "role": CONFIGURED,
        "sagemaker.s3_bucket": "configured",
        "sagemaker.kms_key_id": "theirs",
        "sagemaker.subnets": ["subnet-0a"],
        "sagemaker.security_group_ids": ["sg-0a"],
        "sagemaker.network_isolation": True,
        "sagemaker.encrypt_traffic": True,
        "tags": {"cost-center": "7", "team": "all"},
    }


def test_two_keys_of_the_administrator_are_refused_since_a_job_has_one(aws: Aws, configuration: Path) -> None:
    other = "    ResourceConfig: {VolumeKmsKeyId: other}\n"
    configuration.write_text(CONFIGURATION.replace("    OutputDataConfig", f"{other}    OutputDataConfig"))

    with pytest.raises(BadInput, match=r"KmsKeyId theirs and the VolumeKmsKeyId other, .* set sagemaker\.kms_key_id"):
        Account(None, {}).settings(None, SageMaker(), {})
    assert Account(None, {}).usual(SageMaker(kms_key_id="mine"), {})["sagemaker.kms_key_id"] == "mine"


def test_a_notebook_trains_with_its_own_role_which_it_need_not_be_allowed_to_read(aws: Aws) -> None:
    name = "AmazonSageMaker-ExecutionRole-20260101T000000"
    role = aws.add_role(name)
    aws.arn = f"arn:aws:sts::{ACCOUNT}:assumed-role/{name}/SageMaker"
    for denied in (0, 1):
        aws.refuse("GetRole", "AccessDenied", times=denied)
        assert Account(None, {}).role_arn(None) == role


def test_every_request_to_s3_names_the_account_that_must_own_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    account = Account("us-east-1", {})
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
    s3.create_bucket(Bucket="models")  # whose name was still available

    owners = [request.headers.get("x-amz-expected-bucket-owner") for request in sent]
    assert owners == [ACCOUNT.encode(), ACCOUNT.encode(), ACCOUNT.encode(), None]


def test_an_endpoint_without_a_scheme_is_refused_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:4566")
    remedy = "Invalid endpoint: localhost:4566: set AWS_ENDPOINT_URL to a whole address"

    with pytest.raises(NoAccount, match=remedy):
        account_faults(CLUSTER.role, CLUSTER.sagemaker.s3_bucket, Account("us-east-1", {}))
    with pytest.raises(BadInput, match=remedy):
        s3_client(None, {})


CLUSTER = JobSpec(role=ROLE, sagemaker={"s3_bucket": BUCKET}, instance_type="ml.g5.xlarge", instance_count=4)


def faults(cluster: JobSpec = CLUSTER) -> list[str]:
    return account_faults(cluster.role, cluster.sagemaker.s3_bucket, Account(None, {}))


def test_all_faults_come_at_once(aws: Aws) -> None:
    aws.trust()
    aws.s3.delete_bucket(BUCKET)

    messages = faults()

    assert len(messages) == 2
    assert f"role {ROLE} must trust sagemaker.amazonaws.com" in messages[0]
    assert f"bucket {BUCKET} does not exist: leave sagemaker.s3_bucket out, or create it with" in messages[1]


def test_a_bucket_of_another_region_is_a_fault(aws: Aws) -> None:
    aws.s3.buckets[BUCKET].region_name = "eu-west-1"

    assert faults() == [f"bucket {BUCKET} is in eu-west-1, the job would run in us-east-1: use a bucket of that region"]


def test_a_bucket_that_may_not_be_used_is_a_fault(aws: Aws) -> None:
    aws.refuse("HeadBucket", error("403", "Forbidden", 403))
    assert faults() == []  # our own prefix may be listed

    aws.refuse("HeadBucket", error("403", "Forbidden", 403))
    aws.refuse("ListObjectsV2", error("AccessDenied", "Forbidden", 403))
    use = f"use the bucket {BUCKET}, which must belong to account {ACCOUNT}"
    custom = "set sagemaker.s3_bucket to one that `aws s3 ls` shows, or leave it out"
    assert faults() == [f"AWS does not allow this identity to {use}: Forbidden: {custom}"]


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (
            error("SlowDown", "Please reduce your request rate", 503),
            "AWS is throttling requests: try again in a minute",
        ),
        (error("InternalError", "We encountered an internal error", 500), "We encountered an internal error"),
        (EndpointConnectionError(endpoint_url="https://s3"), "AWS does not answer"),
    ],
)
def test_a_bucket_about_which_s3_does_not_answer_is_not_checked_and_no_fault(
    aws: Aws, trouble: Exception, words: str
) -> None:
    aws.refuse("ListObjectsV2", trouble, times=2)

    (result,) = bucket_findings(CLUSTER.sagemaker.s3_bucket, Account(None, {}))

    assert result.verdict is Verdict.NOT_CHECKED
    assert words in result.text
    assert "sagemaker.s3_bucket" not in result.text
    assert faults() == []


def trusted(aws: Aws, *statements: dict[str, object]) -> Finding:
    """Return the finding about a role with these statements in its trust policy."""
    aws.trust(*statements)
    (finding,) = role_findings(CLUSTER.role, Account(None, {}))
    return finding


def test_a_role_must_be_trusted_by_sagemaker(aws: Aws) -> None:
    actual = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    glue = actual | {"Principal": {"Service": "glue.amazonaws.com"}}

    for statements in ([actual], [glue, actual | {"Principal": {"Service": ["x", "sagemaker.amazonaws.com"]}}]):
        assert trusted(aws, *statements).verdict is Verdict.PASSED
    for statements in ([], [glue]):
        assert trusted(aws, *statements).verdict is Verdict.FAILED

    (command,) = trusted(aws, glue).commands
    assert command.startswith("aws iam update-assume-role-policy --role-name Trainer --policy-document ")
    policy = json.loads(command.rpartition("--policy-document ")[2].strip("'"))
    assert policy["Statement"] == [glue, actual]  # its earlier statements stay


def test_the_only_statement_of_a_role_stays_although_it_is_not_in_a_list(aws: Aws) -> None:
    glue = {"Effect": "Allow", "Principal": {"Service": "glue.amazonaws.com"}, "Action": "sts:AssumeRole"}
    aws.iam.get_role("Trainer").assume_role_policy_document = json.dumps({"Statement": glue})

    (result,) = role_findings(CLUSTER.role, Account(None, {}))

    (command,) = result.commands
    policy = json.loads(command.rpartition("--policy-document ")[2].strip("'"))
    sagemaker = glue | {"Principal": {"Service": "sagemaker.amazonaws.com"}}
    assert policy["Statement"] == [glue, sagemaker]


def test_an_arn_of_a_role_that_is_cut_off_is_refused(aws: Aws) -> None:
    (fault,) = account_faults("arn:aws:iam", BUCKET, Account(None, {}))

    assert fault.startswith("role must be the name of an IAM role or its whole ARN, such as arn:aws:iam::1234567")
    assert fault.endswith(", got arn:aws:iam")


def test_an_arn_without_the_path_of_the_role_is_answered_with_the_whole_arn(aws: Aws) -> None:
    actual = aws.add_role("Deep", "/service-role/")
    spec = CLUSTER.replace(role=f"arn:aws:iam::{ACCOUNT}:role/Deep")

    fault = f"role {spec.role} does not exist: set role to {actual}"
    assert account_faults(spec.role, spec.sagemaker.s3_bucket, Account(None, {})) == [fault]
    assert account_faults(actual, spec.sagemaker.s3_bucket, Account(None, {})) == []


def test_a_role_that_does_not_exist_is_created_by_the_command(aws: Aws) -> None:
    aws.iam.roles.clear()

    (result,) = role_findings(CLUSTER.role, Account(None, {}))

    assert result.verdict is Verdict.FAILED
    assert f"role {ROLE} does not exist" in result.text
    assert result.commands[1].startswith("aws iam create-role --role-name Trainer --assume-role-policy-document '{")
