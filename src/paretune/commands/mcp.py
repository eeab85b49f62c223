"""The command `mcp`: a server for agents on standard input and output (Model Context Protocol, package `mcp`).

Every job that an agent launches, except on this machine, counts against one budget file, which the person who starts
the server names. An agent can set only listed parameters, none of which chooses the code, image, account or owner of a
job. A launched command is a separate process, so it outlives the server. Its output and process id are in files of a
folder of its own, where the next server finds them.
"""

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import TypeAdapter, ValidationError

from paretune.commands.command import command_of
from paretune.commands.estimate import MAY_BE_LISTS, EstimateRequest
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, BudgetRefused, ParetuneError, did_you_mean, refuse
from paretune.core.packages import missing
from paretune.core.reading import absolute, is_file, parse_json
from paretune.core.result import CommandOutput
from paretune.core.secrets import printable
from paretune.launchers.processes import is_alive, process_text
from paretune.specification.catalog import instances
from paretune.specification.declaration import Parameters, Rules, parameter, spell
from paretune.specification.inputs import IN_S3, INPUT_FILES
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import OF_STRATEGY, OF_THE_BATCH
from paretune.specification.profile import with_profile
from paretune.tracking import schema

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from paretune.tracking.recorded_run import RecordedRun

_INSTRUCTIONS = """paretune tells you which SageMaker cluster, batch size and learning rate to pay for.
One estimate compares all clusters: describe the training and give a list of instance types; the cheapest row comes
first. preview checks a job and bounds its dollars; launch starts a job within the budget of this server; status shows
its progress; front shows the best trade-offs of a study that a person has started."""
_JOB_OF_AGENTS = {
    *("model", "init", "task", "fine_tuning", "lora", "precision", "seed", "training_arguments"),
    *("dataset", "validation_file", "test_file", "text_column", "label_column"),
    *("max_train_samples", "max_eval_samples", "max_seq_length", "num_train_epochs"),
    *(*OF_THE_BATCH, "learning_rate", "learning_rate_scaling", *OF_STRATEGY, "program", "test_rows"),
    *("launcher", "instance_type", "instance_count", "fallback_instance_types"),
    *("spot", "max_runtime_minutes", "max_cost_usd", "probe_steps", "profile_steps"),
}
"""The parameters of a job that an agent may set: none chooses code, account or budget, or what is recorded."""
_ARGUMENTS_OF_AGENTS: Mapping[str, type[float | int | str]] = {
    **dict.fromkeys(("weight_decay", "max_grad_norm", "warmup_steps", "warmup_ratio", "label_smoothing_factor"), float),
    **dict.fromkeys(("adam_beta1", "adam_beta2", "adam_epsilon", "eval_steps", "logging_steps", "save_steps"), float),
    **dict.fromkeys(("lr_scheduler_type", "eval_strategy", "save_strategy"), str),
    **dict.fromkeys(("gradient_checkpointing", "load_best_model_at_end"), bool),
    "max_steps": int,
}
"""The entries of training_arguments that an agent may set: none sends data anywhere or names a file."""
_KINDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a word"}
_MOST_LEVELS = 20  # of lists and mappings in a parameter
_SHOWN = ("type", "anyOf", "enum", "default", "description", "minimum", "maximum")  # what agents see of a parameter
_JOB = re.compile(r"^(?:simulated )?job ([\w-]+)", re.MULTILINE)  # the job's name, as `launch` announces it
_DOCUMENT, _LOG, _PROCESS = "document.json", "log.txt", "process.txt"
_STARTER = "starter.txt"  # the server that starts a command, of which nothing else is known yet


class McpOptions(Parameters):
    """Options of the server: the budgets that agents may spend, and the prefixes in S3 that agents may read."""

    budget: str | None = parameter(None)
    """YAML file with monthly budgets that limit all jobs except those on this machine; without it, nothing launches"""
    reads: tuple[str, ...] = parameter(())
    """prefixes in S3, such as s3://bucket/datasets, that agents may read; without it, they read nothing in S3"""

    rules: ClassVar[Rules] = (
        lambda options: [
            f"reads must name prefixes in S3, such as s3://bucket/datasets, got {prefix}"
            for prefix in options.reads
            if _parts_in_s3(prefix.rstrip("/")) is None
        ],
    )


