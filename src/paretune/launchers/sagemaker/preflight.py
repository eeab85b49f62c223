"""Everything that can be asked of an AWS account before the first cent: all faults at once.

What an identity may not ask (many may not simulate policies or list quotas) is left to CreateTrainingJob itself.
"""

from collections.abc import Iterator
from typing import Any

from paretune.core.errors import BadInput
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain
from paretune.spec.catalog import unknown_type
from paretune.spec.cluster import Cluster

_FOR_SAGEMAKER = {
    "ContextKeyName": "iam:PassedToService",
    "ContextKeyType": "string",
    "ContextKeyValues": ["sagemaker.amazonaws.com"],
}


def account_faults(cluster: Cluster, account: Account) -> list[str]:
    """What credentials, role, bucket and quotas have against this cluster.

    Raises:
        LaunchRefused: AWS does not answer, or does not know us: nothing else can be asked then.
    """
    account.identity  # noqa: B018  # raises; the first thing to ask
    return [
        *_type_faults(cluster, account),
        *_role_faults(account),
        *_bucket_faults(account),
        *_quota_faults(cluster, account),
    ]


def _type_faults(cluster: Cluster, account: Account) -> Iterator[str]:
    """Types of `instance_facts` that CreateTrainingJob does not take, as the installed botocore knows it."""
    described = [name for name in cluster.instance_types() if name in cluster.instance_facts]
    if not described:
        return
    possible = account.client("sagemaker").meta.service_model.shape_for("TrainingInstanceType").enum
    for name in described:
        if name not in possible:
            yield f"{unknown_type(name, possible)}; `pip install --upgrade boto3` may know newer ones"


def _role_faults(account: Account) -> Iterator[str]:
    try:
        role = account.role_arn
    except BadInput as error:
        yield from error.faults
        return
    caller = account.identity["Arn"]
    if ":assumed-role/" in caller:  # policies are simulated for the role behind a session
        caller = f"arn:{account.partition}:iam::{account.identity['Account']}:role/{caller.split('/')[1]}"
    try:
        answer = account.client("iam").simulate_principal_policy(
            PolicySourceArn=caller, ActionNames=["iam:PassRole"], ResourceArns=[role], ContextEntries=[_FOR_SAGEMAKER]
        )
    except AWS_ERRORS:
        return  # may not be asked, or the caller is the account itself
    if any(result["EvalDecision"] != "allowed" for result in answer["EvaluationResults"]):
        yield (
            f"{account.identity['Arn']} may not pass the role {role} to SageMaker: add iam:PassRole for it to your "
            "own policy (the README has it)"
        )


def _bucket_faults(account: Account) -> Iterator[str]:
    bucket, fault = account.bucket, ""
    try:
        answer = account.client("s3").head_bucket(Bucket=bucket)
    except AWS_ERRORS as error:
        if code(error) in {"404", "NoSuchBucket"}:
            if bucket != account.default_bucket:
                yield f"bucket {bucket} does not exist: create it in {account.region}, or leave bucket out"
            return
        answer, fault = getattr(error, "response", {}), explain(error, account.use_of_bucket)
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = answer.get("BucketRegion") or headers.get("x-amz-bucket-region", "")
    if region and region != account.region:
        yield f"bucket {bucket} is in {region}, the job would run in {account.region}: use a bucket of the same region"
    elif fault:
        yield fault


def _quota_faults(cluster: Cluster, account: Account) -> Iterator[str]:
    usage = f"{'spot ' if cluster.spot else ''}training job usage"
    wanted = {f"{name} for {usage}": cluster.instance_count for name in cluster.instance_types()}
    if cluster.keep_alive_minutes:
        wanted[f"{cluster.instance_type} for training warm pool usage"] = cluster.instance_count
    try:
        found = _quotas(account, set(wanted))
    except AWS_ERRORS:
        return  # may not be asked; CreateTrainingJob will tell
    for name, count in wanted.items():
        quota = found.get(name)
        if quota is not None and quota["Value"] < count:
            yield (
                f"quota {name!r} in {account.region} is {quota['Value']:g} and the job needs {count}: ask for more "
                "with `aws service-quotas request-service-quota-increase --service-code sagemaker "
                f"--quota-code {quota['QuotaCode']} --desired-value {count} --region {account.region}`, or take "
                "another instance_type"
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
