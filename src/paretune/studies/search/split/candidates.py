"""The points that `method: split` chooses among, each taken apart: what F1 depends on, and what seconds depend on."""

import copy
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paretune.estimating.memory_limits import Footprint
from paretune.launchers.base import Launcher
from paretune.pricing.prices import Price
from paretune.specification import metrics
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value, affecting
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.objectives import TIMES
from paretune.studies.definition.quality import F1
from paretune.studies.definition.space import INSIDE, Choices, Range, Search, is_whole, parameter_of
from paretune.studies.results.quality_model import RATIO, Key, quality_key

KeyOf = Callable[[JobSpec, BatchPlan], Key]
Point = tuple[tuple[str, Value], ...]
LEVELS = 9
"""Values that a range is cut into."""
MOST_CANDIDATES = 3000
FREE_FOR_QUALITY = {*affecting(JobSpec, "seconds", "memory", without=("quality",))}
"""Searched parameters that a training for F1 may choose freely."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One point: searched parameter to value."""

    point: Mapping[str, Value]
    spec: JobSpec
    plan: BatchPlan


class CandidateSpace:
    """All candidates of a study, N of them, and what about them never changes. Arrays have one entry per candidate.

    Attributes:
        quality: the metric that measures a model.
        is_own: whether the study is about a training of the user's own, whose steps are unknown.
        goals: cost objectives of the study among `usd` and `seconds`; `usd` if it has none.
        step_key: gives the kinds and numbers that the seconds of a job depend on.
        is_by_type: whether quality depends on the instance type.
        family: N numbers, equal for candidates that differ only in what a training for F1 may choose freely.
        rows_per_pass: N rows that all devices together take at once, before gradients are accumulated.
        limit_s: N maximum runtimes.
        usd_per_second: N prices of the whole cluster.
    """

    def __init__(self, file: StudyFile, launcher: Launcher) -> None:
        self._file, self._launcher = file, launcher
        self._prices: dict[str, Price] = {}
        self.quality = file.judged_by or F1
        self.is_own = file.is_own
        self.is_by_type = False
        costs = (("usd", {metrics.COST_USD}), ("seconds", set(TIMES)))
        self.goals = [goal for goal, names in costs if names & set(file.objectives)] or ["usd"]
        self.step_key = key_over([*file.search], file.search) if self.is_own else step_of
        self._key = key_over(file.changes_quality, file.search) if self.is_own else quality_key
        self._is_whole = (size := file.size()) is not None and size <= MOST_CANDIDATES
        self._refined: set[Point] = set()
        self._arrange(candidates(file))

    def by_type(self) -> "CandidateSpace":
        """The same candidates if quality depends on the instance type, too: a training tells only about its own."""
        other = copy.copy(self)
        other.is_by_type = True
        other._arrange(self.candidates)
        return other

    def refine(self, points: Iterable[Mapping[str, Value]]) -> None:
        """Add the neighbours of these points, unless all points of the study are candidates already."""
        new = [point for point in points if not self._is_whole and _identity(point) not in self._refined]
        if not new:
            return
        self._refined |= {_identity(point) for point in new}
        existing = {_identity(item.point) for item in self.candidates}
        around = {_identity(near): near for point in new for near in _neighbours(point, self._file.search)}
        jobs = self._file.jobs_at(near for identity, near in around.items() if identity not in existing)
        self._arrange(
            [*self.candidates, *(Candidate(point=point, spec=spec, plan=spec.plan()) for point, spec in jobs)]
        )

    def quality_key(self, spec: JobSpec, plan: BatchPlan) -> Key:
        """The kinds and numbers that the quality of a job depends on."""
        kinds, numbers = self._key(spec, plan)
        return ((*kinds, spec.instance_type), numbers) if self.is_by_type else (kinds, numbers)

    def _arrange(self, items: list[Candidate]) -> None:
        self.candidates = items
        self.step_keys = [self.step_key(item.spec, item.plan) for item in items]
        self.quality_keys = [self.quality_key(item.spec, item.plan) for item in items]
        self.footprints = [Footprint.of(item.spec, item.plan) for item in items]
        free = set(self._file.search) - {*self._file.changes_quality} if self.is_own else FREE_FOR_QUALITY
        bound = [
            (
                item.spec.instance_type if self.is_by_type else "",
                *(item.point[name] for name in item.point if name not in free),
            )
            for item in items
        ]
        numbers = {values: number for number, values in enumerate(dict.fromkeys(bound))}
        self.family = np.array([numbers[values] for values in bound])
        self.rows_per_pass = np.array([item.plan.per_device_train_batch_size * item.plan.devices for item in items])
        specs, launcher = [item.spec for item in items], self._launcher
        self.limit_s = np.array([spec.max_runtime_minutes * 60 for spec in specs])
        after_s = [spec.keep_alive_minutes * 60 + launcher.billed_after_limit_s(spec) for spec in specs]
        self._after_s = np.array(after_s)
        self._unknown_s = np.array([launcher.unknown_upload_s(spec) for spec in specs])
        self.usd_per_second = np.array([self.usd_per_second_of(spec) for spec in specs])

    @property
    def billed_after_limit_s(self) -> np.ndarray:
        """N seconds that may be billed after the maximum runtime, as far as earlier jobs have shown."""
        unknown_s = 0.0 if self._launcher.has_seen_upload else self._unknown_s
        return self._after_s + self._launcher.exceeded_s + unknown_s

    def usd_per_second_of(self, spec: JobSpec) -> float:
        """Dollars of a second on a job's cluster; an instance without a price counts as a dollar an hour."""
        if spec.instance_type not in self._prices:
            self._prices[spec.instance_type] = self._launcher.price(spec) or _UNPRICED
        return self._prices[spec.instance_type].cost_usd(1.0, spec.instance_count)


