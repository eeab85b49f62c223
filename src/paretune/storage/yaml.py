"""A YAML file as a tree that knows its lines.

Values stay the text that was written, and the parameter's type decides what it means: YAML 1.1 takes `1e-4` for a text,
`no` for a truth value and `010` for 8.
"""

import math
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import yaml  # type: ignore[import-untyped]  # comes with MLflow

from paretune.core.commands import command_line
from paretune.core.errors import BadInput
from paretune.core.untrusted import LARGEST_SETTINGS, read_text

_LOADERS = (*([yaml.CSafeLoader] if yaml.__with_libyaml__ else []), yaml.SafeLoader)
"""libyaml, nine times as fast, where PyYAML was built with it; PyYAML's own for what that one refuses."""
_DEEPEST = 12  # values inside values; a study needs five
_DEEPEST_FOREIGN = 50  # the same of a file that MLflow reads
_LONGEST_NUMBER = 1_000  # characters
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class FileKind:
    """What a file is, for messages: a word for it, keys that it needs, one that is shipped, and what only it has.

    Of a kind that no command takes for itself, `marks` is empty.
    """

    word: str
    keys: str
    example: str
    marks: tuple[str, ...] = ()

    @property
    def article(self) -> str:
        """The word with its article."""
        return f"a {self.word}"


STUDY = FileKind("study", "name and search", "studies/smoke.yaml", ("search", "objectives"))
DESIGN = FileKind("design", "name and factors", "studies/polarity_scaling.yaml", ("factors", "design"))
RECUR = FileKind("recurring training", "name, search and floor", "examples/nightly.yaml", ("floor",))
_COMMANDS = ((RECUR, "recur", "file"), (DESIGN, "design", "design"), (STUDY, "study", "study"))
"""Kind to its command and that command's parameter for the file; what only one kind has, before what two have."""


@dataclass(frozen=True)
class Node:
    """One value of the file; `line` from 1, where its key stands; `is_plain` of a scalar without quotes."""

    line: int
    value: "str | list[Node] | dict[str, Node]"
    is_plain: bool = False

    @property
    def is_nothing(self) -> bool:
        """Whether a key stands there without a value."""
        return isinstance(self.value, str) and (
            not self.value.strip() or (self.is_plain and self.value.lower() in ("~", "null"))
        )

    def described(self) -> str:
        """What it is, for a message."""
        if isinstance(self.value, str):
            return repr(self.value if len(self.value) <= 60 else f"{self.value[:57]}...")
        return "a list" if isinstance(self.value, list) else "a mapping"

    def as_json(self) -> Any:
        """The value as JSON would have it: numbers and truth values where they are written without quotes.

        What is longer than any number is a text: Python turns no text of more than 4,300 digits into a number.
        """
        if isinstance(self.value, dict):
            return {name: node.as_json() for name, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.as_json() for node in self.value]
        if not self.is_plain or len(self.value) > _LONGEST_NUMBER:
            return self.value
        if _NUMBER.fullmatch(self.value):
            return int(self.value) if re.fullmatch(r"[-+]?\d+", self.value) else float(self.value)
        words = {"true": True, "false": False, "null": None, "~": None, "": None}
        return words.get(self.value.lower(), self.value)


def read_yaml(path: str, kind: FileKind = STUDY) -> tuple[dict[str, Node], list[tuple[int, str]]]:
    """The mapping that a file of this kind holds, and its keys that are there twice, as line and fault.

    BadInput, one sentence, where there is no such file, or it is not one mapping in YAML.
    """
    text = _text(path, kind)
    faults: list[tuple[int, str]] = []
    try:
        _check(text, kind)
        root = _node(yaml.compose(text, Loader=yaml.SafeLoader), faults)
        if not isinstance(root.value, dict):
            got = root.described()
            raise _Refused(root.line, f"{kind.article} file is a mapping with keys such as {kind.keys}, got {got}")
        _check_kind(root.value, path, kind)
    except (_Refused, yaml.MarkedYAMLError) as error:
        line, what = error.args if isinstance(error, _Refused) else _problem(error)
        raise BadInput([f"{path}:{line}: {what}"]) from error
    except yaml.YAMLError as error:  # a character that no text may hold
        raise BadInput([f"{path} is no YAML: {getattr(error, 'reason', error)}: save it as text"]) from error
    return root.value, faults


def check_size(text: str, path: str) -> None:
    """Refuse YAML whose aliases make more than LARGEST_SETTINGS values of it, or values that hold themselves.

    For files that somebody else's program reads, with aliases; what that program refuses passes here.

    Raises:
        BadInput: it has too many values, or too deep ones; one sentence that names `path`.
    """
    sizes: dict[int, float] = {}

    def size(node: Any) -> float:
        if id(node) not in sizes:
            sizes[id(node)] = math.inf  # of a value that holds itself
            parts = node.value if isinstance(node, yaml.CollectionNode) else ()
            sizes[id(node)] = 1 + sum(size(part) for entry in parts for part in _parts(entry))
        return sizes[id(node)]

    values = 0.0
    for loader in _LOADERS:
        with suppress(yaml.YAMLError):
            _check_depth(text, path, loader)
            values = size(yaml.compose(text, Loader=loader))
            break
    if values > LARGEST_SETTINGS:
        raise BadInput([f"{path}: its aliases make more than {LARGEST_SETTINGS:,} values of it: write the values out"])


