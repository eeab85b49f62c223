"""Replay: seconds and F1 of a job, looked up in a table of recorded runs.

Rows of the same instance type and the same further hyperparameters answer a job. Between them, in the logarithms of
learning rate, per-device batch size and instance count, seconds are interpolated in their logarithm and F1 as it is;
outside them is an error. A batch that ran out of memory does so with every larger size, too.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paretune.core.errors import BadInput
from paretune.estimating.recorded.run_table import COMPLETED, FAILED, OUT_OF_MEMORY, RecordedRow, RunTable
from paretune.estimating.workload import training_rows, training_steps
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import DEEPSPEED, SHARDED
from paretune.specification.parameters import affecting, spell
from paretune.specification.simulation import share_of

Point = tuple[float, ...]
Corner = tuple[Point, float]  # a point of the grid and its weight; the weights of a cell's corners sum to 1

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
            by_point.setdefault(point_of(row, axes), []).append(row)
    if at in by_point:
        repeats = by_point[at]
        return MatchingRows(((choose(repeats), 1.0),), len(repeats))
    completed = {point: [row for row in group if row.status == COMPLETED] for point, group in by_point.items()}
    corners = enclosing({point for point, group in completed.items() if group}, at)
    if corners is None:
        return None
    return MatchingRows(tuple((choose(completed[point]), weight) for point, weight in corners))


def runs_out_of_memory(rows: Sequence[RecordedRow], spec: JobSpec, plan: BatchPlan) -> bool:
    """Whether the per-device batch is as large as one that did not fit, or larger than the largest that did."""
    batch, at = plan.per_device_train_batch_size, point_at(spec, plan)
    steps = plan.gradient_accumulation_steps
    exact = {row.status for row in rows if point_of(row) == at and row.plan.gradient_accumulation_steps == steps}
    if exact:
        return OUT_OF_MEMORY in exact
    is_divided = spec.strategy in _DIVIDED
    full, fitting = list[int](), [0]
    for row in rows:
        more = is_divided * (row.spec.instance_count - spec.instance_count)
        if row.status == OUT_OF_MEMORY and more >= 0:
            full.append(row.plan.per_device_train_batch_size)
        elif row.status == COMPLETED and more <= 0:
            fitting.append(row.plan.per_device_train_batch_size)
    least = min(full, default=math.inf)
    return batch >= least or (bool(full) and batch > max(size for size in fitting if size < least))


def point_at(spec: JobSpec, plan: BatchPlan, axes: Sequence[str] = CLUSTER_AXES) -> Point:
    """Return the point of a job on some axes, in natural logarithms.

    They are rounded, so that equal settings written differently (5e-5, 0.00005) are one point.
    """
    values = [spec.instance_count if axis == "instance_count" else getattr(plan, axis) for axis in axes]
    return tuple(round(math.log(value), 9) for value in values)


def point_of(row: RecordedRow, axes: Sequence[str] = CLUSTER_AXES) -> Point:
    """Return the point of a row on some axes."""
    return point_at(row.spec, row.plan, axes)


def enclosing(points: Collection[Point], at: Point) -> list[Corner] | None:
    """Return the corners of the smallest cell around `at` that are all in `points`, with their weights.

    Returns the point itself with weight 1 if it is in `points`, and None if no cell is complete. Never extrapolates.
    """
    brackets = []
    for axis, value in enumerate(at):
        values = sorted({point[axis] for point in points})
        exact = [(value, value)] if value in values else []
        brackets.append(exact + [(low, high) for low in values for high in values if low < value < high])
    for cell in sorted(itertools.product(*brackets), key=lambda cell: sum(high - low for low, high in cell)):
        shares = [(value - low) / ((high - low) or 1.0) for (low, high), value in zip(cell, at, strict=True)]
        ends = [((low, 1 - share), (high, share)) for (low, high), share in zip(cell, shares, strict=True)]
        weighed = [(tuple(v for v, _ in ends), math.prod(w for _, w in ends)) for ends in itertools.product(*ends)]
        corners = [(point, weight) for point, weight in weighed if weight]
        if all(point in points for point, _ in corners):
            return corners
    return None


STARTUP_SECONDS = 120.0  # billed seconds of a job before its first step, unless the simulation has another value
_SHOWN = 8  # values listed in a message


@dataclass(frozen=True, kw_only=True)
class ReplayedJob:
    """The result of one job, according to the table."""

    billable_seconds: float  # seconds billed per instance, start-up included; not a number if the table has none
    f1: float | None  # None for a probe and for a job that does not complete
    status: str = COMPLETED  # Completed, OutOfMemory or Failed
    basis: str  # the rows of the figures, in words
    startup_seconds: float = 0.0  # of `billable_seconds`, those before the first step
    uploaded_bytes: float = 0.0  # of the model; 0 if unknown
    steps: int | None = None  # optimiser steps in all; None if the number of rows is unknown
    measured: Mapping[str, float] = field(default_factory=dict)
    """Further metrics of the row, if a single row holds the whole job."""


class RecordedRuns:
    """Replays jobs from a table."""

    def __init__(self, table: RunTable) -> None:
        self.table = table
        self._groups: dict[tuple[str, ...], list[RecordedRow]] = {}
        for row in table.rows:
            self._groups.setdefault((row.spec.instance_type, *row.others.values()), []).append(row)

    @property
    def has_seconds(self) -> bool:
        """Whether the table has the seconds of its runs, and not their F1 alone."""
        return "billable_seconds" in self.table.columns

    @classmethod
    def read(cls, path: Path | str) -> "RecordedRuns":
        """The runs in a CSV file, see `run_table`; raises BadInput with all its faults and their line numbers."""
        return cls(RunTable.read(Path(path)))

    def answer(
        self, spec: JobSpec, plan: BatchPlan, *, draw: int = 0, startup_seconds: float = STARTUP_SECONDS
    ) -> ReplayedJob:
        """Return the result of the job.

        Args:
            spec: the job; it may be a probe.
            plan: its batch, which a retry may have changed.
            draw: selects, with the job itself, one of several repeats of a run.
            startup_seconds: seconds of a row before its first step; half of its seconds if it has fewer.

        Raises:
            BadInput: the table does not hold it; the message lists what it holds.
        """
        rows, at = self._rows_like(spec), point_at(spec, plan)
        choose = _choice(spec, plan, draw)
        if runs_out_of_memory(rows, spec, plan):
            full = [row for row in rows if row.status == OUT_OF_MEMORY]
            nearest = min(full, key=lambda row: math.dist(at, point_of(row)))
            return ReplayedJob(
                billable_seconds=nearest.billable_seconds or startup_seconds,
                f1=None,
                status=OUT_OF_MEMORY,
                basis=f"the recorded run in line {nearest.line} and its neighbours ran out of memory",
            )
        held = [row for row in rows if row.plan.gradient_accumulation_steps == plan.gradient_accumulation_steps]
        timed = quality = rows_at(held, CLUSTER_AXES, at, choose) if held else None
        if timed is None and plan.gradient_accumulation_steps > 1:  # the same cluster and per-device batch
            completed = [row for row in rows if row.status == COMPLETED]
            timed = rows_at(completed, CLUSTER_AXES, at, choose) or rows_at(completed, CLUSTER_AXES[1:], at[1:], choose)
        if timed is None:
            what = f"completed runs on all sides of {_setting(spec, plan)}"
            raise self._lacking(what, held or rows, at, CLUSTER_AXES)
        row = timed.parts[0][0]
        if row.status == FAILED:
            seconds = row.billable_seconds or startup_seconds
            return ReplayedJob(billable_seconds=seconds, f1=None, status=FAILED, basis=timed.words())
        seconds = timed.seconds()
        startup = startup_seconds if seconds > startup_seconds else seconds / 2
        if spec.probe_steps is not None:
            return _probe(spec, plan, timed, startup)
        basis = timed.words()
        if quality is None:
            quality = self._quality(spec, plan, choose)
            basis = (
                f"seconds from {basis} (same cluster and per-device batch, other accumulation), "
                f"F1 from {quality.words()} (same global batch size {plan.global_batch_size} and learning rate)"
            )
        return ReplayedJob(
            billable_seconds=seconds,
            f1=quality.f1(),
            basis=basis,
            startup_seconds=startup,
            steps=_steps(spec, plan, timed),
            measured=row.measured if quality is timed and len(timed.parts) == 1 else {},
        )

    def _rows_like(self, spec: JobSpec) -> list[RecordedRow]:
        """The rows of the same instance type and further hyperparameters."""
        wanted = {name: spell(getattr(spec, name)) for name in ("instance_type", *self.table.others)}
        if rows := self._groups.get(tuple(wanted.values())):
            return rows
        held, must = zip(*self._groups, strict=True), f"must be one that recorded_runs {self.table.name} holds"
        faults = [
            f"{name} {must} ({', '.join(sorted(map(_plain, set(values)))[:_SHOWN])}), got {_plain(text)}"
            for (name, text), values in zip(wanted.items(), held, strict=True)
            if text not in values
        ]
        raise BadInput(
            faults or [f"recorded_runs {self.table.name} holds no run with all of {', '.join(wanted)} as here"]
        )

    def _quality(self, spec: JobSpec, plan: BatchPlan, choose: Choose) -> MatchingRows:
        """The F1 of the same global batch size and learning rate, from another instance type if need be."""
        deciding = {name: spell(getattr(spec, name)) for name in affecting(JobSpec, "quality")}
        rows = [
            row
            for row in self.table.rows
            if row.status == COMPLETED and all(deciding.get(name, text) == text for name, text in row.others.items())
        ]
        own = [row for row in rows if row.spec.instance_type == spec.instance_type]
        at = point_at(spec, plan, QUALITY_AXES)
        if matches := rows_at(own, QUALITY_AXES, at, choose) or rows_at(rows, QUALITY_AXES, at, choose):
            return matches
        point = f"F1 for global batch size {plan.global_batch_size} at learning rate {plan.learning_rate:g}"
        raise self._lacking(f"{point} (nor around it)", rows, at, QUALITY_AXES)

    def _lacking(self, what: str, rows: Sequence[RecordedRow], at: Point, axes: Sequence[str]) -> BadInput:
        """Says that the table does not hold `what`, and what is nearest."""
        near = sorted(rows, key=lambda row: math.dist(at, point_of(row, axes)))[:3]
        nearest = "; ".join(f"line {row.line}: {_setting(row.spec, row.plan)}, {row.status}" for row in near)
        return BadInput([f"recorded_runs {self.table.name} holds no {what}; nearest are {nearest or 'none'}"])


def _probe(spec: JobSpec, plan: BatchPlan, timed: MatchingRows, startup: float) -> ReplayedJob:
    """Return the result of the job's first steps; raises BadInput if the number of training rows is unknown."""
    total = _steps(spec, plan, timed)
    if total is None:
        unknown = f"a probe is a share of all steps, and the number of training rows of {spec.dataset} is not known"
        raise BadInput([f"{unknown}: set max_train_samples, or give recorded_runs a column train_rows"])
    steps = min(spec.probe_steps or total, total)
    return ReplayedJob(
        billable_seconds=startup + (timed.seconds() - startup) * steps / total,
        f1=None,
        basis=f"{steps} of {total} steps of {timed.words()}",
        startup_seconds=startup,
        steps=steps,
    )


def _steps(spec: JobSpec, plan: BatchPlan, timed: MatchingRows) -> int | None:
    """Return the optimiser steps of the whole job, or None if the number of training rows is unknown."""
    rows = training_rows(spec, timed.parts[0][0].measured)
    return None if rows is None else training_steps(spec, plan, rows)


def _choice(spec: JobSpec, plan: BatchPlan, draw: int) -> Choose:
    """Choose the repeat with the job's seed, else any, but always the same for the same job and draw."""
    share = share_of(f"{draw} {spec.seed} {spec.instance_type} {spec.instance_count} {plan}")

    def choose(repeats: Sequence[RecordedRow]) -> RecordedRow:
        candidates = [row for row in repeats if row.seed == spec.seed] or repeats
        return candidates[int(share * len(candidates))]

    return choose


def _setting(spec: JobSpec, plan: BatchPlan) -> str:
    sizes = f"per-device batch {plan.per_device_train_batch_size}, learning rate {plan.learning_rate:g}"
    return f"{spec.instance_count} x {spec.instance_type}, {sizes}, accumulation {plan.gradient_accumulation_steps}"


def _plain(text: str) -> str:
    return text.removesuffix(".0") or "the default"
