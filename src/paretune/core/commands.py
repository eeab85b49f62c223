"""Commands of paretune as text that the user can paste into the same shell.

    paretune train --learning_rate 0.0001                              started as `paretune ...`
    mlflow run . --env-manager local -P learning_rate=0.0001          started as `mlflow run ...`

The command line sets which of the two it is with `spelled`. Everything that prints, records or recommends a command
gets it from `command_line`.
"""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

_TRAIN = "train"  # the entry point `main` of MLproject


@dataclass(frozen=True, kw_only=True)
class Spelling:
    """The spelling of commands where the user types them.

    `words` come before the name of the command: the program, or `mlflow run` with a project and its options.
    `by_mlflow` selects the form `-e NAME -P parameter=value`.
    """

    words: tuple[str, ...] = ("paretune",)
    by_mlflow: bool = False

    def line(self, command: str, parameters: Mapping[str, str]) -> str:
        """A command with its parameters in one line, quoted for a shell."""
        name = (["-e", command] if command != _TRAIN else []) if self.by_mlflow else [command]
        return shlex.join([*self.words, *name, *self.options(parameters)])

    def options(self, parameters: Mapping[str, str]) -> list[str]:
        """The words that pass these parameters to a command."""
        if self.by_mlflow:
            return [word for name, text in parameters.items() for word in ("-P", f"{name}={text}")]
        # A value that begins with a dash would be taken for the next parameter.
        return [
            word
            for name, text in parameters.items()
            for word in ([f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text])
        ]


_spelling = Spelling()


@contextmanager
def spelled(spelling: Spelling) -> Iterator[None]:
    """Use this spelling for all commands within the block, in every thread."""
    global _spelling
    before, _spelling = _spelling, spelling
    try:
        yield
    finally:
        _spelling = before


def is_started_by_mlflow() -> bool:
    """Whether `mlflow run` started this command; its current folder is then the folder of the project."""
    return _spelling.by_mlflow


def command_line(command: str, parameters: Mapping[str, str] | None = None) -> str:
    """A command with these parameters that can be pasted into the shell from which this process was started."""
    return _spelling.line(command, parameters or {})


def options(**parameters: object) -> str:
    """These parameters as text that can be pasted behind a command.

    >>> options(learning_rate=5e-5)
    '--learning_rate 5e-05'
    """
    return shlex.join(_spelling.options({name: str(value) for name, value in parameters.items()}))
