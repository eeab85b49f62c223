"""`paretune NAME --key value`: what the MLproject entry points call, and the same commands by hand."""

import argparse
import contextlib
import errno
import importlib
import logging
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

from paretune.cli.invocation import program
from paretune.core.clock import SystemClock
from paretune.core.commands import Spelling, spelled
from paretune.core.errors import BadInput, BudgetRefused, Interrupted, JobFailed, ParetuneError, did_you_mean
from paretune.core.result import CommandOutput, Result, as_document, error_document
from paretune.core.untrusted import is_secret_name, markdown, printable

if TYPE_CHECKING:
    from paretune.commands.command import Command

COMMANDS = {
    "main": ("one job: train, measure, price, record", "paretune.commands.main.command"),
    "demo": ("a whole simulated study in seconds, with nothing to configure", "paretune.commands.demo.command"),
    "estimate": (
        "seconds, dollars and memory before paying; comma-separated values make a table",
        "paretune.commands.estimate.command",
    ),
    "prices": ("the prices of a region; with refresh, read today's from AWS", "paretune.commands.prices.command"),
    "report": (
        "tables of recorded runs: priced again on other terms, estimates against measurements",
        "paretune.commands.report.command",
    ),
    "import": ("bring a table of recorded runs into MLflow, marked published", "paretune.commands.imports.command"),
    "study": (
        "find the front of the objectives for the fewest dollars, within a budget",
        "paretune.commands.study.command",
    ),
    "design": (
        "a designed experiment: a table of jobs, planned before it is paid, then run",
        "paretune.commands.design.command",
    ),
    "sync": ("adopt running jobs, collect finished ones, fill MLflow", "paretune.commands.sync.command"),
    "reconcile": (
        "AWS's bill against what was recorded: what each run was billed, and why it differs",
        "paretune.commands.bill.command",
    ),
    "doctor": (
        "what is wrong with machine, AWS account and MLflow, and the command that mends it",
        "paretune.commands.doctor.command",
    ),
    "mcp": (
        "a server for agents on standard input and output: they launch what was quoted, within a budget",
        "paretune.commands.mcp.command",
    ),
}
"""Name of each command to its line of help and the module that defines it, which is imported when it is needed."""
ALIASES = {"train": "main", "run": "main"}  # other words for commands; `run SCRIPT` is `main` with an `entry_script`
FIRST_WORDS = {
    "study": "study",
    "design": "design",
    "run": "entry_script",
    "reconcile": "bill",
}
"""Command to the parameter that the word after it sets, as in `paretune study studies/smoke.yaml`."""
NEXT_STEPS = """\
paretune finds the cluster, batch size and learning rate to pay for.

  paretune demo                          watch a simulated study and its page, in seconds
  paretune train                         fine-tune a small model on this machine, and record it in MLflow
  paretune train --dataset reviews.csv   the same with your own rows
  paretune run train.py                  your own training script as a job
  paretune study smoke                   search the best trade-offs of a study, in a few minutes on this machine
  paretune estimate --instance_type ml.g5.xlarge,ml.p4d.24xlarge
                                         seconds and dollars before anything is paid
  paretune doctor                        what is missing for jobs on SageMaker

paretune --help lists all commands, paretune COMMAND --help the parameters of one."""
SHELLS = ("bash", "zsh", "fish")
_ABOUT_COMPLETION = (
    'completion in your shell: eval "$(paretune completion bash)" (zsh: the same with zsh), '
    "paretune completion fish | source"
)
_JSON_HELP = "print one JSON document on standard output, and everything else on standard error"


def command_named(name: str) -> "Command[Any]":
    """Import the command with this name."""
    return cast("Command[Any]", importlib.import_module(COMMANDS[name][1]).COMMAND)


def run() -> None:
    """Entry point of the `paretune` program."""
    if "_ARGCOMPLETE" in os.environ:  # a shell wants the typed line completed
        import argcomplete

        words = os.environ.get("COMP_LINE", "").split()[1:2]
        argcomplete.autocomplete(_parser(*words), always_complete_options="long")
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str], spelling: Spelling | None = None) -> int:
    """Run one command and return its exit code (see `paretune.core.errors`).

    With `--json`, standard output gets one document, be it the answer or the error. `spelling` is how the user types
    commands; None: by the program `paretune`.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it writes ~/.config/mlflow/telemetry.json on import
    logging.raiseExceptions = False  # do not print a traceback if a log line does not fit on a full disk
    as_json, words, faults = _take_json(arguments)
    output = sys.stdout
    with (
        contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext(),
        spelled(spelling or program()),
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
    """Run the command named by the first word; `faults` are reported together with those of its parameters."""
    if words[:1] in ([], ["completion"]):
        return CommandOutput(text=_completion_script(words[1:]) if words else NEXT_STEPS)
    _print_help(words := _named(words))
    # Argparse answers --help and unknown commands; it would stop at the first fault of the parameters.
    command = command_named(_parser().parse_args(words[:1]).command)
    from paretune.specification.inputs import PATHS  # which the command has imported
    from paretune.storage.shipped import find_path

    texts, more = read_words(words[1:], command.all_switches())
    texts = {name: find_path(text) if name in PATHS else text for name, text in texts.items()}
    return command.run(command.read(texts, [*faults, *more]))


def _named(words: Sequence[str]) -> list[str]:
    """Return the words with the command's own name and the parameter that the next word sets, or raise BadInput."""
    command, *rest = words
    has_file = bool(rest) and not rest[0].startswith("-")
    if command == "run" and not has_file and not {"-h", "--help"} & {*rest}:
        raise BadInput(["run needs a training script after it: paretune run train.py"])
    if has_file and command in FIRST_WORDS:
        rest[0] = f"--{FIRST_WORDS[command]}={rest[0]}"
    if command not in {*COMMANDS, *ALIASES, "-h", "--help", "--version"}:
        hint = did_you_mean(command, (*COMMANDS, *ALIASES)) or f"there are {', '.join(COMMANDS)}"
        raise BadInput([f"unknown command {_shown(command, command)}: {hint}"])
    return [ALIASES.get(command, command), *rest]


