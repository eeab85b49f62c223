"""An MLflow project: its folder, fetched once, its entry points, and the command of one of them."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Formatter

from mlflow.exceptions import MlflowException
from mlflow.projects._project_spec import MLPROJECT_FILE_NAME, Project
from mlflow.projects.utils import _fetch_project, load_project

from paretune.core.errors import BadInput, first_line, refuse
from paretune.core.untrusted import LARGEST_SETTINGS, at_home, exists, is_file, is_folder, read_text
from paretune.specification.inputs import missing_files
from paretune.storage.yaml import check_size

_MOST_CHANNELS = 17
"""Of 20, less code, drivers and the job's own. Source: CreateTrainingJob, InputDataConfig (botocore 1.44.5)."""
_RESERVED_CHANNELS = {"code", "sm_drivers", "job"}


def read_project(uri: str) -> tuple[Project, Path]:
    """The project of a folder or git URI, with its folder; a git URI is fetched once per process.

    Raises:
        BadInput: there is no project, or it cannot be read.
    """
    refuse(missing_files({"project": uri}))
    with _translated_errors(f"project {uri}"):
        is_local = exists(uri.partition("#")[0])
        root = _fetched(str(at_home(uri).absolute()) if is_local else uri)
        for name in os.listdir(root):
            if name.lower() == MLPROJECT_FILE_NAME:  # refuse a file that MLflow would read without end
                check_size(read_text(root / name, LARGEST_SETTINGS), str(root / name))
        project = load_project(str(root))  # type: ignore[no-untyped-call]  # MLflow
    if not all(isinstance(name, str) and name for name in project._entry_points):
        raise BadInput([f"project {uri}: names of entry_points must be texts: write them in quotes"])
    return project, root


@cache
def _fetched(uri: str) -> Path:
    """The project's folder; MLflow itself would fetch it again at each call."""
    return Path(_fetch_project(uri))  # type: ignore[no-untyped-call]  # MLflow


def declared_parameters(uri: str, entry_point: str) -> Mapping[str, str]:
    """Name of each parameter that the entry point declares to its type: float, string, path or uri.

    Raises:
        BadInput: there is no such project or entry point.
    """
    project, _ = read_project(uri)
    with _translated_errors(f"entry_point {entry_point}"):
        entry = project.get_entry_point(entry_point)  # type: ignore[no-untyped-call]  # MLflow
    return {name: str(parameter.type) for name, parameter in entry.parameters.items()}


@contextmanager
def _translated_errors(subject: str) -> Iterator[None]:
    """Raise BadInput about `subject` for errors of MLflow, git and YAML in the block."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        reason = error.message if isinstance(error, MlflowException) else first_line(error)
        raise BadInput([f"{subject}: {reason}"]) from error


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
    """The command of an entry point, as MLflow computes it, with the paths that files have in the job.

    Remote files that a parameter of type path names are fetched into `downloads`. For a job on this machine `run_in` is
    the project's folder: files are read where they are, and a relative path that does not exist in the current folder
    starts there.

    Raises:
        BadInput: the command cannot be computed, a path cannot travel, or there are too many paths.
    """
    entry = project.get_entry_point(entry_point)  # type: ignore[no-untyped-call]  # MLflow
    if not isinstance(entry.command, str):
        raise BadInput([f"entry point {entry_point} has no command: write one, a text, into MLproject"])
    _refuse_formats(entry.command, entry_point)
    values = dict(parameters)
    inputs: dict[str, Path] = {}
    faults = []
    for position, (name, parameter) in enumerate(entry.parameters.items()):
        value = values.get(name, parameter.default)
        if parameter.type != "path" or value is None:
            continue
        if run_in is not None and not Path(value).exists() and (run_in / value).exists():
            value = str(run_in / value)
        path = Path(parameter.compute_value(value, str(downloads), position))
        if run_in is not None:
            values[name] = str(path)
            continue
        faults += _path_faults(name, path)
        channel = _channel(name, position, inputs)
        inputs[channel] = path
        values[name] = f"/opt/ml/input/data/{channel}" + ("" if path.is_dir() else f"/{path.name}")
    if len(inputs) > _MOST_CHANNELS:
        limit = f"a job may have at most {_MOST_CHANNELS} parameters of type path"
        faults.append(f"{limit}, got {len(inputs)}: use a folder")
    refuse(faults)
    try:
        return Command(text=str(entry.compute_command(values, None)), inputs=inputs)
    except (KeyError, IndexError, ValueError, AttributeError) as error:  # raised by str.format
        fault = f"entry point {entry_point}: its command must name declared parameters in braces ({error})"
        raise BadInput([fault]) from error


def _path_faults(name: str, path: Path) -> list[str]:
    if not is_file(path) and not is_folder(path):
        return [f"{name} must be a file or a folder, and {path} is a device, a pipe or a socket"]
    if path.is_dir() and not any(child.is_file() for child in path.rglob("*")):
        return [f"{name} must hold files, because SageMaker drops empty folders: {path} holds none"]
    return []


def _refuse_formats(command: str, entry_point: str) -> None:
    """Raise BadInput if a parameter has a format, as in {a:>999999999}, for which MLflow would use as much memory."""
    with suppress(ValueError):  # an open brace, which MLflow refuses
        for _, name, form, _ in Formatter().parse(command):
            if form:
                rule = f"entry point {entry_point}: its command must name parameters without a format"
                raise BadInput([f"{rule}, got {form[:20]!r} after {name}: write {{{name}}}"])


def _channel(name: str, position: int, channels: Mapping[str, Path]) -> str:
    """A channel name for a parameter: letters, digits and underscores, because shell variables contain it."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)[:48]
    return f"{plain}_{position}" if plain in _RESERVED_CHANNELS or plain in channels else plain
