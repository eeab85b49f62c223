"""`paretune NAME --key value`: called by the MLproject entry points and typed by hand.

Options and help texts come from the pydantic models that the commands declare. The words of a command line are parsed
here rather than by click, so that the faults of all options are reported together.
"""

import contextlib
import errno
import gc
import importlib
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, cast

import click

from paretune import __version__
from paretune.core.errors import (
    BadInput,
    BudgetRefused,
    Interrupted,
    JobFailed,
    ParetuneError,
    collecting,
    did_you_mean,
    refuse,
)
from paretune.core.result import CommandOutput, Result, error_document
from paretune.core.secrets import is_secret_name, printable, printable_json
from paretune.core.shell import started_by
from paretune.tracking import giving_up_soon

if TYPE_CHECKING:
    from paretune.commands.command import Command


class Entry(NamedTuple):
    """One command: its group and its line in the help, its module, and the option that its first word may set.

    In `paretune train train.py`, the word after the command does not start with a dash, so it sets `entry_script`.
    """

    group: str
    about: str
    module: str  # a module of `commands`, imported when needed; it has the command as a constant, such as TRAIN
    first_word: str = ""


COMMANDS = {
    "train": Entry("Run", "one job: train, measure, price, record", "train", "entry_script"),
    "study": Entry(
        "Run", "search for the best trade-offs within a budget, or run a designed experiment", "study", "study"
    ),
    "estimate": Entry(
        "Know before you pay", "seconds, dollars and memory; comma-separated values make a table", "estimate"
    ),
    "prices": Entry("Know before you pay", "the prices of a region; with --refresh, read today's from AWS", "prices"),
    "doctor": Entry("Know before you pay", "check this machine, your AWS account and MLflow", "doctor"),
    "report": Entry("Look at runs", "tables of recorded runs, also with the prices of another region or day", "report"),
    "status": Entry("Look at runs", "what is running now, with dollars so far and at worst", "jobs"),
    "logs": Entry("Look at runs", "what a job prints; with --follow, until it has ended", "jobs", "run"),
    "stop": Entry("Look at runs", "end a job and record its cost", "jobs", "run"),
    "sync": Entry("Look at runs", "follow running jobs, collect finished ones, complete their runs in MLflow", "jobs"),
    "clean": Entry("Look at runs", "list what jobs have left behind in S3; with --yes, remove what is old", "jobs"),
    "import": Entry("Look at runs", "bring a table of recorded runs into MLflow, marked as published", "imports"),
    "reconcile": Entry("Look at runs", "AWS's bill against what was recorded", "reconcile", "bill"),
    "demo": Entry("More", "a whole simulated study in half a minute, with nothing to configure", "demo"),
    "mcp": Entry("More", "a server for agents on standard input and output, within a budget", "mcp"),
}
TASKS = """\
paretune finds the cluster, batch size and learning rate to pay for.

  paretune demo                          watch a simulated study and its page
  paretune train --dataset reviews.csv   fine-tune a small model with your rows on this machine, and record it in MLflow
  paretune train train.py                your own training script as a job
  paretune study smoke                   search for the best trade-offs, in a few minutes on this machine
  paretune estimate --instance_type ml.g5.xlarge,ml.p4d.24xlarge
                                         seconds and dollars before you pay anything
  paretune doctor                        what is missing for jobs on SageMaker
"""
_PROCESS_SHELLS = {"bash", "sh", "dash", "zsh", "cmd.exe"}


def run() -> None:
    """Run the command in `sys.argv`, and exit with its exit code. This is the entry point of the `paretune` program."""
    gc.set_threshold(100_000)  # importing MLflow then takes 1.3 s of CPU instead of 1.7 s
    code = main(sys.argv[1:])
    gc.freeze()  # otherwise Python searches all objects of MLflow at exit, which takes 0.8 s
    sys.exit(code)


