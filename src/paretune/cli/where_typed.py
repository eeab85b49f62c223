"""`mlflow run` from any folder reads and writes where it was typed, as `paretune` does.

MLflow starts an entry point in the folder of the project, which may be a clone in a temporary folder, and tells it
nothing of the folder where the command was typed. That is the current folder of the process that has started the entry
point: MLflow itself, as MLproject begins its commands with `exec`.
"""

import os
from pathlib import Path

import psutil

from paretune.specification.job import INPUT_FILES

_SHELLS = {"bash", "sh", "dash", "zsh", "cmd.exe"}
_PATHS = (*INPUT_FILES, "entry_script", "recorded_runs", "budget", "study", "design")
"""Parameters that may be files of the project, such as study=studies/smoke.yaml."""


def go_where_typed(words: list[str]) -> None:
    """Make the folder where `mlflow run` was typed the current one, and spell out in `words` what is the project's own.

    A relative path counts from there; where nothing has that name there, from the folder of the project. Without effect
    for a command that MLflow has not started.
    """
    if "MLFLOW_RUN_ID" not in os.environ:
        return
    project, typed = Path.cwd(), _folder_of_mlflow()
    if typed is None or typed == project:
        return
    os.chdir(typed)
    for index, word in enumerate(words):
        name, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in _PATHS:
            continue
        if equals:
            words[index] = f"--{name}={_of_project(text, project)}"
        elif index + 1 < len(words):
            words[index + 1] = _of_project(words[index + 1], project)


def _folder_of_mlflow() -> Path | None:
    """The current folder of the process that has started this one, shells passed over; None where it is not told."""
    try:
        process = psutil.Process().parent()
        while process is not None and process.name() in _SHELLS:
            process = process.parent()
        return None if process is None else Path(process.cwd())
    except (psutil.Error, OSError):
        return None


def _of_project(text: str, project: Path) -> str:
    """The path as it is, or the absolute one of a file that only the project has."""
    if not text or os.path.exists(text) or not os.path.exists(project / text):
        return text
    return str(project / text)
