"""Checks of an AWS account before a job costs anything: credentials, role, bucket, network and quotas.

What an identity may not ask (many may not simulate policies or list quotas) is left to CreateTrainingJob itself.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from paretune.core.checks import Finding, failed, faults_of, not_checked, passed
from paretune.core.errors import BadInput
from paretune.launchers.sagemaker import images
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain
from paretune.launchers.sagemaker.network import network_findings
from paretune.specification.catalog import unknown_type
from paretune.specification.job import JobSpec
from paretune.specification.placement import Placement

TYPE, ROLE, BUCKET, QUOTAS, IMAGE = "type", "role", "bucket", "quotas", "image"
_SERVICE = "sagemaker.amazonaws.com"
_FOR_SAGEMAKER = {
    "ContextKeyName": "iam:PassedToService",
    "ContextKeyType": "string",
    "ContextKeyValues": [_SERVICE],
}
_TRUST = {"Effect": "Allow", "Principal": {"Service": _SERVICE}, "Action": "sts:AssumeRole"}
_VERSION = "2012-10-17"  # of the language of policies


def account_faults(cluster: Placement, account: Account, *, installed: Sequence[str] = ()) -> list[str]:
    """Why the account cannot run a job on this cluster; empty if it can, as far as can be asked.

    `installed` names what pip installs when the job starts.

    Raises:
        LaunchRefused: AWS does not answer, or does not accept the credentials.
    """
    account.identity  # noqa: B018  # raises
    return faults_of(
        [
            *type_findings(cluster, account),
            *pass_findings(account),
            *bucket_findings(account),
            *network_findings(cluster, account, installed),
            *quota_findings(cluster, account),
        ]
    )


def subnet_findings(spec: JobSpec, account: Account) -> Iterator[Finding]:
    """Whether the job's subnets, if it has any, reach S3 and the packages that pip has to install."""
    installed: Sequence[str] = ()
    with suppress(ValueError):  # a missing image is a finding of its own
        installed = images.choose(spec, account.region, direct=False).requirements
    yield from network_findings(spec, account, installed)


def type_findings(cluster: Placement, account: Account) -> Iterator[Finding]:
    """Types in `instance_facts` that CreateTrainingJob does not take, according to the installed botocore."""
    described = [name for name in cluster.instance_types() if name in cluster.instance_facts]
    if not described:
        return
    possible = account.client("sagemaker").meta.service_model.shape_for("TrainingInstanceType").enum
    for name in described:
        if name not in possible:
            yield failed(TYPE, f"{unknown_type(name, possible)}; `pip install --upgrade boto3` may know newer ones")


def pass_findings(account: Account) -> Iterator[Finding]:
    """Whether a role is set, and whether the caller may pass it to SageMaker."""
    try:
        role = account.role_arn
    except BadInput as error:
        yield from (failed(ROLE, fault) for fault in error.faults)
        return
    caller = account.identity["Arn"]
    if ":assumed-role/" in caller:  # policies are simulated for the role behind a session
        caller = f"arn:{account.partition}:iam::{account.identity['Account']}:role/{caller.split('/')[1]}"
    try:
        answer = account.client("iam").simulate_principal_policy(
            PolicySourceArn=caller, ActionNames=["iam:PassRole"], ResourceArns=[role], ContextEntries=[_FOR_SAGEMAKER]
        )
    except AWS_ERRORS as error:  # the identity may not ask, or the caller is the account itself
        yield not_checked(ROLE, f"whether {caller} may pass {role}: {explain(error, 'simulate its policies')}")
        return
    if any(result["EvalDecision"] != "allowed" for result in answer["EvaluationResults"]):
        yield failed(
            ROLE,
            f"{account.identity['Arn']} may not pass the role {role} to SageMaker: add iam:PassRole for it to your "
            f"own policy (docs/sagemaker.md has it), such as by `{_allow_passing(caller, role)}`",
        )
    else:
        yield passed(ROLE, f"{caller} may pass {role} to SageMaker")


def _allow_passing(caller: str, role: str) -> str:
    """The command with which an administrator allows a user or a role to pass `role` to SageMaker."""
    kind = "role" if ":role/" in caller else "user"
    allowed = {"Effect": "Allow", "Action": "iam:PassRole", "Resource": role}
    allowed["Condition"] = {"StringEquals": {"iam:PassedToService": _SERVICE}}  # type: ignore[assignment]
    return (
        f"aws iam put-{kind}-policy --{kind}-name {caller.rpartition('/')[2]} --policy-name paretune-pass-role "
        f"--policy-document '{_policy([allowed])}'"
    )


def trust_finding(account: Account) -> Finding:
    """Whether the role exists and SageMaker may assume it. Needs iam:GetRole, which no launch needs.

    Raises:
        BadInput: no role is set.
    """
    role = account.role_arn
    name = role.rpartition("/")[2]
    if role.split(":")[4] != account.identity["Account"]:
        return not_checked(ROLE, f"{role} belongs to another account than yours, {account.identity['Account']}")
    try:
        details = account.client("iam").get_role(RoleName=name)["Role"]
    except AWS_ERRORS as error:
        if code(error) != "NoSuchEntity":
            return not_checked(ROLE, f"whether SageMaker may assume {role}: {explain(error, 'read the role')}")
        return failed(
            ROLE,
            f"role {role} does not exist: set role to an existing one (`aws iam list-roles` shows them), or create it "
            f"with `aws iam create-role --role-name {name} --assume-role-policy-document '{_policy([_TRUST])}'` and "
            "give it the second policy of docs/sagemaker.md",
        )
    statements = _statements(details.get("AssumeRolePolicyDocument"))
    if not any(_trusts_sagemaker(statement) for statement in statements):
        return failed(
            ROLE,
            f"role {role} must trust {_SERVICE}, or no job can use it: allow that with `aws iam "
            f"update-assume-role-policy --role-name {name} --policy-document '{_policy([*statements, _TRUST])}'`",
        )
    return passed(ROLE, f"{role} exists and trusts {_SERVICE}")


