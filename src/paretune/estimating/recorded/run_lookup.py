"""Finding rows of a table of runs: the one at a point, those around it, those that did not fit into memory.

Between the points of a grid, which may have holes, is interpolated in the logarithms of its axes.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from paretune.estimating.recorded.run_table import COMPLETED, OUT_OF_MEMORY, RecordedRow
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec

Point = tuple[float, ...]
Corner = tuple[Point, float]
"""A point of the grid and its weight; the weights of a cell's corners sum to 1."""

_REACH = 4
"""How many values of an axis are tried to either side, where nearer ones have no run."""

CLUSTER_AXES = ("learning_rate", "per_device_train_batch_size", "instance_count")
QUALITY_AXES = ("learning_rate", "global_batch_size")
Choose = Callable[[Sequence[RecordedRow]], RecordedRow]
"""Which of the repeats of a run counts."""
_SHARDED = {"fsdp", "smp", "deepspeed"}  # what one device holds depends on how many there are


@dataclass(frozen=True)
class Found:
    """Rows that answer a question, each with its weight; of a point with repeats, one of them."""

    parts: tuple[tuple[RecordedRow, float], ...]
    repeats: int = 1

    def seconds(self) -> float:
        """Billable seconds, interpolated in their logarithm."""
        if len(self.parts) == 1:
            return self.parts[0][0].billable_seconds or math.nan
        return math.exp(sum(weight * math.log(row.billable_seconds or 1.0) for row, weight in self.parts))

    def f1(self) -> float:
        """F1, interpolated as it is."""
        return sum(weight * row.f1 for row, weight in self.parts if row.f1 is not None)

    def curve(self) -> tuple[float, ...]:
        """F1 after each epoch; empty unless all rows have as many."""
        if len({len(row.curve) for row, _ in self.parts}) > 1:
            return ()
        return tuple(
            sum(weight * row.curve[epoch] for row, weight in self.parts) for epoch in range(len(self.parts[0][0].curve))
        )

    def words(self) -> str:
        """Which lines these are."""
        lines = sorted(row.line for row, _ in self.parts)
        if len(lines) == 1:
            chosen = f", one of {self.repeats} repeats" if self.repeats > 1 else ""
            return f"the recorded run in line {lines[0]}{chosen}"
        return f"interpolated between the recorded runs in lines {', '.join(map(str, lines))}"


def rows_at(rows: Iterable[RecordedRow], axes: Sequence[str], at: Point, choose: Choose) -> Found | None:
    """The row at a point, or those around it; None where there are none. Only an exact row may be a failed one."""
    by_point: dict[Point, list[RecordedRow]] = {}
    for row in rows:
        if row.status != OUT_OF_MEMORY:
            by_point.setdefault(point_of_row(row, axes), []).append(row)
    if at in by_point:
        repeats = by_point[at]
        return Found(((choose(repeats), 1.0),), len(repeats))
    completed = {point: [row for row in found if row.status == COMPLETED] for point, found in by_point.items()}
    corners = enclosing({point for point, found in completed.items() if found}, at)
    if corners is None:
        return None
    return Found(tuple((choose(completed[point]), weight) for point, weight in corners if weight))


def runs_out_of_memory(rows: Sequence[RecordedRow], spec: JobSpec, plan: BatchPlan) -> bool:
    """Whether the per-device batch is as large as one that did not fit, or larger than the largest that did."""
    batch, at = plan.per_device_train_batch_size, point_of_job(spec, plan)
    steps = plan.gradient_accumulation_steps
    exact = {row.status for row in rows if point_of_row(row) == at and row.gradient_accumulation_steps == steps}
    if exact:
        return OUT_OF_MEMORY in exact
    sharded = spec.strategy in _SHARDED
    full = [
        row.per_device_train_batch_size
        for row in rows
        if row.status == OUT_OF_MEMORY and (not sharded or row.instance_count >= spec.instance_count)
    ]
    if not full or batch >= min(full):
        return bool(full)
    fitting = [
        row.per_device_train_batch_size
        for row in rows
        if row.status == COMPLETED and (not sharded or row.instance_count <= spec.instance_count)
    ]
    return batch > max((size for size in fitting if size < min(full)), default=0)


def point_of_job(spec: JobSpec, plan: BatchPlan) -> Point:
    """Where a job is on CLUSTER_AXES."""
    return logarithms((plan.learning_rate, plan.per_device_train_batch_size, spec.instance_count))


def point_of_row(row: RecordedRow, axes: Sequence[str] = CLUSTER_AXES) -> Point:
    """Where a row is on some axes."""
    return logarithms([getattr(row, axis) for axis in axes])


def logarithms(values: Sequence[float]) -> Point:
    """Natural logarithms, rounded so that equal settings written differently (5e-5, 0.00005) are one point."""
    return tuple(round(math.log(value), 9) for value in values)


def enclosing(points: Collection[Point], at: Point) -> list[Corner] | None:
    """The corners of the smallest cell around `at` that are all in `points`, with the weights of `at` between them.

    The point itself, with weight 1, where it is in `points`; None where no cell is whole. Extrapolates nowhere.
    """
    if at in points:
        return [(at, 1.0)]
    brackets = [_brackets(sorted({point[axis] for point in points}), value) for axis, value in enumerate(at)]
    cells = sorted(itertools.product(*brackets), key=lambda cell: sum(high - low for low, high in cell))
    for cell in cells:
        corners = list(_corners(cell, at))
        if all(point in points for point, _ in corners):
            return corners
    return None


def _brackets(values: Sequence[float], at: float) -> list[tuple[float, float]]:
    """Pairs of an axis' values around `at`; the value itself twice where the axis has it."""
    below, above = [value for value in values if value < at], [value for value in values if value > at]
    pairs = list(itertools.product(below[-_REACH:], above[:_REACH]))
    return ([(at, at)] if at in values else []) + pairs


def _corners(cell: Sequence[tuple[float, float]], at: Point) -> Iterator[Corner]:
    ends = []
    for (low, high), value in zip(cell, at, strict=True):
        share = (value - low) / (high - low) if high > low else 0.0
        ends.append([(low, 1 - share), (high, share)] if high > low else [(low, 1.0)])
    for corner in itertools.product(*ends):
        yield tuple(value for value, _ in corner), math.prod(weight for _, weight in corner)
