"""The command `mcp`: a server for agents on standard input and output."""

import re
from collections.abc import Iterator
from typing import ClassVar

from paretune.commands.command import command_of
from paretune.core.errors import BadInput
from paretune.core.result import CommandOutput
from paretune.specification.parameters import Fault, Parameters, Rules, parameter


class McpRequest(Parameters):
    """Limits of what agents may do through this server; raises BadInput with all faults at once."""

    session_budget_usd: float = parameter(
        0.0, "dollars that all that agents launch in a session may cost together; with 0 they may look only", ge=0
    )
    session: str = parameter("default", "servers with the same session and storage share its dollars")
    own_code: bool = parameter(False, "let agents launch jobs with scripts, projects and images of their own")

    listed_by: ClassVar[str] = "mcp"
    rules: ClassVar[Rules] = (lambda request: _session(request.session),)


def _session(session: str) -> Iterator[Fault]:
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", session, re.ASCII):
        rule = (
            "session must begin with a letter or digit, and have at most 64 letters, digits, dots, dashes, underscores"
        )
        yield Fault(("session",), f"{rule}, got {session[:80]!r}")


def _run(request: McpRequest) -> CommandOutput:
    """Serve until the agent disconnects; raises BadInput if the package `mcp` is not installed."""
    try:
        from paretune.commands.mcp.server import serve  # MLflow takes a second to import

        serve(request.session, request.session_budget_usd, own_code=request.own_code)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        install = "python -m pip install 'paretune[mcp]'"
        raise BadInput([f"paretune mcp needs the package mcp, which is not installed: {install}"]) from error
    return CommandOutput()


COMMAND = command_of(McpRequest, _run)
