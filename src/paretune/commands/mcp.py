"""The command `mcp`: a server for agents on standard input and output (Model Context Protocol, package `mcp`).

Everything that an agent launches counts against one file of budgets, which the person who starts the server names. An
agent can neither name another one, nor choose code, image, account or owner of a job. A launched command is a process
of its own, whose output and process id are in files of a folder, so that it outlives the server and the next one finds
it.
"""

import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from paretune.commands.command import command_of
from paretune.commands.estimate import MAY_BE_LISTS, EstimateRequest
from paretune.core.errors import BadInput, BudgetRefused, ParetuneError, refuse
from paretune.core.packages import missing
from paretune.core.result import CommandOutput
from paretune.core.untrusted import absolute, is_file, printable
from paretune.launchers.processes import is_alive, process_text
from paretune.specification.catalog import instances
from paretune.specification.inputs import INPUT_FILES
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Parameters, parameter, spell
from paretune.specification.profile import with_profile
from paretune.studies.definition.file import StudyFile

if TYPE_CHECKING:
    from mcp.server import MCPServer

_INSTRUCTIONS = """paretune tells which SageMaker cluster, batch size and learning rate to pay for.
One estimate compares all clusters: describe the training and give a list of instance types, the cheapest comes first.
preview checks a job and bounds its dollars; launch starts a job or a study within the budget of this server; status
says how it goes; front shows the best trade-offs of a study."""
_NOT_OF_AGENTS = {
    *("budget", "role", "sagemaker", "region", "tags", "keep_alive_minutes", "on_interrupt", "force", "dry_run"),
    *("entry_script", "project", "entry_point", "project_parameters", "metric_definitions", "simulation"),
    "environment",
    *("storage", "once"),
}
"""Options that choose the code that runs, files beside the data, the account that pays, or what is recorded of it."""
_SHOWN = ("type", "anyOf", "enum", "default", "description", "minimum", "maximum")  # of the schema of a parameter
_DOCUMENT, _LOG, _PROCESS = "document.json", "log.txt", "process.txt"


class McpOptions(Parameters):
    """The budgets that agents may spend through this server."""

    budget: str | None = parameter(None)
    """YAML file with monthly budgets that all launches count against; without it agents may look only"""
    listed_by: ClassVar[str] = "mcp"


def _run(options: McpOptions) -> CommandOutput:
    """Serve until the agent disconnects; running jobs go on."""
    from paretune.jobs.workplace import home_of

    if reason := missing("mcp"):
        raise BadInput([reason])
    if options.budget is not None and not is_file(options.budget):
        raise BadInput([f"budget must name a YAML file with budgets, and {options.budget} is none"])
    budget = None if options.budget is None else absolute(options.budget)
    make_server(Tools(home_of(os.environ).resolve() / "agents", budget)).run("stdio")
    return CommandOutput()


