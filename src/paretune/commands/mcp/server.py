"""The tools that an agent sees (Model Context Protocol, package `mcp`).

Everything that an agent launches counts against one file of budgets, which the person who starts the server names. An
agent can neither name another one, nor choose code, image, account or owner of a job.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paretune.commands.estimate.command import EstimateRequest
from paretune.commands.estimate.estimate import run_estimate
from paretune.commands.mcp.commands import CommandProcess
from paretune.core.errors import BadInput, BudgetRefused, ParetuneError, refuse
from paretune.core.untrusted import printable
from paretune.jobs.launch import launch
from paretune.jobs.workplace import home_of
from paretune.specification.job import JobSpec
from paretune.specification.parameters import spell
from paretune.specification.profile import with_profile
from paretune.studies.definition.file import StudyFile
from paretune.studies.recorded_front import front

if TYPE_CHECKING:
    from mcp.server import MCPServer

_INSTRUCTIONS = """paretune tells which SageMaker cluster, batch size and learning rate to pay for.
estimate first; preview checks a job and bounds its dollars; launch starts a job or a study within the budget of this
server; status says how it goes; front shows the best trade-offs of a study."""
_NOT_OF_AGENTS = {
    *("budget", "role", "sagemaker", "region", "tags", "keep_alive_minutes", "on_interrupt", "force", "dry_run"),
    *("probe", "entry_script", "project", "entry_point", "project_parameters", "metric_definitions", "storage", "once"),
}
"""Options that choose the code that runs, the account that pays, or what is recorded of it."""


def serve(budget: str | None) -> None:
    """Answer an agent on standard input and output until it disconnects; running jobs go on."""
    folder = home_of(os.environ).resolve() / "agents"
    make_server(Tools(folder, budget)).run("stdio")


def make_server(tools: "Tools") -> "MCPServer":
    """The server with its tools; raises ModuleNotFoundError without the package `mcp`."""
    from mcp.server import MCPServer  # an optional extra
    from mcp.server.mcpserver.tools import Tool

    listed = [
        Tool.from_function(act)
        for act in (tools.estimate, tools.preview, tools.launch, tools.status, tools.stop, tools.front)
    ]
    job = JobSpec.model_json_schema()
    allowed = {name: schema for name, schema in job["properties"].items() if name not in _NOT_OF_AGENTS}
    for tool in listed:
        if tool.name == "preview":
            tool.parameters["properties"]["parameters"] |= {"properties": allowed}
            tool.parameters["$defs"] = job.get("$defs", {})
    return MCPServer("paretune", version=version("paretune"), instructions=_INSTRUCTIONS, tools=listed)


@dataclass(frozen=True)
class Tools:
    """The tools of an agent; errors of paretune become tool errors with the same text.

    `folder` has the launched commands; without a `budget` nothing can be launched.
    """

    folder: Path
    budget: str | None
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)  # checks set MLflow's globals

    def estimate(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Predicted seconds, dollars and memory of a job with 80 % intervals; lists of values make a table."""
        with self._working():
            request = EstimateRequest.from_text(with_profile(_texts(parameters), os.environ))
            return run_estimate(request, say=lambda _: None, quiet=True).to_dict()

    def preview(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Check a job and bound its dollars; launches nothing."""
        with self._working():
            return launch(JobSpec.read(_texts(parameters)), dry_run=True, quiet=True).to_dict()

    def launch(self, parameters: dict[str, Any], study: str | None = None) -> dict[str, Any]:
        """Launch a job, or the study of this file with `parameters` that win over it, if the budget allows it."""
        with self._working():
            if self.budget is None:
                raise BudgetRefused("this server launches nothing: start it with --budget and a file of budgets")
            texts = _texts(parameters)
            if study is None:
                launch(JobSpec.read(texts | {"budget": self.budget}), dry_run=True, quiet=True)
            else:
                _refuse_names(StudyFile.read(study, texts).job.given().keys() - {"tags"})
                texts["study"] = study
            self.folder.mkdir(parents=True, exist_ok=True)
            name = f"{'train' if study is None else 'study'}-{len(list(self.folder.iterdir())) + 1}"
            CommandProcess(self.folder / name).start(name.partition("-")[0], texts | {"budget": self.budget})
            return self._described(name)

    def status(self, name: str | None = None) -> dict[str, Any]:
        """State, result and last lines of one launched command, or of all."""
        with self._working():
            names = sorted(path.name for path in self.folder.iterdir()) if self.folder.is_dir() else []
            return {"launched": [self._described(each) for each in names if name in (None, each)]}

    def stop(self, name: str) -> dict[str, Any]:
        """Stop a launched command by its name, as Ctrl-C does; its cost is booked."""
        with self._working():
            self._described(name)
            CommandProcess(self.folder / name).stop()
            return self._described(name)

    def front(self, study: str) -> dict[str, Any]:
        """The Pareto front of a recorded study, by its name."""
        with self._working():
            return front(study).to_dict()

    def _described(self, name: str) -> dict[str, Any]:
        if Path(name).name != name or not (self.folder / name).is_dir():
            raise BadInput([f"nothing was launched under the name {name!r}: status lists all"])
        command = CommandProcess(self.folder / name)
        outcome = command.outcome()
        lines = command.last_lines() if outcome is None else []
        return {
            "name": name,
            "state": "running" if outcome is None else "ended",
            "result": outcome,
            "last_lines": lines,
        }

    @contextmanager
    def _working(self) -> Iterator[None]:
        """One call at a time; errors of paretune become tool errors."""
        from mcp.server.mcpserver.exceptions import ToolError

        try:
            with self._one_at_a_time:
                yield
        except ParetuneError as error:
            raise ToolError(printable(str(error))) from error


def _texts(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Values as they would be typed, lists as comma-separated texts; BadInput for options that no agent may set."""
    _refuse_names(name.replace("-", "_").partition(".")[0] for name in parameters)
    return {
        name: ",".join(map(spell, value)) if isinstance(value, list) else spell(value)
        for name, value in parameters.items()
    }


def _refuse_names(names: Any) -> None:
    wrong = [name for name in dict.fromkeys(names) if name in _NOT_OF_AGENTS]
    refuse([f"{name} cannot be set by an agent: it chooses code, account or money" for name in wrong])
