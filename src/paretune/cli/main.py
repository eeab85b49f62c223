"""`paretune NAME --key value`: what the MLproject entry points call, and the same commands by hand."""

import argparse
import contextlib
import errno
import importlib
import logging
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from paretune.cli import completion
from paretune.cli.output.refusal import keep_reason
from paretune.cli.requests import readers
from paretune.cli.started import spelling_here
from paretune.commands.bill.request import ReconcileRequest
from paretune.commands.design.file import DesignTerms, design_help
from paretune.commands.doctor.request import PAID_HELP
from paretune.commands.mcp.request import McpRequest
from paretune.commands.predict.request import PredictRequest
from paretune.commands.prices.request import PricesRequest
from paretune.commands.recur.file import recur_help
from paretune.commands.report.request import ReportRequest
from paretune.commands.schedule.request import ScheduleRequest
from paretune.core.commands import spelled
from paretune.core.errors import BadInput, BudgetRefused, Interrupted, JobFailed, ParetuneError
from paretune.core.result import CommandOutput, Result, as_document, error_document
from paretune.core.untrusted import printable
from paretune.estimating.recorded.import_request import import_help
from paretune.jobs.estimates.request import PROBE_HELP
from paretune.specification.job import JobSpec, parameter_help
from paretune.specification.parameters import basics_of, choices_of, grouped, groups_of, help_lines, parse, switches_of
from paretune.studies.definition.file import study_help
from paretune.studies.definition.rules import StudyTerms

_JSON_HELP = "print one JSON document on standard output, and everything else on standard error"


def run() -> None:
    """Entry point of the `paretune` command."""
    if completion.is_asked():
        completion.answer(_parser())
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit code says how it ended (see `errors`).

    With `--json`, standard output gets one document, be it the answer or the error.
    """
    logging.raiseExceptions = False  # a log line that does not fit on a full disk is no news
    as_json, words, faults = _take_json(arguments)
    output = sys.stdout
    with (
        contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext(),
        spelled(spelling_here()),
    ):
        try:
            answer = _answer(words, faults)
            text = as_document(answer.to_dict()) if as_json else str(answer)
            if text:
                print(text if as_json else printable(text), file=output, flush=True)
            return answer.exit_code if isinstance(answer, CommandOutput) else 0
        except ParetuneError as error:
            failure: BaseException = error
            message, code = str(error), error.exit_code
            if code in {BadInput.exit_code, BudgetRefused.exit_code}:
                keep_reason(error, os.environ)
        except KeyboardInterrupt as error:  # before the command listens for it: nothing has been started yet
            failure, message, code = error, "interrupted", Interrupted.exit_code
        except BrokenPipeError:  # of `paretune report | head`: nobody reads on
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes at its end
            return 0
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            failure, code = error, JobFailed.exit_code
            message = f"the disk is full ({error}): make room, or set PARETUNE_HOME"
        except SystemExit as end:  # of argparse, which has said why on standard error
            if as_json and end.code:
                unknown = BadInput([f"the first word must be a command: {', '.join(_COMMANDS)}"])
                print(as_document(error_document(unknown, str(unknown), BadInput.exit_code)), file=output)
            raise
    print(printable(f"paretune: {message}"), file=sys.stderr)
    if as_json:
        print(as_document(error_document(failure, message, code)), file=output, flush=True)
    return code


def _answer(words: Sequence[str], faults: Sequence[str]) -> CommandOutput | Result:
    """What the command gives; `faults` are reported with all others."""
    if words[:1] == [completion.COMMAND]:
        return CommandOutput(text=completion.script(words[1:]))
    asked = [place for place, word in enumerate(words) if word in {"-h", "--help"}]
    if asked:
        with_all = words[asked[0] + 1 : asked[0] + 2] == ["all"]
        _parser(with_all=with_all).parse_args([*words[:1], "--help"])
    # Argparse answers --help and unknown commands; it would stop at the first fault of the parameters.
    command = _COMMANDS[_parser().parse_args(words[:1]).command]
    texts, more = _read(
        words[1:], switches_of(JobSpec) | switches_of(StudyTerms) | switches_of(DesignTerms) | switches_of(McpRequest)
    )
    value = command.read(texts, [*faults, *more])
    # Only now, so that --help and bad input answer at once: MLflow takes a second to import.
    module, _, function = command.home.partition(":")
    answer: CommandOutput | Result = getattr(importlib.import_module(module), function)(value)
    return answer


def _take_json(arguments: Sequence[str]) -> tuple[bool, list[str], list[str]]:
    """Whether `--json`, `--json true` or `--json=true` is among the words; the other words; what is wrong with it."""
    wanted, rest, faults = False, list[str](), list[str]()
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, text = word.partition("=")
        if name != "--json":
            rest.append(word)
            continue
        if not equals:
            text = "true"
            with contextlib.suppress(ValueError):  # the next word is another one: a bare --json means true
                if words and (not words[0].strip() or parse("json", words[0], bool) is not None):
                    text = words.pop(0)
        try:
            wanted = bool(text.strip()) and bool(parse("json", text, bool))
        except ValueError as error:
            wanted = True
            faults.append(str(error))
    return wanted, rest, faults


def _read(arguments: Sequence[str], switches: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Parameter to text, from `--name value`, `--name=value` and the bare `--name` of a switch; and what is neither."""
    texts: dict[str, str] = {}
    faults = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            faults.append(f"unexpected {word!r}: parameters are given as --name value")
            continue
        if not equals and words and not words[0].startswith("--"):
            text = words.pop(0)
        elif not equals and name in switches:
            text = "true"
        elif not equals:
            faults.append(f"{name} needs a value: --{name} VALUE, or --{name} '' for its default")
        if name in texts:
            faults.append(f"{name} is given twice: {texts[name]!r} and {text!r}")
        texts[name] = text
    return texts, faults


