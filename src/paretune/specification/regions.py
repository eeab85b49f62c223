"""AWS regions that have SageMaker, so that a misspelt region is an error and not an unknown price."""

from collections.abc import Mapping

from paretune.core.errors import did_you_mean, refuse

# Source: botocore 1.44.5, endpoints of SageMaker in the partitions aws, aws-us-gov and aws-cn (read 2026-11-20).
REGIONS = frozenset(
    {
        *("af-south-1", "ap-east-1", "ap-east-2", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1"),
        *("ap-south-2", "ap-southeast-1", "ap-southeast-2", "ap-southeast-3", "ap-southeast-4", "ap-southeast-5"),
        *("ap-southeast-6", "ap-southeast-7", "ca-central-1", "ca-west-1", "eu-central-1", "eu-central-2"),
        *("eu-north-1", "eu-south-1", "eu-south-2", "eu-west-1", "eu-west-2", "eu-west-3", "il-central-1"),
        *("me-central-1", "me-south-1", "mx-central-1", "sa-east-1"),
        *("us-east-1", "us-east-2", "us-west-1", "us-west-2"),
        *("us-gov-east-1", "us-gov-west-1", "cn-north-1", "cn-northwest-1"),
    }
)
USUAL = "us-east-1"  # the region whose prices are used if the user names none


def usual_region(named: str | None, environment: Mapping[str, str]) -> str:
    """The region without AWS: `named`, AWS_REGION, AWS_DEFAULT_REGION or us-east-1; raises BadInput."""
    region = named or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or USUAL
    refuse(region_faults(region))
    return region


def region_faults(region: str | None) -> list[str]:
    """One fault if the region does not exist or has no SageMaker."""
    if region is None or region in REGIONS:
        return []
    hint = did_you_mean(region, sorted(REGIONS)) or "such as us-east-1"
    return [f"region must be an AWS region that has SageMaker, got {region!r}: {hint}"]
