"""Files that people write: YAML as trees that know their line numbers, and how a path leads to a file.

Values stay the text in the file, and the type of the parameter decides what it means, because YAML 1.1 reads `1e-4` as
a text, `no` as a boolean and `010` as 8.

A path counts from the current folder. If nothing is there, it is looked up among the shipped files, which are in the
folders `studies/` and `examples/` of the installed package, or of the clone that an editable install runs from.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # comes with MLflow

from paretune.core.errors import BadInput, did_you_mean
from paretune.core.untrusted import LARGEST_SETTINGS, exists, is_file, read_text

_FOLDERS = ("studies", "examples")
_PACKAGE = Path(__file__).resolve().parents[1]
_ROOT = _PACKAGE / "shipped" if (_PACKAGE / "shipped").is_dir() else _PACKAGE.parents[1]
_SUFFIX = ".yaml"


@dataclass(frozen=True)
class FileKind:
    """A kind of file, for messages: its name, the keys that it needs, an example, and whether some are shipped."""

    word: str
    keys: str
    example: str
    is_shipped: bool = False


STUDY = FileKind("study", "name and search", "studies/smoke.yaml", is_shipped=True)


@dataclass(frozen=True)
class Node:
    """One value of the file. `line` counts from 1, at its key; `is_plain` means a scalar without quotes."""

    line: int
    value: "str | list[Node] | dict[str, Node]"
    is_plain: bool = False

    @property
    def is_nothing(self) -> bool:
        """Whether a key has no value."""
        return isinstance(self.value, str) and (
            not self.value.strip() or (self.is_plain and self.value.lower() in ("~", "null"))
        )

    def described(self) -> str:
        """The value, shortened, or its kind, for a message."""
        if isinstance(self.value, str):
            return repr(self.value if len(self.value) <= 60 else f"{self.value[:57]}...")
        return "a list" if isinstance(self.value, list) else "a mapping"

    def line_at(self, keys: Sequence[str | int]) -> int:
        """The line of the value that these keys lead to, or of the last of them that is there."""
        if not keys or isinstance(self.value, str):
            return self.line
        inner = self.value.get(str(keys[0])) if isinstance(self.value, dict) else self.value[int(keys[0])]
        return self.line if inner is None else inner.line_at(keys[1:])

    def texts(self) -> Any:
        """The texts, lists and mappings of the value."""
        if isinstance(self.value, dict):
            return {name: node.texts() for name, node in self.value.items()}
        return [node.texts() for node in self.value] if isinstance(self.value, list) else self.value


def read_yaml(path: str, kind: FileKind) -> tuple[dict[str, Node], list[tuple[int, str]]]:
    """The mapping in a file of this kind, and the line and fault of each key that is given twice.

    Raises BadInput if it is no such mapping.
    """
    must = f"{kind.word} must name a YAML file, and "
    text = read_text(path, LARGEST_SETTINGS, must=must, hint=_hint(kind, path))
    reader = _Reader(path)
    try:
        document = yaml.compose(text, Loader=yaml.SafeLoader)
        if document is None:
            raise BadInput([f"{path} is empty: it needs {kind.keys}; begin with a copy of {kind.example}"])
        root = reader.node(document)
        if not isinstance(root.value, dict):
            rule = f"a {kind.word} file is a mapping with keys such as {kind.keys}"
            raise BadInput([f"{path}:{root.line}: {rule}, got {root.described()}"])
    except RecursionError as error:
        raise BadInput([f"{path}: its values are nested too deeply: a {kind.word} file needs five levels"]) from error
    except yaml.MarkedYAMLError as error:
        raise BadInput([f"{path}:{_problem(error)}"]) from error
    except yaml.YAMLError as error:  # a character that no text may contain
        raise BadInput([f"{path} is no YAML: {getattr(error, 'reason', error)}: save it as text"]) from error
    return root.value, reader.faults


def _hint(kind: FileKind, path: str) -> str:
    if not kind.is_shipped:
        return f"write one with {kind.example}"
    names = [file.stem for file in sorted((_ROOT / "studies").glob(f"*{_SUFFIX}"))]
    near = did_you_mean(Path(path).stem, names, most=1)
    return near or f"name one of your own, or a shipped one: {', '.join(names)}"


class _Reader:
    """Makes trees of PyYAML's nodes; keys that are given twice become `faults`, and aliases are refused."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.faults: list[tuple[int, str]] = []
        self._seen = set[int]()

    def node(self, node: Any, key_line: int | None = None) -> Node:
        """The tree of a node of PyYAML; its line is that of its key, if it has one."""
        line = node.start_mark.line + 1 if key_line is None else key_line
        if id(node) in self._seen:
            raise BadInput([f"{self._path}:{line}: an alias (*) refers to another place: write the value itself"])
        self._seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            return Node(line, node.value, is_plain=node.style is None)
        if isinstance(node, yaml.SequenceNode):
            return Node(line, [self.node(item) for item in node.value])
        entries: dict[str, Node] = {}
        for key_node, value in node.value:
            key = self.node(key_node)
            if not isinstance(key.value, str) or key.is_nothing:
                raise BadInput([f"{self._path}:{key.line}: a key must be a name, such as learning_rate"])
            entry = self.node(value, key.line)
            first = entries.setdefault(key.value, entry)
            if first is not entry:
                self.faults.append((key.line, f"{key.value} is given twice, first in line {first.line}: take one out"))
        return Node(line, entries)


def _problem(error: Any) -> str:
    marks = [error.problem_mark, error.context_mark]
    if "end of stream" in str(error.problem) or "<stream end>" in str(error.problem):
        marks.reverse()  # the line of the quote or bracket that is never closed
    mark = marks[0] or marks[1]
    line = mark.line + 1 if mark is not None else 1
    if "'\\t'" in str(error.problem):
        return f"{line}: a tab: YAML is indented with spaces; replace it"
    return f"{line}: this is no YAML: {error.problem}; look at colons, quotes and indentation there"


def find_path(path: str, *folders: Path) -> str:
    """Return `path` if it exists, else the same path below the first of `folders` that has it, else the shipped one.

    If nothing has that name, `path` itself is returned. Absolute paths, and those that begin with `~`, stay.
    """
    if not path or os.path.isabs(path) or exists(path):
        return path
    return _first([*(str(folder / path) for folder in folders), _shipped(path)], path)


def find_file(name: str) -> str:
    """The path of a study or example file: `smoke` and `smoke.yaml` lead to the shipped `studies/smoke.yaml`.

    A file in the current folder wins. If nothing has that name, `name` itself is returned.
    """
    if not name or is_file(name) or os.path.isabs(name):
        return name
    file = name.removesuffix(_SUFFIX) + _SUFFIX
    return _first([_shipped(file), *(_shipped(f"{folder}/{file}") for folder in _FOLDERS)], name)


def _first(candidates: Iterable[str], otherwise: str) -> str:
    return next((path for path in candidates if os.path.exists(path)), otherwise)


def _shipped(path: str) -> str:
    """Where `path` would be among the shipped files; an empty text if it is outside of their folders."""
    parts = Path(path).parts
    return str(_ROOT / path) if parts and parts[0] in _FOLDERS and ".." not in parts else ""
