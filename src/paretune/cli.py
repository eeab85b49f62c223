"""`paretune NAME --key value`: what the MLproject entry points call, and the same commands by hand.

Options, help and completion are made from the models of the commands. The words are read here and not by click, so that
all faults of a line are reported at once.
"""

import contextlib
import errno
import gc
import importlib
import logging
import os
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, cast

import click

from paretune.core.clock import SystemClock
from paretune.core.commands import started_by
from paretune.core.errors import (
    BadInput,
    BudgetRefused,
    Interrupted,
    JobFailed,
    ParetuneError,
    collecting,
    did_you_mean,
)
from paretune.core.result import CommandOutput, Result, as_document, error_document
from paretune.core.untrusted import is_secret_name, markdown, printable

if TYPE_CHECKING:
    from paretune.commands.command import Command


class Entry(NamedTuple):
    """One command: the group of the help that it is in, its line of help, and the option that a bare word sets."""

    group: str
    about: str
    module: str  # in `commands`; imported when it is needed
    first_word: str = ""


COMMANDS = {
    "train": Entry("Run", "one job: train, measure, price, record", "train", "entry_script"),
    "study": Entry("Run", "search the best trade-offs within a budget, or run a designed experiment", "study", "study"),
    "estimate": Entry(
        "Know before you pay", "seconds, dollars and memory; comma-separated values make a table", "estimate"
    ),
    "prices": Entry("Know before you pay", "the prices of a region; with --refresh, read today's from AWS", "prices"),
    "doctor": Entry("Know before you pay", "what is wrong with machine, AWS account and MLflow", "doctor"),
    "report": Entry("Look at runs", "tables of recorded runs, priced again on other terms", "report"),
    "sync": Entry("Look at runs", "adopt running jobs, collect finished ones, fill MLflow", "sync"),
    "import": Entry("Look at runs", "bring a table of recorded runs into MLflow, marked published", "imports"),
    "reconcile": Entry("Look at runs", "AWS's bill against what was recorded", "reconcile", "bill"),
    "demo": Entry("More", "a whole simulated study in seconds, with nothing to configure", "demo"),
    "mcp": Entry("More", "a server for agents on standard input and output, within a budget", "mcp"),
}
TASKS = """\
paretune finds the cluster, batch size and learning rate to pay for.

  paretune demo                          watch a simulated study and its page, in seconds
  paretune train                         fine-tune a small model on this machine, and record it in MLflow
  paretune train --dataset reviews.csv   the same with your own rows
  paretune train train.py                your own training script as a job
  paretune study smoke                   search the best trade-offs of a study, in a few minutes on this machine
  paretune estimate --instance_type ml.g5.xlarge,ml.p4d.24xlarge
                                         seconds and dollars before anything is paid
  paretune doctor                        what is missing for jobs on SageMaker
"""
_COMPLETE = "_PARETUNE_COMPLETE"  # variable that click's scripts of completion set
_JSON_HELP = "print one JSON document on standard output, and everything else on standard error"
_FILE_OPTIONS = ("study", "simulation.runs")  # options that name a file, besides `inputs.PATHS`
_PROCESS_SHELLS = {"bash", "sh", "dash", "zsh", "cmd.exe"}


def run() -> None:
    """Entry point of the `paretune` program."""
    if _COMPLETE in os.environ:  # a shell wants the typed line completed
        Program().main(prog_name="paretune", complete_var=_COMPLETE)
    gc.set_threshold(100_000)  # MLflow takes 1.3 s of CPU to import then, and not 1.7 s
    code = main(sys.argv[1:])
    gc.freeze()  # Python would search all objects of MLflow again before it ends, in 0.8 s
    sys.exit(code)


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code (see `paretune.core.errors`).

    With `--json`, standard output gets one document, be it the answer or the error.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it writes ~/.config/mlflow/telemetry.json on import
    logging.raiseExceptions = False  # do not print a traceback if a log line does not fit on a full disk
    as_json, words, faults = _take_json(arguments)
    output = sys.stdout
    with (
        contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext(),
        started_by(*program()),
    ):
        try:
            answer = _answer(words, faults)
            parts = [as_document(answer.to_dict())] if as_json else map(printable, answer.parts())
            for text in filter(None, parts):
                print(text, file=output, flush=True)
            return answer.exit_code
        except BrokenPipeError:  # the reader has ended, as in `paretune report | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes at its end
            return 0
        except BaseException as error:
            return _print_failure(error, output if as_json else None)


