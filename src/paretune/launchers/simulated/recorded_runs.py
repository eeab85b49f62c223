"""Replays a job: looks up its seconds and F1 in a table of recorded runs.

A row can answer a job if it has the job's instance type and the job's value in each column of a hyperparameter that is
not interpolated. Between such rows, F1 and the logarithm of the seconds are interpolated over the logarithms of
learning rate, per-device batch size and instance count. A job outside the rows is an error. If a batch ran out of
memory, larger batches do, too.

If a job accumulates gradients and no rows with its number of accumulation steps cover it, its seconds come from rows
with other numbers of steps. Its F1 then comes from rows at or around its global batch size and learning rate, if
necessary on another instance type.

A table is a CSV file with one finished training job per row. Errors in it are reported with their lines. Its columns:

    instance_type,instance_count,per_device_train_batch_size,learning_rate,f1   required
    billable_seconds             for all completed runs; without this column, simulated jobs take their estimated time
    status                       Completed (the default), OutOfMemory or Failed
    train_seconds,throughput_samples_per_second,peak_memory_gib,train_rows    optional, for runs that measured them
    num_steps                    optimizer steps; a missing train_rows is computed from them and num_train_epochs
    dataset_size                 rows before validation rows were split off
    hourly_price_usd,price_as_of price of one instance at the time of the run, and the day, month or year of the price
    cost_usd                     cost of the job; if left out, it is computed from seconds and price
    any parameter of a job       a hyperparameter: only rows with the job's value can answer that job

If `global_batch_size` is given without `gradient_accumulation_steps`, the latter is computed from it.
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from paretune.core.errors import BadInput, collecting, did_you_mean, refuse
from paretune.core.reading import read_table
from paretune.estimating.workload import training_rows, training_steps
from paretune.pricing import as_of_fault
from paretune.specification.declaration import COMPUTES, Parameters, parameter, spell
from paretune.specification.job import JobSpec, parameters_affecting, share_of
from paretune.specification.parallelism import DATA_PARALLEL, DEEPSPEED, SHARDED, BatchPlan
from paretune.specification.program import PARETUNE

STATUSES = COMPLETED, OUT_OF_MEMORY, FAILED = "Completed", "OutOfMemory", "Failed"
MEASURED = ("train_seconds", "throughput_samples_per_second", "peak_memory_gib", "train_rows")
CLUSTER = ("instance_type", "instance_count", "per_device_train_batch_size", "learning_rate")
NEEDED = (*CLUSTER, "f1")
_BATCH = {*parameters_affecting("batch"), *CLUSTER}
OTHERS = {*parameters_affecting(*COMPUTES, without=("batch", "cluster", "noise"))} - {"probe_steps"}
"""Parameters that, if a table has columns for them, must be the same in a row and in the job that it answers."""
OF_A_ROW = {*parameters_affecting(*COMPUTES, "dollars")} - {"probe_steps"}  # a row is a whole run, not a probe
_NONE: Mapping[str, str] = MappingProxyType({})
_MOST_FAULTS, _SHOWN = 20, 8  # maximum numbers of faults and values that a message lists
STARTUP_SECONDS = 120.0  # billed seconds of a job before its first step, unless the simulation has another value
CLUSTER_AXES = ("learning_rate", "per_device_train_batch_size", "instance_count")
QUALITY_AXES = ("learning_rate", "global_batch_size")
_DIVIDED = {*SHARDED, *DEEPSPEED}  # strategies whose memory per device depends on the number of devices
Point = tuple[float, ...]
Corner = tuple[Point, float]  # a point of the grid and its weight; the weights of a cell's corners sum to 1
Choose = Callable[[Sequence["RecordedRow"]], "RecordedRow"]  # selects one of the repeats of a run


class Cells(Parameters):
    """The cells of a row that are not parameters of a job. The module's docstring describes them."""

    status: Literal["Completed", "OutOfMemory", "Failed"] = parameter(COMPLETED)
    billable_seconds: float | None = parameter(None, gt=0)
    f1: float | None = parameter(None, ge=0, le=1)
    train_seconds: float | None = parameter(None, gt=0)
    throughput_samples_per_second: float | None = parameter(None, gt=0)
    peak_memory_gib: float | None = parameter(None, gt=0)
    train_rows: float | None = parameter(None, gt=0)
    num_steps: float | None = parameter(None, gt=0)
    dataset_size: int | None = parameter(None, gt=0)
    hourly_price_usd: float | None = parameter(None, gt=0)
    price_as_of: str = parameter("")
    cost_usd: float | None = parameter(None, ge=0)


