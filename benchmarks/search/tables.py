"""A table of recorded runs as something to search: its space, its answers, and what is true of each of its points."""

import os
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput
from paretune.estimating.recorded.recorded_runs import STARTUP_SECONDS, Answer, RecordedRuns
from paretune.estimating.recorded.run_table import COMPLETED, OUT_OF_MEMORY, RecordedRow, RunTable
from paretune.launchers.simulated.launcher import usual_price
from paretune.pricing.prices import VARIABLE, Price, PriceList
from paretune.spec.batch_size import BatchPlan
from paretune.spec.job import JobSpec
from paretune.spec.parameters import annotations, parse, spell
from paretune.studies.definition.space import NOT_SEARCHED

Point = Mapping[str, Any]
MAX_RUNTIME_MINUTES = 7 * 24 * 60
PRICES = {name: os.environ[name] for name in (VARIABLE,) if name in os.environ}
"""A user's own prices, for instance types that have none in us-east-1."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Means over the repeats of one point."""

    cost_usd: float
    billable_seconds: float
    f1: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one job ends: dollars and seconds always, F1 and its curve where it completes. `cannot`: nothing was run."""

    status: str
    seconds: float = 0.0
    usd: float = 0.0
    f1: float | None = None
    curve: tuple[float, ...] = ()
    cannot: bool = False


class Remembered(RecordedRuns):
    """Recorded runs that work out each answer once."""

    def __init__(self, table: RunTable) -> None:
        super().__init__(table)
        self._known: dict[tuple[Any, ...], Answer | BadInput] = {}

    def answer(
        self, spec: JobSpec, plan: BatchPlan, *, draw: int = 0, startup_seconds: float = STARTUP_SECONDS
    ) -> Answer:
        """As `RecordedRuns.answer`."""
        key = (spec.spec_hash(), spec.seed, spec.probe_steps, plan, draw, startup_seconds)
        if key not in self._known:
            try:
                self._known[key] = super().answer(spec, plan, draw=draw, startup_seconds=startup_seconds)
            except BadInput as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, BadInput):
            raise found
        return found


class Table:
    """A table of recorded runs.

    Args:
        path: its CSV file.
        name: what it is called in the output.

    Attributes:
        job: parameters that all its jobs share.
        axes: searched parameter to its values, in order; what a point says.
        left_out: parameter that no study may search to the values whose rows are left out.
    """

    def __init__(self, path: Path, name: str = "") -> None:
        self.path = path.resolve()
        self.name = name or path.stem
        whole = RunTable.read(path)
        rows, self.left_out = _comparable(whole)
        self.runs = Remembered(replace(whole, rows=rows))
        names = ["instance_type", "instance_count", "per_device_train_batch_size", "learning_rate"]
        names += ["gradient_accumulation_steps", *self.runs.table.others]
        values = {name: sorted({_value(row, name) for row in rows}, key=_order) for name in names}
        fixed = {name: found[0] for name, found in values.items() if len(found) == 1 and found[0] not in ("", {})}
        if fixed.get("gradient_accumulation_steps") == 1:
            del fixed["gradient_accumulation_steps"]
        self.axes = {name: tuple(found) for name, found in values.items() if len(found) > 1}
        self.job: dict[str, Any] = {
            **fixed,
            "launcher": "simulated",
            "recorded_runs": str(self.path),
            "max_runtime_minutes": MAX_RUNTIME_MINUTES,
        }
        self._prices = PriceList.read(PRICES)
        self._mean = RecordedRuns(_mean_of(self.runs.table))
        self._truths: dict[tuple[Any, ...], Truth | None] = {}
        self._specs: dict[tuple[Any, ...], JobSpec | None] = {}
        self.points = list({self._key(point): point for point in map(self._point_of, rows)}.values())
        self.truths = [found for point in self.points if (found := self.truth(point)) is not None]

    @property
    def out_of_memory_share(self) -> float:
        """Share of the points that run out of memory."""
        return 1 - len(self.truths) / len(self.points)

    @property
    def median_usd(self) -> float:
        """Dollars of the middle one of the jobs that complete."""
        return statistics.median(found.cost_usd for found in self.truths)

    def is_ordered(self, axis: str) -> bool:
        """Whether the values of an axis are numbers."""
        return not isinstance(self.axes[axis][0], str)

    def spec(self, point: Point) -> JobSpec | None:
        """The job at a point; None where the point makes none."""
        key = self._key(point)
        if key not in self._specs:
            texts = {name: spell(value) for name, value in {**self.job, **point}.items()}
            try:
                self._specs[key] = JobSpec.from_text(texts)
            except BadInput:
                self._specs[key] = None
        return self._specs[key]

    def outcome(self, point: Point, draw: int) -> Outcome:
        """How the job at a point ends; `draw` chooses among its repeats, as the simulated launcher does."""
        spec = self.spec(point)
        try:
            found = None if spec is None else self.runs.answer(spec, spec.plan(), draw=draw)
        except BadInput:
            found = None
        if spec is None or found is None:
            return Outcome(status="Impossible", cannot=True)
        usd = self.usd(spec, found.billable_seconds)
        return Outcome(status=found.status, seconds=found.billable_seconds, usd=usd, f1=found.f1, curve=found.curve)

    def truth(self, point: Point) -> Truth | None:
        """What is true of a point, between those of the table too; None where it does not run to its end."""
        key = self._key(point)
        if key not in self._truths:
            spec = self.spec(point)
            try:
                found = None if spec is None else self._mean.answer(spec, spec.plan())
            except BadInput:
                found = None
            self._truths[key] = None
            if spec is not None and found is not None and found.status == COMPLETED and found.f1 is not None:
                usd = self.usd(spec, found.billable_seconds)
                self._truths[key] = Truth(cost_usd=usd, billable_seconds=found.billable_seconds, f1=found.f1)
        return self._truths[key]

    def usd(self, spec: JobSpec, seconds: float) -> float:
        """Dollars of so many billed seconds."""
        return self._price(spec).cost_usd(seconds, spec.instance_count)

    def naive(self) -> Point:
        """One of the cheapest instance that fits, batch 16 and rate 5e-5 or what is nearest, 3 epochs."""
        wanted = {"per_device_train_batch_size": 16, "learning_rate": 5e-5, "num_train_epochs": 3.0}

        def badness(point: Point) -> tuple[float, ...]:
            spec = self.spec(point)
            assert spec is not None  # it is of the table
            off = [
                abs(point[name] / value - 1) if point[name] >= value else abs(value / point[name] - 1)
                for name, value in wanted.items()
                if name in point
            ]
            return (float(self.truth(point) is None), self._price(spec).usd_per_hour, spec.instance_count, sum(off))

        return min(self.points, key=badness)

    def _price(self, spec: JobSpec) -> Price:
        found = usual_price(spec, self._prices, PRICES)
        if found is None:
            raise SystemExit(
                f"{self.name}: the price of {spec.instance_type} is not known: give it in a CSV ({VARIABLE})"
            )
        return found

    def _point_of(self, row: RecordedRow) -> dict[str, Any]:
        return {name: _value(row, name) for name in self.axes}

    def _key(self, point: Point) -> tuple[Any, ...]:
        return tuple(sorted((name, str(value)) for name, value in point.items()))


def _value(row: RecordedRow, name: str) -> Any:
    if name in row.others:
        value = parse(name, row.others[name], annotations(JobSpec)[name]) if row.others[name] else ""
        return row.others[name] if isinstance(value, dict | bool) else value
    return getattr(row, name)


def _order(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value


def _comparable(table: RunTable) -> tuple[tuple[RecordedRow, ...], dict[str, list[str]]]:
    """Rows that differ in nothing that no study may search, such as the data set: of such values the most frequent."""
    rows, left_out = table.rows, {}
    for name in set(table.others) & set(NOT_SEARCHED):
        counts = Counter(row.others[name] for row in rows).most_common()
        rows = tuple(row for row in rows if row.others[name] == counts[0][0])
        if counts[1:]:
            left_out[name] = [value for value, _ in counts[1:]]
    return rows, left_out


def _mean_of(table: RunTable) -> RunTable:
    """The table with one row for the repeats of each point: means of seconds and F1."""
    groups: dict[tuple[Any, ...], list[RecordedRow]] = {}
    for row in table.rows:
        key = (row.instance_type, row.instance_count, row.per_device_train_batch_size, row.learning_rate)
        groups.setdefault((*key, row.gradient_accumulation_steps, *row.others.values()), []).append(row)
    return replace(table, rows=tuple(map(_mean, groups.values())))


def _mean(rows: Iterable[RecordedRow]) -> RecordedRow:
    found = list(rows)
    full = [row for row in found if row.status == OUT_OF_MEMORY]
    done = [row for row in found if row.status == COMPLETED]
    if full or not done:
        return (full or found)[0]
    return replace(
        done[0],
        seed=None,
        billable_seconds=statistics.fmean(row.billable_seconds or 0.0 for row in done),
        f1=statistics.fmean(row.f1 or 0.0 for row in done),
        curve=(),
    )