def main(arguments: Sequence[str], project: Path | None = None) -> int:
    """Run one command and return its exit code (see `paretune.core.errors`).

    With `--json`, standard output gets one JSON document: the answer or the error. If the value of `study`,
    `simulation.runs` or an option in PATHS is a relative path that does not exist in the current folder, it is looked
    up in the folder `project`, then among the shipped files.
    """
    # Otherwise importing MLflow writes ~/.config/mlflow/telemetry.json.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    logging.raiseExceptions = False  # do not print a traceback if a log line does not fit on a full disk
    as_json, words = _take_json(arguments)
    output = sys.stdout
    with (
        contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext(),
        started_by(*program()),
        giving_up_soon(),
    ):
        try:
            answer = _answer(words, () if project is None else (project,))
            if text := printable_json(answer.to_dict()) if as_json else printable(str(answer)):
                print(text, file=output, flush=True)
            return answer.exit_code
        except BrokenPipeError:  # the reading program has ended, as in `paretune report | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's flush at exit
            return 0
        except BaseException as error:
            return _print_failure(error, output if as_json else None)


def _print_failure(error: BaseException, output: TextIO | None) -> int:
    """Print why a command failed, and return its exit code. An error that is a bug is raised again instead.

    The message goes to standard error, and also to `output` as JSON unless `output` is None.
    """
    if isinstance(error, ParetuneError):
        message, code = str(error), error.exit_code
        if code in (BadInput.exit_code, BudgetRefused.exit_code):
            from paretune.commands.command import describe_refused_run

            describe_refused_run(error)
    elif isinstance(error, KeyboardInterrupt):  # before the command handles signals: nothing has been started yet
        message, code = "interrupted", Interrupted.exit_code
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
        message = f"the disk is full ({error}): make room, or set PARETUNE_HOME"
        code = JobFailed.exit_code
    else:
        raise error
    print(printable(f"paretune: {message}"), file=sys.stderr)
    if output is not None:
        print(printable_json(error_document(error, message, code)), file=output, flush=True)
    return code


def _answer(words: Sequence[str], folders: Sequence[Path]) -> CommandOutput | Result:
    """Run the command that the first word names, and return its output.

    Relative paths that do not exist in the current folder are looked up in `folders`.
    """
    name, rest = (words[0], list(words[1:])) if words else ("--help", [])
    if name in ("-h", "--help"):
        return _help(overview())
    if name == "--version":
        return CommandOutput(text=__version__, document={"version": __version__})
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS) or f"there are {', '.join(COMMANDS)}"
        raise BadInput([f"unknown command {_shown(name, name)}: {hint}"])
    if helps := [index for index, word in enumerate(rest) if word in {"-h", "--help"}]:
        return _help(help_of(name, with_all=rest[helps[0] + 1 : helps[0] + 2] == ["all"]))
    first_word, has_script = COMMANDS[name].first_word, False
    if rest and first_word and not rest[0].startswith("-"):
        has_script = name in ("train", "study") and rest[0].endswith(".py")
        rest[0] = f"--{first_word}={rest[0]}"
    from paretune.specification.inputs import PATHS
    from paretune.storage.files import find_path

    command = command_named(name)
    options = command.models()
    switches = {option for option, model in options.items() if model.schema_at([option])["type"] == "boolean"}
    of_script = _switches_of(rest[0].partition("=")[2]) - options.keys() if has_script else None
    texts, faults = read_words(rest, switches, of_script=of_script)
    for option in [option for option, text in texts.items() if not text.strip()]:
        outer, _, inner = option.partition(".")
        inside = options[outer].schema_at([outer]).get("properties", {inner}) if outer in options else ()
        if inner not in (*inside, "") or outer not in (*options, *command.excluded):
            texts[option] = "true"  # a switch of the user's script: '' means a default only for paretune's options
            faults = [fault for fault in faults if not fault.startswith(f"{option} needs")]
    paths = {*PATHS, "simulation.runs", *(["study"] if folders else [])}
    texts = {key: find_path(text, *folders) if key in paths else text for key, text in texts.items()}
    request = None
    with collecting(faults):
        request = command.read(texts)
    refuse(list(dict.fromkeys(faults)))
    return command.run(request)


