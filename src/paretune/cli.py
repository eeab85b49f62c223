"""`paretune NAME --key value`: what the MLproject entry points call, and the same commands by hand."""

import argparse
import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import paretune
from paretune.clock import Clock, SystemClock
from paretune.errors import BadInput, Interrupted, JobFailed, ParetuneError
from paretune.launchers.base import Launcher
from paretune.preparation import missing_files
from paretune.profile import read_profile
from paretune.spec import JobSpec, parameter_help


def run() -> None:
    """Entry point of the `paretune` command."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit code says how it ended (see `errors`)."""
    try:
        command = _command(arguments)
        texts, faults = _read(arguments[1:])
        return _COMMANDS[command].carry_out(texts, faults)
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


def run_job(texts: Mapping[str, str], faults: list[str]) -> int:
    """The command `main`: one job."""
    spec = _spec(texts, faults)
    # Imported here so that --help and bad input answer at once: MLflow takes a second to import.
    from paretune.interruption import Interruption
    from paretune.launch import admit_everywhere, home_folder, launch
    from paretune.preparation import prepare
    from paretune.report import ProgressPrinter, preview, summary

    clock, environment = SystemClock(), dict(os.environ)
    home = home_folder(environment)
    interruption = Interruption(watch_parent="MLFLOW_RUN_ID" in environment)
    with interruption.listening():
        if spec.dry_run:
            launcher = make_launcher(spec, home, clock, environment)
            worst = admit_everywhere(spec, launcher)
            inputs = prepare(
                spec,
                home=home,
                clock=clock,
                environment=environment,
                interruption=interruption,
                meanwhile=lambda: launcher.check(spec),
            )
            print(preview(spec, worst, inputs, launcher))
            return 0
        from paretune.tracking import Tracking

        progress = ProgressPrinter()
        try:
            outcome = launch(
                spec,
                launcher=make_launcher(spec, home, clock, environment),
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


def run_sync(texts: Mapping[str, str], faults: list[str]) -> int:
    """The command `sync`: collect what has ended, follow what still runs."""
    faults += [f"sync takes no parameters, got {name}" for name in texts]
    if faults:
        raise BadInput(faults)
    from paretune.interruption import Interruption
    from paretune.launch import home_folder
    from paretune.report import ProgressPrinter, collected_text
    from paretune.sync import Sync
    from paretune.tracking import Tracking

    clock, environment = SystemClock(), dict(os.environ)
    home = home_folder(environment)
    launchers: dict[tuple[object, ...], Launcher] = {}

    def launcher_of(spec: JobSpec) -> Launcher:
        key = (spec.on_sagemaker, spec.region, spec.bucket)
        if key not in launchers:
            launchers[key] = make_launcher(spec, home, clock, environment)
        return launchers[key]

    tracking = Tracking(environment, clock)
    if tracking.opened_run_id() is not None:
        tracking.begin("sync")  # `mlflow run` shows a run for every command
    progress = ProgressPrinter()
    interruption = Interruption(watch_parent="MLFLOW_RUN_ID" in environment)
    with interruption.listening():
        try:
            collected = Sync(
                launcher_of=launcher_of,
                tracking=tracking,
                home=home,
                clock=clock,
                environment=environment,
                interruption=interruption,
                on_events=progress,
            ).run()
        finally:
            progress.close()
    print(collected_text(collected))
    return 0


def make_launcher(spec: JobSpec, home: Path, clock: Clock, environment: Mapping[str, str]) -> Launcher:
    """The launcher that a specification asks for."""
    if not spec.on_sagemaker:
        from paretune.launchers.local import LocalLauncher

        return LocalLauncher(home, clock, environment)
    from paretune.launchers.sagemaker.launcher import SageMakerLauncher
    from paretune.tracking import tracking_uri

    return SageMakerLauncher(spec, clock, environment, tracking_uri=tracking_uri())


def _command(arguments: Sequence[str]) -> str:
    """The command's name; argparse answers --help and unknown commands.

    Parameters are read elsewhere, because it would stop at the first fault.
    """
    if {"-h", "--help"} & set(arguments):
        _parser().parse_args([*arguments[:1], "--help"])
    return str(_parser().parse_args(arguments[:1]).command)


def _spec(texts: Mapping[str, str], faults: list[str]) -> JobSpec:
    """The specification of a job: what was typed, then what the profile says."""
    profile: dict[str, str] = {}
    if texts.get("instance_type", "").startswith("ml.") or texts.get("launcher") == "sagemaker":  # which it is about
        try:
            profile = read_profile(os.environ)
        except BadInput as error:
            faults += error.faults
    merged = {**profile, **{name: text for name, text in texts.items() if text.strip() or name not in profile}}
    try:
        spec = JobSpec.from_text(merged)
    except BadInput as error:
        faults += error.faults
    if faults:
        raise BadInput([*faults, *missing_files(merged)])
    return spec


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
    for name, known in _COMMANDS.items():
        command = commands.add_parser(name, help=known.about, description=known.about, allow_abbrev=False)
        for parameter, text in parameter_help().items() if known.describes_a_job else ():
            command.add_argument(f"--{parameter}", help=text.replace("%", "%%"), metavar="VALUE")
    return parser


@dataclass(frozen=True)
class _Command:
    about: str
    carry_out: Callable[[Mapping[str, str], list[str]], int]
    describes_a_job: bool


_COMMANDS = {
    "main": _Command("one job: train, measure, price, record", run_job, describes_a_job=True),
    "sync": _Command("adopt running jobs, collect finished ones, fill MLflow", run_sync, describes_a_job=False),
}
