"""The command `mcp`: a server for agents on standard input and output."""

from paretune.commands.mcp.request import McpRequest
from paretune.core.errors import BadInput
from paretune.core.result import CommandOutput


def run(asked: McpRequest) -> CommandOutput:
    """Serve until the agent hangs up.

    Raises:
        BadInput: the package `mcp` is not installed.
    """
    try:
        from paretune.commands.mcp.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise BadInput(["this command needs the package mcp: python -m pip install 'paretune[mcp]'"]) from error
    serve(asked.session_budget_usd, own_code=asked.own_code)
    return CommandOutput()