_COLUMNS = {*Cells.model_fields, *CLUSTER, "seed"}
"""Columns that every table may have, besides the parameters in OTHERS."""


@dataclass(frozen=True, kw_only=True)
class RecordedRow:
    """One run of a table."""

    line: int  # its line in the file, from 1
    spec: JobSpec  # the job, with defaults for parameters that the table lacks
    plan: BatchPlan  # its batch, and the learning rate that it used
    others: Mapping[str, str]  # the parameters in OTHERS that the table has, as they would be typed
    cells: Cells  # everything in the row except parameters; F1 only of a completed run
    texts: Mapping[str, str]  # all its cells as strings, without empty ones

    @property
    def measured(self) -> dict[str, float]:
        """The metrics of MEASURED that the row has."""
        return {name: value for name in MEASURED if (value := getattr(self.cells, name)) is not None}

    def digest(self) -> str:
        """Return sixteen hexadecimal digits that are the same for rows with the same cells, in any order of columns."""
        return hashlib.sha256(repr(sorted(self.texts.items())).encode()).hexdigest()[:16]


def located(fault: str, lines: Sequence[int]) -> str:
    """Return the fault with the numbers of the lines that have it."""
    numbers = ", ".join(map(str, lines[:5])) + (f" and {len(lines) - 5} more" if len(lines) > 5 else "")
    return f"line{'s' * (len(lines) > 1)} {numbers}: {fault}"


def _header_faults(own_names: Sequence[str], columns: Mapping[str, str]) -> list[str]:
    names, columns_there = {*_COLUMNS, *JobSpec.model_fields}, f"it has {', '.join(own_names) or 'no header line'}"
    absent = {name: did_you_mean(name, own_names) or columns_there for name in columns if name not in own_names}
    faults = [f"columns: there is no column {name}: {hint}" for name, hint in absent.items()]
    for name in {*columns.values()} - names:
        hint = did_you_mean(name, names, or_longer=True) or "`paretune import --help` lists all names"
        faults.append(f"columns: paretune has no column {name}: {hint}")
    header = [columns.get(name, name) for name in own_names]
    twice = sorted({name for name in header if name and header.count(name) > 1})
    faults += [f"column {name} occurs twice: remove one" for name in twice]
    for name in (*NEEDED, "billable_seconds"):
        hint = did_you_mean(name, set(header) - _COLUMNS, most=1)
        if name not in header and (hint or name in NEEDED):
            faults.append(f"column {name} is missing: {hint or columns_there}")
    return faults


def _row(line: int, header: Sequence[str], cells: Sequence[str], common_texts: Mapping[str, str]) -> RecordedRow:
    texts_of_row = {name: cell for name, cell in zip(header, cells, strict=False) if cell}
    texts, faults = {**common_texts, **texts_of_row}, list[str]()
    parameters = {*common_texts, *OF_A_ROW, "seed"} - {*Cells.model_fields}
    if texts.get("strategy") == "none":  # AWS's term; a script with the Trainer then uses DataParallel
        texts["strategy"] = DATA_PARALLEL if texts.get("program", PARETUNE) != PARETUNE else "ddp"
    values, spec = Cells(), JobSpec()
    with collecting(faults):
        values = Cells.read({name: text for name, text in texts.items() if name in Cells.model_fields})
    with collecting(faults):
        spec = JobSpec.read({name: text for name, text in texts.items() if name in parameters})
    if len(cells) != len(header):
        faults.append(f"has {len(cells)} cells, the header line {len(header)}")
    needed = list(CLUSTER)
    has_completed = values.status == COMPLETED
    if has_completed:
        needed += [name for name in ("f1", "billable_seconds") if name in header]
    faults += [f"{name} is empty" for name in needed if name not in texts]
    faults += as_of_fault("price_as_of", values.price_as_of)
    refuse(faults)
    others = {name: spell(getattr(spec, name)) for name in header if name in OTHERS}
    derived: dict[str, float | None] = {} if has_completed else {"f1": None}
    if values.train_rows is None and values.num_steps is not None and "num_train_epochs" in others:
        derived["train_rows"] = float(round(values.num_steps * spec.plan().global_batch_size / spec.num_train_epochs))
    values = values.model_copy(update=derived)
    return RecordedRow(line=line, spec=spec, plan=spec.plan(), others=others, cells=values, texts=texts_of_row)


