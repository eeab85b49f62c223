"""YAML files that people write, read with their line numbers; and paths of shipped files.

Values are kept as strings, and the type of a parameter decides what they mean, because YAML 1.1 reads `1e-4` as a
string, `no` as a boolean and `010` as 8.

A relative path is resolved against the current folder. If nothing is there, it is looked up among the shipped files:
`studies/` and `examples/` of the installed package, or of the clone if the installation is editable.
"""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # comes with MLflow

from paretune.core.errors import BadInput, did_you_mean
from paretune.core.reading import LARGEST_SETTINGS, exists, is_file, read_text

_FOLDERS = ("studies", "examples")
_PACKAGE = Path(__file__).resolve().parents[1]
_ROOT = _PACKAGE / "shipped" if (_PACKAGE / "shipped").is_dir() else _PACKAGE.parents[1]
_SUFFIX = ".yaml"
# NaN and infinity, as YAML or Python's JSON parser spells them.
_NO_NUMBER = re.compile(r"[-+]?\.?(nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True)
class FileKind:
    """A kind of file, for messages: its name, the keys that it needs, an example, and whether paretune ships some."""

    word: str
    keys: str
    example: str
    is_shipped: bool = False


STUDY = FileKind("study", "name and search", "studies/smoke.yaml", is_shipped=True)


class Document:
    """The content of a YAML file and its line numbers, which start at 1.

    Raises BadInput if the file cannot be read, is not a YAML mapping, or has an alias or a key that is not a string.

    Attributes:
        values: the file's mapping. Strings without quotes are converted by `plain`. A key without a value, or with
            `~` or `null` without quotes, maps to None.
        faults: line and message for each key that is given a second time, and for each NaN or infinity without quotes.
            These keys and values are left out of `values`.
    """

    def __init__(self, path: str, kind: FileKind, plain: Callable[[str], str] = str) -> None:
        self._path, self._plain, self._seen = path, plain, set[int]()
        # By the keys that lead to a value: the line of the last key or, in a list, the line of the value itself.
        self._lines: dict[tuple[str, ...], int] = {}
        self.faults: list[tuple[int, str]] = []
        must = f"{kind.word} must name a YAML file, and "
        text = read_text(path, LARGEST_SETTINGS, must=must, hint=_hint(kind, path))
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            if root is None:
                raise BadInput([f"{path} is empty: it needs {kind.keys}; begin with a copy of {kind.example}"])
            if not isinstance(root, yaml.MappingNode):
                line = root.start_mark.line + 1
                raise BadInput([f"{path}:{line}: a {kind.word} file is a mapping with keys such as {kind.keys}"])
            self.values: dict[str, Any] = self._value(root, ())
        except RecursionError as error:
            raise BadInput(
                [f"{path}: its values are nested too deeply: a {kind.word} file needs at most five levels"]
            ) from error
        except yaml.MarkedYAMLError as error:
            raise BadInput([f"{path}:{_problem(error)}"]) from error
        except yaml.YAMLError as error:  # a character that YAML does not allow
            raise BadInput([f"{path} is not YAML: {getattr(error, 'reason', error)}: save it as text"]) from error

    def line_at(self, keys: Iterable[str | int]) -> int:
        """Return the line of the value that these keys lead to, or of the last of these keys that exists."""
        names = tuple(map(str, keys))
        while names not in self._lines:
            names = names[:-1]
        return self._lines[names]

    def _is_refused(self, node: Any) -> bool:
        """Return whether a value is NaN or infinity, and add it to the faults if so."""
        if not isinstance(node, yaml.ScalarNode) or node.style or not _NO_NUMBER.fullmatch(node.value):
            return False
        fault = f"{node.value} is not a number: write a number, or put text in quotes"
        self.faults.append((node.start_mark.line + 1, fault))
        return True

    def _value(self, node: Any, keys: tuple[str, ...]) -> Any:
        line = self._lines.setdefault(keys, node.start_mark.line + 1)
        if id(node) in self._seen:
            raise BadInput([f"{self._path}:{line}: an alias (*) refers to another place: write the value itself"])
        self._seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            items = [item for item in node.value if not self._is_refused(item)]
            return [self._value(item, (*keys, str(number))) for number, item in enumerate(items)]
        if isinstance(node, yaml.ScalarNode):
            if node.style:
                return str(node.value)
            return None if node.value.lower() in ("", "~", "null") else self._plain(node.value)
        values: dict[str, Any] = {}
        for key_node, item in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key := self._value(key_node, (*keys, "")), str) or not key.strip():
                raise BadInput([f"{self._path}:{line}: a key must be a name, such as learning_rate"])
            if key in values:
                first = self._lines[*keys, key]
                self.faults.append((line, f"{key} is given twice, first on line {first}: remove one"))
                continue
            if self._is_refused(item):
                continue
            self._lines[*keys, key] = line
            values[str(key)] = self._value(item, (*keys, key))
        return values


def as_yaml(values: Mapping[str, Any], *, in_one_line: bool = False) -> str:
    """Return these values as YAML, in their order."""
    width = math.inf if in_one_line else 120
    return str(
        yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True, width=width, default_flow_style=in_one_line)
    )


def _hint(kind: FileKind, path: str) -> str:
    if not kind.is_shipped:
        return f"write one with {kind.example}"
    names = [file.stem for file in sorted((_ROOT / "studies").glob(f"*{_SUFFIX}"))]
    near = did_you_mean(Path(path).stem, names, most=1)
    return near or f"name one of your own, or a shipped one: {', '.join(names)}"


def _problem(error: Any) -> str:
    marks = [error.problem_mark, error.context_mark]
    if "end of stream" in str(error.problem) or "<stream end>" in str(error.problem):
        marks.reverse()  # the line of the quote or bracket that is never closed
    mark = marks[0] or marks[1]
    line = mark.line + 1 if mark is not None else 1
    if "single document" in str(error.context):
        return f"{line}: a second document begins here, but a file has only one: remove --- and what follows it"
    if "'\\t'" in str(error.problem):
        return f"{line}: a tab: YAML is indented with spaces; replace it"
    return f"{line}: this is not YAML: {error.problem}; look at colons, quotes and indentation there"


def find_path(path: str, *folders: Path) -> str:
    """Return `path` if it exists, else that path under the first of `folders` that has it, else the shipped file.

    If none exists, `path` itself is returned. Absolute paths, and those that begin with `~`, are returned unchanged.
    """
    if not path or os.path.isabs(path) or exists(path):
        return path
    return _first([*(str(folder / path) for folder in folders), _shipped(path)], path)


def find_file(name: str) -> str:
    """Return the path of a study or example file: `smoke` and `smoke.yaml` lead to the shipped `studies/smoke.yaml`.

    A file of exactly this name in the current folder comes first. If neither exists, `name` itself is returned.
    """
    if not name or is_file(name) or os.path.isabs(name):
        return name
    file = name.removesuffix(_SUFFIX) + _SUFFIX
    return _first([_shipped(file), *(_shipped(f"{folder}/{file}") for folder in _FOLDERS)], name)


def _first(candidates: Iterable[str], otherwise: str) -> str:
    return next((path for path in candidates if os.path.exists(path)), otherwise)


def _shipped(path: str) -> str:
    """Return the path that `path` would have among the shipped files; empty if it is outside their folders."""
    parts = Path(path).parts
    return str(_ROOT / path) if parts and parts[0] in _FOLDERS and ".." not in parts else ""
