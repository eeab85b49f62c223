"""What a stranger may have written: paths, files, JSON and texts of any content, read and shown without a surprise.

`pathlib` raises where a name is too long, holds a NUL or begins with the home of nobody; a device or a pipe is read
without end; `json` raises other errors than its own where values are nested without end, or a number has thousands of
digits.
"""

import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput

LARGEST_SETTINGS = 100_000
"""Bytes of a file that a person writes: YAML, TOML, MLproject. The studies that are shipped have about 1,500."""
LARGEST_CONFIG = 5_000_000
"""Bytes of a model's config.json; most have some thousands, those with names for 100,000 classes some millions."""
LARGEST_SCRIPT = 20_000_000
"""Bytes of a script or a notebook, its pictures included."""
LARGEST_TABLE = 50_000_000
"""Bytes of a CSV of runs, jobs or prices: 100,000 rows of 500 bytes."""

_COMMANDS_OF_A_TERMINAL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters but line feed and tab, those that turn or hide text (UAX 9), and halves of characters."""


def printable(text: str) -> str:
    r"""The text with what would command a terminal, or show another order than it has, as escapes such as \x1b."""
    return _COMMANDS_OF_A_TERMINAL.sub(lambda found: ascii(found.group())[1:-1], text)


def at_home(path: str | Path) -> Path:
    """The path with the user's home for `~`; as it is where it begins with the home of nobody."""
    return Path(os.path.expanduser(path))


def exists(path: str | Path) -> bool:
    """Whether there is such a file or folder; False for what cannot be a path. `~` is the user's home."""
    return os.path.exists(os.path.expanduser(path))


def absolute(path: str) -> str:
    """The path from the root, so that it means the same file in every folder; links stay. `~` is the user's home."""
    return os.path.abspath(os.path.expanduser(path))


def is_folder(path: str | Path) -> bool:
    """Whether there is such a folder; False for what cannot be a path."""
    return os.path.isdir(os.path.expanduser(path))


def is_file(path: str | Path) -> bool:
    """Whether there is such a file; False for what cannot be a path."""
    return os.path.isfile(os.path.expanduser(path))


def read_bytes(path: str | Path, largest: int, *, must: str = "", hint: str = "name another file") -> bytes:
    """The content of a regular file of at most `largest` bytes; `~` is the user's home.

    A fault is one sentence that names the path as it was given. Where there is no file of that name, `must` stands
    before it, and `hint`, the next step, after it. Devices and pipes are not opened. Of a file that is longer than its
    size says, as those of /proc, little more than `largest` bytes are read.

    Raises:
        BadInput: there is no such file, it is none, it is too large, or it may not be read.
    """
    try:
        found = os.stat(at_home(path))
        if not stat.S_ISREG(found.st_mode):
            what = "a folder" if stat.S_ISDIR(found.st_mode) else "a device, a pipe or a socket"
            raise BadInput([f"{must}{path} is {what}: {hint}"])
        content = _first_bytes(path, largest + 1) if found.st_size <= largest else b""
    except (FileNotFoundError, NotADirectoryError, ValueError):  # a name with a NUL in it
        raise BadInput([f"{must}{path} does not exist (looked from {Path.cwd()}): {hint}"]) from None
    except OSError as error:  # not allowed, a loop of links
        remedy = "allow it, or name another file" if isinstance(error, PermissionError) else hint
        raise BadInput([f"{must}{path} cannot be read ({error.strerror}): {remedy}"]) from error
    if max(found.st_size, len(content)) > largest:
        size = f"{found.st_size:,}" if found.st_size > largest else f"more than {largest:,}"
        raise BadInput([f"{path} has {size} bytes, and at most {largest:,} are read: is it the right file?"])
    return content


def _first_bytes(path: str | Path, most: int) -> bytes:
    """Of a file that is replaced by a pipe meanwhile, nothing."""
    handle = os.open(at_home(path), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(handle, "rb") as file:
        return file.read(most) or b""


def read_text(path: str | Path, largest: int, *, must: str = "", hint: str = "name another file") -> str:
    """The text of a file, without a byte order mark; as `read_bytes`.

    Raises:
        BadInput: also where it is not UTF-8.
    """
    content = read_bytes(path, largest, must=must, hint=hint)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput([f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8"]) from error


def files_below(folder: Path, most: int) -> list[Path] | None:
    """The files below `folder`, at any depth, sorted; None of more than `most`. Links to folders are not followed."""
    found: list[str] = []
    for place, _, names in os.walk(folder):
        found += [os.path.join(place, name) for name in names]
        if len(found) > most:
            return None
    return sorted(path for path in map(Path, found) if path.is_file())


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
