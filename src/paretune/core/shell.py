"""paretune's commands as text that can be pasted into the user's shell.

Code that prints, records or recommends a command should get its text from `command_line`, which begins the command with
the words that started this process, such as `paretune`.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

_program: Sequence[str] = ("paretune",)


@contextmanager
def started_by(*words: str) -> Iterator[None]:
    """Make `command_line` begin all commands with these words inside the block, in every thread."""
    global _program
    before, _program = _program, words
    try:
        yield
    finally:
        _program = before


def command_line(command: str, parameters: Mapping[str, str] | None = None) -> str:
    """Return a command with these parameters, quoted for a POSIX shell."""
    return shlex.join([*_program, command, *_words(parameters or {})])


def split_words(text: str) -> list[str]:
    """Return the words of a command line as a shell does, or at its spaces if a quote in it is not closed."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def options(**parameters: object) -> str:
    """Return these parameters as text to paste after a command: `--learning_rate 5e-05`."""
    return shlex.join(_words({name: str(value) for name, value in parameters.items()}))


def _words(parameters: Mapping[str, str]) -> Iterator[str]:
    for name, text in parameters.items():
        # A value that begins with a dash would be read as the next parameter.
        yield from [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]
