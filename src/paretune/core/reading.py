"""Input that a stranger may have written (paths, files, JSON, CSV), read safely.

`pathlib` raises an error for a name that is too long, contains NUL or starts with `~` and an unknown user. Reading a
device or a pipe may never end. `json` raises errors other than its own for deep nesting and for numbers with
thousands of digits.
"""

import csv
import errno
import io
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput

LARGEST_SETTINGS = 100_000
"""Limit in bytes of a file that people write: YAML, TOML, MLproject. The shipped studies have about 1,500."""
LARGEST_CONFIG = 5_000_000
"""Limit in bytes of a model's config.json. Usual ones have thousands; those that name 100,000 classes have millions."""
LARGEST_SCRIPT = 20_000_000  # limit in bytes of a script
LARGEST_TABLE = 50_000_000  # limit in bytes of a CSV of runs, jobs or prices: 100,000 rows of 500 bytes


def _expanded(path: str | Path) -> str:
    try:
        return os.path.expanduser(path)
    except ValueError:  # NUL or a lone surrogate in the name of a user
        return str(path)


def at_home(path: str | Path) -> Path:
    """Return the path with the home folder in place of a leading `~` or `~USER`; unchanged if that user is unknown."""
    return Path(_expanded(path))


def exists(path: str | Path) -> bool:
    """Return whether the file or folder exists; False for an invalid path. `~` is the user's home."""
    return os.path.exists(_expanded(path))


def absolute(path: str) -> str:
    """Return the absolute path, without resolving links. `~` is the user's home."""
    return os.path.abspath(_expanded(path))


def is_folder(path: str | Path) -> bool:
    """Return whether the path is a folder; False for an invalid path. `~` is the user's home."""
    return os.path.isdir(_expanded(path))


def is_file(path: str | Path) -> bool:
    """Return whether the path is a regular file; False for an invalid path. `~` is the user's home."""
    return os.path.isfile(_expanded(path))


def is_readable(path: Path) -> bool:
    """Return whether this user may read a file, or list a folder and open what is in it; True if there is neither."""
    if os.path.isdir(path):
        return os.access(path, os.R_OK | os.X_OK)
    return os.access(path, os.R_OK) or not os.path.isfile(path)


def takes_files(folder: Path) -> bool:
    """Return whether this user can make files in a folder or, if it does not exist, in the nearest one above it.

    A file without a name is made to find out, because permissions do not say that a file system cannot be written to.
    """
    nearest = next(filter(exists, (folder, *folder.absolute().parents)))
    try:
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)  # a full disk is reported where something is written
    return True


def read_bytes(path: str | Path, largest: int, *, must: str = "", hint: str = "name another file") -> bytes:
    """Read a regular file of at most `largest` bytes; `~` is the user's home. Devices and pipes are not opened.

    Raises BadInput if the file is larger or cannot be read. If it cannot be read, the message starts with `must` and
    ends with `hint`, the next step.
    """
    if not is_file(path):
        kind = "is a folder" if is_folder(path) else "is not a file"
        reason = kind if exists(path) else f"does not exist (looked in {Path.cwd()})"
        raise BadInput([f"{must}{path} {reason}: {hint}"])
    try:
        with at_home(path).open("rb") as file:
            content = file.read(largest + 1)
    except OSError as error:
        raise BadInput([f"{must}{path} cannot be read ({error.strerror}): {hint}"]) from error
    if len(content) > largest:
        raise BadInput([f"{path} has more than {largest:,} bytes, the limit: is it the right file?"])
    return content


def read_text(path: str | Path, largest: int, *, must: str = "", hint: str = "name another file") -> str:
    """Read a text file without its byte order mark. Raises BadInput like `read_bytes`, or if the file is not UTF-8."""
    content = read_bytes(path, largest, must=must, hint=hint)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput([f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8"]) from error


def files_below(folder: Path, most: int) -> list[Path] | None:
    """Return the files under `folder`, sorted; None if there are more than `most`. Linked folders are not searched."""
    paths: list[str] = []
    for parent, _, names in os.walk(folder):
        paths += [os.path.join(parent, name) for name in names]
        if len(paths) > most:
            return None
    return sorted(map(Path, filter(os.path.isfile, paths)))


def parse_json(text: str | bytes, *, lax: bool = False) -> Any:
    """Parse a JSON text.

    Raises ValueError with the reason if the text is not JSON or its values are nested too deeply. Unless `lax` is true,
    NaN, Infinity and a key that is given twice are errors, too, although Python's parser accepts them.
    """
    try:
        return json.loads(text) if lax else json.loads(text, parse_constant=_no_number, object_pairs_hook=_mapping)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number: write a number, or put text in quotes")


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict[str, Any]()
    for name, value in pairs:
        if name in values:
            raise ValueError(f"{name} is given twice: remove one")
        values[name] = value
    return values


def read_config(model: str | Path) -> Mapping[str, Any]:
    """Return the config.json in a model's folder. Raises BadInput if it does not exist or cannot be read."""
    must = f"model {model} must have a config.json that can be read, and "
    path = at_home(model) / "config.json"
    try:
        config = parse_json(read_text(path, LARGEST_CONFIG, must=must, hint="name a model's folder"), lax=True)
    except ValueError as error:
        raise BadInput([f"{must}{path} is not JSON ({error})"]) from error
    if not isinstance(config, dict):
        raise BadInput([f"{must}{path} is not a JSON object, which begins with {{"])
    return config


def config_in(model: str | Path) -> Mapping[str, Any] | None:
    """Return the config.json in a model's folder, or None if it does not exist or cannot be read."""
    with suppress(BadInput):
        return read_config(model)
    return None


def read_table(path: str | Path, *, must: str = "") -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the column names of a CSV, and the line number and stripped cells of each row that is not empty.

    Raises BadInput if the file cannot be read.
    """
    text = read_text(path, LARGEST_TABLE, must=must)
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except csv.Error as error:
        raise BadInput([f"{must}{path} cannot be read as CSV ({error}): name another file"]) from error
    return header, [line for line in lines if any(line[1])]
