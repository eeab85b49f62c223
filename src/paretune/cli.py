"""`paretune NAME --key value`: what the MLproject entry points call, and the same commands by hand."""

import argparse
import errno
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

import paretune
from paretune.clock import SystemClock
from paretune.errors import BadInput, Interrupted, JobFailed, ParetuneError
from paretune.preparation import missing_files
from paretune.spec import JobSpec, parameter_help


def run() -> None:
    """Entry point of the `paretune` command."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit code says how it ended (see `errors`)."""
    try:
        command, spec = _parse(arguments)
        _, carry_out = _COMMANDS[command]
        return carry_out(spec)
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
    command = replace(spec, dry_run=False).command()
    return json.dumps(shown, indent=2) + f"\nnothing was launched; to launch it: {command}"


def _parse(arguments: Sequence[str]) -> tuple[str, JobSpec]:
    """Command and specification.

    argparse answers --help and unknown commands; parameters are read here, because it would stop at the first fault.
    """
    if {"-h", "--help"} & set(arguments):
        _parser().parse_args([*arguments[:1], "--help"])
    command = str(_parser().parse_args(arguments[:1]).command)
    texts, faults = _read(arguments[1:])
    try:
        spec = JobSpec.from_text(texts)
    except BadInput as error:
        faults += error.faults
    if faults:
        raise BadInput([*faults, *missing_files(texts)])
    return command, spec


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
    parser = argparse.ArgumentParser(prog="paretune", description=paretune.__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=paretune.__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (about, _) in _COMMANDS.items():
        command = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
        for parameter, text in parameter_help().items():
            command.add_argument(f"--{parameter}", help=text.replace("%", "%%"), metavar="VALUE")
    return parser


_COMMANDS = {"main": ("one job: train, measure, price, record", run_job)}