def _run(options: McpOptions) -> CommandOutput:
    from paretune.jobs.workplace import home_of

    if reason := missing("mcp"):
        raise BadInput([reason])
    if options.budget is not None and not is_file(options.budget):
        raise BadInput([f"budget must name a YAML file with budgets, but there is no file {options.budget}"])
    budget = None if options.budget is None else absolute(options.budget)
    make_server(Tools(home_of(os.environ).resolve() / "agents", budget, options.reads)).run("stdio")
    return CommandOutput()


def make_server(tools: "Tools") -> "MCPServer":
    """Return the server with its tools."""
    from mcp.server import MCPServer  # an optional extra
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.mcpserver.tools import Tool

    class StrictTool(Tool):
        """A tool that refuses unknown arguments, which the package `mcp` would ignore."""

        async def run(self, arguments: dict[str, Any], *further: Any, **named: Any) -> Any:
            known = self.parameters["properties"]
            if unknown := [name for name in arguments if name not in known]:
                has = ", ".join(known)
                raise ToolError(printable(f"{self.name} has no argument {', '.join(unknown)}: it has {has}"))
            return await super().run(arguments, *further, **named)

    one_at_a_time = threading.Lock()  # because checks set global variables of MLflow

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
    listed = {act.__name__: StrictTool.from_function(guarded(act)) for act in acts}
    for tool in listed.values():
        tool.parameters["additionalProperties"] = False
    allowed: dict[str, dict[str, Any]] = {
        name: {key: schema[key] for key in _SHOWN if key in schema} if "$ref" not in str(schema) else {"type": "object"}
        for name, schema in JobSpec.model_json_schema()["properties"].items()
        if name in _JOB_OF_AGENTS
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
    one = {key: part for key, part in schema.items() if key != "description"}
    several = [one, {"type": "array", "items": one}, {"type": "string"}]
    return {"description": schema["description"], "anyOf": several}


@dataclass(frozen=True)
class Tools:
    """The tools of an agent.

    Attributes:
        folder: the folder that has a folder for each launched command.
        budget: the file with the budgets that launched jobs count against; None if nothing can be launched.
        reads: prefixes in S3 below which agents may read.
    """

    folder: Path
    budget: str | None
    reads: tuple[str, ...] = ()

    def estimate(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Estimate seconds, dollars and memory of a job with 80 % intervals, on one or many clusters.

        Every combination of the lists among the parameters, such as many instance types, makes a row; the first row is
        the cheapest that fits, or may fit, in memory. `paretune estimate --json` has all columns.
        """
        from paretune.commands.estimate.estimate import run_estimate
        from paretune.commands.estimate.table import MAIN_COLUMNS

        texts = _texts(parameters, self.reads)
        answer: dict[str, Any] = run_estimate(EstimateRequest.from_text(with_profile(texts, os.environ))).to_dict()
        columns = dict.fromkeys([*MAIN_COLUMNS, *texts])
        rows = sorted(answer["rows"], key=lambda row: (row["fits"] == "no", row["cost_usd"] or math.inf))
        return answer | {"rows": [{name: row[name] for name in columns if row.get(name) is not None} for row in rows]}

    def preview(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Check a job and return the most that it should cost. Launches nothing."""
        from paretune.jobs.launch import launch

        return launch(JobSpec.read(_texts(parameters, self.reads)), dry_run=True, quiet=True).to_dict()

    def launch(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Launch a job if the budget allows it."""
        from paretune.jobs.launch import launch

        if self.budget is None:
            raise BudgetRefused("this server launches nothing: start it with --budget and a budget file")
        texts = _texts(parameters, self.reads) | {"budget": self.budget}
        launch(JobSpec.read(texts), dry_run=True, quiet=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            with suppress(FileExistsError):  # the folder of an earlier launch, or of another server's
                start(self.folder / f"train-{number}", texts)
                break
        return self._described(f"train-{number}")

    def status(self, name: str | None = None) -> dict[str, Any]:
        """Show launched commands, one or all, and running jobs with their dollars so far and at worst."""
        from paretune.jobs.follow import running_jobs
        from paretune.jobs.workplace import Workplaces, has_store, open_tracking

        workplaces = Workplaces.of_process()
        jobs = running_jobs(open_tracking(os.environ, SystemClock()), workplaces.at) if has_store(os.environ) else []
        launched = [self._described(each) for each in (self._names if name is None else [name])]
        return {"launched": launched, "running": jobs}

    def stop(self, name: str) -> dict[str, Any]:
        """Stop a launched command by its name, as Ctrl-C would, or its job if only the job still runs.

        The cost is recorded.
        """
        from paretune.jobs.follow import stop
        from paretune.jobs.workplace import Workplaces

        self._described(name)
        process = _text(self.folder / name / _PROCESS)
        if is_alive(process):
            os.kill(int(process.split()[1]), signal.SIGINT)
        elif (run := self._running(name)) is not None:
            stop(run, Workplaces.of_process().at)
        return self._described(name)

    def _running(self, name: str) -> "RecordedRun | None":
        """Return the run of a launched command if its job still runs, else None.

        The job may outlive the command, for example if the command lost contact with it.
        """
        from paretune.jobs.follow import find_run
        from paretune.jobs.workplace import Workplaces, has_store, open_tracking

        job = _JOB.search(_text(self.folder / name / _LOG))
        if job is None or not has_store(os.environ):
            return None
        with suppress(BadInput):  # raised if the run has been deleted
            run = find_run(open_tracking(os.environ, SystemClock()), job[1], Workplaces.of_process().at)
            return run if run.tags.get(schema.STATE) == "Running" else None
        return None

    def front(self, study: str) -> dict[str, Any]:
        """Return the Pareto front of a recorded study, by its name."""
        from paretune.studies.recorded_front import front

        return front(study).to_dict()

    @property
    def _names(self) -> list[str]:
        names = (path.name for path in self.folder.glob("*/"))
        return sorted(names, key=lambda name: (len(name), name))  # train-2 before train-10

    def _described(self, name: str) -> dict[str, Any]:
        """Return the state, result and last lines of a launched command.

        A command on another machine cannot be checked from here, so it counts as running until it has a result.
        """
        folder = self.folder / name
        if name not in self._names:
            raise BadInput([f"nothing was launched under the name {name!r}: status lists all"])
        # This is checked before the document is read, because a command writes the document at its end.
        has_ended = is_alive(_text(folder / _PROCESS) or _text(folder / _STARTER)) is False
        lines = _text(folder / _LOG).splitlines()[-10:]
        try:
            result = json.loads(_text(folder / _DOCUMENT))
        except ValueError:
            result = {"error": {"message": "\n".join(lines) or "no answer"}} if has_ended else None
        goes_on = result is not None and "error" in result and self._running(name) is not None
        state, lines = ("running", lines) if result is None or goes_on else ("ended", [])
        return {"name": name, "state": state, "result": result, "last_lines": lines}


def start(folder: Path, parameters: Mapping[str, str]) -> None:
    """Start `paretune train --key=value ... --json` as a process that outlives this one."""
    folder.mkdir(parents=True)
    words = [f"--{key}={text}" for key, text in parameters.items()]  # a value such as --help stays a value
    (folder / _STARTER).write_text(process_text())
    with (folder / _DOCUMENT).open("wb") as output, (folder / _LOG).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "paretune", "train", *words, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=log,
            start_new_session=True,  # Ctrl-C of the server must not stop a job that is paid for
        )
    (folder / _PROCESS).write_text(process_text(process.pid))
    threading.Thread(target=process.wait, daemon=True).start()  # so that the process leaves no zombie


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _texts(parameters: Mapping[str, object], reads: Collection[str]) -> dict[str, str]:
    """Return parameters as the texts that a user would type; lists become comma-separated.

    Raises BadInput for parameters that an agent may not set, and for paths that an agent may not read: each path, even
    in a comma-separated list, must be below the current folder or below one of the S3 prefixes `reads`. An id on the
    Hugging Face Hub counts as a path below the current folder.
    """
    texts, faults = dict[str, str](), list[str]()
    for name, value in parameters.items():
        name = name.replace("-", "_")
        if _levels_exceed(value, _MOST_LEVELS):
            faults.append(f"{name} must be a value with at most {_MOST_LEVELS} levels of lists and mappings")
            continue
        text = texts[name] = ",".join(map(spell, value)) if isinstance(value, list) else spell(value)
        if "\0" in text:
            faults.append(f"{name} must be text without NUL characters")
            continue
        root, _, inner = name.partition(".")
        if root not in _JOB_OF_AGENTS:
            is_ours = root in JobSpec.model_fields
            why = "only a person may set it" if is_ours else did_you_mean(root, _JOB_OF_AGENTS)
            faults.append(f"{root} cannot be set by an agent: {why or 'the schema of preview lists what can be set'}")
        elif root == "training_arguments":
            faults += _argument_faults({inner: value} if inner else value)
        for path in map(str.strip, text.split(",")) if root in INPUT_FILES else ():
            faults += _path_faults(root, path, reads)
    refuse(list(dict.fromkeys(faults)))
    return texts


def _levels_exceed(value: object, most: int) -> bool:
    """Return whether lists and mappings are nested in more than `most` levels."""
    level = [value]
    for _ in range(most + 1):
        parts = [
            part.values() if isinstance(part, Mapping) else part for part in level if isinstance(part, Mapping | list)
        ]
        if not parts:
            return False
        level = [inner for part in parts for inner in part]
    return True


def _argument_faults(given: object) -> Iterator[str]:
    """Yield the faults of training_arguments (a mapping or its JSON text) that an agent has set."""
    if isinstance(given, str):
        with suppress(ValueError):
            given = parse_json(given.strip())  # `strip` removes more kinds of whitespace than JSON allows
    if not isinstance(given, Mapping):
        yield f"training_arguments must be a mapping from names to values, got {str(given)[:60]}"
        return
    for name, value in given.items():
        kind = _ARGUMENTS_OF_AGENTS.get(name)
        if kind is None:
            yield f"training_arguments.{name} cannot be set by an agent"
        elif not _is_plain(value, kind):
            yield f"training_arguments.{name} must be {_KINDS[kind]}, got {str(value)[:60]}"


def _is_plain(value: object, kind: type) -> bool:
    """Return whether a value is of this kind or is the text of such a value; a list or mapping never is."""
    if kind is str:
        return isinstance(value, str) and bool(re.fullmatch(r"\w+", value, re.ASCII))
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


def _path_faults(name: str, path: str, reads: Collection[str]) -> Iterator[str]:
    """Yield a fault if an agent may not read a path: it must be below the current folder or an allowed prefix in S3."""
    if path.startswith(IN_S3):
        parts = _parts_in_s3(path.rstrip("/"))
        prefixes = [_parts_in_s3(prefix.rstrip("/")) or [""] for prefix in reads]
        if parts is None or not any(parts[: len(prefix)] == prefix for prefix in prefixes):
            named = ", ".join(reads) or "none"
            rule = f"{name} in S3 must be below a prefix of `paretune mcp --reads`, which has {named}"
            yield f"{rule}; got {path}"
    elif (
        "://" in path
        or path.lower().startswith("file:")
        or not Path(absolute(path)).resolve().is_relative_to(Path.cwd().resolve())
    ):
        yield f"{name} must be below the folder of this server, got {path}: copy it there"


def _parts_in_s3(address: str) -> list[str] | None:
    """Return the bucket and the folders of s3://BUCKET/PREFIX, or None if the address could have a second meaning."""
    parts = address.removeprefix(IN_S3).split("/")
    is_plain = address.startswith(IN_S3) and not {"", ".", ".."} & {*parts} and not re.search(r"[%\\?#@\0]", address)
    return parts if is_plain else None


MCP = command_of(McpOptions, _run)
