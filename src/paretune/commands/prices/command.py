"""The command `prices`: the known prices of a region, read anew from AWS if asked for."""

from dataclasses import dataclass

from paretune.commands.command import command_of, imported_later
from paretune.core.errors import BadInput
from paretune.specification.parameters import check, parameter
from paretune.specification.regions import region_faults

ALL = "all"  # value of `region` that reads the prices of every region


@dataclass(frozen=True, kw_only=True)
class PricesRequest:
    """The prices to show, and whether to read them anew; raises BadInput with all faults at once."""

    region: str | None = parameter(
        None,
        "AWS region, or with refresh `all`; by default the profile's, AWS_REGION, AWS_DEFAULT_REGION, else us-east-1",
    )
    instance_type: str | None = parameter(None, "types to show, comma-separated; all that are known by default")
    refresh: bool = parameter(False, "read today's prices of SageMaker Training from AWS into the cache")
    price_source: str = parameter(
        "auto",
        "api: Pricing API, needs credentials; bulk: public file, needs none; auto: the API if it may be asked",
        choices=("auto", "api", "bulk"),
    )

    def __post_init__(self) -> None:
        faults = check(self) + ([] if self.region == ALL else region_faults(self.region))
        if self.region == ALL and not self.refresh:
            faults.append("region=all goes with refresh=true, which reads every region: a table shows one of them")
        if faults:
            raise BadInput(faults)


COMMAND = command_of(PricesRequest, "prices", imported_later("paretune.commands.prices.run:run_prices"))
