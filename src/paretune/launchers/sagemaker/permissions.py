"""Whether policies allow what a job needs, of the one who launches it and of its role. Only `doctor` asks.

A call that has no effect, or one that is undone, is made: AWS's answer counts every policy. The others are simulated.
IAM's simulation knows no policy of a bucket or a key, and no values that only the call has. A denial that may come from
a condition on these, or from a policy of the organization, is not certain, so it is no fault.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from paretune.core.checks import Finding, failed, not_checked, passed
from paretune.core.errors import BadInput
from paretune.launchers.sagemaker.account import PREFIX, SAGEMAKER, Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_denied
from paretune.launchers.sagemaker.jobs import GROUP
from paretune.specification.job import JobSpec

PERMISSIONS = "permissions"
_NO_JOB = "paretune-doctor"  # no job has this name
_NOTHING_THERE = {"ValidationException", "ResourceNotFound", "ResourceNotFoundException", "NoSuchBucket", "NoSuchKey"}


def permission_findings(spec: JobSpec, account: Account) -> Iterator[Finding]:
    """What is denied or not known, or one finding that nothing is."""
    spec = spec.replace(**account.usual(spec))
    findings = [*_called(spec, account), *_simulated(spec, account)]
    yield from findings or [passed(PERMISSIONS, "policies allow all that a job needs, as far as nothing is launched")]


def _called(spec: JobSpec, account: Account) -> Iterator[Finding]:
    """The calls that AWS denies to the caller; the object that is written is deleted again."""
    job, there = {"TrainingJobName": _NO_JOB}, {"Bucket": account.bucket(spec), "Key": f"{PREFIX}/doctor"}
    key = spec.sagemaker.kms_key_id
    encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key} if key else {}
    calls: list[tuple[str, str, Mapping[str, Any]]] = [
        ("sagemaker", "describe_training_job", job),
        ("sagemaker", "stop_training_job", job),
        ("sagemaker", "list_training_jobs", {"NameContains": _NO_JOB}),
        ("logs", "filter_log_events", {"logGroupName": GROUP, "logStreamNamePrefix": _NO_JOB, "startTime": 0}),
        ("s3", "put_object", {**there, **encryption, "Body": b""}),
        ("s3", "get_object", there),
        ("s3", "delete_object", there),
    ]
    for service, method, parameters in calls:
        name = f"{service}:{''.join(part.capitalize() for part in method.split('_'))}"
        try:
            getattr(account.client(service), method)(**parameters)
        except AWS_ERRORS as error:
            if is_denied(error):
                allow = "allow it with the first policy of docs/sagemaker.md"
                yield failed(PERMISSIONS, f"{explain(error, f'call {name}')}: {allow}")
            elif code(error) not in _NOTHING_THERE:
                yield not_checked(PERMISSIONS, explain(error, f"call {name}"))


def _simulated(spec: JobSpec, account: Account) -> Iterator[Finding]:
    caller, region, owner = account.identity["Arn"], account.region, account.identity["Account"]
    if ":assumed-role/" in caller:
        caller = account.arn_of(caller.split("/")[1])
    partition = account.session.get_partition_for_region(region)
    jobs = f"arn:{partition}:sagemaker:{region}:{owner}:training-job/{_NO_JOB}"
    yield from _denied(spec, account, caller, jobs, ["sagemaker:CreateTrainingJob", "sagemaker:AddTags"])
    with suppress(BadInput):  # no role is set, which the check of the role says
        role, bucket = account.role_arn(spec), f"arn:{partition}:s3:::{account.bucket(spec)}"
        logs = f"arn:{partition}:logs:{region}:{owner}:log-group:{GROUP}:log-stream:{_NO_JOB}"
        yield from _denied(spec, account, caller, role, ["iam:PassRole"])
        yield from _denied(spec, account, role, bucket, ["s3:ListBucket"])
        yield from _denied(spec, account, role, f"{bucket}/{PREFIX}/doctor", ["s3:GetObject", "s3:PutObject"])
        yield from _denied(spec, account, role, logs, ["logs:CreateLogStream", "logs:PutLogEvents"])
        # IAM simulates no reading of images, which belong to an account of AWS.
        yield from _denied(spec, account, role, "*", ["ecr:GetAuthorizationToken"])


def _denied(spec: JobSpec, account: Account, identity: str, resource: str, actions: list[str]) -> Iterator[Finding]:
    """A finding for each action on a resource that IAM does not allow to an identity."""
    values = {  # of the request, which conditions of policies name
        ("iam:PassedToService", "string"): [SAGEMAKER],
        ("aws:RequestedRegion", "string"): [account.region],
        ("sagemaker:InstanceTypes", "stringList"): list(spec.instance_types()),
        ("sagemaker:VpcSubnets", "stringList"): list(spec.sagemaker.subnets),
        ("sagemaker:VpcSecurityGroupIds", "stringList"): list(spec.sagemaker.security_group_ids),
        ("sagemaker:NetworkIsolation", "boolean"): [str(spec.sagemaker.network_isolation).lower()],
        ("sagemaker:InterContainerTrafficEncryption", "boolean"): [str(spec.sagemaker.encrypt_traffic).lower()],
    }
    context = [
        {"ContextKeyName": name, "ContextKeyType": kind, "ContextKeyValues": texts}
        for (name, kind), texts in values.items()
        if texts
    ]
    try:
        answer = account.client("iam").simulate_principal_policy(
            PolicySourceArn=identity, ActionNames=actions, ResourceArns=[resource], ContextEntries=context
        )
    except AWS_ERRORS as error:
        yield not_checked(
            PERMISSIONS, f"{', '.join(actions)}: {explain(error, f'simulate the policies of {identity}')}"
        )
        return
    for result in (each for each in answer["EvaluationResults"] if each["EvalDecision"] != "allowed"):
        sentence = f"{identity} may not {result['EvalActionName']} on {resource}"
        parts = [result, *result.get("ResourceSpecificResults", [])]
        organization = result.get("OrganizationsDecisionDetail", {})
        # What no policy of the identity denies, the policy of a bucket may allow.
        is_implicit = ":s3:::" in resource and result["EvalDecision"] == "implicitDeny"
        is_open = is_implicit or not organization.get("AllowedByOrganizations", True)
        if is_open or any(part.get("MissingContextValues") for part in parts):
            yield not_checked(PERMISSIONS, f"{sentence}, unless a policy or a condition that IAM cannot see allows it")
        else:
            yield failed(PERMISSIONS, f"{sentence}: allow it with the policies of docs/sagemaker.md")