def _switches_of(script: str) -> set[str]:
    """Return the switches in the text of a script, with underscores; none if it cannot be read."""
    from paretune.core.reading import at_home
    from paretune.user_code.script import Script

    with contextlib.suppress(BadInput):
        found = Script.read(at_home(script).resolve()).arguments
        return {name.replace("-", "_") for each in found if each.switch is not None for name in each.spellings}
    return set()


def _help(text: str) -> CommandOutput:
    return CommandOutput(text=text, document={"help": text})


def command_named(name: str) -> "Command[Any]":
    """Import the command with this name, and return it."""
    module = importlib.import_module(f"paretune.commands.{COMMANDS[name].module}")
    return cast("Command[Any]", getattr(module, name.upper()))


def overview() -> str:
    """Return the help of the program: common goals first, then all commands in groups."""
    lines = [TASKS]
    for group in dict.fromkeys(entry.group for entry in COMMANDS.values()):
        lines += [f"{group}:"]
        lines += [f"  {name:11}{entry.about}" for name, entry in COMMANDS.items() if entry.group == group]
    lines += ["", "paretune COMMAND --help shows its options and the most used job parameters, --help all shows all."]
    return "\n".join(lines)


def help_of(name: str, *, with_all: bool) -> str:
    """Return the help of a command: its own options and, if it takes jobs, the most used parameters of a job.

    With `with_all`, all parameters are included, in groups.
    """
    command, entry = command_named(name), COMMANDS[name]
    groups, title, left_out = dict[str, list[tuple[str, str]]](), "Options of this command", 0
    for option, model in command.models().items():
        schema = model.schema_at([option])
        if model is not command.options:
            if not with_all and not schema.get("basic"):
                left_out += 1
                continue
            title = (schema.get("group") or title) if with_all else "The most used parameters of a job"
        rows = groups.setdefault(title, [])
        rows.append(_help_row(option, schema))
        if with_all:
            rows += [
                _help_row(f"{option}.{key}", model.schema_at([option, key])) for key in schema.get("properties", ())
            ]
    groups["Output"] = [("--json", "print one JSON document on standard output, and everything else on standard error")]
    formatter = click.HelpFormatter()
    first_word = f"[{entry.first_word.upper()}] " if entry.first_word else ""
    formatter.write_usage(f"paretune {name}", f"{first_word}[--NAME VALUE]...")
    formatter.write(f"\n  {entry.about}\n")
    for title, rows in groups.items():
        with formatter.section(title):
            formatter.write_dl(rows, col_max=42)
    if left_out:
        formatter.write(f"\n{left_out} more: paretune {name} --help all\n")
    return formatter.getvalue().rstrip("\n")


def _help_row(option: str, schema: Mapping[str, Any]) -> tuple[str, str]:
    from paretune.specification.declaration import spell

    kinds = {"integer": "NUMBER", "number": "NUMBER", "array": "A,B", "object": "JSON", "boolean": "[true|false]"}
    values = "|".join(schema.get("enum", ())) or kinds.get(str(schema.get("type", "")), "TEXT")
    default = spell(schema.get("default"))
    return f"--{option} {values}", str(schema.get("description", "")) + (f" (default: {default})" if default else "")


def _take_json(arguments: Sequence[str]) -> tuple[bool, list[str]]:
    """Remove `--json` and its value, if it has one; return whether JSON is requested, and the other words."""
    words = list(arguments)
    at = next((index for index, word in enumerate(words) if word.partition("=")[0] == "--json"), None)
    if at is None:
        return False, words
    _, equals, text = words.pop(at).partition("=")
    if not equals:  # the next word may be its value, as `mlflow run -P json=true` passes it
        text = words.pop(at) if at < len(words) and words[at] in {"true", "false"} else "true"
    return text != "false", words


def _shown(name: str, text: str) -> str:
    return "..." if is_secret_name(name) else repr(text)