def _print_help(words: Sequence[str]) -> None:
    """Print the help of the command that the first word names, and end, if one of the words asks for it."""
    helps = [index for index, word in enumerate(words) if word in {"-h", "--help"}]
    if helps:
        with_all = words[helps[0] + 1 : helps[0] + 2] == ["all"]
        _parser(words[0], with_all=with_all).parse_args([*words[:1], "--help"])


def _take_json(arguments: Sequence[str]) -> tuple[bool, list[str], list[str]]:
    """Take `--json`, `--json true` or `--json=true` out of the words; return its value, the other words and faults."""
    as_json, rest, faults = False, list[str](), list[str]()
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, text = word.partition("=")
        if name != "--json":
            rest.append(word)
            continue
        from paretune.specification.parameters import parse

        if not equals:
            text = "true"
            with contextlib.suppress(ValueError):  # a bare --json means true; the next word is another one
                if words and (not words[0].strip() or parse("json", words[0], bool) is not None):
                    text = words.pop(0)
        try:
            as_json = bool(text.strip()) and bool(parse("json", text, bool))
        except ValueError as error:
            as_json = True
            faults.append(str(error))
    return as_json, rest, faults


def _shown(name: str, text: str) -> str:
    return "..." if is_secret_name(name) else repr(text)


def read_words(arguments: Sequence[str], switches: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Return parameter to text, from `--name value`, `--name=value` and the bare `--name` of a switch, and faults."""
    texts: dict[str, str] = {}
    faults = []
    words, name = list(arguments), ""
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word.startswith("--=") or word == "--":
            faults.append(f"unexpected {_shown(name, word)}: parameters are given as --name value")
            continue
        name, equals, text = word.removeprefix("--").partition("=")
        if not equals and words and not words[0].startswith("--"):
            text = words.pop(0)
        elif not equals and name in switches:
            text = "true"
        elif not equals:
            faults.append(f"{name} needs a value: --{name} VALUE, or --{name} '' for its default")
        if name in texts:
            faults.append(f"{name} is given twice: {_shown(name, texts[name])} and {_shown(name, text)}")
        texts[name] = text
    return texts, faults


class _Parser(argparse.ArgumentParser):
    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        super().exit(status, message and printable(message))


class _PrintVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # takes 30 ms to import

        print(version("paretune"))
        parser.exit()


def _completion_script(words: Sequence[str]) -> str:
    """Return the script that completes the words of `paretune` in the shell named in `words`, or raise BadInput."""
    if len(words) != 1 or words[0] not in SHELLS:
        shells = " | ".join(SHELLS)
        raise BadInput([f"completion needs a shell: paretune completion {shells}, got {' '.join(words)!r}"])
    from argcomplete.shell_integration import shellcode

    return str(shellcode(["paretune"], shell=words[0])).strip()


def _completer(choices: Sequence[str]) -> Callable[..., Sequence[str]]:
    return lambda **_: choices


def _parser(command: str = "", *, with_all: bool = True) -> argparse.ArgumentParser:
    """Return a parser of all commands and the parameters of `command`, or only its basic ones without `with_all`."""
    parser = _Parser(
        prog="paretune",
        description="which SageMaker cluster, batch size and learning rate should I pay for?",
        epilog=f"{_ABOUT_COMPLETION}; paretune COMMAND --help: its most used parameters, --help all: all of them",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar=f"{{{','.join(COMMANDS)}}}")
    for name, (about, _) in COMMANDS.items():
        subparser = commands.add_parser(
            name,
            usage=f"paretune {name} [--NAME VALUE ...] [--json]",
            help=about,
            description=about,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=34),
            allow_abbrev=False,
        )
        if name == command:
            _add_parameters(subparser, name, with_all=with_all)
    return parser


def _add_parameters(parser: argparse.ArgumentParser, name: str, *, with_all: bool) -> None:
    from paretune.commands.command import choices_of
    from paretune.specification.job import JobSpec

    command = command_named(name)
    groups, left_out = (command.all_groups(), 0) if with_all else command.basic_groups()
    parser.epilog = f"{left_out} more: paretune {name} --help all" if left_out else None
    for title, lines in groups.items():
        group = parser.add_argument_group(title)
        for parameter, text in lines.items():
            option = group.add_argument(f"--{parameter}", help=text.replace("%", "%%"), metavar="VALUE")
            if choices := choices_of(JobSpec, parameter):  # else the shell completes names of files
                option.completer = _completer(choices)  # type: ignore[attr-defined]
    parser.add_argument_group("output").add_argument("--json", help=_JSON_HELP, action="store_true")


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
