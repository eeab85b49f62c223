"""The program and the folder of the command as it was typed: printed commands can be pasted, paths mean the same.

MLflow starts an entry point in the folder of the project, which may be a clone in a temporary folder, and does not pass
on the folder where the command was typed. That is the current folder of the process that has started the entry point:
MLflow itself, as MLproject begins its commands with `exec`.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from paretune.core.commands import Spelling

_FILE_PARAMETERS = ("study", "design", "file")  # parameters that name a study or example file: study=studies/smoke.yaml
_SHELLS = {"bash", "sh", "dash", "zsh", "cmd.exe"}


def program() -> Spelling:
    """Return `paretune` if the search path leads to the one of this environment, else `PYTHON -m paretune`."""
    found = shutil.which("paretune")
    is_here = found is not None and Path(found).parent.absolute() == Path(sys.executable).parent.absolute()
    return Spelling(words=("paretune",) if is_here else (sys.executable, "-m", "paretune"))


def mlflow_run(project: Path, environment: Mapping[str, str] = os.environ) -> Spelling:
    """Return the `mlflow run` that starts commands of a project's folder from the current one as this one was."""
    words = ["mlflow", "run", "." if project == Path.cwd() else str(project)]
    if not Path(sys.prefix).name.startswith("mlflow-"):  # the name of environments that MLflow makes
        words += ["--env-manager", "local"]
    experiment = environment.get("MLFLOW_EXPERIMENT_ID", "0")
    words += ["--experiment-id", experiment] if experiment != "0" else []
    return Spelling(words=tuple(words), by_mlflow=True)


def go_where_typed(words: list[str]) -> Spelling:
    """Change to the folder where `mlflow run` was typed, and make the project's own paths in `words` absolute.

    A relative path counts from the folder where the command was typed; if nothing has that name there, from the folder
    of the project. Stays here for a command that MLflow has not started. Returns how commands are typed there.
    """
    if "MLFLOW_RUN_ID" not in os.environ:
        return program()
    project = Path.cwd()
    typed = _mlflow_folder() or project
    os.chdir(typed)
    if typed != project:
        from paretune.specification.inputs import PATHS
        from paretune.storage.shipped import find_path

        for index, word in enumerate(words):
            name, equals, text = word.removeprefix("--").partition("=")
            if not word.startswith("--") or name not in (*PATHS, *_FILE_PARAMETERS):
                continue
            if equals:
                words[index] = f"--{name}={find_path(text, project)}"
            elif index + 1 < len(words):
                words[index + 1] = find_path(words[index + 1], project)
    return mlflow_run(project)


def _mlflow_folder() -> Path | None:
    """Return the current folder of the process that started this one, shells skipped, or None if it is not visible."""
    import psutil

    try:
        process = psutil.Process().parent()
        while process is not None and process.name() in _SHELLS:
            process = process.parent()
        return None if process is None else Path(process.cwd())
    except (psutil.Error, OSError):
        return None
