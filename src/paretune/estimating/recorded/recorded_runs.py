"""Replay: what a job would have taken and reached, read off a table of runs that were really made.

Rows of the same instance type and the same further hyperparameters answer a job. Between them, in the logarithms of
learning rate, per-device batch size and instance count, seconds are interpolated in their logarithm and F1 as it is;
outside them is an error. What ran out of memory runs out of memory with every larger batch too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from paretune.core.errors import BadInput
from paretune.estimating.recorded.run_lookup import (
    CLUSTER_AXES,
    QUALITY_AXES,
    Choose,
    Found,
    logarithms,
    point_of_job,
    point_of_row,
    rows_at,
    runs_out_of_memory,
)
from paretune.estimating.recorded.run_table import COMPLETED, FAILED, OUT_OF_MEMORY, RecordedRow, RunTable
from paretune.estimating.workload import BUNDLED_ROWS, training_steps
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec
from paretune.specification.parameters import affecting, spell
from paretune.specification.simulation import share_of

STARTUP_SECONDS = 120.0
"""Billed seconds of a job before its first step, unless the simulation says otherwise."""
_SHOWN = 8  # values listed in a message


@dataclass(frozen=True, kw_only=True)
class ReplayedJob:
    """What the table says of one job.

    Attributes:
        billable_seconds: seconds billed per instance, start-up included.
        f1: None for a probe and for a job that does not complete.
        status: Completed, OutOfMemory or Failed.
        curve: F1 after each epoch; empty where it is not known.
        basis: which rows the figures come from, in words.
        startup_seconds: of `billable_seconds`, those before the first step.
        steps: optimiser steps in all; None where the number of rows is not known.
        measured: further metrics of the row, where one row answers the whole job.
    """

    billable_seconds: float
    f1: float | None
    status: str = COMPLETED
    curve: tuple[float, ...] = ()
    basis: str
    startup_seconds: float = 0.0
    steps: int | None = None
    measured: Mapping[str, float] = field(default_factory=dict)


class RecordedRuns:
    """Answers jobs from a table."""

    def __init__(self, table: RunTable) -> None:
        self.table = table
        self._groups: dict[tuple[str, ...], list[RecordedRow]] = {}
        for row in table.rows:
            self._groups.setdefault((row.instance_type, *row.others.values()), []).append(row)

    @classmethod
    def read(cls, path: Path | str) -> "RecordedRuns":
        """The runs in a CSV file; see `run_table` for its columns.

        Raises:
            BadInput: everything that is wrong with it, with line numbers.
        """
        return cls(RunTable.read(Path(path)))

    def answer(
        self, spec: JobSpec, plan: BatchPlan, *, draw: int = 0, startup_seconds: float = STARTUP_SECONDS
    ) -> ReplayedJob:
        """What the job takes and reaches.

        Args:
            spec: the job; it may be a probe.
            plan: its batch, which a retry may have changed.
            draw: chooses, with the job itself, among repeats of a run.
            startup_seconds: what of a row's seconds lies before its first step; half of them where it has fewer.

        Raises:
            BadInput: the table does not hold it, with what it does hold.
        """
        rows, at = self._rows_like(spec), point_of_job(spec, plan)
        choose = _choice(spec, plan, draw)
        if runs_out_of_memory(rows, spec, plan):
            full = [row for row in rows if row.status == OUT_OF_MEMORY]
            nearest = min(full, key=lambda row: math.dist(at, point_of_row(row)))
            return ReplayedJob(
                billable_seconds=nearest.billable_seconds or startup_seconds,
                f1=None,
                status=OUT_OF_MEMORY,
                basis=f"the recorded run in line {nearest.line} and its neighbours ran out of memory",
            )
        held = [row for row in rows if row.gradient_accumulation_steps == plan.gradient_accumulation_steps]
        found = rows_at(held, CLUSTER_AXES, at, choose) if held else None
        if found is None and plan.gradient_accumulation_steps == 1:
            raise BadInput(self._missing(held or rows, spec, plan))
        timed = found or self._time(rows, spec, plan, choose)
        row, is_one_row = timed.parts[0][0], found is not None and len(timed.parts) == 1
        if row.status == FAILED:
            seconds = row.billable_seconds or startup_seconds
            return ReplayedJob(billable_seconds=seconds, f1=None, status=FAILED, basis=timed.words())
        if spec.probe_steps is not None:
            return _probe(spec, plan, timed, startup_seconds)
        whole = ReplayedJob(
            billable_seconds=timed.seconds(),
            f1=timed.f1(),
            curve=timed.curve(),
            basis=timed.words(),
            startup_seconds=_startup(timed.seconds(), startup_seconds),
            steps=_steps(spec, plan, timed),
            measured=row.measured if is_one_row else {},
        )
        return whole if found is not None else self._with_quality(whole, spec, plan, choose)

    def _rows_like(self, spec: JobSpec) -> list[RecordedRow]:
        """Rows of the same instance type and further hyperparameters."""
        others = {name: spell(getattr(spec, name)) for name in self.table.others}
        found = self._groups.get((spec.instance_type, *others.values()))
        if found:
            return found
        types = sorted({row.instance_type for row in self.table.rows})
        if spec.instance_type not in types:
            raise BadInput([self._not_held("instance_type", spec.instance_type, types)])
        rows = [row for row in self.table.rows if row.instance_type == spec.instance_type]
        faults = []
        for name, text in others.items():
            values = list(dict.fromkeys(row.others[name] for row in rows))
            if text not in values:
                faults.append(self._not_held(f"{name} on {spec.instance_type}", text, values))
        if not faults:
            alike = ", ".join(f"{name}={_plain(text)}" for name, text in others.items())
            near = max(rows, key=lambda row: sum(row.others[name] == text for name, text in others.items()))
            held = ", ".join(f"{name}={_plain(text)}" for name, text in near.others.items())
            faults = [
                f"recorded_runs {self.table.name} holds no run on {spec.instance_type} with {alike} together; "
                f"near it, line {near.line}: {held}"
            ]
        raise BadInput(faults)

    def _not_held(self, what: str, text: str, values: Sequence[str]) -> str:
        listed = ", ".join(_plain(value) or "(default)" for value in values[:_SHOWN])
        more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
        held = f"must be one that recorded_runs {self.table.name} holds ({listed}{more})"
        return f"{what} {held}, got {_plain(text) or 'the default'}"

    def _missing(self, rows: Sequence[RecordedRow], spec: JobSpec, plan: BatchPlan) -> list[str]:
        """Why no rows answer: outside of the table, or in a hole of it."""
        at, faults = point_of_job(spec, plan), []
        for name, value, *values in zip(CLUSTER_AXES, at, *map(point_of_row, rows), strict=True):
            low, high = min(values), max(values)
            if not low <= value <= high:
                held = f"{_shown(low)} to {_shown(high)}" if low < high else _shown(low)
                within = f"what recorded_runs {self.table.name} holds on {spec.instance_type} ({held})"
                faults.append(f"{name} must be within {within}, got {_shown(value)}")
        if faults:
            return faults
        near = sorted(rows, key=lambda row: math.dist(at, point_of_row(row)))[:3]
        held = "; ".join(f"line {row.line}: {_setting(row, row)}, {row.status}" for row in near)
        lacking = f"recorded_runs {self.table.name} holds no completed runs on all sides of"
        return [f"{lacking} {_setting(spec, plan)}; nearest are {held}"]

    def _time(self, rows: list[RecordedRow], spec: JobSpec, plan: BatchPlan, choose: Choose) -> Found:
        """Seconds of a job with accumulation: those of its cluster and per-device batch, for the work is the same."""
        wanted, at = plan.gradient_accumulation_steps, point_of_job(spec, plan)
        steps = {row.gradient_accumulation_steps for row in rows}
        for held in sorted(steps, key=lambda number: (abs(math.log(number / wanted)), number)):
            alike = [row for row in rows if row.gradient_accumulation_steps == held and row.status == COMPLETED]
            found = rows_at(alike, CLUSTER_AXES, at, choose) or rows_at(alike, CLUSTER_AXES[1:], at[1:], choose)
            if found is not None:
                return found
        raise BadInput(self._missing(rows, spec, plan))

    def _with_quality(self, timed: ReplayedJob, spec: JobSpec, plan: BatchPlan, choose: Choose) -> ReplayedJob:
        """The answer with F1 of the same global batch size and learning rate, from whichever instance type has it."""
        at = logarithms((plan.learning_rate, plan.global_batch_size))
        for rows in self._teachers(spec):
            found = rows_at([row for row in rows if row.status == COMPLETED], QUALITY_AXES, at, choose)
            if found is not None:
                where = "" if rows[0].instance_type == spec.instance_type else f" on {rows[0].instance_type}"
                seconds = f"{timed.basis} (same cluster and per-device batch, other accumulation)"
                f1 = f"{found.words()}{where} (same global batch size {plan.global_batch_size} and learning rate)"
                basis = f"seconds from {seconds}, F1 from {f1}"
                return replace(timed, f1=found.f1(), curve=found.curve(), basis=basis, measured={})
        sizes = [row.global_batch_size for row in self.table.rows if row.status == COMPLETED]
        what = f"F1 for global batch size {plan.global_batch_size} at learning rate {plan.learning_rate:g}"
        held = f" (nor around it): its completed runs have global batch sizes {min(sizes, default=0)} to "
        why = f"{what}{held}{max(sizes)}" if sizes else "completed run"
        raise BadInput([f"recorded_runs {self.table.name} holds no {why}"])

    def _teachers(self, spec: JobSpec) -> list[list[RecordedRow]]:
        """Rows that may tell F1, a group per instance type: first those that agree in everything, own type first."""
        others = {name: spell(getattr(spec, name)) for name in self.table.others}
        deciding = {name: text for name, text in others.items() if name in affecting(JobSpec, "quality")}

        def order(key: tuple[str, ...]) -> tuple[bool, bool, tuple[str, ...]]:
            return key[0] != spec.instance_type, list(key[1:]) != list(others.values()), key

        groups = [self._groups[key] for key in sorted(self._groups, key=order)]
        return [rows for rows in groups if all(rows[0].others[name] == text for name, text in deciding.items())]


def _probe(spec: JobSpec, plan: BatchPlan, timed: Found, startup_seconds: float) -> ReplayedJob:
    """The beginning of the job that the rows tell of.

    Raises:
        BadInput: the number of training rows is not known, so that of the steps is not.
    """
    total = _steps(spec, plan, timed)
    if total is None:
        unknown = f"a probe is a share of all steps, and the number of training rows of {spec.dataset} is not known"
        raise BadInput([f"{unknown}: set max_train_samples, or give recorded_runs a column train_rows"])
    seconds = timed.seconds()
    startup = _startup(seconds, startup_seconds)
    steps = min(spec.probe_steps or total, total)
    return ReplayedJob(
        billable_seconds=startup + (seconds - startup) * steps / total,
        f1=None,
        basis=f"{steps} of {total} steps of {timed.words()}",
        startup_seconds=startup,
        steps=steps,
    )


def _steps(spec: JobSpec, plan: BatchPlan, timed: Found) -> int | None:
    """Optimiser steps of the whole job; None when the number of training rows is not known."""
    told = timed.parts[0][0].measured.get("train_rows")
    known = [told] if told is not None else [spec.max_train_samples, BUNDLED_ROWS.get(spec.dataset, (None,))[0]]
    rows = min((count for count in known if count is not None), default=None)
    return None if rows is None else training_steps(spec, plan, rows)


def _choice(spec: JobSpec, plan: BatchPlan, draw: int) -> Choose:
    """The repeat with the job's own seed; else any of them, but always the same for the same job and draw."""
    share = share_of(f"{draw} {spec.seed} {spec.instance_type} {spec.instance_count} {plan}")

    def choose(repeats: Sequence[RecordedRow]) -> RecordedRow:
        own = [row for row in repeats if row.seed == spec.seed] or repeats
        return own[int(share * len(own))]

    return choose


def _startup(seconds: float, startup_seconds: float) -> float:
    """What of a run's seconds lies before its first step; half of them where it was shorter than that."""
    return startup_seconds if seconds > startup_seconds else seconds / 2


def _setting(cluster: JobSpec | RecordedRow, batch: BatchPlan | RecordedRow) -> str:
    """Where a job or a row lies, in words."""
    sizes = f"per-device batch {batch.per_device_train_batch_size}, learning rate {batch.learning_rate:g}"
    instances = f"{cluster.instance_count} x {cluster.instance_type}"
    return f"{instances}, {sizes}, accumulation {batch.gradient_accumulation_steps}"


def _shown(logarithm: float) -> str:
    return f"{math.exp(logarithm):.4g}"


def _plain(text: str) -> str:
    return text.removesuffix(".0")
