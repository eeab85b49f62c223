"""A table of recorded runs that can be searched: its space, its answers, and the true values of each of its points."""

import itertools
import math
import statistics
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from paretune.core.errors import BadInput
from paretune.launchers.offers import usual_price
from paretune.launchers.simulated.recorded_runs import COMPLETED, OUT_OF_MEMORY, RecordedRow, ReplayedJob, RunTable
from paretune.pricing import PriceList
from paretune.specification.declaration import spell
from paretune.specification.job import JobSpec, JobValues

Point = Mapping[str, Any]
Costs = tuple[float, float]
"""What is minimized: dollars, and negative F1."""
_LIMIT = 1.5
"""`max_runtime_minutes` of all jobs, in runtimes of the longest one: what users who roughly know their jobs set."""
_BETWEEN = 2
"""Steps of the finer grid, on which the true front of a range is searched, for each step of the recorded grid."""
_COLLAPSED = 0.6
"""Share of the best F1 among its repeats below which a run counts as collapsed."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ends: its dollars and seconds, and F1 if the training completes. `cannot`: no job could run."""

    status: str
    seconds: float = 0.0
    usd: float = 0.0
    f1: float | None = None
    cannot: bool = False
    startup_s: float = 0.0
    steps: int | None = None


class Table:
    """A table of recorded runs.

    Args:
        path: its CSV file.
        ranges: axes that are searched as ranges, from their smallest to their largest value; recorded runs are
            interpolated between them.
        environment: environment variables of its studies, such as the file of their prices.

    Attributes:
        job: parameters that all its jobs share.
        axes: maps each searched parameter to its values in order (for a range, the recorded ones). Points have these
            keys.
        rows: training rows of the whole data set.
        truths: costs of all points that run to their end, including those between the points of the table.
    """

    metric = "f1"
    constraints: Mapping[str, Mapping[str, float]] = {}  # set by `limit`
    _longest_s = math.inf

    def __init__(
        self, path: Path, ranges: Collection[str] = (), *, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.runs, self.environment = RunTable.read(path), environment
        rows = self.runs.rows
        names = ["instance_type", "instance_count", "per_device_train_batch_size", "learning_rate", *self.runs.others]
        values = {name: sorted({_value(row, name) for row in rows}) for name in names}
        self.axes = {name: tuple(result) for name, result in values.items() if len(result) > 1}
        self.ranges = frozenset(ranges)
        self.rows = max(row.measured["train_rows"] for row in rows)
        longest_s = max(row.cells.billable_seconds or 0.0 for row in rows)
        self.job: dict[str, Any] = {
            **{name: result[0] for name, result in values.items() if len(result) == 1},
            "launcher": "simulated",
            "simulation.runs": str(path.resolve()),
            "max_runtime_minutes": math.ceil(_LIMIT * longest_s / 60),
        }
        self._prices = PriceList.read(environment)
        self._mean = _mean_of(self.runs)
        self._truths: dict[tuple[Any, ...], Costs | None] = {}
        self._specs: dict[tuple[Any, ...], JobSpec | None] = {}
        points = ({name: _value(row, name) for name in self.axes} for row in rows)
        self.points = list({self._key(point): point for point in points}.values())
        between = self._points_between() if ranges else []
        self.truths = [truth for point in [*self.points, *between] if (truth := self.truth(point)) is not None]
        self.median_usd = statistics.median(usd for usd, _ in self.truths)  # of the jobs that complete
        self._between = between

    def limit(self) -> None:
        """Start to count only jobs that take no longer than the median of the jobs that complete."""
        means = [answer for point in self.points if (answer := self._answer(self._mean, point)) is not None]
        self._longest_s = statistics.median(mean.billable_seconds for mean in means if mean.f1 is not None)
        self.constraints = {"job_seconds": {"max": self._longest_s}}
        self._truths.clear()
        self.truths = [truth for point in [*self.points, *self._between] if (truth := self.truth(point)) is not None]

    def excess(self, outcome: "Outcome") -> float:
        """Return by how much a job violates its constraint; at most 0 if it meets it."""
        return outcome.seconds / self._longest_s - 1.0

    @property
    def prices(self) -> list[float]:
        """Dollars per second of the job at each point."""
        return [self.usd(spec, 1.0) for point in self.points if (spec := self.spec(point)) is not None]

    def domains(
        self, ranged: Callable[[Any, Any], Any], ordered: Callable[[int], Any], category: Callable[[int], Any]
    ) -> dict[str, Any]:
        """Describe each axis to a library: a range by its ends, other values by their number."""
        return {
            name: ranged(values[0], values[-1])
            if name in self.ranges
            else (ordered if self.is_ordered(name) else category)(len(values))
            for name, values in self.axes.items()
        }

    def chosen(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the point that a library has chosen from `domains`."""
        axes = self.axes.items()
        return {name: config[name] if name in self.ranges else values[int(config[name])] for name, values in axes}

    def is_ordered(self, axis: str) -> bool:
        """Return whether the values of an axis are numbers."""
        return not isinstance(self.axes[axis][0], str)

    def spec(self, point: Point) -> JobSpec | None:
        """Return the job at a point, or None if no job is possible there."""
        key = self._key(point)
        if key not in self._specs:
            texts = {name: spell(value) for name, value in {**self.job, **point}.items()}
            try:
                self._specs[key] = JobSpec.read(texts)
            except BadInput:
                self._specs[key] = None
        return self._specs[key]

    def outcome(self, point: Point, draw: int) -> Outcome:
        """Return how the job at a point ends; `draw` chooses one of its repeats, as the simulated launcher does."""
        spec, answer = self.spec(point), self._answer(self.runs, point, draw)
        if spec is None or answer is None:
            return Outcome(status="Impossible", cannot=True)
        return Outcome(
            status=answer.status,
            seconds=answer.billable_seconds,
            usd=self.usd(spec, answer.billable_seconds),
            f1=answer.f1,
            startup_s=answer.startup_seconds,
            steps=answer.steps,
        )

    def truth(self, point: Point) -> Costs | None:
        """Return the mean costs of any point of the space; None if it does not complete or violates a constraint."""
        key = self._key(point)
        if key not in self._truths:
            spec, answer = self.spec(point), self._answer(self._mean, point)
            self._truths[key] = None
            if spec is None or answer is None or answer.f1 is None or answer.billable_seconds > self._longest_s:
                return None
            self._truths[key] = (self.usd(spec, answer.billable_seconds), -answer.f1)
        return self._truths[key]

    def usd(self, spec: JobSpec, seconds: float) -> float:
        """Return the dollars of this many billed seconds."""
        price = usual_price(spec, self._prices, {})
        assert price is not None  # worlds have types of us-east-1
        return price.cost_usd(seconds, spec.instance_count)

    def _answer(self, runs: RunTable, point: Point, draw: int = 0) -> ReplayedJob | None:
        spec = self.spec(point)
        try:
            return None if spec is None else runs.answer(spec, spec.plan(), draw=draw)
        except BadInput:
            return None

    def _points_between(self) -> list[dict[str, Any]]:
        """Return the points of a finer grid over the ranges, in equal ratios."""
        columns = []
        for name, values in self.axes.items():
            column = list(values)
            if name in self.ranges:
                steps = [(low, (high / low) ** (1 / _BETWEEN)) for low, high in itertools.pairwise(values)]
                finer = [low * ratio**step for low, ratio in steps for step in range(1, _BETWEEN)]
                column += [round(value) if isinstance(values[0], int) else value for value in finer]
            columns.append(column)
        return [dict(zip(self.axes, combination, strict=True)) for combination in itertools.product(*columns)]

    def _key(self, point: Point) -> tuple[Any, ...]:
        return tuple(sorted((name, str(value)) for name, value in point.items()))


def _value(row: RecordedRow, name: str) -> Any:
    if name in row.others:
        return getattr(JobValues.read({name: row.others[name]}), name)
    return getattr(row.plan if hasattr(row.plan, name) else row.spec, name)


def _mean_of(table: RunTable) -> RunTable:
    """Return the table with one row for the repeats of each point: mean seconds, and mean F1 if they trained."""
    groups: dict[tuple[Any, ...], list[RecordedRow]] = {}
    for row in table.rows:
        key = (row.spec.instance_type, row.spec.instance_count, row.plan, *row.others.values())
        groups.setdefault(key, []).append(row)
    return replace(table, rows=tuple(map(_mean, groups.values())))


def _mean(rows: list[RecordedRow]) -> RecordedRow:
    full = [row for row in rows if row.cells.status == OUT_OF_MEMORY]
    done = [row for row in rows if row.cells.status == COMPLETED]
    if full or not done:
        return (full or rows)[0]
    f1 = [row.cells.f1 or 0.0 for row in done]
    trained = [value for value in f1 if value > _COLLAPSED * max(f1)]
    seconds = statistics.fmean(row.cells.billable_seconds or 0.0 for row in done)
    cells = done[0].cells.model_copy(update={"billable_seconds": seconds, "f1": statistics.fmean(trained)})
    return replace(done[0], cells=cells)
