"""Commands of paretune as text that can be pasted where the user stands, and such texts read back.

    paretune main --learning_rate 0.0001                              typed as `paretune ...`
    mlflow run . --env-manager local -P learning_rate=0.0001          typed as `mlflow run ...`

Which of the two it is, the command line finds out once and states with `spelled`; everything that prints, records or
recommends a command takes it from `command_line`.
"""

import itertools
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

_MLFLOW_RUN = ["mlflow", "run"]
_MAIN = "main"


@dataclass(frozen=True, kw_only=True)
class Spelling:
    """How the commands of this process are typed.

    Attributes:
        words: what comes before the name of the command: the program, or `mlflow run` with a project and its options.
        by_mlflow: whether MLflow starts them: `-e NAME -P parameter=value` then.
    """

    words: tuple[str, ...] = ("paretune",)
    by_mlflow: bool = False

    def line(self, command: str, parameters: Mapping[str, str]) -> str:
        """The words of a command in one line, quoted for a shell."""
        named = (["-e", command] if command != _MAIN else []) if self.by_mlflow else [command]
        return shlex.join([*self.words, *named, *self.options(parameters)])

    def options(self, parameters: Mapping[str, str]) -> list[str]:
        """The words that give a command these parameters."""
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
    """All commands are spelled so in the block, in every thread."""
    global _spelling
    before, _spelling = _spelling, spelling
    try:
        yield
    finally:
        _spelling = before


def is_started_by_mlflow() -> bool:
    """Whether `mlflow run` has started this command, so that its current folder is the project's."""
    return _spelling.by_mlflow


def command_line(command: str, parameters: Mapping[str, str] | None = None) -> str:
    """A command of paretune with these parameters, as it can be pasted into the shell that this process came from."""
    return _spelling.line(command, parameters or {})


def options(**parameters: object) -> str:
    """What to add to a command so that it has these parameters, as it can be pasted behind it.

    >>> options(learning_rate=5e-5)
    '--learning_rate 5e-05'
    """
    return shlex.join(_spelling.options({name: str(value) for name, value in parameters.items()}))


def parameters_of(line: str) -> dict[str, str]:
    """The parameters of a recorded `main` command, in either spelling.

    Raises:
        ValueError: it is none.
    """
    words = shlex.split(line)
    if words[:2] == _MLFLOW_RUN:
        pairs = [word for flag, word in itertools.pairwise(words) if flag == "-P"]
        return dict(_split(pair) for pair in pairs)
    rest = iter(words[words.index(_MAIN) + 1 :])
    found = {}
    for word in rest:
        name, text = _split(word) if "=" in word else (word, next(rest, ""))
        if not name.startswith("--"):
            raise ValueError(f"unexpected {word!r}")
        found[name.removeprefix("--")] = text
    return found


def _split(pair: str) -> tuple[str, str]:
    name, sign, text = pair.partition("=")
    if not sign:
        raise ValueError(f"{pair!r} has no =")
    return name, text
