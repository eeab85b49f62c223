"""The tools that an agent sees, and the schema of their arguments (Model Context Protocol, package `mcp`)."""

import os
import threading
import types
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from paretune.commands.estimate.command import EstimateRequest
from paretune.commands.estimate.estimate import run_estimate
from paretune.commands.mcp.commands import CommandProcess
from paretune.commands.mcp.front import front
from paretune.commands.mcp.quotes import Quote, Quotes
from paretune.commands.mcp.quoting import OVERRIDES, Quoter
from paretune.commands.mcp.session import LaunchedCommand, Session
from paretune.core.clock import Clock, SystemClock
from paretune.core.errors import BadInput, ParetuneError, refuse
from paretune.core.untrusted import printable
from paretune.jobs.workplace import home_of, usual_storage
from paretune.ledger.study_ledger import StudyLedger
from paretune.specification.job import JobSpec
from paretune.specification.parameters import annotations, default_text, spell
from paretune.specification.profile import with_profile
from paretune.studies.definition.rules import StudyTerms

if TYPE_CHECKING:
    from mcp.server import MCPServer


_INSTRUCTIONS = """paretune tells which SageMaker cluster, batch size and learning rate to pay for.
estimate first; quote checks everything and bounds the dollars; launch takes a quote and nothing else;
status says how launched jobs do and what is left of the session's dollars."""
_ARGUMENTS = {
    "parameters": "parameters of a job; the defaults make a small job on this machine",
    "overrides": "keys of the study and parameters of its jobs, which win over the file",
    "quote": "text of `quote` in an answer of the tool quote, unchanged",
    "name": "name of a launched command, as launch and status give it",
}
"""Name of an argument of a tool to its description."""
_STUDY = {"quote": "path of a study file, such as studies/smoke.yaml", "front": "name of a study that has been run"}
"""Tool to the description of its argument `study`."""


def serve(session: str, budget_usd: float, *, own_code: bool = False) -> None:
    """Answer an agent on standard input and output until it disconnects; running jobs go on.

    `budget_usd` limits the cost of all commands that are launched in a session of this name together, by this server or
    another one; `own_code` allows jobs with scripts, projects or images of their own.
    """
    home = home_of(os.environ).resolve()
    folder = home / "agents" / session

    def start(quote: Quote, name: str) -> None:
        CommandProcess(folder / name).start(quote.command, quote.parameters)

    def open_ledger(name: str) -> StudyLedger:
        home.mkdir(parents=True, exist_ok=True)
        return StudyLedger(usual_storage(home, os.environ), name)

    clock = SystemClock()
    dollars = Session(
        session, budget_usd, open_ledger=open_ledger, start=start, command=lambda name: CommandProcess(folder / name)
    )
    quoter = Quoter(folder=folder / "studies", clock=clock, own_code=own_code)
    make_server(Tools(dollars, quoter, Quotes(), clock)).run("stdio")


def make_server(tools: "Tools") -> "MCPServer":
    """The server with its tools, whose arguments have the rules of the parameters; raises ModuleNotFoundError."""
    from mcp.server import MCPServer  # an optional extra
    from mcp.server.mcpserver.tools import Tool

    names = tools.quoter.settable()
    schemas = {
        ("estimate", "parameters"): schema_of(JobSpec, names, lists=True),
        ("quote", "parameters"): schema_of(JobSpec, names),
        ("quote", "overrides"): schema_of(StudyTerms, OVERRIDES) | {"additionalProperties": True},
    }
    acts = (tools.estimate, tools.quote, tools.launch, tools.status, tools.stop, tools.front)
    listed = {act.__name__: Tool.from_function(act) for act in acts}
    for (name, argument), schema in schemas.items():
        listed[name].parameters["properties"][argument] = schema
    for name, tool in listed.items():
        for argument, schema in tool.parameters["properties"].items():
            schema["description"] = _STUDY[name] if argument == "study" else _ARGUMENTS[argument]
    return MCPServer("paretune", version=version("paretune"), instructions=_INSTRUCTIONS, tools=[*listed.values()])


