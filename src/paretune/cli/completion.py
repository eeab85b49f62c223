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


def shell_script(words: Sequence[str]) -> str:
    """Return the script that completes the words of `paretune` in the shell named in `words`.

    Raises:
        BadInput: `words` is not one of the supported shells.
    """
    if len(words) != 1 or words[0] not in SHELLS:
        raise BadInput([f"{COMMAND} needs a shell: paretune {COMMAND} {' | '.join(SHELLS)}, got {' '.join(words)!r}"])
    from argcomplete.shell_integration import shellcode

    return str(shellcode(["paretune"], shell=words[0])).strip()


def typed_line() -> str | None:
    """Return the line that a shell wants completed, or None if this process was started for a command."""
    return os.environ.get("COMP_LINE", "") if "_ARGCOMPLETE" in os.environ else None


def complete(parser: argparse.ArgumentParser) -> None:
    """Print what may come next in the typed line, and end the process."""
    import argcomplete

    argcomplete.autocomplete(parser, always_complete_options="long")


def suggest(option: argparse.Action, values: Sequence[str]) -> None:
    """Let the shell complete the value of an option by `values`, or by file names if there are none."""
    if values:
        option.completer = lambda **_: values  # type: ignore[attr-defined]
