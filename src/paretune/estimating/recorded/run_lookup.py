"""Rows of a table of runs: the one at a point, those around it, those that did not fit into memory.

Between the points of a grid, which may have holes, values are interpolated in the logarithms of its axes.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from paretune.estimating.recorded.run_table import COMPLETED, OUT_OF_MEMORY, RecordedRow
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import DEEPSPEED, SHARDED

Point = tuple[float, ...]
Corner = tuple[Point, float]  # a point of the grid and its weight; the weights of a cell's corners sum to 1

_REACH = 4  # number of values of an axis that are tried on either side if nearer ones have no run

CLUSTER_AXES = ("learning_rate", "per_device_train_batch_size", "instance_count")
QUALITY_AXES = ("learning_rate", "global_batch_size")
Choose = Callable[[Sequence[RecordedRow]], RecordedRow]  # selects one of the repeats of a run
_DIVIDED = {*SHARDED, *DEEPSPEED}  # what one device holds depends on how many there are


@dataclass(frozen=True)
class MatchingRows:
    """Rows that match a point, each with its weight; one of the repeats if there are several."""

    parts: tuple[tuple[RecordedRow, float], ...]
    repeats: int = 1

    def seconds(self) -> float:
        """Return billable seconds, interpolated in their logarithm."""
        if len(self.parts) == 1:
            return self.parts[0][0].billable_seconds or math.nan
        return math.exp(sum(weight * math.log(row.billable_seconds or math.nan) for row, weight in self.parts))

    def f1(self) -> float:
        """Return F1, interpolated linearly."""
        return sum(weight * row.f1 for row, weight in self.parts if row.f1 is not None)

    def curve(self) -> tuple[float, ...]:
        """Return F1 after each epoch; empty unless all rows have the same number of epochs."""
        if len({len(row.curve) for row, _ in self.parts}) > 1:
            return ()
        return tuple(
            sum(weight * row.curve[epoch] for row, weight in self.parts) for epoch in range(len(self.parts[0][0].curve))
        )

    def words(self) -> str:
        """Return the lines of the rows, in words."""
        lines = sorted(row.line for row, _ in self.parts)
        if len(lines) == 1:
            chosen = f", one of {self.repeats} repeats" if self.repeats > 1 else ""
            return f"the recorded run in line {lines[0]}{chosen}"
        return f"interpolated between the recorded runs in lines {', '.join(map(str, lines))}"


def rows_at(rows: Iterable[RecordedRow], axes: Sequence[str], at: Point, choose: Choose) -> MatchingRows | None:
    """Return the row at a point, or those around it, or None. Only an exact row may be a failed one."""
    by_point: dict[Point, list[RecordedRow]] = {}
    for row in rows:
        if row.status != OUT_OF_MEMORY:
            by_point.setdefault(point_of_row(row, axes), []).append(row)
    if at in by_point:
        repeats = by_point[at]
        return MatchingRows(((choose(repeats), 1.0),), len(repeats))
    completed = {point: [row for row in group if row.status == COMPLETED] for point, group in by_point.items()}
    corners = enclosing({point for point, group in completed.items() if group}, at)
    if corners is None:
        return None
    return MatchingRows(tuple((choose(completed[point]), weight) for point, weight in corners if weight))


def runs_out_of_memory(rows: Sequence[RecordedRow], spec: JobSpec, plan: BatchPlan) -> bool:
    """Whether the per-device batch is as large as one that did not fit, or larger than the largest that did."""
    batch, at = plan.per_device_train_batch_size, point_of_job(spec, plan)
    steps = plan.gradient_accumulation_steps
    exact = {row.status for row in rows if point_of_row(row) == at and row.gradient_accumulation_steps == steps}
    if exact:
        return OUT_OF_MEMORY in exact
    comparable = [
        (row.status, row.per_device_train_batch_size, row.instance_count - spec.instance_count) for row in rows
    ]
    if spec.strategy not in _DIVIDED:
        comparable = [(status, size, 0) for status, size, _ in comparable]
    full = [size for status, size, more in comparable if status == OUT_OF_MEMORY and more >= 0]
    if not full or batch >= min(full):
        return bool(full)
    fitting = [size for status, size, more in comparable if status == COMPLETED and more <= 0 and size < min(full)]
    return batch > max(fitting, default=0)


def point_of_job(spec: JobSpec, plan: BatchPlan) -> Point:
    """Return the point of a job on CLUSTER_AXES."""
    return logarithms((plan.learning_rate, plan.per_device_train_batch_size, spec.instance_count))


def point_of_row(row: RecordedRow, axes: Sequence[str] = CLUSTER_AXES) -> Point:
    """Return the point of a row on some axes."""
    return logarithms([getattr(row, axis) for axis in axes])


def logarithms(values: Sequence[float]) -> Point:
    """Return natural logarithms, rounded so that equal settings written differently (5e-5, 0.00005) are one point."""
    return tuple(round(math.log(value), 9) for value in values)


def enclosing(points: Collection[Point], at: Point) -> list[Corner] | None:
    """Return the corners of the smallest cell around `at` that are all in `points`, with their weights.

    Returns the point itself with weight 1 if it is in `points`, and None if no cell is complete. Never extrapolates.
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
    """Return pairs of an axis' values around `at`; also the value itself twice if the axis has it."""
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