def _print_failure(error: BaseException, output: TextIO | None) -> int:
    """Print why a command failed, as JSON to `output` if set; returns the exit code. Bugs are raised again."""
    if isinstance(error, ParetuneError):
        message, code = str(error), error.exit_code
        if code in {BadInput.exit_code, BudgetRefused.exit_code}:
            _record_refusal(error, os.environ)
    elif isinstance(error, KeyboardInterrupt):  # before the command handles it: nothing has been started yet
        message, code = "interrupted", Interrupted.exit_code
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
        message = f"the disk is full ({error}): make room, or set PARETUNE_HOME"
        code = JobFailed.exit_code
    else:
        raise error
    print(printable(f"paretune: {message}"), file=sys.stderr)
    if output is not None:
        print(as_document(error_document(error, message, code)), file=output, flush=True)
    return code


def _answer(words: Sequence[str], faults: Sequence[str]) -> CommandOutput | Result:
    """Run the command named by the first word; `faults` are reported together with those of its options."""
    name, rest = (words[0], list(words[1:])) if words else ("--help", [])
    if name in ("-h", "--help"):
        return CommandOutput(text=overview())
    if name == "--version":
        from importlib.metadata import version  # takes 30 ms to import

        return CommandOutput(text=version("paretune"))
    if name == "completion":
        return CommandOutput(text=_completion_script(rest))
    entry = entry_named(name)
    if helps := [index for index, word in enumerate(rest) if word in {"-h", "--help"}]:
        with_all = rest[helps[0] + 1 : helps[0] + 2] == ["all"]
        page = ModelCommand(name, with_all=with_all)
        return CommandOutput(text=page.get_help(click.Context(page, info_name=f"paretune {name}")))
    if rest and entry.first_word and not rest[0].startswith("-"):
        rest[0] = f"--{entry.first_word}={rest[0]}"
    from paretune.specification.inputs import PATHS
    from paretune.storage.files import find_path

    command = command_named(name)
    options = command.models()
    switches = {option for option, model in options.items() if model.schema_at([option])["type"] == "boolean"}
    texts, more = read_words(rest, switches)
    for option in [option for option, text in texts.items() if not text.strip()]:
        outer, _, inner = option.partition(".")
        inside = options[outer].schema_at([outer]).get("properties", {inner}) if outer in options else ()
        if inner not in (*inside, "") or outer not in (*options, *command.excluded, *command.hidden):
            texts[option] = "true"  # the empty text would mean a default, which it does not have
            more = [fault for fault in more if not fault.startswith(f"{option} needs")]
    texts = {key: find_path(text) if key in (*PATHS, *_FILE_OPTIONS[1:]) else text for key, text in texts.items()}
    all_faults, request = [*faults, *more], None
    with collecting(all_faults):
        request = command.read(texts)
    if all_faults:
        raise BadInput(list(dict.fromkeys(all_faults)))
    return command.run(request)


def entry_named(name: str) -> Entry:
    """The command of this name; BadInput with a suggestion if there is none."""
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS) or f"there are {', '.join(COMMANDS)}"
        raise BadInput([f"unknown command {_shown(name, name)}: {hint}"])
    return COMMANDS[name]


def command_named(name: str) -> "Command":
    """Import the command with this name."""
    module = importlib.import_module(f"paretune.commands.{COMMANDS[name].module}.command")
    return cast("Command", module.COMMAND)


