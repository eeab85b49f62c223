"""The studies and examples that come with paretune, and the rule by which a path leads to a file.

A path counts from the current folder. If nothing is there, it is looked up among the shipped files, which are in the
folders `studies/` and `examples/` of the installed package, or of the clone that an editable install runs from.
"""

import os
import re
from collections.abc import Collection
from pathlib import Path

from paretune.core.untrusted import exists, is_file

_FOLDERS = ("studies", "examples")
_PACKAGE = Path(__file__).resolve().parents[1]
_ROOT = _PACKAGE / "shipped" if (_PACKAGE / "shipped").is_dir() else _PACKAGE.parents[1]
_SUFFIX = ".yaml"


def find_path(path: str, *folders: Path) -> str:
    """Return `path` if it exists, else the same path below the first of `folders` that has it, else the shipped one.

    If nothing has that name, `path` itself is returned. Absolute paths, and those that begin with `~`, stay.
    """
    if not path or os.path.isabs(path) or exists(path):
        return path
    below = (str(folder / path) for folder in folders)
    return next((candidate for candidate in (*below, _shipped(path)) if os.path.exists(candidate)), path)


def find_file(name: str) -> str:
    """Return the path of a study or example file: `smoke` and `smoke.yaml` lead to the shipped `studies/smoke.yaml`.

    A file in the current folder wins. If nothing has that name, `name` itself is returned.
    """
    if not name or is_file(name) or os.path.isabs(name):
        return name
    names = (name, *(f"{folder}/{name}" for folder in _FOLDERS))
    candidates = (_shipped(text if text.endswith(_SUFFIX) else f"{text}{_SUFFIX}") for text in names)
    return next((candidate for candidate in candidates if os.path.isfile(candidate)), name)


def shipped_names(keys: Collection[str]) -> list[str]:
    """Return the names of the shipped YAML files that have one of `keys` at their left margin."""
    mark = re.compile(f"^({'|'.join(map(re.escape, keys))}):", re.MULTILINE)
    paths = (path for folder in _FOLDERS for path in sorted((_ROOT / folder).glob(f"*{_SUFFIX}")))
    return [path.stem for path in paths if mark.search(path.read_text(encoding="utf-8"))]


def _shipped(path: str) -> str:
    """Return where `path` would be among the shipped files; an empty text if it is outside of their folders."""
    parts = Path(path).parts
    return str(_ROOT / path) if parts and parts[0] in _FOLDERS and ".." not in parts else ""
