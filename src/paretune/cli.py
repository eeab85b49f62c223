"""`paretune NAME --key value`: what the MLproject entry points call, and the same commands by hand."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

from paretune import __version__
from paretune.clock import SystemClock
from paretune.errors import BadInput, ParetuneError
from paretune.spec import JobSpec, parameter_help

_COMMANDS = {"main": "one job: train, measure, price, record"}


def run() -> None:
    """Entry point of the `paretune` command."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit code says how it ended (see `errors`)."""
    try:
        command, texts = _parse(arguments)
        return _COMMANDS_TO_RUN[command](JobSpec.from_text(texts))
    except ParetuneError as error:
        print(f"paretune: {error}", file=sys.stderr)
        return error.exit_code


def run_job(spec: JobSpec) -> int:
    """The command `main`: one job."""
    # Imported here so that --help and bad input answer at once: MLflow takes a second to import.
    from paretune.interruption import Interruption
    from paretune.launch import admit, home_folder, launch
    from paretune.launchers.local import LocalLauncher
    from paretune.preparation import prepare
    from paretune.report import ProgressPrinter, summary

    clock, environment = SystemClock(), dict(os.environ)
    home = home_folder(environment)
    launcher = LocalLauncher(home, clock, environment)
    interruption = Interruption(watch_parent="MLFLOW_RUN_ID" in environment)
    with interruption.listening():
        if spec.dry_run:
            worst = admit(spec, launcher.price(spec))
            inputs = prepare(spec, home=home, clock=clock, environment=environment, interruption=interruption)
            print(_dry_run_text(spec, worst, inputs.dataset and dict(inputs.dataset.facts)))
            return 0
        from paretune.tracking import Tracking

        progress = ProgressPrinter()
        try:
            outcome = launch(
                spec,
                launcher=launcher,
                tracking=Tracking(environment, clock),
                home=home,
                clock=clock,
                environment=environment,
                interruption=interruption,
                on_events=progress,
            )
        finally:
            progress.close()
    print(summary(outcome))
    return 0


def _dry_run_text(spec: JobSpec, worst_usd: float | None, facts: object) -> str:
    shown = {"specification": spec.as_text(), "batch": asdict(spec.plan()), "data": facts, "worst_case_usd": worst_usd}
    return json.dumps(shown, indent=2) + f"\nnothing was launched; to launch it: {spec.command()}"


def _parse(arguments: Sequence[str]) -> tuple[str, dict[str, str]]:
    """(command, parameter to text). Unknown parameters are kept, for the specification names all faults at once."""
    parser = _parser()
    known, rest = parser.parse_known_args(list(arguments))
    texts = {name: text for name, text in vars(known).items() if name != "command" and text is not None}
    faults = []
    words = list(rest)
    while words:
        word = words.pop(0)
        name, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            faults.append(f"unexpected {word!r}: parameters are given as --name value")
            continue
        if not equals and words and not words[0].startswith("--"):
            text = words.pop(0)
        texts[name] = text
    if faults:
        raise BadInput(faults)
    return known.command, texts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="paretune", description=__import__("paretune").__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, about in _COMMANDS.items():
        command = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
        for parameter, text in parameter_help().items():
            command.add_argument(f"--{parameter}", help=text.replace("%", "%%"), metavar="VALUE")
    return parser


_COMMANDS_TO_RUN = {"main": run_job}
