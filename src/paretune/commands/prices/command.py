"""Reads the command `prices`: the known prices of a region, read anew from AWS if asked for."""

from typing import ClassVar

from paretune.commands.command import command_of, imported_later
from paretune.specification.catalog import region_faults
from paretune.specification.parameters import Fault, Parameters, Rules, parameter


class PricesRequest(Parameters):
    """The prices to show, and whether to read them anew; raises BadInput with all faults at once."""

    region: str | None = parameter(
        None, "AWS region; by default the profile's, AWS_REGION, AWS_DEFAULT_REGION, else us-east-1"
    )
    instance_type: str | None = parameter(None, "types to show, comma-separated; all that are known by default")
    refresh: bool = parameter(
        False, "first read today's prices of SageMaker Training from AWS's Pricing API (pricing:GetProducts)"
    )

    listed_by: ClassVar[str] = "prices"
    rules: ClassVar[Rules] = (lambda it: (Fault(("region",), text) for text in region_faults(it.region)),)


COMMAND = command_of(PricesRequest, imported_later("paretune.commands.prices.prices:run_prices"))