def _policy(statements: list[Any]) -> str:
    return json.dumps({"Version": _VERSION, "Statement": statements})


def _statements(policy: Any) -> list[Any]:
    """The statements of a policy, which may have one without a list."""
    statements = policy.get("Statement", []) if isinstance(policy, Mapping) else []
    return list(statements) if isinstance(statements, list) else [statements]


def _trusts_sagemaker(statement: Mapping[str, Any]) -> bool:
    principal = statement.get("Principal", {})
    services = principal.get("Service", []) if isinstance(principal, Mapping) else [principal]
    actions = statement.get("Action", [])
    is_allowed = {"sts:AssumeRole", "sts:*", "*"} & set([actions] if isinstance(actions, str) else actions)
    is_named = {_SERVICE, "*"} & set([services] if isinstance(services, str) else services)
    return statement.get("Effect") == "Allow" and bool(is_allowed) and bool(is_named)


def bucket_findings(account: Account) -> Iterator[Finding]:
    """Whether the bucket exists, in the region of the jobs, and belongs to this account."""
    bucket, fault = account.bucket, ""
    try:
        answer = account.client("s3").head_bucket(Bucket=bucket)
    except AWS_ERRORS as error:
        if code(error) in {"404", "NoSuchBucket"}:
            yield _missing_bucket(account)
            return
        hint = "set bucket to one that `aws s3 ls` shows, or leave it out"
        answer, fault = getattr(error, "response", {}), f"{explain(error, account.use_of_bucket)}: {hint}"
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = answer.get("BucketRegion") or headers.get("x-amz-bucket-region", "")
    if region and region != account.region:
        yield failed(
            BUCKET,
            f"bucket {bucket} is in {region}, the job would run in {account.region}: use a bucket of the same region",
        )
    elif fault:
        yield failed(BUCKET, fault)
    else:
        yield passed(BUCKET, f"{bucket} in {account.region} belongs to account {account.identity['Account']}")


def _missing_bucket(account: Account) -> Finding:
    bucket, region = account.bucket, account.region
    if bucket == account.default_bucket:
        return passed(BUCKET, f"{bucket} does not exist yet: the first job creates it")
    return failed(
        BUCKET,
        f"bucket {bucket} does not exist: create it in {region}, or leave bucket out: "
        f"`aws s3 mb s3://{bucket} --region {region}`",
    )


def quota_findings(cluster: Placement, account: Account, besides: Collection[str] = ()) -> Iterator[Finding]:
    """Whether each quota that the job uses is sufficient, and one finding with the quotas of the types `besides`."""
    usage = f"{'spot ' if cluster.spot else ''}training job usage"
    # The instances of a training plan are reserved already.
    clusters = [each for each in cluster.clusters() if each.training_plan is None]
    needed = {f"{each.instance_type} for {usage}": each.instance_count for each in clusters}
    if cluster.keep_alive_minutes:
        needed[f"{cluster.instance_type} for training warm pool usage"] = cluster.instance_count
    others = {f"{name} for {usage}": name for name in besides}
    try:
        quotas = _quotas(account, {*needed, *others})
    except AWS_ERRORS as error:  # the identity may not ask; CreateTrainingJob will tell
        yield not_checked(QUOTAS, explain(error, "list the quotas of SageMaker"))
        return
    for name, count in needed.items():
        yield _compared(name, quotas.get(name), count, account)
    values = [f"{name} {quotas[quota]['Value']:g}" for quota, name in others.items() if quota in quotas]
    if values:
        yield passed(QUOTAS, f"of others for {usage}: {', '.join(values)}")


def _compared(name: str, quota: Mapping[str, Any] | None, count: int, account: Account) -> Finding:
    """Whether a quota is sufficient for `count` instances; `quota` is None if AWS lists none with that name."""
    if quota is None:
        return not_checked(QUOTAS, f"AWS lists no quota {name!r} in {account.region}")
    if quota["Value"] >= count:
        return passed(QUOTAS, f"{name} in {account.region}: {quota['Value']:g}, and the job needs {count}")
    return failed(
        QUOTAS,
        f"quota {name!r} in {account.region} is {quota['Value']:g} and the job needs {count}: ask for more "
        "with `aws service-quotas request-service-quota-increase --service-code sagemaker "
        f"--quota-code {quota['QuotaCode']} --desired-value {count} --region {account.region}`, or take "
        "another instance_type",
    )


def _quotas(account: Account, names: set[str]) -> dict[str, dict[str, Any]]:
    """The quotas with these names; the list is read no further than needed."""
    quotas: dict[str, dict[str, Any]] = {}
    pages = account.client("service-quotas").get_paginator("list_service_quotas")
    for page in pages.paginate(ServiceCode="sagemaker", PaginationConfig={"PageSize": 100}):
        quotas |= {quota["QuotaName"]: quota for quota in page["Quotas"] if quota["QuotaName"] in names}
        if len(quotas) == len(names):
            break
    return quotas


def image_findings(spec: JobSpec, region: str) -> list[Finding]:
    """Whether there is an image for strategy, instance type and region. Makes no call to AWS."""
    faults = images.faults(spec, region)
    if faults:
        return [failed(IMAGE, fault) for fault in faults]
    uri = images.choose(spec, region, direct=False).uri
    return [passed(IMAGE, f"{uri.rpartition('/')[2]} for {spec.strategy} on {spec.instance_type} in {region}")]
