"""The parts of a study, from its file and what was typed."""

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import Any, ClassVar

from paretune.specification.cluster import listed
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value, annotations, parse
from paretune.storage.yaml import STUDY, FileKind, Node
from paretune.studies.definition.objectives import default_objectives, nearest
from paretune.studies.definition.quality import LAST
from paretune.studies.definition.reading import FileReading, each
from paretune.studies.definition.rules import Draft, StudyTerms, faults_of
from paretune.studies.definition.space import (
    NOT_SEARCHED,
    Choices,
    FaultPath,
    Range,
    is_inside,
    kind_of,
    parameter_of,
    parameters,
)

_OF_A_RANGE = ("choices", "low", "high", "log")
_OF_AN_OBJECTIVE = ("direction", "take")
_OF_QUALITY = ("metric", *_OF_AN_OBJECTIVE)
_CHANGES = "changes_quality"
_NO_NUMBERS = (".nan", ".inf", "+.inf", "-.inf")  # YAML's, which JSON has not
_TERMS: dict[str, Any] = {item.name: annotations(StudyTerms)[item.name] for item in fields(StudyTerms)}


class StudyReading(FileReading):
    """Collects parts and faults of one study; of what was typed, an empty text is none."""

    kind: ClassVar[FileKind] = STUDY
    sections: ClassVar[tuple[str, ...]] = ("job", "search", "objectives", "constraints", "quality")
    terms: ClassVar[Mapping[str, Any]] = _TERMS
    typed_terms = tuple(_TERMS)
    kinds: ClassVar[Mapping[str, Any]] = {name: annotations(JobSpec)[name] for name in parameters()}
    examples: ClassVar[Mapping[str, str]] = {
        "job": "job: {num_train_epochs: 2}",
        "search": "search: {learning_rate: {low: 1e-5, high: 1e-4, log: true}}",
        "search of": "{name}: {{choices: [...]}}",
        "objectives": "objectives: {cost_usd: minimize, f1: maximize}",
        "constraints": "constraints: {f1: {min: 0.9}}",
        "quality": "quality: {metric: val_ndcg, direction: maximize}",
    }

    def __init__(self, path: str, overrides: Mapping[str, str]) -> None:
        super().__init__(path, overrides)
        self._search: dict[str, Choices | Range] = {}

        self._takes: dict[str, str] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the file."""
        return (*super().keys, _CHANGES)

    def draft(self) -> Draft:
        """The whole study; BadInput with everything that is wrong with it."""
        self._read()
        quality = self._parts.get("quality", {})
        if "take" in quality and "metric" in quality:
            self._takes[quality["metric"]] = quality["take"]
        takes = {name: take for name, take in self._takes.items() if take != LAST}
        parts = {"name": "unnamed", "objectives": default_objectives(self._job, quality), **self._parts}
        draft = Draft(job=self._job, search=self._search, takes=takes, **parts)
        self._finish(faults_of(draft, self._broken))
        return draft

    def _key(self, key: str, node: Node) -> None:
        if key != _CHANGES:
            super()._key(key, node)
        elif isinstance(node.value, list):
            self._parts[key] = tuple(each(node.value, partial(self._text, (key,))))
        else:
            self._parts[key] = tuple(name.strip() for name in self._text((key,), node).split(",") if name.strip())

    def _section(self, key: str, node: Node) -> None:
        if key in ("objectives", "constraints", "quality") and isinstance(node.value, dict):
            self._parts[key] = {}
        super()._section(key, node)

    def _entry(self, fault_path: FaultPath, node: Node) -> None:
        section, name = fault_path
        if section == "search" and (name in parameters() or is_inside(name)):
            self._searched(fault_path, node)
        elif section in ("job", "search"):
            super()._entry(fault_path, node)
        elif section == "objectives":
            self._parts[section][name] = self._objective(fault_path, node)
        elif section == "quality":
            if name not in _OF_QUALITY:
                raise ValueError(f"unknown key {name} of quality: {nearest(name, _OF_QUALITY)}")
            self._parts[section][name] = self._text(fault_path, node).strip()
        else:
            self._parts[section][name] = self._numbers(fault_path, node, ("min", "max"), float)

    def _objective(self, fault_path: FaultPath, node: Node) -> str:
        """Its direction; which value of a run counts is kept apart."""
        name = fault_path[1]
        if not isinstance(node.value, dict):
            return self._text(fault_path, node).strip()
        if unknown := [key for key in node.value if key not in _OF_AN_OBJECTIVE]:
            raise ValueError(f"unknown key {unknown[0]} of {name}: {nearest(unknown[0], _OF_AN_OBJECTIVE)}")
        if "direction" not in node.value:
            raise ValueError(f"objective {name} needs a direction: such as {{direction: maximize, take: best}}")
        if "take" in node.value:
            self._takes[name] = self._text(fault_path, node.value["take"], f"{name}: take").strip()
        return self._text(fault_path, node.value["direction"], f"{name}: direction").strip()

    def _searched(self, fault_path: FaultPath, node: Node) -> None:
        name = fault_path[1]
        if self._is_typed(name) and not self._keeps_searching(name, node):
            return
        if parameter_of(name) in NOT_SEARCHED:
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
        read = self._inside if is_inside(name) else partial(self._value, is_choice=True)
        return Choices(values=tuple(each(listed_node.value, partial(read, fault_path))))

    def _inside(self, fault_path: FaultPath, node: Node) -> Value:
        """A value of a name in a mapping: its type is that which it has in the file."""
        if not isinstance(node.value, str) or node.is_nothing or (node.is_plain and node.value.lower() in _NO_NUMBERS):
            text = f"{fault_path[1]} must be a text, a number, true or false, got {node.described()}"
            raise ValueError(f"{text}: search one value at a time")
        return node.as_json()  # type: ignore[no-any-return]  # of a scalar

    def _range(self, fault_path: FaultPath, entries: Mapping[str, Node]) -> Range:
        name, log = fault_path[1], False
        ends = [entries[key].as_json() for key in ("low", "high") if key in entries]
        is_free = is_inside(name) and not all(isinstance(end, int) for end in ends)
        kind = float if is_free else int if is_inside(name) else kind_of(name)
        if kind not in (int, float):
            raise ValueError(f"{name} is no number and has no range: write {{choices: [...]}}")
        if "log" in entries:
            text = ""
            with self._noting(fault_path):  # and look at the ends as well
                text = self._text(fault_path, entries["log"])
            log = text != "" and parse(f"{name}: log", text, bool)
        told = {key: node for key, node in entries.items() if key != "log"}
        if missing := [key for key in ("low", "high") if key not in told]:
            text = "choices, or low and high" if len(missing) == 2 else f"{missing[0]} as well"
            raise ValueError(f"{name} in search needs {text}: such as {{low: 1, high: 8}}")
        return Range(**self._numbers(fault_path, Node(0, told), ("low", "high"), kind), log=log)

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
        return chooses and "," in self._typed[name] and not is_inside(name) and kind_of(name) is not dict

    def _section_of(self, name: str) -> str:
        return "search" if name in self._search else "job"

    def _take_parameter(self, section: str, name: str, text: str) -> None:
        if section == "search":
            if not all(part.strip() for part in text.split(",")):
                raise ValueError(f"{name} must have a value between all commas, got {text!r}")
            self._search[name] = Choices(values=tuple(each(listed(text), partial(self._parsed, name))))
        else:
            super()._take_parameter(section, name, text)