def make_server(tools: "Tools") -> "MCPServer":
    """The server with its tools."""
    from mcp.server import MCPServer  # an optional extra
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.mcpserver.tools import Tool

    one_at_a_time = threading.Lock()  # checks set MLflow's globals

    def guarded(act: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        @wraps(act)
        def answer(*positional: Any, **named: Any) -> dict[str, Any]:
            try:
                with one_at_a_time:
                    return act(*positional, **named)
            except ParetuneError as error:
                raise ToolError(printable(str(error))) from error

        return answer

    acts = (tools.estimate, tools.preview, tools.launch, tools.status, tools.stop, tools.front)
    listed = {act.__name__: Tool.from_function(guarded(act)) for act in acts}
    allowed: dict[str, dict[str, Any]] = {
        name: {key: schema[key] for key in _SHOWN if key in schema} if "$ref" not in str(schema) else {"type": "object"}
        for name, schema in JobSpec.model_json_schema()["properties"].items()
        if name not in _NOT_OF_AGENTS
    }
    allowed["instance_type"]["enum"] = sorted({"local", *instances()})
    lists = {name: _or_several(allowed[name]) for name in MAY_BE_LISTS}
    for act, schemas in (("preview", allowed), ("estimate", allowed | lists)):
        listed[act].parameters["properties"]["parameters"]["properties"] = schemas
    return MCPServer(
        "paretune",
        version=version("paretune"),
        instructions=_INSTRUCTIONS,
        tools=[*listed.values()],
        log_level="WARNING",
    )


def _or_several(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of one value, of a list of values, or of a text with commas between them."""
    one = {key: part for key, part in schema.items() if key != "description"}
    several = [one, {"type": "array", "items": one}, {"type": "string"}]
    return {"description": schema["description"], "anyOf": several}


@dataclass(frozen=True)
class Tools:
    """The tools of an agent. `folder` has the launched commands; without a `budget` nothing can be launched."""

    folder: Path
    budget: str | None

    def estimate(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Predicted seconds, dollars and memory of a job with 80 % intervals, on one cluster or on many.

        Every combination of the lists among the parameters, such as many instance types, makes a row; the first row is
        the cheapest that fits into memory. `paretune estimate --json` has all columns.
        """
        from paretune.commands.estimate.estimate import MAIN_COLUMNS, run_estimate

        texts = _texts(parameters)
        answer: dict[str, Any] = run_estimate(EstimateRequest.from_text(with_profile(texts, os.environ))).to_dict()
        columns = dict.fromkeys([*MAIN_COLUMNS, *texts])
        rows = sorted(answer["rows"], key=lambda row: (row["fits"] == "no", row["cost_usd"] or math.inf))
        return answer | {"rows": [{name: row[name] for name in columns if row.get(name) is not None} for row in rows]}

    def preview(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Check a job and bound its dollars; launches nothing."""
        from paretune.jobs.launch import launch

        return launch(JobSpec.read(_texts(parameters)), dry_run=True, quiet=True).to_dict()

    def launch(self, parameters: dict[str, Any], study: str | None = None) -> dict[str, Any]:
        """Launch a job, or the study of this file with `parameters` that win over it, if the budget allows it."""
        from paretune.jobs.launch import launch

        if self.budget is None:
            raise BudgetRefused("this server launches nothing: start it with --budget and a file of budgets")
        texts = _texts(parameters)
        if study is None:
            launch(JobSpec.read(texts | {"budget": self.budget}), dry_run=True, quiet=True)
        else:
            _refuse({"study": study})
            file = StudyFile.read(study, texts)
            _refuse({name: value for name, value in file.job.given().items() if name != "tags"})
            _refuse({name: ",".join(map(str, entry.corners)) for name, entry in file.search.items()})
            texts["study"] = study
        self.folder.mkdir(parents=True, exist_ok=True)
        command = "train" if study is None else "study"
        name = f"{command}-{len(list(self.folder.iterdir())) + 1}"
        start(self.folder / name, command, texts | {"budget": self.budget})
        return self._described(name)

    def status(self, name: str | None = None) -> dict[str, Any]:
        """State, result and last lines of one launched command, or of all."""
        names = sorted(path.name for path in self.folder.iterdir()) if self.folder.is_dir() else []
        return {"launched": [self._described(each) for each in names if name in (None, each)]}

    def stop(self, name: str) -> dict[str, Any]:
        """Stop a launched command by its name, as Ctrl-C does; its cost is booked."""
        self._described(name)
        process = _text(self.folder / name / _PROCESS)
        if is_alive(process):
            os.kill(int(process.split()[1]), signal.SIGINT)
        return self._described(name)

    def front(self, study: str) -> dict[str, Any]:
        """The Pareto front of a recorded study, by its name."""
        from paretune.studies.recorded_front import front

        return front(study).to_dict()

    def _described(self, name: str) -> dict[str, Any]:
        """A launched command; one that nobody can look at from here, such as on another machine, counts as running."""
        folder = self.folder / name
        if Path(name).name != name or not folder.is_dir():
            raise BadInput([f"nothing was launched under the name {name!r}: status lists all"])
        has_ended = is_alive(_text(folder / _PROCESS)) is False  # before the document is read, which is written last
        lines = _text(folder / _LOG).splitlines()[-10:]
        try:
            result = json.loads(_text(folder / _DOCUMENT))
        except ValueError:
            result = {"error": {"message": "\n".join(lines) or "no answer"}} if has_ended else None
        is_running = result is None
        state, lines = ("running", lines) if is_running else ("ended", [])
        return {"name": name, "state": state, "result": result, "last_lines": lines}


def start(folder: Path, name: str, parameters: Mapping[str, str]) -> None:
    """Start `paretune NAME --key=value ... --json` as a process that does not end with this one."""
    folder.mkdir(parents=True)
    words = [f"--{key}={text}" for key, text in parameters.items()]  # a value such as --help stays a value
    with (folder / _DOCUMENT).open("wb") as output, (folder / _LOG).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "paretune", name, *words, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=log,
            start_new_session=True,  # Ctrl-C of the server is not its own; its job is paid for and goes on
        )
    (folder / _PROCESS).write_text(process_text(process.pid))
    threading.Thread(target=process.wait, daemon=True).start()  # so that it leaves no zombie


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _texts(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Values as they would be typed, lists as comma-separated texts; BadInput for what no agent may set."""
    texts = {
        name.replace("-", "_"): ",".join(map(spell, value)) if isinstance(value, list) else spell(value)
        for name, value in parameters.items()
    }
    _refuse(texts)
    return texts


def _refuse(values: Mapping[str, Any]) -> None:
    """Raise BadInput for options that no agent may set, and for paths of this machine outside the current folder.

    Each of a comma-separated list is looked at; an id on the hub counts as a path below the folder.
    """
    names = dict.fromkeys(name.partition(".")[0] for name in values)
    wrong = [name for name in names if name in _NOT_OF_AGENTS]
    faults = [f"{name} cannot be set by an agent: it chooses code, files, account or money" for name in wrong]
    for name in (*INPUT_FILES, "study"):
        for path in map(str.strip, str(values.get(name) or "").split(",")):
            if not _is_below(path):
                faults.append(f"{name} must lie below the folder of this server, got {path}: copy it there")
    refuse(faults)


def _is_below(path: str) -> bool:
    """Whether a path lies below the current folder, links followed; s3://bucket/rows.csv is no path."""
    if "://" in path or path.lower().startswith("file:"):
        return not path.lower().startswith("file:")
    return Path(absolute(path)).resolve().is_relative_to(Path.cwd().resolve())


COMMAND = command_of(McpOptions, _run)
