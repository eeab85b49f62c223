"""How this process was started, so that the commands it prints can be pasted where the user stands."""

import argparse
import itertools
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from paretune.core.commands import Spelling

_KEPT = ("env_manager", "experiment_name", "experiment_id", "version")
"""Options of `mlflow run` that a repeated command needs as well; the others are about one run."""


def spelling_here(environment: Mapping[str, str] = os.environ) -> Spelling:
    """That of the `mlflow run` line which has started this process, else that of the program `paretune`."""
    by_mlflow = _of_mlflow_run(_words_of_parent()) if "MLFLOW_RUN_ID" in environment else None
    return by_mlflow or Spelling(words=_program())


def _program() -> tuple[str, ...]:
    """`paretune` where the search path leads to that of this environment, else what always works."""
    found = shutil.which("paretune")
    is_here = found is not None and Path(found).parent.absolute() == Path(sys.executable).parent.absolute()
    return ("paretune",) if is_here else (sys.executable, "-m", "paretune")


def _words_of_parent() -> list[str]:
    """The command line of the parent process; empty where the system does not tell."""
    import psutil

    try:
        parent = psutil.Process().parent()
        return parent.cmdline() if parent is not None else []
    except psutil.Error:
        return []


def _of_mlflow_run(words: Sequence[str]) -> Spelling | None:
    """The spelling of an `mlflow run` line, with the options that it was typed with; None where `words` are none.

    >>> _of_mlflow_run(["python", "/bin/mlflow", "run", ".", "--env-manager=local", "-P", "seed=1"]).words
    ('mlflow', 'run', '.', '--env-manager', 'local')
    """
    pairs = [(Path(program).stem, verb) for program, verb in itertools.pairwise(words)]
    if ("mlflow", "run") not in pairs:
        return None
    try:
        given, _ = _options_of_mlflow_run().parse_known_args(words[pairs.index(("mlflow", "run")) + 2 :])
    except argparse.ArgumentError:
        return None
    kept = [(name, getattr(given, name)) for name in _KEPT]
    options = [word for name, text in kept if text for word in (f"--{name.replace('_', '-')}", text)]
    return Spelling(words=("mlflow", "run", given.uri, *options), by_mlflow=True) if given.uri else None


def _options_of_mlflow_run() -> argparse.ArgumentParser:
    """The options of `mlflow run` that take a value (MLflow 3.17.2), so that the project's address is found."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("uri", nargs="?")
    for names in (
        *(["-e", "--entry-point"], ["-v", "--version"], ["-P", "--param-list"], ["-A", "--docker-args"]),
        *(["-b", "--backend"], ["-c", "--backend-config"], ["--experiment-name"], ["--experiment-id"]),
        *(["--env-manager"], ["--storage-dir"], ["--run-id"], ["--run-name"]),
    ):
        parser.add_argument(*names, action="append" if "-P" in names or "-A" in names else "store")
    return parser