@dataclass(frozen=True)
class Tools:
    """The tools of an agent; errors of paretune become tool errors with the same text."""

    session: Session
    quoter: Quoter
    quotes: Quotes
    clock: Clock
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)  # checks set MLflow's globals

    def estimate(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Predicted seconds, dollars and memory of a job with 80 % intervals; lists of values make a table."""
        with _as_tool_errors(), self._one_at_a_time:
            texts = as_texts(parameters)
            if texts.get("probe", "").strip():
                raise BadInput(["probe launches jobs, and an estimate here launches nothing: leave it out"])
            self.quoter.check_parameters(texts)
            request = EstimateRequest.from_text(with_profile(texts, os.environ))
            return run_estimate(request, say=lambda _: None, quiet=True).to_dict()

    def quote(
        self,
        parameters: dict[str, Any] | None = None,
        study: str | None = None,
        overrides: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Check a job (`parameters`), or a study (the path of its file), and bound its dollars; launches nothing.

        `overrides` are keys of the study, or parameters of its job, which win over the file.
        The `quote` in the answer is good for one launch within fifteen minutes.
        """
        with _as_tool_errors(), self._one_at_a_time:
            new_quote = (
                self.quoter.job(as_texts(parameters or {}))
                if study is None
                else self.quoter.study(study, as_texts(overrides or {}))
            )
            return {
                "quote": self.quotes.signed(new_quote),
                "worst_case_usd": new_quote.worst_case_usd,
                "specification_hash": new_quote.identity[:12],
                "priced_as_of": new_quote.priced_as_of,
                "left_usd": self.session.balance().left_usd(self.session.budget_usd),
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
            balance = self.session.balance()
            return {
                "session": self.session.name,
                "launched": [described(launched) for launched in commands],
                "budget_usd": self.session.budget_usd,
                "spent_usd": balance.spent_usd,
                "committed_usd": balance.committed_usd,
                "left_usd": balance.left_usd(self.session.budget_usd),
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
        raise ToolError(printable(str(error))) from error


def described(launched: LaunchedCommand) -> dict[str, Any]:
    """The description of a launched command for an agent."""
    entry, outcome = launched.entry, launched.running.outcome()
    state = "running" if entry.end is None else entry.end.status.value.lower()
    return {
        "name": launched.name,
        "command": entry.note.kind,
        "state": state,
        "worst_case_usd": entry.worst_usd,
        "booked_usd": entry.booked_usd,
        "result": outcome,
        "last_lines": launched.running.last_lines() if outcome is None else [],
    }


_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_BOUNDS = {"minimum": "minimum", "maximum": "maximum", "above": "exclusiveMinimum"}


def schema_of(cls: type, names: Collection[str], *, lists: bool = False) -> dict[str, Any]:
    """The schema of an object with these fields of a dataclass of parameters; with `lists`, of lists of values, too."""
    properties = {}
    for item in fields(cls):
        if item.name in names:
            value = _value_schema(annotations(cls)[item.name], item.metadata)
            if lists:
                value = {"anyOf": [value, {"type": "array", "items": value}]}
            properties[item.name] = {"description": item.metadata["help"], **value}
            if default_text(item):
                properties[item.name]["default"] = item.default
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _value_schema(annotation: Any, rules: Mapping[str, Any]) -> dict[str, Any]:
    members = annotation.__args__ if isinstance(annotation, types.UnionType) else (annotation,)
    schema: dict[str, Any] = {"type": next((_TYPES[kind] for kind in members if kind in _TYPES), "object")}
    schema |= {key: rules[rule] for rule, key in _BOUNDS.items() if rules[rule] is not None}
    return schema | ({"enum": list(rules["choices"])} if rules["choices"] else {})


def as_texts(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Values as they would be typed, lists as comma-separated texts; raises BadInput for null and nested lists."""
    texts = {}
    faults = []
    for name, value in parameters.items():
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(entry, (str, int, float, Mapping)) for entry in values):
            faults.append(
                f"{name} must be a text, a number, true, false, an object or a list of these, got {str(value)[:200]}"
            )
        texts[name] = ",".join(map(spell, values))
    refuse(faults)
    return texts
