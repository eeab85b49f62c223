"""From a study file and what was typed to the parts of a study: every fault with the line it stands in."""

import json
import math
import typing
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from paretune.core.errors import BadInput
from paretune.spec.cluster import ONLY_SIMULATED, SIMULATED, listed
from paretune.spec.parameters import parse
from paretune.studies.definition.objectives import default_objectives, nearest
from paretune.studies.definition.rules import Draft, StudyTerms, faults_of, nearest_parameter
from paretune.studies.definition.space import (
    NOT_SEARCHED,
    Choices,
    FaultPath,
    Range,
    Value,
    annotations,
    kind_of,
    parameters,
)
from paretune.studies.definition.yaml import Node, read_yaml

_SECTIONS = ("job", "search", "objectives", "constraints")
_TERMS: dict[str, Any] = dict.fromkeys(item.name for item in fields(StudyTerms))
KEYS = ("name", *_SECTIONS, *_TERMS)
"""Keys of a study file."""
LISTED = ("fallback_instance_types", "subnets", "security_group_ids")
"""Parameters of a job that hold several values, separated by commas: a list in a file."""


class Reading:
    """Collects parts and faults of one study.

    Args:
        overrides: what was typed: parameter to text; an empty text was not typed.
    """

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
        """The whole study.

        Raises:
            BadInput: everything that is wrong with it, at once.
        """
        document, doubles = read_yaml(self._path)
        self._faults += [(line, f"{self._path}:{line}: {text}") for line, text in doubles]
        for key, node in document.items():
            self._lines[(key,)] = node.line
            self._key(key, node)
        self._take_typed()
        if "name" not in {*document, *self._typed}:
            self._refuse(("name",), "name is missing: add name: and a few words, under which the study is found again")
        draft = Draft(
            **{
                "name": "unnamed",
                "job": self._job,
                "search": self._search,
                "objectives": default_objectives(self._job),
                **self._parts,
            }
        )
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

    def _key(self, key: str, node: Node) -> None:
        """Take one key of the file."""
        if key not in KEYS:
            self._refuse((key,), f"unknown key {key}: {_meant(key)}")
        elif key in _SECTIONS:
            self._section(key, node)
        elif key not in self._typed:
            text = self._text((key,), node)
            if text is not None:
                self._take_term(key, text)

    def _section(self, key: str, node: Node) -> None:
        if not isinstance(node.value, dict):
            got = "nothing" if node.is_nothing else node.described()
            self._refuse((key,), f"{key} must be a mapping of names to values, got {got}: {_EXAMPLES[key]}")
            return
        if key in ("objectives", "constraints"):
            self._parts[key] = {}
        for name, entry in node.value.items():
            fault_path = (key, name)
            self._lines[fault_path] = entry.line
            if key != "job" or not self._is_typed(name):
                self._entry(fault_path, entry)

    def _entry(self, fault_path: FaultPath, node: Node) -> None:
        """Take one line of a section."""
        section, name = fault_path
        if section in ("job", "search") and name not in parameters():
            self._refuse(fault_path, f"unknown parameter {name} in {section}: {_meant(name, of_job=True)}")
        elif section == "job":
            if (value := self._value(fault_path, node)) is not None:
                self._job[name] = value
        elif section == "search":
            self._searched(fault_path, node)
        elif section == "objectives":
            if (text := self._text(fault_path, node)) is not None:
                self._parts[section][name] = text.strip()
        else:
            numbers = self._numbers(fault_path, node, ("min", "max"), float)
            if numbers is not None:
                self._parts[section][name] = numbers

    def _searched(self, fault_path: FaultPath, node: Node) -> None:
        """Take one searched parameter."""
        name = fault_path[1]
        if self._is_typed(name) and not self._keeps_searching(name, node):
            return
        if name in NOT_SEARCHED:
            self._search[name] = Choices(values=())  # the rules say why not
        elif not isinstance(node.value, dict):
            wanted = "{choices: [1, 2]} or {low: 1, high: 2}"
            self._refuse(
                fault_path, f"{name} in search must be like {wanted}, got {node.described()}; one value goes in job"
            )
        elif unknown := [key for key in node.value if key not in ("choices", "low", "high", "log")]:
            self._refuse(fault_path, f"unknown key {unknown[0]} of {name}: {nearest(unknown[0], _OF_A_RANGE)}")
        elif "choices" in node.value:
            self._choices(fault_path, node.value)
        else:
            self._range(fault_path, node.value)

    def _choices(self, fault_path: FaultPath, entries: Mapping[str, Node]) -> None:
        name, listed_node = fault_path[1], entries["choices"]
        if len(entries) > 1:
            text = f"{name} has choices and {' and '.join(key for key in entries if key != 'choices')}: keep one kind"
            self._refuse(fault_path, text)
        elif not isinstance(listed_node.value, list):
            got = "nothing" if listed_node.is_nothing else listed_node.described()
            self._refuse(fault_path, f"{name}: choices must be a list, got {got}: write choices: [A, B]")
        elif self._is_typed(name):
            self._search[name] = Choices(values=())  # what was typed takes its place
        else:
            values = [self._value(fault_path, item, is_choice=True) for item in listed_node.value]
            if None not in values:
                self._search[name] = Choices(values=tuple(values))

    def _range(self, fault_path: FaultPath, entries: Mapping[str, Node]) -> None:
        name, kind = fault_path[1], kind_of(fault_path[1])
        if kind not in (int, float):
            self._refuse(fault_path, f"{name} is no number and has no range: write {{choices: [...]}}")
            return
        log = False
        if "log" in entries:
            text = self._text(fault_path, entries["log"])
            try:
                log = text is not None and bool(parse(f"{name}: log", text, bool))
            except ValueError as error:
                self._refuse(fault_path, str(error))
                return
        ends = {key: node for key, node in entries.items() if key != "log"}
        if missing := [key for key in ("low", "high") if key not in ends]:
            text = "choices, or low and high" if len(missing) == 2 else f"{missing[0]} as well"
            self._refuse(fault_path, f"{name} in search needs {text}: such as {{low: 1, high: 8}}")
            return
        numbers = self._numbers(fault_path, Node(0, ends), ("low", "high"), kind)
        if numbers is not None:
            self._search[name] = Range(low=numbers["low"], high=numbers["high"], log=log)

    def _numbers(self, fault_path: FaultPath, node: Node, keys: tuple[str, str], kind: type) -> dict[str, Any] | None:
        """Two named numbers; None where something is wrong with them."""
        name, found = fault_path[1], {}
        if not isinstance(node.value, dict):
            got = "nothing" if node.is_nothing else node.described()
            example = f"{{{keys[0]}: 0.9}} or {{{keys[1]}: 30}}"
            self._refuse(fault_path, f"{fault_path[0]}: {name} must be like {example}, got {got}")
            return None
        before = len(self._faults)
        for key, entry in node.value.items():
            if key not in keys:
                self._refuse(fault_path, f"unknown key {key} of {name}: {nearest(key, keys)}")
            elif (text := self._text(fault_path, entry, f"{name}: {key}")) is not None:
                try:
                    found[key] = parse(f"{name}: {key}", text, kind)
                except ValueError as error:
                    self._refuse(fault_path, str(error))
        return found if len(self._faults) == before else None

    def _value(self, fault_path: FaultPath, node: Node, is_choice: bool = False) -> Any:
        """The value of a parameter of a job; None where something is wrong with it."""
        name = fault_path[1]
        if isinstance(node.value, list) and name in LISTED:
            texts = [self._text(fault_path, item) for item in node.value]
            return None if None in texts or not texts else ",".join(text for text in texts if text is not None)
        if isinstance(node.value, dict) and kind_of(name) is dict:
            text: str | None = json.dumps(node.as_json(), sort_keys=True)
        elif isinstance(node.value, str):
            text = self._text(fault_path, node)
        else:
            several = "" if is_choice else f"; to try several, put them under search as {name}: {{choices: [...]}}"
            self._refuse(fault_path, f"{name} must be one value, got {node.described()}{several}")
            return None
        return None if text is None else self._parsed(fault_path, text)

    def _parsed(self, fault_path: FaultPath, text: str) -> Value | None:
        """The value that a text means: a number, a truth value, or the text where it means anything else."""
        name = fault_path[1]
        try:
            value = parse(name, text, annotations()[name])
        except ValueError as error:
            self._refuse(fault_path, str(error))
            return None
        return value if isinstance(value, str | int | float) else text.strip()

    def _text(self, fault_path: FaultPath, node: Node, what: str = "") -> str | None:
        """What a scalar says; None where there is none."""
        name = what or fault_path[-1]
        if not isinstance(node.value, str):
            self._refuse(fault_path, f"{name} must be one value, got {node.described()}")
        elif node.is_nothing:
            has_default = fault_path[0] == "job" or fault_path[-1] in _TERMS
            rest = ", or take the line out for the default" if has_default else ""
            self._refuse(fault_path, f"{name} has no value: give one{rest}")
        else:
            return node.value
        return None

    def _take_term(self, key: str, text: str) -> None:
        """Take a key of the study that is one value."""
        try:
            self._parts[key] = parse(
                key, text.strip(), str if key == "name" else typing.get_type_hints(StudyTerms)[key]
            )
        except ValueError as error:
            self._refuse((key,), str(error))

    def _keeps_searching(self, name: str, node: Node) -> bool:
        """Whether what was typed for a searched parameter are other choices, and not one value for all jobs."""
        chooses = isinstance(node.value, dict) and "choices" in node.value
        return chooses and "," in self._typed[name] and kind_of(name) is not dict

    def _take_typed(self) -> None:
        """Take what was typed: it wins over the file."""
        for name, text in self._typed.items():
            if name in _TERMS or name == "name":
                self._take_term(name, text)
            elif name in KEYS:
                self._refuse((name,), f"{name} is set in {self._path} and cannot be typed")
            elif name not in parameters():
                known = (*_TERMS, *parameters())
                self._refuse((name,), f"unknown parameter {name}: {nearest(name, known)}")
            elif name in self._search:
                self._other_choices(name, text)
            elif (value := self._parsed(("job", name), text)) is not None:
                self._job[name] = value
        if "launcher" in self._typed and self._job.get("launcher") != SIMULATED:  # the file's rehearsal is over
            for name in set(ONLY_SIMULATED) - self._typed.keys():
                self._job.pop(name, None)

    def _other_choices(self, name: str, text: str) -> None:
        fault_path = ("search", name)
        if not all(part.strip() for part in text.split(",")):
            self._refuse(fault_path, f"{name} must have a value between all commas, got {text!r}")
            return
        values = [self._parsed(fault_path, part) for part in listed(text)]
        if None not in values:
            self._search[name] = Choices(values=tuple(value for value in values if value is not None))


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
        return nearest_parameter(key)
    if key in parameters():
        return "it is a parameter of the job, put it under job or search"
    return nearest(key, KEYS)
