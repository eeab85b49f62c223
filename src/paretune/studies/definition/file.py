"""A study file: a short YAML that reads as a story, as one frozen, checked value.

name: batch size and learning rate
job: {instance_type: ml.g5.xlarge}
search:
  global_batch_size: {choices: [16, 64, 256]}
  learning_rate: {low: 1e-5, high: 1e-4, log: true}
objectives: {cost_usd: minimize, f1: maximize}
budget_usd: 20
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, ClassVar

from paretune.core.commands import command_line
from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value, annotations, parse, spell, split_list
from paretune.storage.address import redacted
from paretune.storage.yaml import STUDY, FileKind, Node, write_yaml
from paretune.studies.definition.file_model import FileReader, each
from paretune.studies.definition.objectives import default_objectives, nearest, spelled
from paretune.studies.definition.quality import KNOWN, LAST
from paretune.studies.definition.rules import Draft, StudyTerms, can_be_split, faults_of
from paretune.studies.definition.space import (
    NOT_SEARCHED,
    Choices,
    FaultPath,
    Range,
    all_points,
    is_inside,
    kind_of,
    make_spec,
    parameter_of,
    parameters,
)

_RANGE_KEYS = ("choices", "low", "high", "log")
_OBJECTIVE_KEYS = ("direction", "take")
_QUALITY_KEYS = ("metric", *_OBJECTIVE_KEYS)
_NOT_JSON = (".nan", ".inf", "+.inf", "-.inf")  # YAML's numbers that JSON does not have


@dataclass(frozen=True, kw_only=True, repr=False)
class StudyFile(Draft):
    """A checked study: search, objectives, limits. The fields are those of `Draft`.

    Attributes:
        command: the line that begins it and goes on with it; empty if it was described in Python.

    Raises:
        BadInput: a part is out of range or parts contradict each other; with all faults at once.
    """

    command: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if faults := faults_of(self):
            raise BadInput([text for _, text in faults])

    @classmethod
    def read(cls, path: str | Mapping[str, Any], overrides: Mapping[str, str]) -> "StudyFile":
        """The study of a file, or of a mapping with the content of one, with overrides that win over it.

        `overrides` maps names to texts; empty texts are ignored. A name is a key of `StudyTerms` or a parameter of a
        job. For a searched parameter, one value ends its search, and several values with commas between them replace
        its choices. `seed` is the study's seed; the training's seed stands in `job`.

        Raises:
            BadInput: all faults at once, each with its line where it has one.
        """
        draft = StudyReader(path, overrides).draft()
        typed = {name: redacted(text) if name == "storage" else text for name, text in overrides.items()}
        return cls(
            **vars(draft), command=command_line("study", {"study": path} | typed) if isinstance(path, str) else ""
        )

    def __repr__(self) -> str:
        return f"StudyFile({', '.join(f'{name}={text}' for name, text in self.as_text().items())})"

    @property
    def shown_storage(self) -> str | None:
        """`storage` without user and password."""
        return None if self.storage is None else redacted(self.storage)

    @property
    def budget(self) -> str | None:
        """File with the shared budgets that its jobs count against, or None."""
        return str(self.job["budget"]) if self.job.get("budget") else None

    @property
    def takes_split(self) -> bool:
        """Whether seconds and quality are learnt apart: by `method`, or by default if the study allows it."""
        if self.method is None:
            return self.sampler is None and can_be_split(self)
        return self.method == "split"

    @property
    def keeps_order(self) -> bool:
        """Whether its points must run in the order of `points`; only designs need that."""
        return False

    def size(self) -> int | None:
        """The number of points, or None if a range is searched."""
        return None if self.ranges() else math.prod(len(entry.corners) for entry in self.search.values())

    def points(self) -> Iterator[dict[str, Value]]:
        """All points, the last parameter varying fastest. Some may make no job. BadInput if a range is searched."""
        if ranges := self.ranges():
            raise BadInput([f"{', '.join(ranges)}: a range has no list of points; write {{choices: [...]}}"])
        return all_points(self.search)

    def jobs_at(self, points: Iterable[dict[str, Value]]) -> list[tuple[dict[str, Value], JobSpec]]:
        """The points that make a job, with their jobs."""
        jobs = []
        for point in points:
            with suppress(BadInput):
                jobs.append((point, self.spec_at(point)))
        return jobs

    def spec_at(self, point: Mapping[str, Any]) -> JobSpec:
        """The job of a trial; the values of its point need not be among the choices.

        Raises:
            BadInput: the point makes no job, such as a batch that its devices cannot share. Nothing was paid; tell the
                sampler.
        """
        faults = [f"{name} is not searched" for name in point if name not in self.search]
        faults += [f"the point has no {name}" for name in self.search if name not in point]
        if faults:
            raise BadInput(faults)
        return make_spec(self.job, point)

    def as_text(self) -> dict[str, str]:
        """Every key that is set, as text for MLflow: mappings as JSON, `storage` without a password."""
        return {
            name: json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else spell(value)
            for name, value in self._keys().items()
        }

    def as_yaml(self) -> str:
        """The text of a study file with the same content, `storage` without a password."""
        return write_yaml(self._keys())

    def _keys(self) -> dict[str, Any]:
        keys = {
            "name": self.name,
            "job": {
                name: text if isinstance(value, Mapping) else value
                for name, value in self.job.items()
                if (text := spell(value)).strip()
            },
            "search": {name: entry.as_json() for name, entry in self.search.items()},
            "objectives": spelled(self.objectives, self.takes),
            "quality": self._quality(),
            "changes_quality": list(self.changes_quality) or None,
            "constraints": {name: dict(bounds) for name, bounds in self.constraints.items()},
            **{item.name: getattr(self, item.name) for item in fields(StudyTerms) if item.name != "once"},
            "storage": self.shown_storage,
            "method": "split" if self.takes_split else "joint",
        }
        return {name: value for name, value in keys.items() if value is not None and value != {}}

    def _quality(self) -> dict[str, str]:
        """Metric and direction that models are judged by; empty if the objectives imply it."""
        quality = self.judged_by
        if quality is None or (not self.quality and quality.metric in KNOWN):
            return {}
        return {"metric": quality.metric, "direction": quality.direction}


class StudyReader(FileReader):
    """Reads one study file; collects its parts and faults."""

    kind: ClassVar[FileKind] = STUDY
    sections: ClassVar[Mapping[str, str]] = {
        "job": "job: {num_train_epochs: 2}",
        "search": "search: {learning_rate: {low: 1e-5, high: 1e-4, log: true}}",
        "objectives": "objectives: {cost_usd: minimize, f1: maximize}",
        "constraints": "constraints: {f1: {min: 0.9}}",
        "quality": "quality: {metric: val_ndcg, direction: maximize}",
    }
    entry_example: ClassVar[str] = "{name}: {{choices: [...]}}"
    terms: ClassVar[type] = StudyTerms
    typed_terms = tuple(field.name for field in fields(StudyTerms))
    other_keys: ClassVar[tuple[str, ...]] = ("changes_quality",)
    parameter_types: ClassVar[Mapping[str, Any]] = {name: annotations(JobSpec)[name] for name in parameters()}

    def __init__(self, path: str | Mapping[str, Any], overrides: Mapping[str, str]) -> None:
        super().__init__(path, overrides)
        self._search: dict[str, Choices | Range] = {}
        self._takes: dict[str, str] = {}

    def draft(self) -> Draft:
        """The whole study; BadInput with all its faults."""
        self._read()
        quality = self._parts.get("quality", {})
        if "take" in quality and "metric" in quality:
            self._takes[quality["metric"]] = quality["take"]
        takes = {name: take for name, take in self._takes.items() if take != LAST}
        parts = {"name": "unnamed", "objectives": default_objectives(self._job, quality), **self._parts}
        draft = Draft(job=self._job, search=self._search, takes=takes, **parts)
        self._finish(faults_of(draft, self._broken))
        return draft

    def _read_key(self, key: str, node: Node) -> None:
        if key != "changes_quality":
            super()._read_key(key, node)
        elif isinstance(node.value, list):
            self._parts[key] = tuple(each(node.value, partial(self._text, (key,))))
        else:
            self._parts[key] = split_list(self._text((key,), node))

    def _read_entry(self, fault_path: FaultPath, node: Node) -> None:
        section, name = fault_path
        if section == "search" and (name in parameters() or is_inside(name)):
            self._read_searched(fault_path, node)
        elif section in ("job", "search"):
            super()._read_entry(fault_path, node)
        elif section == "objectives":
            self._parts[section][name] = self._direction(fault_path, node)
        elif section == "quality":
            if name not in _QUALITY_KEYS:
                raise ValueError(f"unknown key {name} of quality: {nearest(name, _QUALITY_KEYS)}")
            self._parts[section][name] = self._text(fault_path, node).strip()
        else:
            self._parts[section][name] = self._numbers(fault_path, node, ("min", "max"), float)

    def _direction(self, fault_path: FaultPath, node: Node) -> str:
        """The direction of an objective; its `take` is kept in `_takes`."""
        name = fault_path[1]
        if not isinstance(node.value, dict):
            return self._text(fault_path, node).strip()
        if unknown := [key for key in node.value if key not in _OBJECTIVE_KEYS]:
            raise ValueError(f"unknown key {unknown[0]} of {name}: {nearest(unknown[0], _OBJECTIVE_KEYS)}")
        if "direction" not in node.value:
            raise ValueError(f"objective {name} needs a direction: such as {{direction: maximize, take: best}}")
        if "take" in node.value:
            self._takes[name] = self._text(fault_path, node.value["take"], f"{name}: take").strip()
        return self._text(fault_path, node.value["direction"], f"{name}: direction").strip()

    def _read_searched(self, fault_path: FaultPath, node: Node) -> None:
        name = fault_path[1]
        if self._is_typed(name) and not self._stays_searched(name, node):
            return
        if parameter_of(name) in NOT_SEARCHED:
            self._search[name] = Choices(values=())  # a rule says why it cannot be searched
        elif not isinstance(node.value, dict):
            allowed = "{choices: [1, 2]} or {low: 1, high: 2}"
            raise ValueError(f"{name} in search must be like {allowed}, got {node.described()}; one value goes in job")
        elif unknown := [key for key in node.value if key not in _RANGE_KEYS]:
            raise ValueError(f"unknown key {unknown[0]} of {name}: {nearest(unknown[0], _RANGE_KEYS)}")
        elif "choices" in node.value:
            self._search[name] = self._choices(fault_path, node.value)
        else:
            self._search[name] = self._range(fault_path, node.value)

    def _choices(self, fault_path: FaultPath, entries: Mapping[str, Node]) -> Choices:
        name, choices = fault_path[1], entries["choices"]
        if len(entries) > 1:
            others = " and ".join(key for key in entries if key != "choices")
            raise ValueError(f"{name} has choices and {others}: keep one kind")
        if not isinstance(choices.value, list):
            got = "nothing" if choices.is_nothing else choices.described()
            raise ValueError(f"{name}: choices must be a list, got {got}: write choices: [A, B]")
        if self._is_typed(name):
            return Choices(values=())  # the override takes its place
        read = self._inner_value if is_inside(name) else partial(self._value, is_choice=True)
        return Choices(values=tuple(each(choices.value, partial(read, fault_path))))

    def _inner_value(self, fault_path: FaultPath, node: Node) -> Value:
        """A value of a name inside a mapping, with the type that it has in the file."""
        if not isinstance(node.value, str) or node.is_nothing or (node.is_plain and node.value.lower() in _NOT_JSON):
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
            with self._collecting(fault_path):  # so that faults of the ends are reported as well
                text = self._text(fault_path, entries["log"])
            log = text != "" and parse(f"{name}: log", text, bool)
        numbers = {key: node for key, node in entries.items() if key != "log"}
        if missing := [key for key in ("low", "high") if key not in numbers]:
            text = "choices, or low and high" if len(missing) == 2 else f"{missing[0]} as well"
            raise ValueError(f"{name} in search needs {text}: such as {{low: 1, high: 8}}")
        return Range(**self._numbers(fault_path, Node(0, numbers), ("low", "high"), kind), log=log)

    def _numbers(self, fault_path: FaultPath, node: Node, keys: tuple[str, str], kind: type) -> dict[str, Any]:
        name = fault_path[1]
        if not isinstance(node.value, dict):
            got = "nothing" if node.is_nothing else node.described()
            raise ValueError(f"{fault_path[0]}: {name} must be like {{{keys[0]}: 0.9}} or {{{keys[1]}: 30}}, got {got}")

        def number(entry: tuple[str, Node]) -> tuple[str, Any]:
            if entry[0] not in keys:
                raise ValueError(f"unknown key {entry[0]} of {name}: {nearest(entry[0], keys)}")
            label = f"{name}: {entry[0]}"
            return entry[0], parse(label, self._text(fault_path, entry[1], label), kind)

        return dict(each(node.value.items(), number))

    def _stays_searched(self, name: str, node: Node) -> bool:
        """Whether the override of a searched parameter holds other choices, and not one value for all jobs."""
        chooses = isinstance(node.value, dict) and "choices" in node.value
        return chooses and "," in self._typed[name] and not is_inside(name) and kind_of(name) is not dict

    def _section_of(self, name: str) -> str:
        return "search" if name in self._search else "job"

    def _set_parameter(self, section: str, name: str, text: str) -> None:
        if section == "search":
            if not all(part.strip() for part in text.split(",")):
                raise ValueError(f"{name} must have a value between all commas, got {text!r}")
            self._search[name] = Choices(values=tuple(each(split_list(text), partial(self._parsed, name))))
        else:
            super()._set_parameter(section, name, text)
