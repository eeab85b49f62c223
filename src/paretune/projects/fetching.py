"""The folder of a project, and what its entry points declare."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from mlflow.exceptions import MlflowException
from mlflow.projects._project_spec import Project
from mlflow.projects.utils import fetch_and_validate_project, load_project

from paretune.core.errors import BadInput, first_line
from paretune.core.untrusted import at_home, exists
from paretune.spec.job import missing_files


def read_project(uri: str) -> tuple[Project, Path]:
    """The project of a folder or git URI, with its folder; one in git is fetched once per process.

    Raises:
        BadInput: there is none, or it cannot be read.
    """
    if faults := missing_files({"project": uri}):
        raise BadInput(faults)
    with _explained(f"project {uri}"):
        root = _folder(uri)
        return load_project(str(root)), root  # type: ignore[no-untyped-call]  # MLflow


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
    # Any entry point serves: the name of a script is always one, and is not looked for.
    return Path(fetch_and_validate_project(uri, None, "any.py", {}))  # type: ignore[no-untyped-call]


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
