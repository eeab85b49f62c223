"""The parts of a study, from its file and what was typed."""

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import Any, ClassVar

from paretune.spec.cluster import listed
from paretune.spec.job import JobSpec
from paretune.spec.parameters import annotations, parse
from paretune.studies.definition.objectives import default_objectives, nearest
from paretune.studies.definition.reading import FileReading, each
from paretune.studies.definition.rules import Draft, StudyTerms, faults_of
from paretune.studies.definition.space import NOT_SEARCHED, Choices, FaultPath, Range, is_inside, kind_of, parameters
from paretune.studies.definition.yaml import STUDY, FileKind, Node

_OF_A_RANGE = ("choices", "low", "high", "log")
_TERMS: dict[str, Any] = {item.name: annotations(StudyTerms)[item.name] for item in fields(StudyTerms)}


class StudyReading(FileReading):
    """Collects parts and faults of one study; of what was typed, an empty text is none."""

    kind: ClassVar[FileKind] = STUDY
    sections = ("job", "search", "objectives", "constraints")
    terms: ClassVar[Mapping[str, Any]] = _TERMS
    typed_terms = tuple(_TERMS)
    kinds: ClassVar[Mapping[str, Any]] = {name: annotations(JobSpec)[name] for name in parameters()}
    examples: ClassVar[Mapping[str, str]] = {
        "job": "job: {num_train_epochs: 2}",
        "search": "search: {learning_rate: {low: 1e-5, high: 1e-4, log: true}}",
        "search of": "{name}: {{choices: [...]}}",
        "objectives": "objectives: {cost_usd: minimize, f1: maximize}",
        "constraints": "constraints: {f1: {min: 0.9}}",
    }

    def __init__(self, path: str, overrides: Mapping[str, str]) -> None:
        super().__init__(path, overrides)
        self._search: dict[str, Choices | Range] = {}

    def draft(self) -> Draft:
        """The whole study; BadInput with everything that is wrong with it."""
        self._read()
        parts = {"name": "unnamed", "objectives": default_objectives(self._job), **self._parts}
        draft = Draft(job=self._job, search=self._search, **parts)
        self._finish(faults_of(draft, self._broken))
        return draft

    def _section(self, key: str, node: Node) -> None:
        if key in ("objectives", "constraints") and isinstance(node.value, dict):
            self._parts[key] = {}
        super()._section(key, node)

    def _entry(self, fault_path: FaultPath, node: Node) -> None:
        section, name = fault_path
        if section == "search" and (name in parameters() or is_inside(name)):
            self._searched(fault_path, node)
        elif section in ("job", "search"):
            super()._entry(fault_path, node)
        elif section == "objectives":
            self._parts[section][name] = self._text(fault_path, node).strip()
        else:
            self._parts[section][name] = self._numbers(fault_path, node, ("min", "max"), float)

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
        if is_inside(name):
            return Choices(values=tuple(node.as_json() for node in listed_node.value))
        return Choices(values=tuple(each(listed_node.value, partial(self._value, fault_path, is_choice=True))))

    def _range(self, fault_path: FaultPath, entries: Mapping[str, Node]) -> Range:
        name, log = fault_path[1], False
        are_whole = all(isinstance(entries[key].as_json(), int) for key in ("low", "high") if key in entries)
        kind = (int if are_whole else float) if is_inside(name) else kind_of(name)
        if kind not in (int, float):
            raise ValueError(f"{name} is no number and has no range: write {{choices: [...]}}")
        if "log" in entries:
            text = ""
            with self._noting(fault_path):  # and look at the ends as well
                text = self._text(fault_path, entries["log"])
            log = text != "" and parse(f"{name}: log", text, bool)
        ends = {key: node for key, node in entries.items() if key != "log"}
        if missing := [key for key in ("low", "high") if key not in ends]:
            text = "choices, or low and high" if len(missing) == 2 else f"{missing[0]} as well"
            raise ValueError(f"{name} in search needs {text}: such as {{low: 1, high: 8}}")
        return Range(**self._numbers(fault_path, Node(0, ends), ("low", "high"), kind), log=log)

    def _numbers(self, fault_path: FaultPath, node: Node, keys: tuple[str, str], kind: type) -> dict[str, Any]:
        name = fault_path[1]
        if not isinstance(node.value, dict):
            got = "nothing" if node.is_nothing else node.described()
            raise ValueError(f"{fault_path[0]}: {name} must be like {{{keys[0]}: 0.9}} or {{{keys[1]}: 30}}, got {got}")

        def number(entry: tuple[str, Node]) -> tuple[str, Any]:
            if entry[0] not in keys:
                raise ValueError(f"unknown key {entry[0]} of {name}: {nearest(entry[0], keys)}")
            what = f"{name}: {entry[0]}"
            return entry[0], parse(what, self._text(fault_path, entry[1], what), kind)

        return dict(each(node.value.items(), number))

    def _keeps_searching(self, name: str, node: Node) -> bool:
        """Whether what was typed for a searched parameter are other choices, and not one value for all jobs."""
        chooses = isinstance(node.value, dict) and "choices" in node.value
        return chooses and "," in self._typed[name] and kind_of(name) is not dict

    def _section_of(self, name: str) -> str:
        return "search" if name in self._search else "job"

    def _take_parameter(self, section: str, name: str, text: str) -> None:
        if section == "search":
            if not all(part.strip() for part in text.split(",")):
                raise ValueError(f"{name} must have a value between all commas, got {text!r}")
            self._search[name] = Choices(values=tuple(each(listed(text), partial(self._parsed, name))))
        else:
            super()._take_parameter(section, name, text)
