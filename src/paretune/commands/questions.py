"""What the commands that launch nothing are asked: their parameters, checked."""

from dataclasses import dataclass

from paretune.errors import BadInput
from paretune.parameters import check, parameter
from paretune.regions import REGIONS, region_fault


@dataclass(frozen=True, kw_only=True)
class PricesRequest:
    """Which prices to show, and whether to read them anew.

    Raises:
        BadInput: with all faults at once.
    """

    region: str | None = parameter(
        None, "AWS region; by default the profile's, AWS_REGION, AWS_DEFAULT_REGION, else us-east-1"
    )
    instance_type: str | None = parameter(None, "types to show, comma-separated; all that are known by default")
    refresh: bool = parameter(False, "read today's prices of SageMaker Training from AWS into the cache")
    price_source: str = parameter(
        "auto",
        "api: Pricing API, needs credentials; bulk: public file, needs none; auto: the API if it may be asked",
        choices=("auto", "api", "bulk"),
    )

    def __post_init__(self) -> None:
        faults = check(self)
        if self.region is not None and self.region not in REGIONS:
            faults.append(region_fault("region", self.region))
        if faults:
            raise BadInput(faults)

    def instance_types(self) -> list[str]:
        """The types that were named, in their order."""
        return names(self.instance_type)


def names(text: str | None) -> list[str]:
    """The parts of a comma-separated text."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]