def _parser(*, with_all: bool = True) -> argparse.ArgumentParser:
    """What knows all commands; the help of a command has all parameters, or only the basic ones of a job."""
    parser = argparse.ArgumentParser(
        prog="paretune",
        description="which SageMaker cluster, batch size and learning rate should I pay for?",
        epilog=f"{completion.ABOUT}; paretune COMMAND --help: its most used parameters, --help all: all of them",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=version("paretune"))
    commands = parser.add_subparsers(dest="command", required=True, metavar=f"{{{','.join(_COMMANDS)}}}")
    for name, known in _COMMANDS.items():
        command = commands.add_parser(
            name,
            usage=f"paretune {name} [--NAME VALUE ...] [--json]",
            help=known.about,
            description=known.about,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=34),
            allow_abbrev=False,
        )
        shown, left_out = known.groups(), 0
        if not with_all:
            shown, left_out = known.basic_groups()
        command.epilog = f"{left_out} more: paretune {name} --help all" if left_out else None
        for title, lines in shown.items():
            group = command.add_argument_group(title)
            for parameter, text in lines.items():
                option = group.add_argument(f"--{parameter}", help=text.replace("%", "%%"), metavar="VALUE")
                completion.suggest(option, choices_of(JobSpec, parameter))
        command.add_argument_group("output").add_argument("--json", help=_JSON_HELP, action="store_true")
    return parser


@dataclass(frozen=True)
class _Command:
    """What a command does, which function (`module:name`) does it, and how what was typed is read.

    `own` gives the help of its own parameters; those of a job follow in groups where it takes them, but for some.
    """

    about: str
    home: str
    read: Callable[[Mapping[str, str], list[str]], Any]
    own: Callable[[], dict[str, str]] = dict
    takes_jobs: bool = False
    but_for: tuple[str, ...] = ()

    def groups(self) -> dict[str, dict[str, str]]:
        """Title of each group of parameters to their names and lines of help."""
        lines = self.own() | self._of_jobs()
        return grouped(lines, groups_of(JobSpec), "parameters of this command")

    def basic_groups(self) -> tuple[dict[str, dict[str, str]], int]:
        """The same with the basic parameters of a job alone, and how many others there are."""
        lines, known = self.own(), self._of_jobs()
        basic = {name: line for name, line in known.items() if name in basics_of(JobSpec) and name not in lines}
        groups = {"parameters of this command": lines, "the most used parameters of a job": basic}
        left_out = len(known.keys() - basic.keys() - lines.keys())
        return {title: shown for title, shown in groups.items() if shown}, left_out

    def _of_jobs(self) -> dict[str, str]:
        known = parameter_help() if self.takes_jobs else {}
        return {name: line for name, line in known.items() if name not in self.but_for}


