"""The command `mcp`: a server for agents on standard input and output."""

from typing import ClassVar

from paretune.commands.command import command_of
from paretune.core.errors import BadInput
from paretune.core.result import CommandOutput
from paretune.core.untrusted import absolute, is_file
from paretune.specification.parameters import Parameters, parameter


class McpOptions(Parameters):
    """What agents may spend through this server."""

    budget: str | None = parameter(
        None, "YAML file with monthly budgets that all launches count against; without it agents may look only"
    )
    listed_by: ClassVar[str] = "mcp"


def _run(options: McpOptions) -> CommandOutput:
    """Serve until the agent disconnects; raises BadInput if the package `mcp` is not installed."""
    if options.budget is not None and not is_file(options.budget):
        raise BadInput([f"budget must name a YAML file with budgets, and {options.budget} is none"])
    try:
        from paretune.commands.mcp.server import serve  # MLflow takes a second to import

        serve(None if options.budget is None else absolute(options.budget))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        install = "python -m pip install 'paretune[mcp]'"
        raise BadInput([f"paretune mcp needs the package mcp, which is not installed: {install}"]) from error
    return CommandOutput()


COMMAND = command_of(McpOptions, _run)
