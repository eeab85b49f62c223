"""The file of a recurring training: its job, the points that a night may take, and the floor of quality.

name: nightly reviews
job: {model: distilbert-base-uncased, dataset: "s3://bucket/reviews/{night}.csv", instance_type: ml.g5.xlarge}
search:
  instance_type: {choices: [ml.g4dn.xlarge, ml.g5.xlarge, ml.g6.xlarge]}
  learning_rate: {choices: [2e-5, 5e-5]}
floor: {f1: 0.9}
max_cost_usd: 6

What `job` says of searched parameters, or their defaults, is the point that runs without this command: the default.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value, annotations, help_lines, parameter, range_faults
from paretune.storage.yaml import RECUR, FileKind, Node
from paretune.studies.definition.objectives import OBJECTIVES, OF_THE_CLUSTER
from paretune.studies.definition.quality import F1, KNOWN, Quality
from paretune.studies.definition.reading import beside
from paretune.studies.definition.rules import Draft, faults_of
from paretune.studies.definition.space import Fault, FaultPath, Search, is_inside, make_spec
from paretune.studies.definition.study_reading import StudyReading

NIGHT = "{night}"
"""In a text of the job: the night's name takes its place, such as in the address of its data."""
MOST_POINTS = 400


@dataclass(frozen=True, kw_only=True)
class RecurTerms:
    """What of a recurring training is one value each, and can be typed."""

    night: str | None = parameter(
        None, "which night this is; the same one again goes on with it; by default today, UTC"
    )
    max_cost_usd: float | None = parameter(
        None, "dollars that one night may cost, its retraining included; checked before anything is launched", above=0
    )
    retrains: int = parameter(
        2,
        "how often a night trains again at most, until a model meets the floor; all of it is within max_cost_usd",
        minimum=1,
        maximum=5,
    )
    seed: int = parameter(42, "seed of the draws; that of the training stands in job", minimum=0, maximum=2**32 - 1)


_TERMS: dict[str, Any] = {item.name: annotations(RecurTerms)[item.name] for item in fields(RecurTerms)}


@dataclass(frozen=True, kw_only=True)
class RecurFile(RecurTerms):
    """A checked recurring training.

    Attributes:
        path: its file, from which the data's paths count.
        job: parameters of the default, searched ones too where it says them.
        metric: what the floor is about; `floor` its least value, or its largest where less is better.
        quality: what the file says of a metric of the user's own: metric, direction, take.
        changes_quality: searched parameters that change quality, of a training of the user's own.
        of_the_night: parameters of the job whose texts hold the night's name.
    """

    path: str
    name: str
    job: Mapping[str, Any]
    search: Search
    metric: str
    floor: float
    quality: Mapping[str, str] = field(default_factory=dict)
    changes_quality: tuple[str, ...] = ()
    of_the_night: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: str, overrides: Mapping[str, str]) -> "RecurFile":
        """The recurring training of a file, and what was typed, which wins.

        Raises:
            BadInput: all faults at once, each with its line where it has one.
        """
        return RecurReading(path, overrides).file()

    @property
    def draft(self) -> Draft:
        """The same as a study of the points beside the default."""
        return _draft(self)

    @property
    def judged_by(self) -> Quality:
        """What the floor is about."""
        return self.draft.judged_by or F1

    def dated(self, night: str) -> "RecurFile":
        """The same with the night's name in the texts of its job."""
        own = {name: value for name, value in self.job.items() if isinstance(value, str) and NIGHT in value}
        job = {**self.job, **{name: beside(self.path, value.replace(NIGHT, night)) for name, value in own.items()}}
        return replace(self, night=night, job=job, of_the_night=tuple(own))

    def default_point(self) -> dict[str, Value]:
        """The point of the default: what the job says of searched parameters, else their defaults.

        Of a name inside a mapping, such as project_parameters.alpha, it is the first choice.
        """
        inside = {name: entry.corners[0] for name, entry in self.search.items() if is_inside(name)}
        spec = make_spec(self.job, inside)
        return {name: inside.get(name, self.job.get(name, getattr(spec, name, ""))) for name in self.search}

    def spec_at(self, point: Mapping[str, Value]) -> JobSpec:
        """The job of a point; BadInput where it makes none."""
        if point.keys() != self.search.keys():
            raise BadInput([f"a point of {self.name} has {', '.join(self.search)}, got {', '.join(point)}"])
        return make_spec(self.draft.job, point)

    def points(self) -> list[dict[str, Value]]:
        """The default, then all other points that make a job."""
        from paretune.studies.definition.file import StudyFile

        default = self.default_point()
        own = self.spec_at(default)
        found = StudyFile(**vars(self.draft))
        others = [point for point, spec in found.jobs_at(found.points()) if spec != own]
        return [default, *others]


