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
from dataclasses import dataclass, fields
from typing import Any

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value, help_lines, spell
from paretune.storage.address import shown
from paretune.storage.yaml import write_yaml
from paretune.studies.definition.objectives import spelled
from paretune.studies.definition.quality import KNOWN
from paretune.studies.definition.rules import Draft, StudyTerms, can_be_split, faults_of
from paretune.studies.definition.space import all_points, make_spec
from paretune.studies.definition.study_reading import StudyReading


@dataclass(frozen=True, kw_only=True, repr=False)
class StudyFile(Draft):
    """A checked study: search, objectives, limits. Fields as in `Draft`; `storage` is shown without a password.

    Raises:
        BadInput: with all faults at once, when a part is out of range or parts contradict each other.
    """

    def __post_init__(self) -> None:
        if faults := faults_of(self):
            raise BadInput([text for _, text in faults])

    @classmethod
    def read(cls, path: str, overrides: Mapping[str, str]) -> "StudyFile":
        """The study of a file, and what was typed, which wins.

        `overrides` maps names to text, an empty text is none: a key of `StudyTerms`, or a parameter of a job, which
        replaces that in `job`. For a searched one, one value ends its search, and several with commas between them
        replace its choices. `seed` is that of the study; the training's stands in `job`.

        Raises:
            BadInput: all faults at once, each with its line where it has one.
        """
        return cls(**vars(StudyReading(path, overrides).draft()))

    def __repr__(self) -> str:
        return f"StudyFile({', '.join(f'{name}={text}' for name, text in self.as_text().items())})"

    @property
    def shown_storage(self) -> str | None:
        """`storage` as people may see it: without user and password."""
        return None if self.storage is None else shown(self.storage)

    @property
    def trials_per_job(self) -> int:
        """Trials that one job trains."""
        return int(self.job.get("trials_per_job") or 1)

    @property
    def budget(self) -> str | None:
        """File of the budgets beyond the study that its jobs count against."""
        return str(self.job["budget"]) if self.job.get("budget") else None

    @property
    def takes_split(self) -> bool:
        """Whether seconds and F1 are learnt apart: where that was asked for, or nothing else was and it can be done."""
        if self.method is None:
            return self.sampler is None and can_be_split(self)
        return self.method == "split"

    @property
    def keeps_order(self) -> bool:
        """Whether its points are tried in the order of `points`."""
        return False

    def size(self) -> int | None:
        """How many points there are; None where a range is searched."""
        return None if self.ranges() else math.prod(len(entry.corners) for entry in self.search.values())

    def points(self) -> Iterator[dict[str, Value]]:
        """All points in order, the last parameter fastest; some may make no job. BadInput where a range is searched."""
        if ranges := self.ranges():
            raise BadInput([f"{', '.join(ranges)}: a range has no list of points; write {{choices: [...]}}"])
        return all_points(self.search)

    def jobs_at(self, points: Iterable[dict[str, Value]]) -> list[tuple[dict[str, Value], JobSpec]]:
        """The points that make a job, with their jobs."""
        found = []
        for point in points:
            with suppress(BadInput):
                found.append((point, self.spec_at(point)))
        return found

    def spec_at(self, point: Mapping[str, Any]) -> JobSpec:
        """The job of a trial; the values of its point need not be among the choices.

        Raises:
            BadInput: the point makes no job, such as a batch that its devices cannot share: nothing was paid, and the
                sampler should learn from it.
        """
        wrong = [f"{name} is not searched" for name in point if name not in self.search]
        wrong += [f"the point has no {name}" for name in self.search if name not in point]
        if wrong:
            raise BadInput(wrong)
        return make_spec(self.job, point)

    def as_text(self) -> dict[str, str]:
        """Every key that is set, as text to record; mappings as JSON, `storage` without a password."""
        return {
            name: json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else spell(value)
            for name, value in self._keys().items()
        }

    def as_yaml(self) -> str:
        """A study file that says the same, `storage` without a password."""
        return write_yaml(self._keys())

    def _keys(self) -> dict[str, Any]:
        """Every key that is set."""
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
        """What models are judged by, where that was said or is none of the usual metrics."""
        quality = self.judged_by
        if quality is None or (not self.quality and quality.metric in KNOWN):
            return {}
        return {"metric": quality.metric, "direction": quality.direction}


def study_help() -> dict[str, str]:
    """Name of every key of a study that can be typed to one line of help."""
    return help_lines(StudyTerms)
