"""Checks the permissions of launcher and job role with IAM (SimulatePrincipalPolicy) before a job costs anything.

The tables are the policies of docs/sagemaker.md; a test compares the two. What an identity may not ask is no fault.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paretune.core.checks import Finding, failed, not_checked, passed
from paretune.launchers.sagemaker import images
from paretune.launchers.sagemaker.account import PREFIX, Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain
from paretune.launchers.sagemaker.polling import GROUP
from paretune.specification.job import JobSpec

PERMISSIONS = "permissions"
SERVICE = "sagemaker.amazonaws.com"
_VERSION = "2012-10-17"  # of the language of policies
_NETWORK = (
    *("CreateNetworkInterface", "CreateNetworkInterfacePermission", "DeleteNetworkInterface"),
    *("DeleteNetworkInterfacePermission", "DescribeDhcpOptions", "DescribeNetworkInterfaces"),
    *("DescribeSecurityGroups", "DescribeSubnets", "DescribeVpcs"),
)
_PASSED_TO_SAGEMAKER = {
    "ContextKeyName": "iam:PassedToService",
    "ContextKeyType": "string",
    "ContextKeyValues": [SERVICE],
}


@dataclass(frozen=True)
class Statement:
    """Actions that an identity needs on one resource, an ARN or "*"."""

    service: str
    actions: Sequence[str]
    resource: str = "*"

    @property
    def names(self) -> list[str]:
        """The actions with their service, such as s3:GetObject."""
        return [f"{self.service}:{action}" for action in self.actions]


def launcher_statements(spec: JobSpec, account: Account) -> Iterator[Statement]:
    """The permissions to launch a job: the first and third documented policy, as far as `spec` uses them."""
    jobs = _arn(account, "sagemaker", "training-job/paretune-check")
    bucket = f"arn:{account.partition}:s3:::{account.bucket}"
    yield Statement("sagemaker", [f"{verb}TrainingJob" for verb in ("Create", "Describe", "Stop", "Update")], jobs)
    yield Statement("sagemaker", ["AddTags"], jobs)
    yield Statement("sagemaker", ["ListTrainingJobs"])
    yield Statement("servicequotas", ["ListServiceQuotas"])
    yield Statement(
        "iam", ["GetRole", "SimulatePrincipalPolicy"], account.role_arn
    )  # PassRole: preflight.pass_findings
    yield Statement("s3", ["ListBucket", "GetBucketPolicy"], bucket)
    objects = f"{bucket}/{PREFIX}/check"
    yield Statement("s3", ["GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload"], objects)
    yield Statement("logs", ["DescribeLogStreams", "GetLogEvents"], _log_stream(account))
    if spec.sagemaker.kms_key_id:
        yield Statement("kms", ["Decrypt", "GenerateDataKey"], _key(spec.sagemaker.kms_key_id, account))
    if spec.sagemaker.subnets:
        yield Statement("ec2", ["DescribeSubnets", "DescribeRouteTables", "DescribeVpcEndpoints"])


def role_statements(spec: JobSpec, account: Account) -> Iterator[Statement]:
    """The permissions of the role of jobs: the second documented policy, as far as `spec` uses it."""
    bucket = f"arn:{account.partition}:s3:::{account.bucket}"
    yield Statement("s3", ["ListBucket"], bucket)
    yield Statement("s3", ["GetObject", "PutObject", "AbortMultipartUpload"], f"{bucket}/{PREFIX}/check")
    writing = ["CreateLogGroup", "CreateLogStream", "DescribeLogStreams", "PutLogEvents"]
    yield Statement("logs", writing, _log_stream(account))
    yield Statement("cloudwatch", ["PutMetricData"])
    yield Statement("ecr", ["GetAuthorizationToken"])
    reading = ["BatchCheckLayerAvailability", "BatchGetImage", "GetDownloadUrlForLayer"]
    yield Statement("ecr", reading, _repository(spec, account))
    if spec.sagemaker.kms_key_id:
        actions = ["CreateGrant", "Decrypt", "Encrypt", "GenerateDataKey"]
        yield Statement("kms", actions, _key(spec.sagemaker.kms_key_id, account))
    if spec.sagemaker.subnets:
        yield Statement("ec2", _NETWORK)


def permission_findings(spec: JobSpec, account: Account) -> Iterator[Finding]:
    """For launcher and job role each documented action: it may, it may not, or that could not be asked."""
    launcher = launcher_statements(spec, account)
    yield from _findings("launcher", account.caller_arn, launcher, account)
    yield from role_findings(spec, account)


def role_findings(spec: JobSpec, account: Account, without: Collection[str] = ()) -> Iterator[Finding]:
    """The same for the job role alone, leaving out the services in `without`."""
    statements = (each for each in role_statements(spec, account) if each.service not in without)
    yield from _findings("job role", account.role_arn, statements, account)


def _findings(who: str, identity: str, statements: Iterator[Statement], account: Account) -> Iterator[Finding]:
    allowed: list[str] = []
    unknown: dict[str, list[str]] = {}
    for statement in statements:
        try:
            decisions = simulate(account, identity, statement)
        except AWS_ERRORS as error:
            reason = explain(error, f"simulate the policies of {identity}")
            unknown.setdefault(reason, []).extend(statement.names)
            continue
        allowed += [name for name, decision in decisions.items() if decision == "allowed"]
        denied = {name: decision for name, decision in decisions.items() if decision != "allowed"}
        if denied and "explicitDeny" not in denied.values() and (reason := _other_policy(statement, account)):
            unknown.setdefault(reason, []).extend(denied)
        elif denied:
            names, command = ", ".join(denied), allow_command(identity, list(denied), statement.resource)
            yield failed(
                PERMISSIONS, f"{who} {identity} may not {names} on {statement.resource}: allow it, `{command}`"
            )
    for reason, unasked in unknown.items():
        yield not_checked(PERMISSIONS, f"whether the {who} may {', '.join(unasked)}: {reason}")
    if allowed:
        yield passed(PERMISSIONS, f"{who} {identity} may {', '.join(allowed)}")


def simulate(account: Account, identity: str, statement: Statement) -> dict[str, str]:
    """IAM's decision for each action: allowed, implicitDeny or explicitDeny."""
    resources = {} if statement.resource == "*" else {"ResourceArns": [statement.resource]}
    answer = account.client("iam").simulate_principal_policy(
        PolicySourceArn=identity, ActionNames=statement.names, ContextEntries=[_PASSED_TO_SAGEMAKER], **resources
    )
    return {result["EvalActionName"]: result["EvalDecision"] for result in answer["EvaluationResults"]}


