"""Everything that can be asked of an AWS account before the first cent: all faults at once.

What an identity may not ask (many may not simulate policies or list quotas) is left to CreateTrainingJob itself.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from paretune.core.errors import BadInput
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, message
from paretune.spec.catalog import unknown_type
from paretune.spec.cluster import Cluster, listed

_FOR_SAGEMAKER = {
    "ContextKeyName": "iam:PassedToService",
    "ContextKeyType": "string",
    "ContextKeyValues": ["sagemaker.amazonaws.com"],
}


def account_faults(cluster: Cluster, account: Account, *, installed: Sequence[str] = ()) -> list[str]:
    """What credentials, role, bucket, network and quotas have against this cluster.

    `installed` is what pip has to fetch when the job starts.

    Raises:
        LaunchRefused: AWS does not answer, or does not know us: nothing else can be asked then.
    """
    account.identity  # noqa: B018  # raises; the first thing to ask
    return [
        *_type_faults(cluster, account),
        *_role_faults(account),
        *_bucket_faults(account),
        *_network_faults(cluster, account, installed),
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


def _network_faults(cluster: Cluster, account: Account, installed: Sequence[str]) -> Iterator[str]:
    """What the subnets cannot reach: S3, and an index of packages where the image lacks some.

    A job has no public address there, so an internet gateway alone leads nowhere. Source: SageMaker Developer Guide,
    "Give SageMaker AI training jobs access to resources in your Amazon VPC".
    """
    subnets = listed(cluster.subnets)
    if not subnets:
        return
    try:
        routes = _routes(account, subnets)
        closed = [name for name in subnets if not any(map(_leads_out, routes[name]))]
        cut_off = [name for name in closed if not any(_is_endpoint(route) for route in routes[name])]
        reach_s3 = not cut_off or _has_s3_endpoint(account, cut_off)
    except AWS_ERRORS as error:
        if code(error).startswith("InvalidSubnetID"):
            yield f"subnets must be subnets of {account.region}: {message(error)}"
        return  # may not be asked
    if not reach_s3:
        yield (
            f"subnets {', '.join(cut_off)} have no way to S3, from which a job reads and to which it writes: add a "
            "gateway endpoint for S3 to their route tables, or a route to a NAT gateway"
        )
    if closed and installed and cluster.package_index is None:
        yield (
            f"subnets {', '.join(closed)} have no route to the internet, and the job has to install "
            f"{', '.join(installed)}: give them a route to a NAT gateway, or package_index that they reach (such as "
            "CodeArtifact through its VPC endpoints), or image_uri of an image that holds these packages"
        )


def _routes(account: Account, subnets: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The active routes of each subnet: those of its own table, or of the main one of its VPC."""
    ec2 = account.client("ec2")
    vpc_of = {one["SubnetId"]: one["VpcId"] for one in ec2.describe_subnets(SubnetIds=list(subnets))["Subnets"]}
    own: dict[str, list[dict[str, Any]]] = {}
    pages = ec2.get_paginator("describe_route_tables")
    for page in pages.paginate(Filters=[{"Name": "vpc-id", "Values": sorted(set(vpc_of.values()))}]):
        for table in page["RouteTables"]:
            active = [route for route in table.get("Routes", []) if route.get("State") == "active"]
            for entry in table.get("Associations", []):
                own[table["VpcId"] if entry.get("Main") else entry.get("SubnetId", "")] = active
    return {name: own.get(name, own.get(vpc, [])) for name, vpc in vpc_of.items()}


def _leads_out(route: dict[str, Any]) -> bool:
    """Whether a job without a public address can get out by this route; what lies behind a transit gateway may."""
    is_default = route.get("DestinationCidrBlock") == "0.0.0.0/0"
    return is_default and not str(route.get("GatewayId", "")).startswith("igw-")


def _is_endpoint(route: dict[str, Any]) -> bool:
    return str(route.get("GatewayId", "")).startswith("vpce-")


def _has_s3_endpoint(account: Account, subnets: Sequence[str]) -> bool:
    """Whether the network of the subnets has an interface endpoint for S3."""
    ec2 = account.client("ec2")
    vpcs = sorted({one["VpcId"] for one in ec2.describe_subnets(SubnetIds=list(subnets))["Subnets"]})
    names = [f"com.amazonaws.{account.region}.s3", f"cn.com.amazonaws.{account.region}.s3"]
    found = ec2.describe_vpc_endpoints(
        Filters=[
            {"Name": "vpc-id", "Values": vpcs},
            {"Name": "service-name", "Values": names},
            {"Name": "vpc-endpoint-type", "Values": ["Interface"]},
        ]
    )
    return bool(found["VpcEndpoints"])


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
