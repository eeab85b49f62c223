"""Checks of an AWS account that cost nothing: role, bucket and quotas.

Only what would surely fail is a fault. What cannot be asked or decided is left to CreateTrainingJob, which says in its
own words what is missing; `doctor` shows it as not checked.
"""

from collections.abc import Iterator, Mapping
from json import dumps
from typing import Any

from paretune.core.checks import Finding, failed, faults_of, not_checked, passed
from paretune.core.errors import BadInput
from paretune.launchers.sagemaker.account import PREFIX, Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain
from paretune.specification.job import JobSpec

ROLE, BUCKET, QUOTAS = "role", "bucket", "quotas"
_SERVICE = "sagemaker.amazonaws.com"
_TRUST = {"Effect": "Allow", "Principal": {"Service": _SERVICE}, "Action": "sts:AssumeRole"}


def account_faults(cluster: JobSpec, account: Account) -> list[str]:
    """The reasons why the account surely cannot run a job on this cluster.

    Raises:
        LaunchRefused: AWS does not answer, or does not accept the credentials.
    """
    account.identity  # noqa: B018  # raises
    return faults_of([*role_findings(account), *bucket_findings(account), *quota_findings(cluster, account)])


def role_findings(account: Account) -> Iterator[Finding]:
    """Whether a role is set and exists, and SageMaker may assume it."""
    try:
        role = account.role_arn
    except BadInput as error:
        yield from (failed(ROLE, fault) for fault in error.faults)
        return
    name = role.rpartition("/")[2]
    if role.split(":")[4] != account.identity["Account"]:
        yield not_checked(ROLE, f"{role} belongs to another account than yours, {account.identity['Account']}")
        return
    try:
        policy = account.described_role(name).get("AssumeRolePolicyDocument", {})
    except AWS_ERRORS as error:  # the identity may lack iam:GetRole, which no launch needs
        if code(error) != "NoSuchEntity":
            yield not_checked(ROLE, f"whether SageMaker may assume {role}: {explain(error, 'read the role')}")
            return
        create = f"`aws iam create-role --role-name {name} --assume-role-policy-document '{_policy([_TRUST])}'`"
        hint = f"set role to an existing one (`aws iam list-roles` shows them), or create it with {create}"
        yield failed(ROLE, f"role {role} does not exist: {hint} and give it the second policy of docs/sagemaker.md")
        return
    statements = policy.get("Statement", []) if isinstance(policy, Mapping) else []
    if any(words in dumps(statements) for words in (_SERVICE, '"*"', "NotPrincipal")):  # CreateTrainingJob knows more
        yield passed(ROLE, f"{role} exists and trusts {_SERVICE}")
        return
    allow = f"update-assume-role-policy --role-name {name} --policy-document '{_policy([*statements, _TRUST])}'"
    yield failed(ROLE, f"role {role} must trust {_SERVICE}, or no job can use it: allow that with `aws iam {allow}`")


def _policy(statements: list[Any]) -> str:
    return dumps({"Version": "2012-10-17", "Statement": statements})


def bucket_findings(account: Account) -> Iterator[Finding]:
    """Whether the bucket exists, in the region of the jobs, and belongs to this account."""
    bucket, region, s3 = account.bucket, account.region, account.client("s3")
    error: Exception | None = None
    try:
        answer = s3.head_bucket(Bucket=bucket)
    except AWS_ERRORS as refusal:
        answer, error = getattr(refusal, "response", {}), refusal
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    actual = answer.get("BucketRegion") or headers.get("x-amz-bucket-region") or region
    is_missing = error is not None and code(error) in {"404", "NoSuchBucket"}
    if is_missing and bucket == account.default_bucket:
        yield passed(BUCKET, f"{bucket} does not exist yet: the first job creates it")
    elif is_missing:
        make = f"`aws s3 mb s3://{bucket} --region {region}`"
        hint = f"create it in {region}, or leave sagemaker.s3_bucket out: {make}"
        yield failed(BUCKET, f"bucket {bucket} does not exist: {hint}")
    elif actual != region:
        rule = f"the job would run in {region}: use a bucket of the same region"
        yield failed(BUCKET, f"bucket {bucket} is in {actual}, {rule}")
    else:
        try:  # HeadBucket may be denied where our own prefix may be listed
            s3.list_objects_v2(Bucket=bucket, Prefix=f"{PREFIX}/", MaxKeys=1)
            yield passed(BUCKET, f"{bucket} in {region} belongs to account {account.identity['Account']}")
        except AWS_ERRORS as refusal:
            hint = "set sagemaker.s3_bucket to one that `aws s3 ls` shows, or leave it out"
            yield failed(BUCKET, f"{explain(refusal, account.use_of_bucket)}: {hint}")


def quota_findings(cluster: JobSpec, account: Account) -> Iterator[Finding]:
    """Whether each quota that the job uses is sufficient."""
    spot, clusters = "spot " if cluster.spot else "", cluster.clusters()
    needed = {f"{each.instance_type} for {spot}training job usage": each.instance_count for each in clusters}
    if cluster.keep_alive_minutes:
        needed[f"{cluster.instance_type} for training warm pool usage"] = cluster.instance_count
    overall = f"Number of instances across all {spot}training jobs"
    try:
        quotas = _quotas(account, {*needed, overall})
    except AWS_ERRORS as error:  # the identity may not ask; CreateTrainingJob will tell
        yield not_checked(QUOTAS, explain(error, "list the quotas of SageMaker"))
        return
    if overall in quotas:
        needed[overall] = max(each.instance_count for each in clusters)
    for name, count in needed.items():
        yield _compared(name, quotas.get(name), count, account.region)


def _compared(name: str, quota: Mapping[str, Any] | None, count: int, region: str) -> Finding:
    """Whether a quota is sufficient for `count` instances; `quota` is None if AWS lists none with that name."""
    if quota is None:
        return not_checked(QUOTAS, f"AWS lists no quota {name!r} in {region}")
    if quota["Value"] >= count:
        return passed(QUOTAS, f"{name} in {region}: {quota['Value']:g}, and the job needs {count}")
    return failed(
        QUOTAS,
        f"quota {name!r} in {region} is {quota['Value']:g} and the job needs {count}: ask for more "
        "with `aws service-quotas request-service-quota-increase --service-code sagemaker "
        f"--quota-code {quota['QuotaCode']} --desired-value {count} --region {region}`, or take "
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