def _draft(file: "RecurFile | _Parts") -> Draft:
    directions = {name: known.direction for name, known in OBJECTIVES.items()}
    way = file.quality.get("direction") or directions.get(file.metric, "maximize")
    return Draft(
        name=file.name,
        job={name: value for name, value in file.job.items() if name not in file.search},
        search=file.search,
        objectives={"cost_usd": "minimize", file.metric: way},
        quality=file.quality,
        changes_quality=file.changes_quality,
        budget_usd=file.max_cost_usd or 1.0,  # a study needs one; here it is a night's own
    )


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """All parts, not checked yet."""

    name: str
    job: Mapping[str, Any]
    search: Search
    metric: str
    quality: Mapping[str, str]
    changes_quality: tuple[str, ...]
    max_cost_usd: float | None


class RecurReading(StudyReading):
    """Collects parts and faults of one recurring training; of what was typed, an empty text is none."""

    kind: ClassVar[FileKind] = RECUR
    sections: ClassVar[tuple[str, ...]] = ("job", "search", "floor", "quality")
    terms: ClassVar[Mapping[str, Any]] = _TERMS
    typed_terms = tuple(_TERMS)
    examples: ClassVar[Mapping[str, str]] = {**StudyReading.examples, "floor": "floor: {f1: 0.9}"}

    def file(self) -> RecurFile:
        """The whole recurring training; BadInput with everything that is wrong with it."""
        self._read()
        parts: dict[str, Any] = {"name": "unnamed", "quality": {}, "changes_quality": (), "max_cost_usd": None}
        parts |= {name: value for name, value in self._parts.items() if name != "floor"}
        floors = self._parts.get("floor", {})
        known = _Parts(
            job=self._job,
            search=self._search,
            metric=next(iter(floors), "f1"),
            **{name: parts[name] for name in ("name", "quality", "changes_quality", "max_cost_usd")},
        )
        faults = [*faults_of(_draft(known), self._broken), *self._own_faults(floors, parts)]
        self._finish([(path, text) for path, text in faults if path[0] != "budget_usd"])
        return RecurFile(
            path=self._path,
            job=self._job,
            search=self._search,
            metric=known.metric,
            floor=floors[known.metric],
            **parts,
        )

    def _own_faults(self, floors: Mapping[str, float], parts: Mapping[str, Any]) -> Iterator[Fault]:
        if len(floors) != 1 and not any(path[0] == "floor" for path in self._broken):
            yield ("floor",), f"floor must name one metric and its limit, such as floor: {{f1: 0.9}}, got {len(floors)}"
        for name in floors:
            if name in OF_THE_CLUSTER:
                yield ("floor", name), f"floor must name a metric of the model, such as f1, got {name}"
            if (known := KNOWN.get(name)) and not known.lowest <= floors[name] <= known.highest:
                text = f"floor: {name} must be {known.lowest:g} to {known.highest:g}, as its values are"
                yield ("floor", name), f"{text}, got {floors[name]:g}"
        for item in fields(RecurTerms):
            if parts.get(item.name) is not None:
                yield from (((item.name,), text) for text in range_faults(item, parts[item.name]))
        for key in ("name", "night"):
            text = str(parts.get(key) or "")
            if "'" in text or "/" in text or not text.isprintable():
                yield (key,), f"{key} must be one line without ' and /, got {text!r}: runs are found again by it"
        ranges = [name for name, entry in self._search.items() if not hasattr(entry, "values")]
        for name in ranges:
            yield ("search", name), f"{name}: a range has no list of points; write {{choices: [...]}}"
        count = 1
        for name, entry in self._search.items():
            count *= 1 if name in ranges else max(1, len(entry.corners))
        if count > MOST_POINTS:
            yield ("search",), f"search must be at most {MOST_POINTS} points, got {count:,}: take choices out"

    def _section(self, key: str, node: Node) -> None:
        if key == "floor" and isinstance(node.value, dict):
            self._parts[key] = {}
        super()._section(key, node)

    def _entry(self, fault_path: FaultPath, node: Node) -> None:
        if fault_path[0] != "floor":
            super()._entry(fault_path, node)
            return
        text = self._text(fault_path, node)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(f"floor: {fault_path[1]} must be a number, got {text!r}")
        self._parts["floor"][fault_path[1]] = value


def recur_help() -> dict[str, str]:
    """Name of every key of a recurring training that can be typed to one line of help."""
    return help_lines(RecurTerms)
