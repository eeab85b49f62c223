"""What a stranger may have written: paths, JSON and texts that may be anything, read and shown without a surprise.

`pathlib` raises where a name is too long, holds a NUL or begins with the home of nobody; `json` raises other errors
than its own where values are nested without end, or a number has thousands of digits.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

_COMMANDS_OF_A_TERMINAL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters but line feed and tab, those that turn or hide text (UAX 9), and halves of characters."""


def printable(text: str) -> str:
    r"""The text with what would command a terminal, or show another order than it has, as escapes such as \x1b."""
    return _COMMANDS_OF_A_TERMINAL.sub(lambda found: ascii(found.group())[1:-1], text)


def exists(path: str | Path) -> bool:
    """Whether there is such a file or folder; False for what cannot be a path. `~` is the user's home."""
    return os.path.exists(os.path.expanduser(path))


def is_folder(path: str | Path) -> bool:
    """Whether there is such a folder; False for what cannot be a path."""
    return os.path.isdir(os.path.expanduser(path))


def is_file(path: str | Path) -> bool:
    """Whether there is such a file; False for what cannot be a path."""
    return os.path.isfile(os.path.expanduser(path))


def files_below(folder: Path, most: int) -> list[Path] | None:
    """The files below `folder`, at any depth, sorted; None of more than `most`. Links to folders are not followed."""
    found: list[Path] = []
    for place, _, names in os.walk(folder):
        found += [Path(place, name) for name in names]
        if len(found) > most:
            return None
    return sorted(path for path in found if path.is_file())


def parse_json(text: str | bytes, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """What the JSON text holds.

    Raises:
        ValueError: it is no JSON, or its values are nested deeper than any that somebody wrote.
    """
    try:
        return json.loads(text, object_pairs_hook=object_pairs_hook)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def printable_json(document: str) -> str:
    r"""The JSON document with what would command a terminal as JSON's own escapes, such as \u202e: the same values."""
    return _COMMANDS_OF_A_TERMINAL.sub(lambda found: f"\\u{ord(found.group()):04x}", document)
