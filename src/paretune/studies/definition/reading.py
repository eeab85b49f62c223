"""From a study file and what was typed to the parts of a study: every fault with the line it stands in."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

from paretune.core.errors import BadInput
from paretune.spec.cluster import ONLY_SIMULATED, SIMULATED, listed
from paretune.spec.job import JobSpec
from paretune.spec.parameters import annotations, parameter_hint, parse
from paretune.studies.definition.objectives import default_objectives, nearest
from paretune.studies.definition.rules import Draft, StudyTerms, faults_of
from paretune.studies.definition.space import NOT_SEARCHED, Choices, FaultPath, Range, Value, kind_of, parameters
from paretune.studies.definition.yaml import Node, read_yaml

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_SECTIONS = ("job", "search", "objectives", "constraints")
_TERMS: dict[str, Any] = dict.fromkeys(item.name for item in fields(StudyTerms))
KEYS = ("name", *_SECTIONS, *_TERMS)
"""Keys of a study file."""
LISTED = ("fallback_instance_types", "subnets", "security_group_ids")
"""Parameters of a job that hold several values, separated by commas: a list in a file."""


class Reading:
    """Collects parts and faults of one study; of what was typed, an empty text is none."""

    def __init__(self, path: str, overrides: Mapping[str, str]) -> None:
        self._path = path
        self._typed = {name: text for name, text in overrides.items() if text.strip()}
        self._lines: dict[FaultPath, int] = {}
        self._faults: list[tuple[float, str]] = []  # with their lines
        self._broken: list[FaultPath] = []
        self._parts: dict[str, Any] = {}
        self._job: dict[str, Any] = {}
        self._search: dict[str, Choices | Range] = {}

    def draft(self) -> Draft:
        """The whole study; BadInput with everything that is wrong with it."""
        document, doubles = read_yaml(self._path)
        self._faults += [(line, f"{self._path}:{line}: {text}") for line, text in doubles]
        for key, node in document.items():
            self._lines[(key,)] = node.line
            with self._noting((key,)):
                self._key(key, node)
        self._take_typed()
        if "name" not in {*document, *self._typed}:
            self._refuse(("name",), "name is missing: add name: and a few words, under which the study is found again")
        parts = {"name": "unnamed", "objectives": default_objectives(self._job), **self._parts}
        draft = Draft(job=self._job, search=self._search, **parts)
        for fault_path, text in faults_of(draft, self._broken):
            self._refuse(fault_path, text)
        if self._faults:
            raise BadInput([text for _, text in sorted(self._faults, key=lambda fault: fault[0])])
        return draft

    def _refuse(self, fault_path: FaultPath, text: str) -> None:
        """Note a fault with the line of the innermost key that is known; what was typed has none."""
        self._broken.append(fault_path)
        line = next((self._lines[fault_path[:end]] for end in (2, 1) if fault_path[:end] in self._lines), math.inf)
        if fault_path[-1] in self._typed and (len(fault_path) == 1 or self._is_typed(fault_path[1])):
            self._faults.append((0, text))
        else:
            self._faults.append((line, f"{self._path}{f':{line}' if line < math.inf else ''}: {text}"))

    def _is_typed(self, name: str) -> bool:
        """Whether a parameter of the job was typed; `seed` is then that of the study."""
        return name in self._typed and name not in _TERMS

    @contextmanager
    def _noting(self, fault_path: FaultPath) -> Iterator[None]:
        """Note the faults that the block raises as those of this part, and go on after it."""
        try:
            yield
        except ValueError as error:
            for text in error.args:
                self._refuse(fault_path, text)

    def _key(self, key: str, node: Node) -> None:
        if key not in KEYS:
            raise ValueError(f"unknown key {key}: {_meant(key)}")
        if key in _SECTIONS:
            self._section(key, node)
        elif key not in self._typed:
            self._take_term(key, _text((key,), node))

    def _section(self, key: str, node: Node) -> None:
        if not isinstance(node.value, dict):
            got = "nothing" if node.is_nothing else node.described()
            raise ValueError(f"{key} must be a mapping of names to values, got {got}: {_EXAMPLES[key]}")
        if key in ("objectives", "constraints"):
            self._parts[key] = {}
        for name, entry in node.value.items():
            self._lines[(key, name)] = entry.line
            if key != "job" or not self._is_typed(name):
                with self._noting((key, name)):
                    self._entry((key, name), entry)

    def _entry(self, fault_path: FaultPath, node: Node) -> None:
        section, name = fault_path
        if section in ("job", "search") and name not in parameters():
            raise ValueError(f"unknown parameter {name} in {section}: {_meant(name, of_job=True)}")
        if section == "job":
            if (value := _value(fault_path, node)) != "":  # an empty list
                self._job[name] = value
        elif section == "search":
            self._searched(fault_path, node)
        elif section == "objectives":
            self._parts[section][name] = _text(fault_path, node).strip()
        else:
            self._parts[section][name] = _numbers(fault_path, node, ("min", "max"), float)

    def _searched(self, fault_path: FaultPath, node: Node) -> None:
        name = fault_path[1]
        if self._is_typed(name) and not self._keeps_searching(name, node):
            return
        if name in NOT_SEARCHED:
            self._search[name] = Choices(values=())  # the rules say why not
        elif not isinstance(node.value, dict):
            wanted = "{choices: [1, 2]} or {low: 1, high: 2}"
            raise ValueError(f"{name} in search must be like {wanted}, got {node.described()}; one value goes in job")
        elif unknown := [key for key in node.value if key not in _OF_A_RANGE]:
            raise ValueError(f"unknown key {unknown[0]} of {name}: {nearest(unknown[0], _OF_A_RANGE)}")
        elif "choices" in node.value:
            self._search[name] = self._choices(fault_path, node.value)
        else:
            self._search[name] = self._range(fault_path, node.value)

    def _choices(self, fault_path: FaultPath, entries: Mapping[str, Node]) -> Choices:
        name, listed_node = fault_path[1], entries["choices"]
        if len(entries) > 1:
            others = " and ".join(key for key in entries if key != "choices")
            raise ValueError(f"{name} has choices and {others}: keep one kind")
        if not isinstance(listed_node.value, list):
            got = "nothing" if listed_node.is_nothing else listed_node.described()
            raise ValueError(f"{name}: choices must be a list, got {got}: write choices: [A, B]")
        if self._is_typed(name):
            return Choices(values=())  # what was typed takes its place
        return Choices(values=tuple(_each(listed_node.value, partial(_value, fault_path, is_choice=True))))

    def _range(self, fault_path: FaultPath, entries: Mapping[str, Node]) -> Range:
        name, kind, log = fault_path[1], kind_of(fault_path[1]), False
        if kind not in (int, float):
            raise ValueError(f"{name} is no number and has no range: write {{choices: [...]}}")
        if "log" in entries:
            text = ""
            with self._noting(fault_path):  # and look at the ends as well
                text = _text(fault_path, entries["log"])
            log = text != "" and parse(f"{name}: log", text, bool)
        ends = {key: node for key, node in entries.items() if key != "log"}
        if missing := [key for key in ("low", "high") if key not in ends]:
            text = "choices, or low and high" if len(missing) == 2 else f"{missing[0]} as well"
            raise ValueError(f"{name} in search needs {text}: such as {{low: 1, high: 8}}")
        return Range(**_numbers(fault_path, Node(0, ends), ("low", "high"), kind), log=log)

    def _take_term(self, key: str, text: str) -> None:
        self._parts[key] = parse(key, text.strip(), str if key == "name" else annotations(StudyTerms)[key])

    def _keeps_searching(self, name: str, node: Node) -> bool:
        """Whether what was typed for a searched parameter are other choices, and not one value for all jobs."""
        chooses = isinstance(node.value, dict) and "choices" in node.value
        return chooses and "," in self._typed[name] and kind_of(name) is not dict

    def _take_typed(self) -> None:
        """Take what was typed: it wins over the file."""
        for name, text in self._typed.items():
            of_job, section = name in parameters() and name not in KEYS, "search" if name in self._search else "job"
            with self._noting((section, name) if of_job else (name,)):
                if name in _TERMS or name == "name":
                    self._take_term(name, text)
                elif name in KEYS:
                    raise ValueError(f"{name} is set in {self._path} and cannot be typed")
                elif not of_job:
                    raise ValueError(f"unknown parameter {name}: {nearest(name, (*_TERMS, *parameters()))}")
                elif section == "search":
                    self._search[name] = _typed_choices(name, text)
                else:
                    self._job[name] = _parsed(name, text)
        if "launcher" in self._typed and self._job.get("launcher") != SIMULATED:  # the file's rehearsal is over
            for name in set(ONLY_SIMULATED) - self._typed.keys():
                self._job.pop(name, None)


def _each(items: Iterable[_Item], read: Callable[[_Item], _Found]) -> list[_Found]:
    """What `read` makes of every item; their faults are raised together, one argument of the ValueError each."""
    found: list[_Found] = []
    faults: list[str] = []
    for item in items:
        try:
            found.append(read(item))
        except ValueError as error:
            faults += error.args
    if faults:
        raise ValueError(*faults)
    return found


def _text(fault_path: FaultPath, node: Node, what: str = "") -> str:
    name = what or fault_path[-1]
    if not isinstance(node.value, str):
        raise ValueError(f"{name} must be one value, got {node.described()}")
    if node.is_nothing:
        has_default = fault_path[0] == "job" or fault_path[-1] in _TERMS
        rest = ", or take the line out for the default" if has_default else ""
        raise ValueError(f"{name} has no value: give one{rest}")
    return node.value


def _value(fault_path: FaultPath, node: Node, is_choice: bool = False) -> Value:
    """The value of a parameter of a job; empty for an empty list."""
    name = fault_path[1]
    if isinstance(node.value, list) and name in LISTED:
        return ",".join(_each(node.value, partial(_text, fault_path)))
    if isinstance(node.value, dict) and kind_of(name) is dict:
        return _parsed(name, json.dumps(node.as_json(), sort_keys=True))
    if isinstance(node.value, str):
        return _parsed(name, _text(fault_path, node))
    several = "" if is_choice else f"; to try several, put them under search as {name}: {{choices: [...]}}"
    raise ValueError(f"{name} must be one value, got {node.described()}{several}")


def _numbers(fault_path: FaultPath, node: Node, keys: tuple[str, str], kind: type) -> dict[str, Any]:
    name = fault_path[1]
    if not isinstance(node.value, dict):
        got = "nothing" if node.is_nothing else node.described()
        raise ValueError(f"{fault_path[0]}: {name} must be like {{{keys[0]}: 0.9}} or {{{keys[1]}: 30}}, got {got}")

    def number(entry: tuple[str, Node]) -> tuple[str, Any]:
        if entry[0] not in keys:
            raise ValueError(f"unknown key {entry[0]} of {name}: {nearest(entry[0], keys)}")
        what = f"{name}: {entry[0]}"
        return entry[0], parse(what, _text(fault_path, entry[1], what), kind)

    return dict(_each(node.value.items(), number))


def _parsed(name: str, text: str) -> Value:
    """The value that a text means: a number, a truth value, or the text where it means anything else."""
    value = parse(name, text, annotations(JobSpec)[name])
    return value if isinstance(value, str | int | float) else text.strip()


def _typed_choices(name: str, text: str) -> Choices:
    if not all(part.strip() for part in text.split(",")):
        raise ValueError(f"{name} must have a value between all commas, got {text!r}")
    return Choices(values=tuple(_each(listed(text), partial(_parsed, name))))


_OF_A_RANGE = ("choices", "low", "high", "log")
_EXAMPLES = {
    "job": "job: {num_train_epochs: 2}",
    "search": "search: {learning_rate: {low: 1e-5, high: 1e-4, log: true}}",
    "objectives": "objectives: {cost_usd: minimize, f1: maximize}",
    "constraints": "constraints: {f1: {min: 0.9}}",
}


def _meant(key: str, of_job: bool = False) -> str:
    """What a wrong key was probably meant to be, or where it belongs."""
    if of_job:
        if key in KEYS:
            return "it is a key of the study, move it to the left; a job has none of this name"
        return parameter_hint(key, parameters())
    if key in parameters():
        return "it is a parameter of the job, put it under job or search"
    return nearest(key, KEYS)