def allow_command(identity: str, actions: Sequence[str], resource: str) -> str:
    """The command with which an administrator allows actions to a user or a role."""
    kind = "role" if ":role/" in identity else "user"
    allowed: dict[str, Any] = {"Effect": "Allow", "Action": actions[0] if len(actions) == 1 else list(actions)}
    allowed["Resource"] = resource.replace(f"{PREFIX}/check", f"{PREFIX}/*").replace("-check", "-*")
    if "iam:PassRole" in actions:
        allowed["Condition"] = {"StringEquals": {"iam:PassedToService": SERVICE}}
    name = re.sub("(?<!^)(?=[A-Z])", "-", actions[0].partition(":")[2]).lower()
    return (
        f"aws iam put-{kind}-policy --{kind}-name {identity.rpartition('/')[2]} --policy-name paretune-{name} "
        f"--policy-document '{policy_text([allowed])}'"
    )


def policy_text(statements: list[Any]) -> str:
    """A policy of IAM as JSON, as the AWS command line takes it."""
    return json.dumps({"Version": _VERSION, "Statement": statements})


def _other_policy(statement: Statement, account: Account) -> str:
    """A policy of the resource that may allow what the identity's own do not; "" if there is none."""
    if statement.service == "kms":
        return "IAM does not allow it, and the key's own policy, which may, cannot be simulated"
    if statement.service != "s3":
        return ""
    try:
        account.client("s3").get_bucket_policy(Bucket=account.bucket)
    except AWS_ERRORS as error:
        return "" if code(error) in {"NoSuchBucketPolicy", "NoSuchBucket"} else explain(error, "read the bucket policy")
    return f"IAM does not allow it, and the policy of bucket {account.bucket} may"


def _repository(spec: JobSpec, account: Account) -> str:
    try:
        uri = images.choose(spec, account.region).uri
    except ValueError:  # a missing image is a finding of its own
        return "*"
    registry, _, name = uri.partition("/")
    parts = registry.split(".")
    if not name or parts[1:3] != ["dkr", "ecr"]:
        return "*"
    repository = name.partition("@")[0].partition(":")[0]
    return f"arn:{account.partition}:ecr:{parts[3]}:{parts[0]}:repository/{repository}"


def _key(key: str, account: Account) -> str:
    if key.startswith("arn:"):
        return key
    return _arn(account, "kms", key if key.startswith("alias/") else f"key/{key}")


def _log_stream(account: Account) -> str:
    return _arn(account, "logs", f"log-group:{GROUP}:log-stream:paretune-check")


def _arn(account: Account, service: str, resource: str) -> str:
    return f"arn:{account.partition}:{service}:{account.region}:{account.identity['Account']}:{resource}"
