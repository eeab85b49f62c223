"""The command `prices`: the known prices of a region, read anew from AWS if asked for."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from paretune.commands.command import command_of, imported_later
from paretune.specification.parameters import Fault, Parameters, Rules, parameter
from paretune.specification.regions import region_faults

ALL = "all"  # value of `region` that reads the prices of every region


class PricesRequest(Parameters):
    """The prices to show, and whether to read them anew; raises BadInput with all faults at once."""

    region: str | None = parameter(
        None,
        "AWS region, or with refresh `all`; by default the profile's, AWS_REGION, AWS_DEFAULT_REGION, else us-east-1",
    )
    instance_type: str | None = parameter(None, "types to show, comma-separated; all that are known by default")
    refresh: bool = parameter(False, "read today's prices of SageMaker Training from AWS into the cache")
    price_source: Literal["auto", "api", "bulk"] = parameter(
        "auto", "api: Pricing API, needs credentials; bulk: public file, needs none; auto: the API if it may be asked"
    )

    listed_by: ClassVar[str] = "prices"
    rules: ClassVar[Rules] = (lambda request: _region(request),)


def _region(request: PricesRequest) -> Iterator[Fault]:
    if request.region == ALL and not request.refresh:
        text = "region=all goes with refresh=true, which reads every region: a table shows one of them"
        yield Fault(("region",), text)
    for text in [] if request.region == ALL else region_faults(request.region):
        yield Fault(("region",), text)


COMMAND = command_of(PricesRequest, imported_later("paretune.commands.prices.run:run_prices"))
