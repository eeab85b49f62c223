"""The file of a recurring training: its job, the points that a night may take, and the floor of quality.

name: nightly reviews
job: {model: distilbert-base-uncased, dataset: "s3://bucket/reviews/{night}.csv", instance_type: ml.g5.xlarge}
search:
  instance_type: {choices: [ml.g4dn.xlarge, ml.g5.xlarge, ml.g6.xlarge]}
  learning_rate: {choices: [2e-5, 5e-5]}
floor: {f1: 0.9}
max_cost_usd: 6

The default point, which would run without this command, has the values of searched parameters in `job`, else their
defaults.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from paretune.commands.command import help_lines
from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value, parameter, range_faults
from paretune.storage.yaml import RECUR, FileKind, Node
from paretune.studies.definition.file import StudyFile, StudyReader
from paretune.studies.definition.file_model import beside
from paretune.studies.definition.objectives import OBJECTIVES, OF_THE_CLUSTER
from paretune.studies.definition.quality import F1, KNOWN, Quality
from paretune.studies.definition.rules import Draft, faults_of
from paretune.studies.definition.space import Choices, Fault, FaultPath, Search, is_inside, make_spec

NIGHT = "{night}"  # placeholder for the night's name in texts of the job, such as the address of its data
MOST_POINTS = 400


@dataclass(frozen=True, kw_only=True)
class RecurTerms:
    """The keys of a recurring training with one value; all of them can be typed."""

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


@dataclass(frozen=True, kw_only=True)
class RecurFile(RecurTerms):
    """A checked recurring training."""

    path: str  # its file; relative paths of the data count from there
    name: str
    job: Mapping[str, Any]
    """Parameters of the default point, including values of searched parameters that the file sets."""
    search: Search
    metric: str  # the metric that the floor limits; `floor` is its least value, or its largest if less is better
    floor: float
    quality: Mapping[str, str] = field(default_factory=dict)
    """What the file says about a metric of the user's own: metric, direction, take."""
    changes_quality: tuple[str, ...] = ()  # searched parameters that change quality, for a training of the user's own
    of_the_night: tuple[str, ...] = ()  # parameters of the job whose texts contain the night's name

    @classmethod
    def read(cls, path: str, overrides: Mapping[str, str]) -> "RecurFile":
        """The recurring training of a file, with overrides that win; raises BadInput with all faults and lines."""
        return RecurReader(path, overrides).file()

    @property
    def draft(self) -> Draft:
        """The study of all points but the default."""
        names = ("name", "job", "search", "metric", "quality", "changes_quality", "max_cost_usd")
        return _draft(**{name: getattr(self, name) for name in names})

    @property
    def judged_by(self) -> Quality:
        """The quality metric that the floor limits."""
        return self.draft.judged_by or F1

    def dated(self, night: str) -> "RecurFile":
        """The same training with the night's name in the texts of its job."""
        texts = {name: value for name, value in self.job.items() if isinstance(value, str) and NIGHT in value}
        job = {**self.job, **{name: beside(self.path, text.replace(NIGHT, night)) for name, text in texts.items()}}
        return replace(self, night=night, job=job, of_the_night=tuple(texts))

    def default_point(self) -> dict[str, Value]:
        """The values of searched parameters in `job`, else their defaults.

        A name inside a mapping, such as project_parameters.alpha, has no default: its first choice is taken.
        """
        inside = {name: entry.corners[0] for name, entry in self.search.items() if is_inside(name)}
        spec = make_spec(self.job, inside)
        return {name: inside.get(name, self.job.get(name, getattr(spec, name, ""))) for name in self.search}

    def spec_at(self, point: Mapping[str, Value]) -> JobSpec:
        """The job of a point; BadInput if it makes none."""
        if point.keys() != self.search.keys():
            raise BadInput([f"a point of {self.name} has {', '.join(self.search)}, got {', '.join(point)}"])
        return make_spec(self.draft.job, point)

    def points(self) -> list[dict[str, Value]]:
        """The default point, then all other points that make a job."""
        default = self.default_point()
        default_spec = self.spec_at(default)
        study = StudyFile(**vars(self.draft))
        return [default, *(point for point, spec in study.jobs_at(study.points()) if spec != default_spec)]