_UNPRICED = Price(usd_per_hour=1.0, region="", as_of="", source="unknown", confidence="missing")


def step_of(spec: JobSpec, plan: BatchPlan) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Key of the seconds of one row: kinds, log2 instances, log2 per-device batch.

    Accumulation is left out, because the work of a row is the same.
    """
    kinds = (spec.instance_type, *spec.key_of("seconds"))
    return kinds, (math.log2(spec.instance_count), math.log2(plan.per_device_train_batch_size))


def key_over(names: Sequence[str], search: Search) -> KeyOf:
    """A function that gives the values of these searched names in a job, as kinds and numbers.

    Numbers are scaled to 0 to 1, by their logarithms if the study searches them so or if they span more than RATIO.
    """
    scales = {name: _scale_of(search[name]) for name in names}

    def key(spec: JobSpec, plan: BatchPlan) -> Key:
        kinds, numbers = [], []
        for name, scale in scales.items():
            value = _value_in(spec, plan, name)
            if scale is None:
                kinds.append(str(value))
            else:
                numbers.append(scale(float(value)))
        return tuple(kinds), tuple(numbers)

    return key


def _value_in(spec: JobSpec, plan: BatchPlan, name: str) -> Any:
    prefix, _, inner = name.partition(INSIDE)
    if inner:
        return getattr(spec, parameter_of(prefix))[inner]
    return getattr(plan if hasattr(plan, name) else spec, name)


def _scale_of(entry: Choices | Range) -> Callable[[float], float] | None:
    """A function that maps a number to 0 to 1, or None if the values are no numbers."""
    values = entry.corners
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return None
    low, high = (float(end(values)) for end in (min, max))
    is_log = entry.log if isinstance(entry, Range) else low > 0 and high / low >= RATIO
    if is_log:
        return lambda value: math.log(value / low) / math.log(high / low) if high > low else 0.0
    return lambda value: (value - low) / (high - low) if high > low else 0.0


def candidates(file: StudyFile) -> list[Candidate]:
    """All points of the space that make a job; ranges are cut into LEVELS values; a seeded sample of a huge space."""
    values = {name: _values(name, entry) for name, entry in file.search.items()}
    count = math.prod(len(column) for column in values.values())
    indices: Sequence[int] = range(count)
    if count > MOST_CANDIDATES:
        indices = sorted(random.Random(file.seed).sample(indices, MOST_CANDIDATES))
    jobs = file.jobs_at(_point(values, index) for index in indices)
    return [Candidate(point=point, spec=spec, plan=spec.plan()) for point, spec in jobs]


def _identity(point: Mapping[str, Value]) -> Point:
    return tuple(sorted(point.items()))


def _neighbours(point: Mapping[str, Value], search: Search) -> Iterator[dict[str, Value]]:
    """Points that differ in one parameter by a step: the next choice, another text, half a step of a range."""
    for name, entry in search.items():
        scale, value = _scale_of(entry), point[name]
        if scale is None:
            near = [other for other in entry.corners if other != value]
        elif isinstance(entry, Choices):
            ordered = sorted(entry.values)
            index = ordered.index(value)
            near = [*ordered[max(index - 1, 0) : index], *ordered[index + 1 : index + 2]]
        else:
            ends = (scale(float(value)) + side * 0.5 / (LEVELS - 1) for side in (-1, 1))
            numbers = [entry.at(min(max(share, 0.0), 1.0)) for share in ends]
            near = [round(number) if is_whole(name, entry) else number for number in numbers]
        yield from ({**point, name: other} for other in near)


def _point(values: Mapping[str, list[Value]], index: int) -> dict[str, Value]:
    """The point number `index`, the last parameter fastest."""
    digits = np.unravel_index(index, [len(column) for column in values.values()])
    return {name: column[digit] for (name, column), digit in zip(values.items(), digits, strict=True)}


def _values(name: str, entry: Choices | Range) -> list[Value]:
    if isinstance(entry, Choices):
        return list(entry.values)
    numbers = [*(entry.at(index / (LEVELS - 1)) for index in range(LEVELS - 1)), entry.high]
    return list(dict.fromkeys(map(round, numbers)) if is_whole(name, entry) else numbers)
