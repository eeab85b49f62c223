"""The folder of a project, and what its entry points declare."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from mlflow.exceptions import MlflowException
from mlflow.projects._project_spec import MLPROJECT_FILE_NAME, Project
from mlflow.projects.utils import _fetch_project, load_project

from paretune.core.errors import BadInput, first_line
from paretune.core.untrusted import LARGEST_SETTINGS, at_home, exists, read_text
from paretune.specification.inputs import missing_files
from paretune.storage.yaml import check_size


def read_project(uri: str) -> tuple[Project, Path]:
    """The project of a folder or git URI, with its folder; one in git is fetched once per process.

    Raises:
        BadInput: there is none, or it cannot be read.
    """
    if faults := missing_files({"project": uri}):
        raise BadInput(faults)
    with _explained(f"project {uri}"):
        root = _folder(uri)
        _check(root)
        project = load_project(str(root))  # type: ignore[no-untyped-call]  # MLflow
    if not all(isinstance(name, str) and name for name in project._entry_points):
        raise BadInput([f"project {uri}: names of entry_points must be texts: write them in quotes"])
    return project, root


def _check(root: Path) -> None:
    """Refuse an MLproject file that MLflow would read without end; BadInput."""
    for name in os.listdir(root):
        if name.lower() == MLPROJECT_FILE_NAME:
            check_size(read_text(root / name, LARGEST_SETTINGS), str(root / name))


def declared(uri: str, entry_point: str) -> Mapping[str, str]:
    """Name of each parameter that the entry point declares to its type: float, string, path or uri.

    Raises:
        BadInput: there is no such project or entry point.
    """
    project, _ = read_project(uri)
    with _explained(f"entry_point {entry_point}"):
        entry = project.get_entry_point(entry_point)  # type: ignore[no-untyped-call]  # MLflow
    return {name: str(parameter.type) for name, parameter in entry.parameters.items()}


def _folder(uri: str) -> Path:
    is_local = exists(uri.partition("#")[0])
    return _fetched(str(at_home(uri).absolute()) if is_local else uri)


@cache
def _fetched(uri: str) -> Path:
    """The project's folder; MLflow would fetch it again at each call."""
    return Path(_fetch_project(uri))  # type: ignore[no-untyped-call]  # MLflow


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Translate what MLflow, git and YAML raise."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        said = error.message if isinstance(error, MlflowException) else first_line(error)
        raise BadInput([f"{what}: {said}"]) from error