_COMMANDS = {
    "main": _Command(
        "one job: train, measure, price, record", "paretune.jobs.launch:launch_here", readers.job, takes_jobs=True
    ),
    "estimate": _Command(
        "seconds, dollars and memory before paying; comma-separated values make a table",
        "paretune.jobs.estimates.estimate:run_estimate",
        readers.estimate,
        lambda: {"probe": PROBE_HELP},
        takes_jobs=True,
    ),
    "prices": _Command(
        "the prices of a region; with refresh, read today's from AWS",
        "paretune.commands.prices.command:run",
        readers.own(PricesRequest, "prices"),
        lambda: help_lines(PricesRequest),
    ),
    "report": _Command(
        "tables of recorded runs: priced again on other terms, estimates against measurements",
        "paretune.commands.report.command:run",
        readers.own(ReportRequest, "report"),
        lambda: help_lines(ReportRequest),
    ),
    "import": _Command(
        "bring a table of recorded runs into MLflow, marked published",
        "paretune.commands.imports.command:run",
        readers.import_,
        import_help,
    ),
    "study": _Command(
        "find the front of the objectives for the fewest dollars, within a budget",
        "paretune.studies.run:run_study_file",
        readers.study,
        lambda: {"study": "the study's file, such as studies/smoke.yaml", **study_help()},
        takes_jobs=True,
        but_for=("dry_run",),
    ),
    "schedule": _Command(
        "an entry for cron, Kubernetes, GitHub or EventBridge Scheduler that calls the rounds of a study",
        "paretune.commands.schedule.command:run",
        readers.own(ScheduleRequest, "schedule"),
        lambda: help_lines(ScheduleRequest),
    ),
    "design": _Command(
        "a designed experiment: a table of jobs, planned before it is paid, then run",
        "paretune.commands.design.run:run_design_file",
        readers.design,
        lambda: {"design": "the design's file, such as studies/polarity_scaling.yaml", **design_help()},
        takes_jobs=True,
    ),
    "recur": _Command(
        "tonight's run of a recurring training: the cheapest point that hardly ever falls below a floor of quality",
        "paretune.commands.recur.command:run",
        readers.recur,
        lambda: {"file": "the recurring training's file, such as examples/nightly.yaml", **recur_help()},
        takes_jobs=True,
        but_for=("dry_run",),
    ),
    "sync": _Command(
        "adopt running jobs, collect finished ones, fill MLflow", "paretune.cli.commands.sync:run", readers.nothing
    ),
    "predict": _Command(
        "a registered or local model on the rows of a file, with F1 and dollars per 1,000 rows",
        "paretune.commands.predict.command:run",
        readers.own(PredictRequest, "predict"),
        lambda: help_lines(PredictRequest),
    ),
    "reconcile": _Command(
        "AWS's bill against what was recorded: what each run was billed, and why it is not what was computed",
        "paretune.commands.bill.command:run",
        readers.own(ReconcileRequest, "reconcile"),
        lambda: help_lines(ReconcileRequest),
    ),
    "doctor": _Command(
        "what is wrong with machine, AWS account and MLflow, and the command that mends it",
        "paretune.commands.doctor.command:run",
        readers.doctor,
        lambda: {"paid": f"{PAID_HELP} (default: false)"},
        takes_jobs=True,
    ),
    "mcp": _Command(
        "a server for agents on standard input and output: they launch what was quoted, within a budget",
        "paretune.commands.mcp.command:run",
        readers.own(McpRequest, "mcp"),
        lambda: help_lines(McpRequest),
    ),
}