def overview() -> str:
    """The help of the program: tasks first, then all commands in groups."""
    lines = [TASKS]
    for group in dict.fromkeys(entry.group for entry in COMMANDS.values()):
        lines += [f"{group}:"]
        lines += [f"  {name:11}{entry.about}" for name, entry in COMMANDS.items() if entry.group == group]
    lines += ["", "paretune COMMAND --help shows the most used options of one, --help all shows all of them."]
    lines += ['Completion in your shell: eval "$(paretune completion bash)" (or zsh, fish).']
    return "\n".join(lines)


class ModelCommand(click.Command):
    """A command whose options are the fields of its models, for help and completion."""

    def __init__(self, name: str, *, with_all: bool = True) -> None:
        command, entry = command_named(name), COMMANDS[name]
        self.groups, title, self.left_out = dict[str, list[tuple[str, str]]](), "Options of this command", 0
        params: list[click.Parameter] = []
        for option, model in command.models().items():
            schema = model.schema_at([option])
            is_of_job = model is not command.options
            if is_of_job and with_all:
                title = schema.get("group") or title
            elif is_of_job and not schema.get("basic"):
                self.left_out += 1
                continue
            elif is_of_job:
                title = "The most used parameters of a job"
            self.groups.setdefault(title, []).append((f"--{option} {_kind(schema)}", _line(schema)))
            choices = schema.get("enum") or (["true", "false"] if schema.get("type") == "boolean" else None)
            params.append(click.Option([f"--{option}"], type=click.Choice(choices) if choices else None))
        usage = f"[{entry.first_word.upper()}] [--NAME VALUE]..." if entry.first_word else "[--NAME VALUE]..."
        super().__init__(name, params=params, help=entry.about, options_metavar=usage, add_help_option=False)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups of options, and how many are left out."""
        for title, rows in {**self.groups, "Output": [("--json", _JSON_HELP)]}.items():
            with formatter.section(title):
                formatter.write_dl(rows, col_max=42)
        if self.left_out:
            formatter.write(f"\n{self.left_out} more: paretune {self.name} --help all\n")


class Program(click.Group):
    """All commands, for completion."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, if there is one."""
        return ModelCommand(cmd_name) if cmd_name in COMMANDS else None


def _kind(schema: Mapping[str, Any]) -> str:
    """The values of an option as help shows them."""
    kinds = {"integer": "NUMBER", "number": "NUMBER", "array": "A,B", "object": "JSON", "boolean": "[true|false]"}
    return "|".join(schema.get("enum", ())) or kinds.get(str(schema.get("type", "")), "TEXT")


def _line(schema: Mapping[str, Any]) -> str:
    from paretune.specification.parameters import spell

    default = spell(schema.get("default"))
    return str(schema.get("description", "")) + (f" (default: {default})" if default else "")


_TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}


def _take_json(arguments: Sequence[str]) -> tuple[bool, list[str], list[str]]:
    """Take `--json`, `--json true` or `--json=true` out of the words; return its value, the other words and faults."""
    words = list(arguments)
    at = next((index for index, word in enumerate(words) if word.partition("=")[0] == "--json"), None)
    if at is None:
        return False, words, []
    _, equals, text = words.pop(at).partition("=")
    if not equals:  # a bare --json means true; the next word may be its value
        text = words.pop(at) if at < len(words) and words[at].lower() in _TRUTHS else "true"
    faults = [] if text.lower() in _TRUTHS else [f"json must be true or false, got {text!r}"]
    return _TRUTHS.get(text.lower(), True), words, faults


def _shown(name: str, text: str) -> str:
    return "..." if is_secret_name(name) else repr(text)


