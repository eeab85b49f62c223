"""A table of recorded runs as something to search: its space, its answers, and what is true of each of its points."""

import itertools
import math
import os
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from paretune.core.errors import BadInput
from paretune.estimating.noise import SECONDS_NOISE
from paretune.estimating.recorded_runs import (
    COMPLETED,
    OUT_OF_MEMORY,
    STARTUP_SECONDS,
    RecordedRow,
    RecordedRuns,
    ReplayedJob,
    RunTable,
)
from paretune.pricing import VARIABLE, Price, PriceList, usual_price
from paretune.specification.job import JobSpec, value_of
from paretune.specification.parallelism import BatchPlan
from paretune.specification.parameters import spell
from paretune.studies.definition.space import why_not_searched

Point = Mapping[str, Any]
_LIMIT = 1.5
"""`max_runtime_minutes` of all jobs, in runtimes of the longest one: what somebody sets who roughly knows her jobs."""
_BETWEEN = 2
"""Where an axis is a range, the true front is looked for at so many points a step of the recorded grid."""
_DRAWS = 3
"""Repeats of each job of a resampled table."""
_COLLAPSED = 0.6
"""Share of the best F1 of its repeats below which a run counts as collapsed."""
_ALIKE = 8
"""Residuals of F1 that a job draws among."""
PRICES = {name: os.environ[name] for name in (VARIABLE,) if name in os.environ}
"""A user's own prices, for instance types that have none in us-east-1."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Means over the repeats of one point."""

    cost_usd: float
    billable_seconds: float
    f1: float


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """How far single runs lie from the mean of their repeats.

    Attributes:
        f1: mean F1 of a point and the residual of one of its runs. Training with too high a rate scatters more, so a
            job draws among the residuals of points with a like F1.
        log_seconds: residuals of the logarithm of seconds; empty: normal, with SECONDS_NOISE.
        basis: which runs they come from, in words.
    """

    f1: tuple[tuple[float, float], ...]
    log_seconds: tuple[float, ...]
    basis: str

    def draw_f1(self, f1: float, draw: np.random.Generator) -> float:
        """How far a run is off, of a point with that F1."""
        nearest = sorted(self.f1, key=lambda item: abs(item[0] - f1))[:_ALIKE]
        return nearest[int(draw.integers(len(nearest)))][1]

    def draw_log_seconds(self, draw: np.random.Generator) -> float:
        """How far the logarithm of a run's seconds is off."""
        return float(draw.choice(self.log_seconds) if self.log_seconds else draw.normal(0.0, SECONDS_NOISE))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one job ends: dollars and seconds always, F1 where a training completes. `cannot`: nothing was run."""

    status: str
    seconds: float = 0.0
    usd: float = 0.0
    f1: float | None = None
    cannot: bool = False
    startup_s: float = 0.0
    steps: int | None = None


class Remembered(RecordedRuns):
    """Recorded runs that work out each answer once."""

    def __init__(self, table: RunTable) -> None:
        super().__init__(table)
        self._known: dict[tuple[Any, ...], ReplayedJob | BadInput] = {}

    def answer(
        self, spec: JobSpec, plan: BatchPlan, *, draw: int = 0, startup_seconds: float = STARTUP_SECONDS
    ) -> ReplayedJob:
        """As `RecordedRuns.answer`."""
        key = (spec.spec_hash(), spec.seed, spec.probe_steps, plan, draw, startup_seconds)
        if key not in self._known:
            try:
                self._known[key] = super().answer(spec, plan, draw=draw, startup_seconds=startup_seconds)
            except BadInput as error:
                self._known[key] = error
        result = self._known[key]
        if isinstance(result, BadInput):
            raise result
        return result


class Table:
    """A table of recorded runs.

    Args:
        path: its CSV file.
        name: what it is called in the output.
        ranges: axes that are searched as ranges, from their smallest to their largest value; recorded runs are
            interpolated between.
        startup_s: billed seconds of its jobs before their first steps.
        finer: axes to all their values, the recorded ones and others between, which are interpolated.

    Attributes:
        job: parameters that all its jobs share.
        axes: searched parameter to its values, in order; what a point says. Of a range, those of the recorded runs.
        rows: training rows of the whole data set; None if the table does not say.
        left_out: parameter that no study may search to the values whose rows are left out.
    """

    def __init__(
        self,
        path: Path,
        name: str = "",
        ranges: Collection[str] = (),
        finer: Mapping[str, tuple[Any, ...]] | None = None,
        startup_s: float = STARTUP_SECONDS,
    ) -> None:
        self.path = path.resolve()
        self.startup_s = startup_s
        self.name = name or path.stem
        whole = RunTable.read(path)
        rows, self.left_out = _comparable(whole)
        self.runs = Remembered(replace(whole, rows=rows))
        names = ["instance_type", "instance_count", "per_device_train_batch_size", "learning_rate"]
        names += ["gradient_accumulation_steps", *self.runs.table.others]
        values = {name: sorted({_value(row, name) for row in rows}, key=_order) for name in names}
        fixed = {
            name: results[0] for name, results in values.items() if len(results) == 1 and results[0] not in ("", {})
        }
        if fixed.get("gradient_accumulation_steps") == 1:
            del fixed["gradient_accumulation_steps"]
        self.axes = {name: tuple(result) for name, result in values.items() if len(result) > 1}
        self._recorded = self.axes
        self.axes = self.axes | dict(finer or {})
        self.ranges = frozenset(ranges) & self.axes.keys()
        self.is_interpolated = bool(self.ranges or finer)
        counted = [row.measured["train_rows"] for row in rows if "train_rows" in row.measured]
        self.rows = max(counted, default=None)
        longest_s = max(row.billable_seconds or 0.0 for row in rows)
        self.job: dict[str, Any] = {
            **fixed,
            "launcher": "simulated",
            "simulation.runs": str(self.path),
            "max_runtime_minutes": math.ceil(_LIMIT * longest_s / 60),
        }
        self._prices = PriceList.read(PRICES)
        self._mean = RecordedRuns(_mean_of(self.runs.table))
        self._truths: dict[tuple[Any, ...], Truth | None] = {}
        self._specs: dict[tuple[Any, ...], JobSpec | None] = {}
        self.points = list({self._key(point): point for point in map(self._point_of, rows)}.values())
        between = self._points_between() if self.is_interpolated else []
        self.truths = [outcome for point in [*self.points, *between] if (outcome := self.truth(point)) is not None]

    @property
    def lost_share(self) -> float:
        """Share of the points that run out of memory, or of which no repeat completes."""
        return sum(self.truth(point) is None for point in self.points) / len(self.points)

    @property
    def median_usd(self) -> float:
        """Dollars of the middle one of the jobs that complete."""
        return statistics.median(truth.cost_usd for truth in self.truths)

    def resample(self, scatter: Scatter, seed: int) -> None:
        """Draw from now on what jobs show anew: what is true of them, off by residuals of runs that were repeated."""
        draw = np.random.default_rng(seed)
        rows = [
            _off(row, repeat, scatter, draw) if row.status == COMPLETED else row
            for row in _mean_of(self.runs.table).rows
            for repeat in range(1, _DRAWS + 1)
        ]
        self.runs = Remembered(replace(self.runs.table, rows=tuple(rows)))

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
        """The point that a library has chosen from `domains`."""
        axes = self.axes.items()
        return {name: config[name] if name in self.ranges else values[int(config[name])] for name, values in axes}

    def is_ordered(self, axis: str) -> bool:
        """Whether the values of an axis are numbers."""
        return not isinstance(self.axes[axis][0], str)

    def spec(self, point: Point) -> JobSpec | None:
        """The job at a point; None where the point makes none."""
        key = self._key(point)
        if key not in self._specs:
            texts = {name: spell(value) for name, value in {**self.job, **point}.items()}
            try:
                self._specs[key] = JobSpec.read(texts)
            except BadInput:
                self._specs[key] = None
        return self._specs[key]

    def outcome(self, point: Point, draw: int) -> Outcome:
        """How the job at a point ends; `draw` chooses among its repeats, as the simulated launcher does."""
        spec = self.spec(point)
        try:
            none = None if spec is None else self.runs.answer(spec, spec.plan(), draw=draw)
        except BadInput:
            none = None
        if spec is None or none is None:
            return Outcome(status="Impossible", cannot=True)
        usd = self.usd(spec, none.billable_seconds)
        return Outcome(
            status=none.status,
            seconds=none.billable_seconds,
            usd=usd,
            f1=none.f1,
            startup_s=none.startup_seconds,
            steps=none.steps,
        )

    def truth(self, point: Point) -> Truth | None:
        """The means of a point, also between those of the table; None where it does not run to its end."""
        key = self._key(point)
        if key not in self._truths:
            spec = self.spec(point)
            try:
                none = None if spec is None else self._mean.answer(spec, spec.plan())
            except BadInput:
                none = None
            self._truths[key] = None
            if spec is not None and none is not None and none.status == COMPLETED and none.f1 is not None:
                usd = self.usd(spec, none.billable_seconds)
                self._truths[key] = Truth(cost_usd=usd, billable_seconds=none.billable_seconds, f1=none.f1)
        return self._truths[key]

    def usd(self, spec: JobSpec, seconds: float) -> float:
        """Dollars of so many billed seconds."""
        return self._price(spec).cost_usd(seconds, spec.instance_count)

    def naive(self) -> Point:
        """One of the cheapest instance that fits, batch 16 and rate 5e-5 or what is nearest, 3 epochs."""
        expected = {"per_device_train_batch_size": 16, "learning_rate": 5e-5, "num_train_epochs": 3.0}

        def badness(point: Point) -> tuple[float, ...]:
            spec = self.spec(point)
            assert spec is not None  # it is of the table
            off = [
                abs(point[name] / value - 1) if point[name] >= value else abs(value / point[name] - 1)
                for name, value in expected.items()
                if name in point
            ]
            return (float(self.truth(point) is None), self._price(spec).usd_per_hour, spec.instance_count, sum(off))

        return min(self.points, key=badness)

    def _points_between(self) -> list[dict[str, Any]]:
        """Points of a finer grid over the ranges, in equal ratios, and over every eighth of the finer values."""
        columns = []
        for name, values in self._recorded.items():
            result = sorted({*values, *self.axes[name][::8]}, key=_order)
            if name in self.ranges:
                steps = [(low, (high / low) ** (1 / _BETWEEN)) for low, high in itertools.pairwise(values)]
                finer = [low * ratio**step for low, ratio in steps for step in range(1, _BETWEEN)]
                result += [round(value) if isinstance(values[0], int) else value for value in finer]
            columns.append(result)
        return [dict(zip(self.axes, combination, strict=True)) for combination in itertools.product(*columns)]

    def _price(self, spec: JobSpec) -> Price:
        result = usual_price(spec, self._prices, PRICES)
        if result is None:
            raise SystemExit(
                f"{self.name}: the price of {spec.instance_type} is not known: give it in a CSV ({VARIABLE})"
            )
        return result

    def _point_of(self, row: RecordedRow) -> dict[str, Any]:
        return {name: _value(row, name) for name in self.axes}

    def _key(self, point: Point) -> tuple[Any, ...]:
        return tuple(sorted((name, str(value)) for name, value in point.items()))


def _value(row: RecordedRow, name: str) -> Any:
    if name in row.others:
        value = value_of(name, row.others[name]) if row.others[name] else ""
        return row.others[name] if isinstance(value, dict | bool) else value
    return getattr(row.plan if hasattr(row.plan, name) else row.spec, name)


def _order(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value


def _comparable(table: RunTable) -> tuple[tuple[RecordedRow, ...], dict[str, list[str]]]:
    """Rows that differ in nothing that no study may search, such as the data set: of such values the most frequent."""
    rows, left_out = table.rows, {}
    for name in [name for name in table.others if name in JobSpec.model_fields and why_not_searched(name)]:
        counts = Counter(row.others[name] for row in rows).most_common()
        rows = tuple(row for row in rows if row.others[name] == counts[0][0])
        if counts[1:]:
            left_out[name] = [value for value, _ in counts[1:]]
    return rows, left_out


def _mean_of(table: RunTable) -> RunTable:
    """The table with one row for the repeats of each point: mean seconds, and mean F1 if they trained."""
    return replace(table, rows=tuple(map(_mean, _repeats(table))))


def _repeats(table: RunTable) -> Iterable[list[RecordedRow]]:
    """The rows of each point."""
    groups: dict[tuple[Any, ...], list[RecordedRow]] = {}
    for row in table.rows:
        key = (row.spec.instance_type, row.spec.instance_count, row.plan, *row.others.values())
        groups.setdefault(key, []).append(row)
    return groups.values()


def _mean(rows: Iterable[RecordedRow]) -> RecordedRow:
    result = list(rows)
    full = [row for row in result if row.status == OUT_OF_MEMORY]
    done = [row for row in result if row.status == COMPLETED]
    if full or not done:
        return (full or result)[0]
    seconds = statistics.fmean(row.billable_seconds or 0.0 for row in done)
    trained = [row for row in done if (row.f1 or 0.0) > _COLLAPSED * max(other.f1 or 0.0 for other in done)]
    return replace(
        _slower(done[0], seconds / (done[0].billable_seconds or 1.0)),
        seed=None,
        f1=statistics.fmean(row.f1 or 0.0 for row in trained),
    )


def _slower(row: RecordedRow, factor: float) -> RecordedRow:
    """The run as if it had taken so many times its seconds."""
    powers = {"train_seconds": factor, "throughput_samples_per_second": 1 / factor}
    measured = {name: value * powers.get(name, 1.0) for name, value in row.measured.items()}
    return replace(row, billable_seconds=(row.billable_seconds or 0.0) * factor, measured=measured)


def residuals(table: RunTable) -> tuple[list[tuple[float, float]], list[float]]:
    """Return, for repeated runs, (mean F1, residual) and residuals of log seconds, scaled to those of single runs."""
    f1: list[tuple[float, float]] = []
    log_seconds: list[float] = []
    for rows in _repeats(table):
        done = [row for row in rows if row.status == COMPLETED]
        if len(done) < 2:
            continue
        scale = math.sqrt(len(done) / (len(done) - 1))
        mean_f1 = statistics.fmean(row.f1 or 0.0 for row in done)
        mean_log = statistics.fmean(math.log(row.billable_seconds or 1.0) for row in done)
        f1 += [(mean_f1, scale * ((row.f1 or 0.0) - mean_f1)) for row in done]
        log_seconds += [scale * (math.log(row.billable_seconds or 1.0) - mean_log) for row in done]
    return f1, log_seconds


def _off(row: RecordedRow, repeat: int, scatter: Scatter, draw: np.random.Generator) -> RecordedRow:
    """A repeat of a run, off by one of the residuals each."""
    off = scatter.draw_f1(row.f1 or 0.0, draw)
    slower = _slower(row, math.exp(scatter.draw_log_seconds(draw)))
    return replace(slower, seed=repeat, f1=min(max((row.f1 or 0.0) + off, 0.0), 1.0))
