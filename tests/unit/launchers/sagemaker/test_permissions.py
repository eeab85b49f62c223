"""What launcher and job role may do, asked of IAM for every action that the documented policies name."""

import json
import re
from pathlib import Path

import pytest

from paretune.core.checks import Finding, Verdict
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.permissions import launcher_statements, permission_findings, role_statements
from paretune.specification.job import JobSpec
from tests.unit.launchers.sagemaker.aws import BUCKET, ROLE, Aws, Sts

PAGE = Path(__file__).parents[4] / "docs" / "sagemaker.md"
USED = {"role": ROLE, "sagemaker.s3_bucket": BUCKET, "instance_type": "ml.g5.xlarge"}
EVERYTHING = JobSpec(
    role=ROLE,
    instance_type="ml.g5.xlarge",
    sagemaker={"s3_bucket": BUCKET, "kms_key_id": "key-1", "subnets": "subnet-1", "security_group_ids": "sg-1"},
)


def documented() -> list[set[str]]:
    """The actions of each policy on the page: launcher, job role, the rest of launcher and role."""
    policies = re.findall(r"```json\n(\{\n  \"Version\".*?)\n```", PAGE.read_text(), re.DOTALL)
    statements = [json.loads(policy)["Statement"] for policy in policies]
    names = [
        [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        for policy in statements
        for statement in policy
    ]
    ends = [len(policy) for policy in statements]
    return [
        {name for part in names[sum(ends[:index]) : sum(ends[: index + 1])] for name in part}
        for index in range(len(ends))
    ]


def findings(spec: JobSpec) -> list[Finding]:
    return list(permission_findings(spec, Account(spec, {})))


def asked(aws: Aws, identity: str) -> set[str]:
    calls = [call.parameters for call in aws.of("SimulatePrincipalPolicy")]
    return {action for call in calls if call["PolicySourceArn"] == identity for action in call["ActionNames"]}


def test_every_action_of_the_documented_policies_is_asked_and_no_other(aws: Aws) -> None:
    launcher, role, launcher_besides, role_besides = documented()
    findings(EVERYTHING)

    assert asked(aws, Sts.arn) | {"iam:PassRole"} == launcher | launcher_besides
    assert asked(aws, ROLE) == role | role_besides


def test_on_an_account_that_allows_all_nothing_is_left_unasked(aws: Aws) -> None:
    verdicts = {finding.verdict for finding in findings(EVERYTHING)}

    assert verdicts == {Verdict.PASSED}


def test_each_action_is_named_as_allowed_denied_or_not_asked(aws: Aws) -> None:
    aws.iam.denied |= {(Sts.arn, "logs:GetLogEvents"), (ROLE, "s3:PutObject")}
    denied = [finding for finding in findings(JobSpec(**USED)) if finding.verdict is Verdict.FAILED]

    assert [finding.text.split(" on ")[0] for finding in denied] == [
        f"launcher {Sts.arn} may not logs:GetLogEvents",
        f"job role {ROLE} may not s3:PutObject",
    ]
    assert denied[1].commands[0].startswith("aws iam put-role-policy --role-name Trainer")
    assert f'"Resource": "arn:aws:s3:::{BUCKET}/paretune/*"' in denied[1].commands[0]

    aws.refuse("SimulatePrincipalPolicy", "AccessDenied", "not you", times=99)
    unasked = findings(JobSpec(**USED))
    assert {finding.verdict for finding in unasked} == {Verdict.NOT_CHECKED}
    spec = JobSpec(**USED)
    account = Account(spec, {})
    for statement in (*launcher_statements(spec, account), *role_statements(spec, account)):
        assert all(any(name in finding.text for finding in unasked) for name in statement.names)


def test_a_key_s_own_policy_may_allow_what_iam_does_not(aws: Aws) -> None:
    aws.iam.denied.add((ROLE, "kms:Decrypt"))

    (unknown,) = [finding for finding in findings(EVERYTHING) if finding.verdict is not Verdict.PASSED]

    assert unknown.verdict is Verdict.NOT_CHECKED
    assert "whether the job role may kms:Decrypt" in unknown.text


@pytest.mark.parametrize(("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")])
def test_resources_lie_in_the_partition_of_the_region(aws: Aws, region: str, partition: str) -> None:
    spec = JobSpec(
        role=ROLE, sagemaker={"s3_bucket": BUCKET, "kms_key_id": "k"}, instance_type="ml.g5.xlarge", region=region
    )
    account = Account(spec, {})

    for statement in (*launcher_statements(spec, account), *role_statements(spec, account)):
        assert statement.resource in {"*", ROLE} or statement.resource.startswith(f"arn:{partition}:")
