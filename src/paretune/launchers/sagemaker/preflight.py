"""Checks of an AWS account before a job costs anything: credentials, role, bucket, network and quotas.

What an identity may not ask (many may not simulate policies or list quotas) is left to CreateTrainingJob itself.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from paretune.core.checks import Finding, failed, faults_of, not_checked, passed
from paretune.core.errors import BadInput
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, message
from paretune.launchers.sagemaker.permissions import Statement, allow_command, role_findings, simulate
from paretune.specification.catalog import unknown_type
from paretune.specification.job import JobSpec

TYPE, ROLE, BUCKET, NETWORK, QUOTAS = "type", "role", "bucket", "network", "quotas"
_DISPENSABLE = {"cloudwatch"}  # services without which a job still trains


def account_faults(cluster: JobSpec, account: Account, *, installed: Sequence[str] = ()) -> list[str]:
    """The reasons why the account cannot run a job on this cluster; empty if it can, as far as can be asked.

    `installed` names what pip installs when the job starts.

    Raises:
        LaunchRefused: AWS does not answer, or does not accept the credentials.
    """
    account.identity  # noqa: B018  # raises
    return faults_of(
        [
            *type_findings(cluster, account),
            *pass_findings(account),
            *job_role_findings(cluster, account),
            *bucket_findings(account),
            *network_findings(cluster, account, installed),
            *quota_findings(cluster, account),
        ]
    )


def type_findings(cluster: JobSpec, account: Account) -> Iterator[Finding]:
    """Types that CreateTrainingJob does not take, according to the installed botocore."""
    possible = account.client("sagemaker").meta.service_model.shape_for("TrainingInstanceType").enum
    for name in cluster.instance_types():
        if name not in possible:
            yield failed(TYPE, f"{unknown_type(name, possible)}; `pip install --upgrade boto3` may know newer ones")


def pass_findings(account: Account) -> Iterator[Finding]:
    """Whether a role is set, and whether the caller may pass it to SageMaker."""
    try:
        role = account.role_arn
    except BadInput as error:
        yield from (failed(ROLE, fault) for fault in error.faults)
        return
    caller = account.caller_arn
    try:
        decisions = simulate(account, caller, Statement("iam", ["PassRole"], role))
    except AWS_ERRORS as error:  # the identity may not ask, or the caller is the account itself
        yield not_checked(ROLE, f"whether {caller} may pass {role}: {explain(error, 'simulate its policies')}")
        return
    if any(decision != "allowed" for decision in decisions.values()):
        yield failed(
            ROLE,
            f"{account.identity['Arn']} may not pass the role {role} to SageMaker: add iam:PassRole for it to your "
            f"own policy (docs/sagemaker.md has it), such as by `{allow_command(caller, ['iam:PassRole'], role)}`",
        )
    else:
        yield passed(ROLE, f"{caller} may pass {role} to SageMaker")


def job_role_findings(spec: JobSpec, account: Account) -> Iterator[Finding]:
    """Whether the job role has the rights without which a job fails after it was created."""
    with suppress(BadInput):  # no role: a finding of its own
        if account.role_arn.split(":")[4] == account.identity["Account"]:
            yield from role_findings(spec, account, without=_DISPENSABLE)


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


def network_findings(cluster: JobSpec, account: Account, installed: Sequence[str]) -> Iterator[Finding]:
    """Whether the subnets reach S3, and a package index if the image lacks packages.

    A job has no public address there, so an internet gateway alone leads nowhere. Source: SageMaker Developer Guide,
    "Give SageMaker AI training jobs access to resources in your Amazon VPC".
    """
    subnets = cluster.sagemaker.subnets
    if not subnets:
        return
    try:
        described = account.client("ec2").describe_subnets(SubnetIds=list(subnets))["Subnets"]
        vpc_of = {entry["SubnetId"]: entry["VpcId"] for entry in described}
        routes = _routes(account, vpc_of)
        closed = [name for name in subnets if not any(map(_leads_out, routes[name]))]
        gateways = {name: [str(route.get("GatewayId", "")) for route in routes[name]] for name in closed}
        cut_off = [name for name in closed if not any(gateway.startswith("vpce-") for gateway in gateways[name])]
        reach_s3 = not cut_off or _has_s3_endpoint(account, {vpc_of[name] for name in cut_off})
    except AWS_ERRORS as error:
        if code(error).startswith("InvalidSubnetID"):
            yield failed(NETWORK, f"subnets must be subnets of {account.region}: {message(error)}")
        else:
            yield not_checked(NETWORK, explain(error, "look at the routes of the subnets"))
        return
    if not reach_s3:
        yield failed(
            NETWORK,
            f"subnets {', '.join(cut_off)} do not reach S3, where a job reads and writes: add a "
            "gateway endpoint for S3 to their route tables, or a route to a NAT gateway",
        )
    lacks_packages = bool(closed and installed) and cluster.sagemaker.package_index is None
    if reach_s3 and not lacks_packages:
        yield passed(NETWORK, f"nothing is known against the subnets {', '.join(subnets)}")
    if lacks_packages:
        yield failed(
            NETWORK,
            f"subnets {', '.join(closed)} have no route to the internet, and the job has to install "
            f"{', '.join(installed)}: give them a route to a NAT gateway, or package_index that they reach (such as "
            "CodeArtifact through its VPC endpoints), or training_image of an image that holds these packages",
        )


def _routes(account: Account, vpc_of: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """The active routes of each subnet, from its own table or the main table of its VPC."""
    routes: dict[str, list[dict[str, Any]]] = {}
    pages = account.client("ec2").get_paginator("describe_route_tables")
    for page in pages.paginate(Filters=[{"Name": "vpc-id", "Values": sorted(set(vpc_of.values()))}]):
        for table in page["RouteTables"]:
            active = [route for route in table.get("Routes", []) if route.get("State") == "active"]
            for entry in table.get("Associations", []):
                routes[table["VpcId"] if entry.get("Main") else entry.get("SubnetId", "")] = active
    return {name: routes.get(name, routes.get(vpc, [])) for name, vpc in vpc_of.items()}


def _leads_out(route: dict[str, Any]) -> bool:
    """Whether a job without a public address may reach the internet by this route."""
    is_default = route.get("DestinationCidrBlock") == "0.0.0.0/0"
    return is_default and not str(route.get("GatewayId", "")).startswith("igw-")


def _has_s3_endpoint(account: Account, vpcs: Collection[str]) -> bool:
    names = [f"com.amazonaws.{account.region}.s3", f"cn.com.amazonaws.{account.region}.s3"]
    endpoints = account.client("ec2").describe_vpc_endpoints(
        Filters=[
            {"Name": "vpc-id", "Values": sorted(vpcs)},
            {"Name": "service-name", "Values": names},
            {"Name": "vpc-endpoint-type", "Values": ["Interface"]},
        ]
    )
    return bool(endpoints["VpcEndpoints"])


def quota_findings(cluster: JobSpec, account: Account, besides: Collection[str] = ()) -> Iterator[Finding]:
    """Whether each quota that the job uses is sufficient, and one finding with the quotas of the types `besides`."""
    usage = f"{'spot ' if cluster.spot else ''}training job usage"
    clusters = cluster.clusters()
    needed = {f"{each.instance_type} for {usage}": each.instance_count for each in clusters}
    if cluster.keep_alive_minutes:
        needed[f"{cluster.instance_type} for training warm pool usage"] = cluster.instance_count
    others = {f"{name} for {usage}": name for name in besides}
    overall = f"Number of instances across all {'spot ' if cluster.spot else ''}training jobs"
    try:
        quotas = _quotas(account, {*needed, *others, overall})
    except AWS_ERRORS as error:  # the identity may not ask; CreateTrainingJob will tell
        yield not_checked(QUOTAS, explain(error, "list the quotas of SageMaker"))
        return
    if overall in quotas:
        needed[overall] = max(each.instance_count for each in clusters)
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