def _check_depth(text: str, path: str, loader: Any) -> None:
    """BadInput where values are nested deeper than _DEEPEST_FOREIGN; PyYAML's time grows with the square of it."""
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST_FOREIGN:
            line = event.start_mark.line + 1
            raise BadInput([f"{path}:{line}: more than {_DEEPEST_FOREIGN} values inside one another: write fewer"])


def _parts(entry: Any) -> tuple[Any, ...]:
    """Of an entry of a mapping its key and its value; of one of a list itself."""
    return entry if isinstance(entry, tuple) else (entry,)


def _check_kind(keys: Collection[str], path: str, kind: FileKind) -> None:
    """Refuse a file of another kind with the command that takes it."""
    if any(key in keys for key in kind.marks) and not (kind is STUDY and any(key in keys for key in RECUR.marks)):
        return
    for other, name, parameter in _COMMANDS:
        there = [key for key in other.marks if key in keys]
        if there and other is not kind:
            command = f"`{command_line(name, {parameter: path})}`"
            text = f"{path} has {' and '.join(there)}, so it is {other.article}, not {kind.article}: {command}"
            raise BadInput([text])


def write_yaml(values: Mapping[str, Any]) -> str:
    """A file that says the same, a key a line."""
    return "".join(f"{name}: {_flow(value)}\n" for name, value in values.items())


def _flow(value: Any) -> str:
    """A value in one line; after a scalar PyYAML writes three dots."""
    text = str(yaml.safe_dump(value, sort_keys=False, default_flow_style=True, width=math.inf))
    return text.removesuffix("...\n").strip()


def _text(path: str, kind: FileKind) -> str:
    """What the file holds; BadInput where it cannot be read, is too large, or no text."""
    hint = "those that are shipped are in studies/" if kind.marks else f"write one with {kind.example}"
    text = read_text(path, LARGEST_SETTINGS, must=f"{kind.word} must name a YAML file, and ", hint=hint)
    if not text.strip():
        raise BadInput([f"{path} is empty: it needs {kind.keys}; begin with a copy of {kind.example}"])
    return text


class _Refused(Exception):
    """A line, and what is wrong in it."""


def _check(text: str, kind: FileKind) -> None:
    """Refuse what YAML has and such a file has no use for: aliases, tags, several documents, endless nesting."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise _Refused(line, f"a second document begins: {kind.article} file is one; take --- out")
        if isinstance(event, yaml.AliasEvent):
            raise _Refused(line, f"*{event.anchor} refers to another place: write the value itself")
        if getattr(event, "tag", None) is not None:
            raise _Refused(line, f"{event.tag} is a tag, and {kind.article} file has none: write the value alone")
        if depth > _DEEPEST:
            raise _Refused(line, f"more than {_DEEPEST} values inside one another: {kind.article} file needs five")
    if not documents:
        raise _Refused(1, f"there are only comments: it needs {kind.keys}; see {kind.example}")


def _node(found: Any, faults: list[tuple[int, str]], key_line: int | None = None) -> Node:
    """Our node of one of PyYAML's; keys that are there twice are added to `faults`."""
    line = found.start_mark.line + 1 if key_line is None else key_line
    if isinstance(found, yaml.ScalarNode):
        return Node(line, found.value, is_plain=found.style is None)
    if isinstance(found, yaml.SequenceNode):
        return Node(line, [_node(item, faults) for item in found.value])
    entries: dict[str, Node] = {}
    for key_node, value in found.value:
        key = _node(key_node, faults)
        if not isinstance(key.value, str) or key.is_nothing:
            raise _Refused(key.line, "a key must be a name, such as learning_rate")
        entry = _node(value, faults, key.line)
        first = entries.setdefault(key.value, entry)
        if first is not entry:
            faults.append((key.line, f"{key.value} is given twice, first in line {first.line}: take one out"))
    return Node(line, entries)


def _problem(error: Any) -> tuple[int, str]:
    marks = [error.problem_mark, error.context_mark]
    if "end of stream" in str(error.problem) or "<stream end>" in str(error.problem):
        marks.reverse()  # where the quote or the bracket is that nobody closes
    mark = marks[0] or marks[1]
    line = mark.line + 1 if mark is not None else 1
    if "'\\t'" in str(error.problem):
        return line, "a tab: YAML is indented with spaces; replace it"
    return line, f"this is no YAML: {error.problem}; look at colons, quotes and indentation there"
