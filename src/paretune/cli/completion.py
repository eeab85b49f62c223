"""Completion of commands, parameters and values in bash, zsh and fish, by argcomplete."""

import argparse
import os
from collections.abc import Sequence

from paretune.core.errors import BadInput

COMMAND = "completion"
SHELLS = ("bash", "zsh", "fish")
ABOUT = (
    'completion in your shell: eval "$(paretune completion bash)" (zsh: the same with zsh), '
    "paretune completion fish | source"
)


def script(words: Sequence[str]) -> str:
    """What the shell named in `words` must run so that it completes the words of `paretune`.

    Raises:
        BadInput: no shell is named, or another one.
    """
    if len(words) != 1 or words[0] not in SHELLS:
        raise BadInput([f"{COMMAND} needs a shell: paretune {COMMAND} {' | '.join(SHELLS)}, got {' '.join(words)!r}"])
    from argcomplete.shell_integration import shellcode

    return str(shellcode(["paretune"], shell=words[0])).strip()


def is_asked() -> bool:
    """Whether a shell has started this process to be told what may come next."""
    return "_ARGCOMPLETE" in os.environ


def answer(parser: argparse.ArgumentParser) -> None:
    """Tell the shell what may come next, and end the process."""
    import argcomplete

    argcomplete.autocomplete(parser, always_complete_options="long")


def suggest(option: argparse.Action, values: Sequence[str]) -> None:
    """Have a shell complete the value of an option by these, or by names of files where there are none."""
    if values:
        option.completer = lambda **_: values  # type: ignore[attr-defined]
