"""Whether the subnets of a job reach S3 and a package index."""

from collections.abc import Iterator, Sequence
from typing import Any

from paretune.core.checks import Finding, failed, not_checked, passed
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, message
from paretune.specification.account import AccountSettings
from paretune.specification.parameters import split_list

NETWORK = "network"


def network_findings(cluster: AccountSettings, account: Account, installed: Sequence[str]) -> Iterator[Finding]:
    """Whether the subnets reach S3, and a package index if the image lacks packages.

    A job has no public address there, so an internet gateway alone leads nowhere. Source: SageMaker Developer Guide,
    "Give SageMaker AI training jobs access to resources in your Amazon VPC".
    """
    subnets = split_list(cluster.subnets)
    if not subnets:
        return
    try:
        routes = _routes(account, subnets)
        closed = [name for name in subnets if not any(map(_leads_out, routes[name]))]
        cut_off = [name for name in closed if not any(_is_endpoint(route) for route in routes[name])]
        reach_s3 = not cut_off or _has_s3_endpoint(account, cut_off)
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
    lacks_packages = bool(closed and installed) and cluster.package_index is None
    if reach_s3 and not lacks_packages:
        yield passed(NETWORK, f"nothing is known against the subnets {', '.join(subnets)}")
    if lacks_packages:
        yield failed(
            NETWORK,
            f"subnets {', '.join(closed)} have no route to the internet, and the job has to install "
            f"{', '.join(installed)}: give them a route to a NAT gateway, or package_index that they reach (such as "
            "CodeArtifact through its VPC endpoints), or image_uri of an image that holds these packages",
        )


def _routes(account: Account, subnets: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The active routes of each subnet, from its own table or the main table of its VPC."""
    ec2 = account.client("ec2")
    vpc_of = {entry["SubnetId"]: entry["VpcId"] for entry in ec2.describe_subnets(SubnetIds=list(subnets))["Subnets"]}
    routes: dict[str, list[dict[str, Any]]] = {}
    pages = ec2.get_paginator("describe_route_tables")
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


def _is_endpoint(route: dict[str, Any]) -> bool:
    return str(route.get("GatewayId", "")).startswith("vpce-")


def _has_s3_endpoint(account: Account, subnets: Sequence[str]) -> bool:
    """Whether the network of the subnets has an interface endpoint for S3."""
    ec2 = account.client("ec2")
    vpcs = sorted({entry["VpcId"] for entry in ec2.describe_subnets(SubnetIds=list(subnets))["Subnets"]})
    names = [f"com.amazonaws.{account.region}.s3", f"cn.com.amazonaws.{account.region}.s3"]
    endpoints = ec2.describe_vpc_endpoints(
        Filters=[
            {"Name": "vpc-id", "Values": vpcs},
            {"Name": "service-name", "Values": names},
            {"Name": "vpc-endpoint-type", "Values": ["Interface"]},
        ]
    )
    return bool(endpoints["VpcEndpoints"])