def read_words(arguments: Sequence[str], switches: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Return option to text, from `--name value`, `--name=value` and the bare `--name` of a switch, and faults.

    Dashes and underscores in names are equal. Texts are `Plain`: they become numbers where nothing says otherwise.
    """
    from paretune.specification.parameters import Plain

    texts: dict[str, str] = {}
    faults = []
    words, name = list(arguments), ""
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word.startswith("--=") or word == "--":
            faults.append(f"unexpected {_shown(name, word)}: options are given as --name value")
            continue
        name, equals, text = word.removeprefix("--").partition("=")
        outer, dot, inner = name.partition(".")
        name = outer.replace("-", "_") + dot + inner  # a script may declare names with dashes
        if not equals and words and not words[0].startswith("--"):
            text = words.pop(0)
        elif not equals and name in switches:
            text = "true"
        elif not equals:
            faults.append(f"{name} needs a value: --{name} VALUE, or --{name} '' for its default")
        if name in texts:
            faults.append(f"{name} is given twice: {_shown(name, texts[name])} and {_shown(name, text)}")
        texts[name] = Plain(text)
    return texts, faults


def _completion_script(words: Sequence[str]) -> str:
    """Return the script that completes the words of `paretune` in the shell named in `words`, or raise BadInput."""
    from click.shell_completion import get_completion_class

    completion = get_completion_class(words[0]) if len(words) == 1 else None
    if completion is None:
        raise BadInput([f"completion needs a shell: paretune completion bash | zsh | fish, got {' '.join(words)!r}"])
    return completion(Program(), {}, "paretune", _COMPLETE).source().strip()


def _record_refusal(error: ParetuneError, environment: Mapping[str, str]) -> None:
    """Record why a command was refused in the run that `mlflow run` has opened for it, unless a reason is there.

    Typed by hand, refused input opens no run. A tracking server that does not answer is ignored: the terminal shows
    the reason.
    """
    run_id = environment.get("MLFLOW_RUN_ID")
    if not run_id:
        return
    from paretune.tracking import Tracking, schema  # MLflow takes a second to import

    with contextlib.suppress(ParetuneError):
        run = Tracking(environment, SystemClock()).run(run_id)
        if not run.tags().get(schema.FAILURE_REASON):
            note = f"**Refused, nothing was launched.**\n\n{markdown(str(error))}"
            run.set_tags({schema.FAILURE_REASON: str(error), schema.NOTE: note})


def program() -> Sequence[str]:
    """Return `paretune` if the search path leads to the one of this environment, else `PYTHON -m paretune`."""
    executable = shutil.which("paretune")
    is_here = executable is not None and Path(executable).parent.absolute() == Path(sys.executable).parent.absolute()
    return ("paretune",) if is_here else (sys.executable, "-m", "paretune")


def go_where_typed(words: list[str]) -> None:
    """Change to the folder where `mlflow run` was typed, and make the project's own paths in `words` absolute.

    MLflow starts an entry point in the folder of the project, which may be a clone in a temporary folder. The folder
    where the command was typed is that of the process that has started the entry point, MLflow itself. A relative path
    counts from there; if nothing has that name there, from the folder of the project. Stays here for a command that
    MLflow has not started.
    """
    if "MLFLOW_RUN_ID" not in os.environ:
        return
    project = Path.cwd()
    typed = _mlflow_folder() or project
    os.chdir(typed)
    if typed != project:
        from paretune.specification.inputs import PATHS
        from paretune.storage.files import find_path

        for index, word in enumerate(words):
            name, equals, text = word.removeprefix("--").partition("=")
            if not word.startswith("--") or name not in (*PATHS, *_FILE_OPTIONS):
                continue
            if equals:
                words[index] = f"--{name}={find_path(text, project)}"
            elif index + 1 < len(words):
                words[index + 1] = find_path(words[index + 1], project)


def _mlflow_folder() -> Path | None:
    """Return the current folder of the process that started this one, shells skipped, or None if it is not visible."""
    import psutil

    try:
        process = psutil.Process().parent()
        while process is not None and process.name() in _PROCESS_SHELLS:
            process = process.parent()
        return None if process is None else Path(process.cwd())
    except (psutil.Error, OSError):
        return None
