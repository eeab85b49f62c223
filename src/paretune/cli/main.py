"""`paretune NAME --key value`: what the MLproject entry points call, and the same commands by hand."""

import argparse
import errno
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from paretune.cli.requests import job_request as asked
from paretune.cli.requests.estimate_request import PROBE_HELP
from paretune.cli.requests.prompts import PricesRequest, ReportRequest
from paretune.core.errors import Interrupted, JobFailed, ParetuneError
from paretune.estimating.recorded.import_request import import_help
from paretune.spec.job import parameter_help
from paretune.spec.parameters import help_lines
from paretune.studies.definition.file import study_help


def run() -> None:
    """Entry point of the `paretune` command."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit code says how it ended (see `errors`)."""
    try:
        command = _COMMANDS[_command(arguments)]
        value = command.read(*_read(arguments[1:]))
        # Only now, so that --help and bad input answer at once: MLflow takes a second to import.
        return int(importlib.import_module(f"paretune.cli.commands.{command.module}").run(value))
    except ParetuneError as error:
        print(f"paretune: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # before the command listens for it: nothing has been started yet
        print("paretune: interrupted", file=sys.stderr)
        return Interrupted.exit_code
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"paretune: the disk is full ({error}): make room, or set PARETUNE_HOME", file=sys.stderr)
        return JobFailed.exit_code


def _command(arguments: Sequence[str]) -> str:
    """The command's name; argparse answers --help and unknown commands.

    Parameters are read elsewhere, because it would stop at the first fault.
    """
    if {"-h", "--help"} & set(arguments):
        _parser().parse_args([*arguments[:1], "--help"])
    return str(_parser().parse_args(arguments[:1]).command)


def _read(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Parameter to text, from `--name value` and `--name=value`, and what is neither."""
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
        elif not equals:
            faults.append(f"{name} needs a value: --{name} VALUE, or --{name} '' for its default")
        if name in texts:
            faults.append(f"{name} is given twice: {texts[name]!r} and {text!r}")
        texts[name] = text
    return texts, faults


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="paretune",
        description="which SageMaker cluster, batch size and learning rate should I pay for?",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=version("paretune"))
    commands = parser.add_subparsers(dest="command", required=True)
    for name, known in _COMMANDS.items():
        command = commands.add_parser(name, help=known.about, description=known.about, allow_abbrev=False)
        for parameter, text in known.parameters().items():
            command.add_argument(f"--{parameter}", help=text.replace("%", "%%"), metavar="VALUE")
    return parser


@dataclass(frozen=True)
class _Command:
    """What a command does, which of `paretune.commands` does it, and how what was typed is read."""

    about: str
    module: str
    read: Callable[[Mapping[str, str], list[str]], Any]
    parameters: Callable[[], dict[str, str]]


_COMMANDS = {
    "main": _Command("one job: train, measure, price, record", "job", asked.job, parameter_help),
    "estimate": _Command(
        "seconds, dollars and memory before paying; comma-separated values make a table",
        "estimate",
        asked.estimate,
        lambda: {"probe": PROBE_HELP, **parameter_help()},
    ),
    "prices": _Command(
        "the prices of a region; with refresh, read today's from AWS",
        "prices",
        asked.own(PricesRequest, "prices"),
        lambda: help_lines(PricesRequest),
    ),
    "report": _Command(
        "tables of recorded runs: priced again on other terms, estimates against measurements",
        "report",
        asked.own(ReportRequest, "report"),
        lambda: help_lines(ReportRequest),
    ),
    "import": _Command(
        "bring a table of recorded runs into MLflow, marked published", "imports", asked.imported, import_help
    ),
    "study": _Command(
        "find the front of the objectives for the fewest dollars, within a budget",
        "study",
        asked.study,
        lambda: {"study": "the study's file, such as studies/smoke.yaml", **study_help(), **parameter_help()},
    ),
    "sync": _Command("adopt running jobs, collect finished ones, fill MLflow", "sync", asked.nothing, dict),
}
