"""The program and the folder of the command as it was typed: printed commands can be pasted, paths mean the same.

MLflow starts an entry point in the folder of the project, which may be a clone in a temporary folder, and does not pass
on the folder where the command was typed. That is the current folder of the process that has started the entry point:
MLflow itself, as MLproject begins its commands with `exec`.
"""

import argparse
import itertools
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from paretune.core.commands import Spelling

_REPEATED = ("env_manager", "experiment_name", "experiment_id", "version")
"""Options of `mlflow run` that a repeated command needs as well; the others belong to one run."""
_FILE_PARAMETERS = ("study", "design", "file")  # parameters that name a study or example file: study=studies/smoke.yaml
_SHELLS = {"bash", "sh", "dash", "zsh", "cmd.exe"}


def spelling_here(environment: Mapping[str, str] = os.environ) -> Spelling:
    """Return how commands are typed here: like the `mlflow run` line that started this process, else with `paretune`.

    The program is `paretune` if the search path leads to the one of this environment, else `PYTHON -m paretune`.
    """
    if "MLFLOW_RUN_ID" in environment and (spelling := _mlflow_run_spelling(_parent_words())):
        return spelling
    program = shutil.which("paretune")
    is_here = program is not None and Path(program).parent.absolute() == Path(sys.executable).parent.absolute()
    return Spelling(words=("paretune",) if is_here else (sys.executable, "-m", "paretune"))


def _parent_words() -> list[str]:
    """Return the command line of the parent process, or an empty list if the system does not show it."""
    import psutil

    try:
        parent = psutil.Process().parent()
        return parent.cmdline() if parent is not None else []
    except psutil.Error:
        return []


def _mlflow_run_spelling(words: Sequence[str]) -> Spelling | None:
    """Return the spelling of an `mlflow run` line with its options, or None if `words` is no such line.

    >>> _mlflow_run_spelling(["python", "/bin/mlflow", "run", ".", "--env-manager=local", "-P", "seed=1"]).words
    ('mlflow', 'run', '.', '--env-manager', 'local')
    """
    pairs = [(Path(program).stem, verb) for program, verb in itertools.pairwise(words)]
    if ("mlflow", "run") not in pairs:
        return None
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("uri", nargs="?")
    for names in (  # options of `mlflow run` that take a value (MLflow 3.17.2)
        *(["-e", "--entry-point"], ["-v", "--version"], ["-P", "--param-list"], ["-A", "--docker-args"]),
        *(["-b", "--backend"], ["-c", "--backend-config"], ["--experiment-name"], ["--experiment-id"]),
        *(["--env-manager"], ["--storage-dir"], ["--run-id"], ["--run-name"]),
    ):
        parser.add_argument(*names, action="append" if "-P" in names or "-A" in names else "store")
    try:
        typed, _ = parser.parse_known_args(words[pairs.index(("mlflow", "run")) + 2 :])
    except argparse.ArgumentError:
        return None
    options = [(f"--{name.replace('_', '-')}", getattr(typed, name)) for name in _REPEATED]
    repeated = [word for option, text in options if text for word in (option, text)]
    return Spelling(words=("mlflow", "run", typed.uri, *repeated), by_mlflow=True) if typed.uri else None


def go_where_typed(words: list[str]) -> None:
    """Change to the folder where `mlflow run` was typed, and make the project's own paths in `words` absolute.

    A relative path counts from the folder where the command was typed; if nothing has that name there, from the folder
    of the project. Without effect for a command that MLflow has not started.
    """
    if "MLFLOW_RUN_ID" not in os.environ:
        return
    project, typed = Path.cwd(), _mlflow_folder()
    if typed is None or typed == project:
        return
    from paretune.specification.inputs import PATHS
    from paretune.storage.shipped import find_path

    os.chdir(typed)
    for index, word in enumerate(words):
        name, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in (*PATHS, *_FILE_PARAMETERS):
            continue
        if equals:
            words[index] = f"--{name}={find_path(text, project)}"
        elif index + 1 < len(words):
            words[index + 1] = find_path(words[index + 1], project)


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
