"""The tools that an agent sees, on standard input and output (Model Context Protocol, package `mcp`)."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paretune.commands.command import help_lines
from paretune.commands.estimate.estimate import run_estimate
from paretune.commands.estimate.request import EstimateRequest
from paretune.commands.mcp.commands import CommandProcess, Running
from paretune.commands.mcp.front import front
from paretune.commands.mcp.quotes import Quote, Quotes
from paretune.commands.mcp.quoting import ALLOWED, Quoter
from paretune.commands.mcp.session import LaunchedCommand, Session
from paretune.core.clock import Clock, SystemClock
from paretune.core.errors import BadInput, ParetuneError
from paretune.specification.job import JobSpec
from paretune.specification.profile import with_profile

if TYPE_CHECKING:
    from mcp.server import MCPServer

_INSTRUCTIONS = """paretune tells which SageMaker cluster, batch size and learning rate to pay for.
`parameters` lists what can be set, as text. estimate first; quote checks everything and bounds the dollars;
launch takes a quote and nothing else; status says how launched jobs do and what is left of the session's dollars."""


def serve(budget_usd: float, *, own_code: bool = False) -> None:
    """Answer an agent on standard input and output until it disconnects; running jobs go on.

    `budget_usd` limits the cost of all commands launched in this session together; `own_code` allows jobs with scripts,
    projects or images of their own.
    """
    home = Path(os.environ.get("PARETUNE_HOME") or ".paretune").resolve() / "agents" / f"{os.getpid()}"

    def start(quote: Quote, name: str) -> Running:
        return CommandProcess(quote.command, quote.parameters, home / name)

    clock = SystemClock()
    quoter = Quoter(folder=home / "studies", clock=clock, own_code=own_code)
    make_server(Tools(Session(budget_usd, start), quoter, Quotes(), clock)).run("stdio")


def make_server(tools: "Tools") -> "MCPServer":
    """The server with its tools.

    Raises:
        ModuleNotFoundError: the package `mcp` is not installed.
    """
    from mcp.server import MCPServer  # an optional extra

    server = MCPServer("paretune", version=version("paretune"), instructions=_INSTRUCTIONS)
    for act in (tools.parameters, tools.estimate, tools.quote, tools.launch, tools.status, tools.stop, tools.front):
        server.tool()(act)
    return server


@dataclass(frozen=True)
class Tools:
    """The tools of an agent; errors of paretune become tool errors with the same text."""

    session: Session
    quoter: Quoter
    quotes: Quotes
    clock: Clock
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)  # checks set MLflow's globals

    def parameters(self) -> dict[str, str]:
        """The parameters of a job that can be set, each with its meaning, choices and default."""
        return {name: line for name, line in help_lines(JobSpec).items() if name in ALLOWED}

    def estimate(self, parameters: dict[str, str]) -> dict[str, Any]:
        """Predicted seconds, dollars and memory with 80 % intervals; comma-separated values make a table."""
        with _as_tool_errors(), self._one_at_a_time:
            if parameters.get("probe", "").strip():
                raise BadInput(["probe launches jobs, and an estimate here launches nothing: leave it out"])
            self.quoter.check_parameters(parameters)
            request = EstimateRequest.from_text(with_profile(parameters, os.environ))
            return run_estimate(request, say=lambda _: None, quiet=True).to_dict()

    def quote(
        self,
        parameters: dict[str, str] | None = None,
        study: str | None = None,
        overrides: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Check a job (`parameters`), or a study (the path of its file), and bound its dollars; launches nothing.

        The `quote` in the answer is good for one launch within fifteen minutes.
        """
        with _as_tool_errors(), self._one_at_a_time:
            new_quote = (
                self.quoter.job(parameters or {}) if study is None else self.quoter.study(study, overrides or {})
            )
            return {
                "quote": self.quotes.signed(new_quote),
                "worst_case_usd": new_quote.worst_case_usd,
                "specification_hash": new_quote.identity[:12],
                "priced_as_of": new_quote.priced_as_of,
                "left_usd": self.session.budget_usd - self.session.booked_usd(),
            }

    def launch(self, quote: str) -> dict[str, Any]:
        """Launch a quote if its worst case fits the session's dollars; a quote is launched at most once."""
        with _as_tool_errors():
            signed = self.quotes.read(quote, self.clock.now())
            with self._one_at_a_time:
                self.quoter.confirm(signed)
            return described(self.session.launch(signed))

    def status(self, name: str | None = None) -> dict[str, Any]:
        """State of one launched command, or all, and the session's dollars."""
        with _as_tool_errors():
            commands = self.session.all() if name is None else [self.session.find(name)]
            booked = self.session.booked_usd()
            return {
                "launched": [described(launched) for launched in commands],
                "budget_usd": self.session.budget_usd,
                "booked_usd": booked,
                "left_usd": self.session.budget_usd - booked,
            }

    def stop(self, name: str) -> dict[str, Any]:
        """Stop a launched command by its name, as Ctrl-C does; its cost is booked."""
        with _as_tool_errors():
            launched = self.session.find(name)
            launched.running.stop()
            return described(launched)

    def front(self, study: str) -> dict[str, Any]:
        """The Pareto front of a recorded study, by its name."""
        with _as_tool_errors(), self._one_at_a_time:
            return front(study).to_dict()


@contextmanager
def _as_tool_errors() -> Iterator[None]:
    """Turn errors of paretune into tool errors."""
    from mcp.server.mcpserver.exceptions import ToolError

    try:
        yield
    except ParetuneError as error:
        raise ToolError(str(error)) from error


def described(launched: LaunchedCommand) -> dict[str, Any]:
    """Return the description of a launched command for an agent."""
    outcome: Mapping[str, Any] | None = launched.running.outcome()
    state = "running" if outcome is None else "failed" if "error" in outcome else "completed"
    about = {"name": launched.name, "command": launched.quote.command, "state": state}
    return about | {
        "worst_case_usd": launched.quote.worst_case_usd,
        "cost_usd": launched.cost_usd(),
        "result": outcome,
        "last_lines": launched.running.last_lines() if outcome is None else [],
    }