def read_words(
    arguments: Sequence[str], switches: Collection[str], *, of_script: Collection[str] | None = None
) -> tuple[dict[str, str], list[str]]:
    """Read options: `--name value`, `--name=value`, or `--name` for a switch. Return their values by name, and faults.

    `of_script` has the switches of the script that was typed; None if none was. Words that are neither names nor values
    are the script's own, as after `python SCRIPT`, and the only values of its switches are true and false.

    In a name, a dash before the first dot counts as an underscore. The values are `Plain` strings: they are read as
    numbers and booleans later, unless a string is required.
    """
    from paretune.specification.declaration import Plain

    texts: dict[str, str] = {}
    faults, own = list[str](), list[str]()
    words, name = list(arguments), ""
    while words:
        word = words.pop(0)
        if of_script is not None and not word.startswith("-"):
            own.append(word)
            continue
        if not word.startswith("--") or word.startswith("--=") or word == "--":
            hint = "options are given as --name value"
            if word.endswith((".py", ".sh")):
                hint = f"a script is named by --entry_script {_shown(name, word)}"
            faults.append(f"unexpected {_shown(name, word)}: {hint}")
            continue
        name, equals, text = word.removeprefix("--").partition("=")
        outer, dot, inner = name.partition(".")
        name = outer.replace("-", "_") + dot + inner  # a script's argument after the dot may have dashes of its own
        is_own_switch = name in (of_script or ())
        has_value = bool(words) and (words[0] in {"true", "false"} if is_own_switch else not words[0].startswith("--"))
        if not equals and has_value:
            text = words.pop(0)
        elif not equals and (name in switches or is_own_switch):
            text = "true"
        elif not equals:
            faults.append(f"{name} needs a value: --{name} VALUE, or --{name} '' for its default")
        if name in texts:
            faults.append(f"{name} is given twice: {_shown(name, texts[name])} and {_shown(name, text)}")
        texts[name] = Plain(text)
    if own and "script_words" in texts:
        faults.append(f"script_words is given twice: the script also gets {_shown(name, shlex.join(own))}")
    return texts | ({"script_words": Plain(shlex.join(own))} if own else {}), faults


def program() -> Sequence[str]:
    """Return `paretune` if the user's PATH leads to the program of this environment, otherwise `PYTHON -m paretune`.

    Under `mlflow run`, that is the PATH of the shell in which it was typed. The PATH of this process may begin with an
    environment that MLflow has made and activated.
    """
    typed = _where_typed()
    executable = shutil.which("paretune", path=None if typed is None else typed.search_path)
    is_here = executable is not None and Path(executable).parent.absolute() == Path(sys.executable).parent.absolute()
    return ("paretune",) if is_here else (sys.executable, "-m", "paretune")


def go_where_typed() -> Path | None:
    """Change to the folder where `mlflow run` was typed; return the project's folder, or None if nothing has changed.

    MLflow starts an entry point in the project's folder, which may be a clone in a temporary folder. MLflow itself, the
    parent process, still runs where the command was typed. A relative path is resolved against that folder. If nothing
    exists there, it is resolved against the project's folder.
    """
    project, typed = Path.cwd(), _where_typed()
    if typed is None or typed.folder == project:
        return None
    os.chdir(typed.folder)
    return project


class _Typed(NamedTuple):
    """The shell in which `mlflow run` was typed: its current folder and its PATH."""

    folder: Path
    search_path: str | None


def _where_typed() -> _Typed | None:
    """Return the folder and PATH of the process that started this one, skipping shells.

    Returns None if this process was not started by `mlflow run`, or if that process cannot be read.
    """
    if "MLFLOW_RUN_ID" not in os.environ:
        return None
    import psutil

    try:
        process = psutil.Process().parent()
        while process is not None and process.name() in _PROCESS_SHELLS:
            process = process.parent()
        return None if process is None else _Typed(Path(process.cwd()), process.environ().get("PATH"))
    except (psutil.Error, OSError):
        return None