@dataclass(frozen=True)
class MatchingRows:
    """The rows that answer a job: one row at the job's point on some axes, or the rows around it with their weights."""

    parts: tuple[tuple[RecordedRow, float], ...]
    repeats: int = 1  # how many rows are at the point; one of them was chosen

    def seconds(self) -> float:
        """Return the billable seconds, interpolated in their logarithm; NaN if the table has no such column."""
        if len(self.parts) == 1:
            return self.parts[0][0].cells.billable_seconds or math.nan
        return math.exp(sum(weight * math.log(row.cells.billable_seconds or math.nan) for row, weight in self.parts))

    def f1(self) -> float:
        """Return F1, interpolated linearly."""
        return sum(weight * row.cells.f1 for row, weight in self.parts if row.cells.f1 is not None)

    def words(self) -> str:
        """Return a description of the rows with their line numbers."""
        lines = sorted(row.line for row, _ in self.parts)
        if len(lines) == 1:
            chosen = f", one of {self.repeats} repeats" if self.repeats > 1 else ""
            return f"the recorded run in line {lines[0]}{chosen}"
        return f"an interpolation between the recorded runs in lines {', '.join(map(str, lines))}"


def rows_at(rows: Iterable[RecordedRow], axes: Sequence[str], at: Point, choose: Choose) -> MatchingRows | None:
    """Return the row at a point, or the rows around it, or None if there are none.

    A failed run can answer only its own point. Runs that ran out of memory are not considered.
    """
    by_point: dict[Point, list[RecordedRow]] = {}
    for row in rows:
        if row.cells.status != OUT_OF_MEMORY:
            by_point.setdefault(point_of(row, axes), []).append(row)
    if at in by_point:
        repeats = by_point[at]
        return MatchingRows(((choose(repeats), 1.0),), len(repeats))
    completed = {point: [row for row in group if row.cells.status == COMPLETED] for point, group in by_point.items()}
    corners = enclosing({point for point, group in completed.items() if group}, at)
    if corners is None:
        return None
    return MatchingRows(tuple((choose(completed[point]), weight) for point, weight in corners))


def runs_out_of_memory(rows: Sequence[RecordedRow], plan: BatchPlan, instances: int, *, is_divided: bool) -> bool:
    """Return whether a job is too large for the memory, according to these rows.

    Rows with the job's own settings decide. Without them, a job is too large if its per-device batch is at least as
    large as the smallest batch that did not fit. A batch between that one and the next smaller batch that did fit
    also counts as too large.

    If `is_divided`, the strategy divides the memory among devices. Then a run on fewer instances than the job does not
    show that a batch is too large, and a run on more instances does not show that a batch fits.
    """
    batch, at = plan.per_device_train_batch_size, point_at(instances, plan)
    steps = plan.gradient_accumulation_steps
    exact = {row.cells.status for row in rows if point_of(row) == at and row.plan.gradient_accumulation_steps == steps}
    if exact:
        return OUT_OF_MEMORY in exact
    full, fitting = list[int](), [0]
    for row in rows:
        more = is_divided * (row.spec.instance_count - instances)
        if row.cells.status == OUT_OF_MEMORY and more >= 0:
            full.append(row.plan.per_device_train_batch_size)
        elif row.cells.status == COMPLETED and more <= 0:
            fitting.append(row.plan.per_device_train_batch_size)
    least = min(full, default=math.inf)
    return batch >= least or (bool(full) and batch > max(size for size in fitting if size < least))


def point_at(instances: int, plan: BatchPlan, axes: Sequence[str] = CLUSTER_AXES) -> Point:
    """Return the point of a job on some axes, in natural logarithms.

    They are rounded, so that settings that differ only by floating-point errors are the same point.
    """
    values = [instances if axis == "instance_count" else getattr(plan, axis) for axis in axes]
    return tuple(round(math.log(value), 9) for value in values)


def point_of(row: RecordedRow, axes: Sequence[str] = CLUSTER_AXES) -> Point:
    """Return the point of a row on some axes."""
    return point_at(row.spec.instance_count, row.plan, axes)


