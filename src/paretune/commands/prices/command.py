"""The command `prices`: the known prices of a region, read anew from AWS if asked for."""

from paretune.commands.command import Command, help_lines, reader_of, switches_of
from paretune.commands.prices.request import PricesRequest
from paretune.core.result import CommandOutput


def _run(request: PricesRequest) -> CommandOutput:
    from paretune.commands.prices.run import run_prices  # MLflow takes a second to import

    return run_prices(request)


COMMAND = Command(
    read=reader_of(PricesRequest, "prices"),
    run=_run,
    parameters=help_lines(PricesRequest),
    switches=switches_of(PricesRequest),
)