def _draft(
    *,
    name: str,
    job: Mapping[str, Any],
    search: Search,
    metric: str,
    quality: Mapping[str, str],
    changes_quality: tuple[str, ...],
    max_cost_usd: float | None,
) -> Draft:
    usual = OBJECTIVES[metric].direction if metric in OBJECTIVES else "maximize"
    return Draft(
        name=name,
        job={name: value for name, value in job.items() if name not in search},
        search=search,
        objectives={"cost_usd": "minimize", metric: quality.get("direction") or usual},
        quality=quality,
        changes_quality=changes_quality,
        budget_usd=max_cost_usd or 1.0,  # a study needs a budget; a recurring training has one for each night
    )


class RecurReader(StudyReader):
    """Reads the file of one recurring training; collects its parts and faults."""

    kind: ClassVar[FileKind] = RECUR
    sections: ClassVar[Mapping[str, str]] = {
        "job": StudyReader.sections["job"],
        "search": StudyReader.sections["search"],
        "floor": "floor: {f1: 0.9}",
        "quality": StudyReader.sections["quality"],
    }
    terms: ClassVar[type] = RecurTerms
    typed_terms = tuple(field.name for field in fields(RecurTerms))

    def file(self) -> RecurFile:
        """The whole recurring training; BadInput with all its faults."""
        self._read()
        parts: dict[str, Any] = {"name": "unnamed", "quality": {}, "changes_quality": (), "max_cost_usd": None}
        parts |= {name: value for name, value in self._parts.items() if name != "floor"}
        floors = self._parts.get("floor", {})
        metric = next(iter(floors), "f1")
        study_parts = {name: parts[name] for name in ("name", "quality", "changes_quality", "max_cost_usd")}
        draft = _draft(job=self._job, search=self._search, metric=metric, **study_parts)
        faults = [*faults_of(draft, self._broken), *self._floor_faults(floors), *self._recur_faults(parts)]
        self._finish([(path, text) for path, text in faults if path[0] != "budget_usd"])
        return RecurFile(
            path=self._path, job=self._job, search=self._search, metric=metric, floor=floors[metric], **parts
        )

    def _floor_faults(self, floors: Mapping[str, float]) -> Iterator[Fault]:
        if len(floors) != 1 and not any(path[0] == "floor" for path in self._broken):
            yield ("floor",), f"floor must name one metric and its limit, such as floor: {{f1: 0.9}}, got {len(floors)}"
        for name, floor in floors.items():
            if name in OF_THE_CLUSTER:
                yield ("floor", name), f"floor must name a metric of the model, such as f1, got {name}"
            if (limits := KNOWN.get(name)) and not limits.lowest <= floor <= limits.highest:
                text = f"floor: {name} must be {limits.lowest:g} to {limits.highest:g}, as its values are"
                yield ("floor", name), f"{text}, got {floor:g}"

    def _recur_faults(self, parts: Mapping[str, Any]) -> Iterator[Fault]:
        for term in fields(RecurTerms):
            if parts.get(term.name) is not None:
                yield from (((term.name,), text) for text in range_faults(term, parts[term.name]))
        for key in ("name", "night"):
            text = str(parts.get(key) or "")
            if "'" in text or "/" in text or not text.isprintable():
                yield (key,), f"{key} must be one line without ' and /, got {text!r}: runs are found again by it"
        lists = {name: entry for name, entry in self._search.items() if isinstance(entry, Choices)}
        for name in self._search.keys() - lists.keys():
            yield ("search", name), f"{name}: a range has no list of points; write {{choices: [...]}}"
        count = math.prod(max(1, len(entry.values)) for entry in lists.values())
        if count > MOST_POINTS:
            yield ("search",), f"search must be at most {MOST_POINTS} points, got {count:,}: take choices out"

    def _read_entry(self, fault_path: FaultPath, node: Node) -> None:
        if fault_path[0] != "floor":
            super()._read_entry(fault_path, node)
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
    """One line of help for each key of a recurring training that can be typed."""
    return help_lines(RecurTerms)