def enclosing(points: Collection[Point], at: Point) -> list[Corner] | None:
    """Return the corners of the smallest cell around `at` whose corners are all in `points`, with their weights.

    If `at` is in `points`, it is the only corner and has weight 1. Returns None if there is no such cell, because
    nothing is extrapolated.
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


@dataclass(frozen=True, kw_only=True)
class ReplayedJob:
    """The result of one job, from a table of recorded runs or an estimate."""

    billable_seconds: float  # seconds billed per instance, including the startup; NaN if the table has none
    f1: float | None = None  # None for a probe, for a job that does not complete, or if unknown
    status: str = COMPLETED  # Completed, OutOfMemory or Failed
    basis: str  # describes where the figures come from, such as lines of the table
    startup_seconds: float = 0.0  # the part of `billable_seconds` before the first step
    upload_seconds: float = 0.0  # time to upload the model; 0 if unknown
    steps: int | None = None  # all optimizer steps; None if the number of rows is unknown
    measured: Mapping[str, float] = field(default_factory=dict)
    """Other metrics: those of the row if all figures come from a single one, or those of the estimate."""


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """A table with at least one recorded run, which answers jobs."""

    name: str  # the file's name, without its folder
    rows: tuple[RecordedRow, ...]
    columns: tuple[str, ...]  # after renaming them by the `columns` of `read`
    others: tuple[str, ...]  # the columns that are parameters in OTHERS
    ignored: tuple[str, ...]  # names of columns that paretune does not use

    @classmethod
    def read(
        cls,
        path: Path,
        columns: Mapping[str, str] = _NONE,
        common_texts: Mapping[str, str] = _NONE,
        option: str = "simulation.runs",
    ) -> "RunTable":
        """Read the table in a CSV file.

        `columns` maps the file's names of columns to paretune's. `common_texts` has values for every row. Messages
        name the file by `option`.

        Raises BadInput with up to _MOST_FAULTS faults of the header or, if it has none, of the lines, with their
        numbers.
        """
        own_names, lines = read_table(path, must=f"{option} must be a readable CSV file, but ")
        faults = _header_faults(own_names, columns)
        header = [columns.get(name, name) for name in own_names]
        if not faults and not lines:
            faults = ["it has no runs: each line below the header line must be one"]
        rows, lines_of = list[RecordedRow](), dict[str, list[int]]()
        for line, cells in [] if faults else lines:
            try:
                rows.append(_row(line, header, cells, common_texts))
            except BadInput as error:
                for fault in error.faults:
                    lines_of.setdefault(fault, []).append(line)
        faults += [located(fault, numbers) for fault, numbers in lines_of.items()]
        more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        refuse([f"{path.name}: {fault}" for fault in faults[:_MOST_FAULTS] + more])
        others = tuple(name for name in header if name in OTHERS)
        ignored = tuple(name for name in header if name and name not in {*_COLUMNS, *_BATCH, *OTHERS})
        return cls(name=path.name, rows=tuple(rows), columns=tuple(header), others=others, ignored=ignored)

    @cached_property
    def _groups(self) -> Mapping[tuple[str, ...], list[RecordedRow]]:
        groups: dict[tuple[str, ...], list[RecordedRow]] = {}
        for row in self.rows:
            groups.setdefault((row.spec.instance_type, *row.others.values()), []).append(row)
        return groups

    def answer(
        self, spec: JobSpec, plan: BatchPlan, *, draw: int = 0, startup_seconds: float = STARTUP_SECONDS
    ) -> ReplayedJob:
        """Return the result of the job with this batch.

        `draw` and the job itself select one of several repeats of a run. A run's first step is assumed to come after
        `startup_seconds`, or in the middle of a shorter run. If the table does not cover the job, raises BadInput
        with the nearest runs or, if the table lacks one of the job's values, with the values that the table has.
        """
        rows, at = self._rows_like(spec), point_at(spec.instance_count, plan)
        choose = _choice(spec.seed, f"{draw} {spec.instance_type} {spec.instance_count} {plan}")
        if runs_out_of_memory(rows, plan, spec.instance_count, is_divided=spec.strategy in _DIVIDED):
            full = [row for row in rows if row.cells.status == OUT_OF_MEMORY]
            nearest = min(full, key=lambda row: math.dist(at, point_of(row)))
            seconds = nearest.cells.billable_seconds or startup_seconds
            basis = f"the recorded run in line {nearest.line} ran out of memory"
            return ReplayedJob(billable_seconds=seconds, status=OUT_OF_MEMORY, basis=basis)
        alike = [row for row in rows if row.plan.gradient_accumulation_steps == plan.gradient_accumulation_steps]
        timed = quality = rows_at(alike, CLUSTER_AXES, at, choose)
        if timed is None and plan.gradient_accumulation_steps > 1:  # rows of the same cluster and per-device batch
            completed = [row for row in rows if row.cells.status == COMPLETED]
            timed = rows_at(completed, CLUSTER_AXES, at, choose) or rows_at(completed, CLUSTER_AXES[1:], at[1:], choose)
        if timed is None:
            what = f"completed runs on all sides of {_setting(spec.instance_count, spec.instance_type, plan)}"
            raise self._lacking(what, alike or rows, at, CLUSTER_AXES)
        row, basis = timed.parts[0][0], timed.words()
        if row.cells.status == FAILED:
            seconds = row.cells.billable_seconds or startup_seconds
            return ReplayedJob(billable_seconds=seconds, status=FAILED, basis=basis)
        seconds = timed.seconds()
        startup = startup_seconds if seconds > startup_seconds else seconds / 2
        rows_per_epoch = training_rows(spec.data_arguments, row.measured)
        arguments = spec.training_arguments
        steps = (
            None if rows_per_epoch is None else training_steps(arguments, spec.num_train_epochs, plan, rows_per_epoch)
        )
        if spec.probe_steps is not None:
            if steps is None:
                unknown = f"a probe is a share of all steps, and the training rows of {spec.dataset} are unknown"
                raise BadInput(
                    [f"{unknown}: set max_train_samples, or add a column train_rows to the table of simulation.runs"]
                )
            done = min(spec.probe_steps, steps)
            seconds, basis = startup + (seconds - startup) * done / steps, f"{done} of {steps} steps of {basis}"
            return ReplayedJob(billable_seconds=seconds, basis=basis, startup_seconds=startup, steps=done)
        if quality is None:
            quality = self._quality(spec, plan, choose)
            basis = (
                f"seconds from {basis} (for this cluster and per-device batch, other accumulation), "
                f"F1 from {quality.words()} (for global batch size {plan.global_batch_size} and this learning rate)"
            )
        return ReplayedJob(
            billable_seconds=seconds,
            f1=quality.f1(),
            basis=basis,
            startup_seconds=startup,
            steps=steps,
            measured=row.measured if quality is timed and len(timed.parts) == 1 else {},
        )

    def _rows_like(self, spec: JobSpec) -> list[RecordedRow]:
        wanted = {name: spell(getattr(spec, name)) for name in ("instance_type", *self.others)}
        if rows := self._groups.get(tuple(wanted.values())):
            return rows
        recorded, must = zip(*self._groups, strict=True), f"must be a value in simulation.runs {self.name}"
        faults = [
            f"{name} {must} ({', '.join(sorted(map(_plain, set(values)))[:_SHOWN])}), got {_plain(text)}"
            for (name, text), values in zip(wanted.items(), recorded, strict=True)
            if text not in values
        ]
        raise BadInput(
            faults or [f"simulation.runs {self.name} has no run with this combination of {', '.join(wanted)}"]
        )

    def _quality(self, spec: JobSpec, plan: BatchPlan, choose: Choose) -> MatchingRows:
        """Return rows at or around the job's global batch size and learning rate, of another type if necessary."""
        deciding = {name: spell(getattr(spec, name)) for name in parameters_affecting("quality")}
        completed = (row for row in self.rows if row.cells.status == COMPLETED)
        rows = [row for row in completed if all(deciding.get(name, text) == text for name, text in row.others.items())]
        same_type = [row for row in rows if row.spec.instance_type == spec.instance_type]
        at = point_at(spec.instance_count, plan, QUALITY_AXES)
        if matches := rows_at(same_type, QUALITY_AXES, at, choose) or rows_at(rows, QUALITY_AXES, at, choose):
            return matches
        point = f"F1 for global batch size {plan.global_batch_size} at learning rate {plan.learning_rate:g}"
        raise self._lacking(f"{point} (nor around it)", rows, at, QUALITY_AXES)

    def _lacking(self, what: str, rows: Sequence[RecordedRow], at: Point, axes: Sequence[str]) -> BadInput:
        near = sorted(rows, key=lambda row: math.dist(at, point_of(row, axes)))[:3]
        clusters = [(row.spec.instance_count, row.spec.instance_type) for row in near]
        nearest = "; ".join(
            f"line {row.line}: {_setting(*cluster, row.plan)}, {row.cells.status}"
            for row, cluster in zip(near, clusters, strict=True)
        )
        return BadInput([f"simulation.runs {self.name} has no {what}; the nearest are {nearest or 'none'}"])


def _choice(seed: int, job: str) -> Choose:
    """Return a function that chooses one of several repeats of a run.

    It prefers a repeat with the job's seed. Otherwise `job`, a text, and the seed determine the choice, and consecutive
    seeds get different repeats.
    """
    share = share_of(job)

    def choose(repeats: Sequence[RecordedRow]) -> RecordedRow:
        candidates = [row for row in repeats if row.spec.seed == seed] or repeats
        return candidates[(int(share * len(candidates)) + seed) % len(candidates)]

    return choose


def _setting(count: int, instance_type: str, plan: BatchPlan) -> str:
    sizes = f"per-device batch {plan.per_device_train_batch_size}, learning rate {plan.learning_rate:g}"
    return f"{count} x {instance_type}, {sizes}, accumulation {plan.gradient_accumulation_steps}"


def _plain(text: str) -> str:
    return text.removesuffix(".0") or "the default"
