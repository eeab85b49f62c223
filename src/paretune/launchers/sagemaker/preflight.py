"""Everything that can be asked of an AWS account before the first cent: all faults at once.

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
    """What credentials, role, bucket, network and quotas have against this cluster.

    `installed` is what pip has to fetch when the job starts.

    Raises:
        LaunchRefused: AWS does not answer, or does not know us: nothing else can be asked then.
    """
    account.identity  # noqa: B018  # raises; the first thing to ask
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
    """Whether the job's subnets, if it is given any, reach S3 and what pip has to install."""
    installed: Sequence[str] = ()
    with suppress(ValueError):  # there is no image, which is told as such
        installed = images.choose(spec, account.region, direct=False).requirements
    yield from network_findings(spec, account, installed)


def type_findings(cluster: Placement, account: Account) -> Iterator[Finding]:
    """Types of `instance_facts` that CreateTrainingJob does not take, as the installed botocore knows it."""
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
    except AWS_ERRORS as error:  # may not be asked, or the caller is the account itself
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
    """The command with which an administrator lets a user or a role pass `role` to SageMaker."""
    kind = "role" if ":role/" in caller else "user"
    allowed = {"Effect": "Allow", "Action": "iam:PassRole", "Resource": role}
    allowed["Condition"] = {"StringEquals": {"iam:PassedToService": _SERVICE}}  # type: ignore[assignment]
    return (
        f"aws iam put-{kind}-policy --{kind}-name {caller.rpartition('/')[2]} --policy-name paretune-pass-role "
        f"--policy-document '{_policy([allowed])}'"
    )


def trust_finding(account: Account) -> Finding:
    """Whether the role of the jobs exists, and SageMaker may assume it. Asks for iam:GetRole, which no launch needs.

    Raises:
        BadInput: no role is set.
    """
    role = account.role_arn
    name = role.rpartition("/")[2]
    if role.split(":")[4] != account.identity["Account"]:
        return not_checked(ROLE, f"{role} belongs to another account than yours, {account.identity['Account']}")
    try:
        found = account.client("iam").get_role(RoleName=name)["Role"]
    except AWS_ERRORS as error:
        if code(error) != "NoSuchEntity":
            return not_checked(ROLE, f"whether SageMaker may assume {role}: {explain(error, 'read the role')}")
        return failed(
            ROLE,
            f"role {role} does not exist: set role to one that does (`aws iam list-roles` shows them), or create it "
            f"with `aws iam create-role --role-name {name} --assume-role-policy-document '{_policy([_TRUST])}'` and "
            "give it the second policy of docs/sagemaker.md",
        )
    statements = _statements(found.get("AssumeRolePolicyDocument"))
    if not any(_trusts_sagemaker(statement) for statement in statements):
        return failed(
            ROLE,
            f"role {role} must trust {_SERVICE}, or no job can take it: let it with `aws iam "
            f"update-assume-role-policy --role-name {name} --policy-document '{_policy([*statements, _TRUST])}'`",
        )
    return passed(ROLE, f"{role} exists and trusts {_SERVICE}")


def _policy(statements: list[Any]) -> str:
    return json.dumps({"Version": _VERSION, "Statement": statements})


def _statements(policy: Any) -> list[Any]:
    """The statements of a policy, of which one may stand without a list."""
    found = policy.get("Statement", []) if isinstance(policy, Mapping) else []
    return list(found) if isinstance(found, list) else [found]


def _trusts_sagemaker(statement: Mapping[str, Any]) -> bool:
    principal = statement.get("Principal", {})
    services = principal.get("Service", []) if isinstance(principal, Mapping) else [principal]
    actions = statement.get("Action", [])
    may = {"sts:AssumeRole", "sts:*", "*"} & set([actions] if isinstance(actions, str) else actions)
    named = {_SERVICE, "*"} & set([services] if isinstance(services, str) else services)
    return statement.get("Effect") == "Allow" and bool(may) and bool(named)


def bucket_findings(account: Account) -> Iterator[Finding]:
    """Whether the bucket is there, in the region of the jobs, and of this account."""
    bucket, fault = account.bucket, ""
    try:
        answer = account.client("s3").head_bucket(Bucket=bucket)
    except AWS_ERRORS as error:
        if code(error) in {"404", "NoSuchBucket"}:
            yield _missing_bucket(account)
            return
        own = "set bucket to one that `aws s3 ls` shows, or leave it out"
        answer, fault = getattr(error, "response", {}), f"{explain(error, account.use_of_bucket)}: {own}"
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
        return passed(BUCKET, f"{bucket} is not there yet: the first job creates it")
    return failed(
        BUCKET,
        f"bucket {bucket} does not exist: create it in {region}, or leave bucket out: "
        f"`aws s3 mb s3://{bucket} --region {region}`",
    )


def quota_findings(cluster: Placement, account: Account, besides: Collection[str] = ()) -> Iterator[Finding]:
    """Whether each quota that the job uses is sufficient; then, in one finding, those of the types `besides`."""
    usage = f"{'spot ' if cluster.spot else ''}training job usage"
    # The instances of a training plan are reserved already.
    paid = [one for one in cluster.clusters() if one.training_plan is None]
    wanted = {f"{one.instance_type} for {usage}": one.instance_count for one in paid}
    if cluster.keep_alive_minutes:
        wanted[f"{cluster.instance_type} for training warm pool usage"] = cluster.instance_count
    others = {f"{name} for {usage}": name for name in besides}
    try:
        found = _quotas(account, {*wanted, *others})
    except AWS_ERRORS as error:  # may not be asked; CreateTrainingJob will tell
        yield not_checked(QUOTAS, explain(error, "list the quotas of SageMaker"))
        return
    for name, count in wanted.items():
        yield _compared(name, found.get(name), count, account)
    values = [f"{name} {found[quota]['Value']:g}" for quota, name in others.items() if quota in found]
    if values:
        yield passed(QUOTAS, f"of others for {usage}: {', '.join(values)}")


def _compared(name: str, quota: Mapping[str, Any] | None, count: int, account: Account) -> Finding:
    """Whether a quota, None if AWS lists none of that name, is sufficient for `count` instances."""
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
    """The quotas of these names; the list is read no further than needed."""
    found: dict[str, dict[str, Any]] = {}
    pages = account.client("service-quotas").get_paginator("list_service_quotas")
    for page in pages.paginate(ServiceCode="sagemaker", PaginationConfig={"PageSize": 100}):
        found |= {quota["QuotaName"]: quota for quota in page["Quotas"] if quota["QuotaName"] in names}
        if len(found) == len(names):
            break
    return found


def image_findings(spec: JobSpec, region: str) -> list[Finding]:
    """Whether there is an image for strategy, instance type and region; asks nothing of AWS."""
    faults = images.faults(spec, region)
    if faults:
        return [failed(IMAGE, fault) for fault in faults]
    uri = images.choose(spec, region, direct=False).uri
    return [passed(IMAGE, f"{uri.rpartition('/')[2]} for {spec.strategy} on {spec.instance_type} in {region}")]
