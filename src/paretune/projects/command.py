"""The entry point's command as MLflow computes it, with local files as they are called in the job."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

from mlflow.projects._project_spec import Project

from paretune.core.errors import BadInput
from paretune.core.untrusted import is_file, is_folder

_MOST_CHANNELS = 17
"""Of 20, less code, drivers and the job's own. Source: CreateTrainingJob, InputDataConfig (botocore 1.44.5)."""
_TAKEN = {"code", "sm_drivers", "job"}


@dataclass(frozen=True, kw_only=True)
class Command:
    """A shell command, run by `bash -c` as MLflow itself does, and the files it reads, by name of their channel."""

    text: str
    inputs: Mapping[str, Path]


def read_command(
    project: Project,
    entry_point: str,
    parameters: Mapping[str, str],
    downloads: Path,
    *,
    run_in: Path | None = None,
) -> Command:
    """The command of an entry point; what a parameter of type path names elsewhere is fetched into `downloads`.

    `run_in` is the project's folder for a job on this machine, which reads files where they are; a relative path that
    leads nowhere from the current folder begins there.

    Raises:
        BadInput: more paths than a job can have, or empty folders.
    """
    entry = project.get_entry_point(entry_point)  # type: ignore[no-untyped-call]  # MLflow
    if not isinstance(entry.command, str):
        raise BadInput([f"entry point {entry_point} has no command: write one, a text, into MLproject"])
    _refuse_formats(entry.command, entry_point)
    given = dict(parameters)
    inputs: dict[str, Path] = {}
    faults = []
    for position, (name, parameter) in enumerate(entry.parameters.items()):
        value = given.get(name, parameter.default)
        if parameter.type != "path" or value is None:
            continue
        if run_in is not None and not Path(value).exists() and (run_in / value).exists():
            value = str(run_in / value)
        path = Path(parameter.compute_value(value, str(downloads), position))
        if run_in is not None:
            given[name] = str(path)
            continue
        if not is_file(path) and not is_folder(path):
            faults.append(f"{name} must be a file or a folder, and {path} is a device, a pipe or a socket")
            continue
        if path.is_dir() and not any(entry.is_file() for entry in path.rglob("*")):
            faults.append(f"{name} must hold files, for SageMaker has no empty folders: {path} holds none")
        channel = _channel(name, position, inputs)
        inputs[channel] = path
        given[name] = f"/opt/ml/input/data/{channel}" + ("" if path.is_dir() else f"/{path.name}")
    if len(inputs) > _MOST_CHANNELS:
        limit = f"a job may have at most {_MOST_CHANNELS} parameters of type path"
        faults.append(f"{limit}, got {len(inputs)}: use a folder")
    if faults:
        raise BadInput(faults)
    try:
        return Command(text=str(entry.compute_command(given, None)), inputs=inputs)
    except (KeyError, IndexError, ValueError, AttributeError) as error:  # of str.format
        fault = f"entry point {entry_point}: its command must name declared parameters in braces ({error})"
        raise BadInput([fault]) from error


def _refuse_formats(command: str, entry_point: str) -> None:
    """BadInput where a parameter has a format, as in {a:>999999999}, which MLflow would give as much memory."""
    with suppress(ValueError):  # an open brace, which MLflow refuses
        for _, name, how, _ in Formatter().parse(command):
            if how:
                rule = f"entry point {entry_point}: its command must name parameters without a format"
                raise BadInput([f"{rule}, got {how[:20]!r} after {name}: write {{{name}}}"])


def _channel(name: str, position: int, others: Mapping[str, Path]) -> str:
    """A channel name: letters, digits and underscores, for it becomes part of a shell variable's name."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)[:48]
    return f"{plain}_{position}" if plain in _TAKEN or plain in others else plain
