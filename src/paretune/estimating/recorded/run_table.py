"""Tables of recorded runs: CSV files with one finished training job a row, read strictly.

    instance_type,instance_count,per_device_train_batch_size,learning_rate,f1   needed
    billable_seconds             of all completed runs, or no such column: simulated jobs then take what is estimated
    status                       Completed (the default), OutOfMemory or Failed
    f1_epoch_1,f1_epoch_2,...    the curve: F1 after each epoch
    train_seconds,throughput_samples_per_second,peak_memory_gib,train_rows    where they were measured
    num_steps                    optimiser steps; with num_train_epochs, train_rows follows from them
    dataset_size                 rows before validation rows were split off
    hourly_price_usd,price_as_of what an hour of one instance cost then, and the day, month or year of that price
    cost_usd                     cost of the job; if left out, it follows from seconds and price
    any parameter of a job       hyperparameters: a job is answered only from rows with the same value

If `global_batch_size` is given and `gradient_accumulation_steps` is not, the latter follows from it.
"""

import difflib
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput, did_you_mean
from paretune.pricing.prices import as_of_fault
from paretune.specification import catalog
from paretune.specification.batch_size import scale_learning_rate
from paretune.specification.job import JobSpec, value_of
from paretune.specification.parameters import COMPUTES, affecting, spell
from paretune.storage.tables import read_table

COMPLETED, OUT_OF_MEMORY, FAILED = STATUSES = ("Completed", "OutOfMemory", "Failed")
OF_ALL_ROWS = ("dataset_size", "hourly_price_usd", "price_as_of")
"""Columns beside the parameters of a job that may be given once for all rows."""
MEASURED = ("train_seconds", "throughput_samples_per_second", "peak_memory_gib", "train_rows")
CLUSTER = ("instance_type", "instance_count", "per_device_train_batch_size", "learning_rate")
NEEDED = (*CLUSTER, "f1")
_EPOCH = re.compile(r"f1_epoch_([1-9]\d*)")
_BATCH = {*affecting(JobSpec, "batch")} - {*CLUSTER}
OTHERS = {*affecting(JobSpec, *COMPUTES, without=("batch", "cluster", "noise"))} - {"probe_steps"}
"""Parameters of a job that are further hyperparameters if a table has columns for them."""
_MOST_FAULTS = 20  # that are listed; the rest is counted


@dataclass(frozen=True, kw_only=True)
class RecordedRow:
    """One run of a table."""

    line: int  # its line in the file, from 1
    instance_type: str
    instance_count: int
    per_device_train_batch_size: int
    learning_rate: float  # the rate that was used, scaled to the global batch size
    gradient_accumulation_steps: int
    global_batch_size: int
    others: Mapping[str, str]  # further hyperparameters of the table, as they would be typed
    seed: int | None
    status: str
    billable_seconds: float | None  # seconds billed per instance; None if the run did not complete or has none
    f1: float | None  # None unless the status is Completed
    curve: tuple[float, ...] = ()  # F1 after each epoch; may be empty
    measured: Mapping[str, float] = field(default_factory=dict)  # the metrics of MEASURED that the row has
    dataset_size: int | None = None  # rows before validation rows were split off
    hourly_price_usd: float | None = None
    """Of one instance; `price_as_of` is the year, month or day of that price, may be empty."""
    price_as_of: str = ""
    cost_usd: float | None = None  # dollars of the job, if the table has them
    texts: Mapping[str, str] = field(default_factory=dict)  # the cells of the row; empty ones left out

    def digest(self) -> str:
        """Return sixteen hexadecimal digits that are equal for rows with equal cells, in any order of columns."""
        return hashlib.sha256(repr(sorted(self.texts.items())).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """A table of recorded runs, at least one."""

    name: str  # the file's name, without its folder
    rows: tuple[RecordedRow, ...]
    columns: tuple[str, ...]  # their names here
    others: tuple[str, ...]  # the further hyperparameters it has columns for
    ignored: tuple[str, ...]  # columns without a meaning here

    @classmethod
    def read(
        cls, path: Path, columns: Mapping[str, str] | None = None, common_texts: Mapping[str, str] | None = None
    ) -> "RunTable":
        """Read the table in a CSV file.

        `columns` maps names of columns in the file to names here; `common_texts` has values of
        OF_ALL_ROWS for every row.

        Raises:
            BadInput: everything that is wrong with it, with line numbers.
        """
        header, lines = read_table(path, must="simulation.runs must be a readable CSV file, and ")
        faults = _column_faults(header, columns or {})
        header = [(columns or {}).get(name, name) for name in header]
        faults = faults or _header_faults(header)
        if not faults and not lines:
            faults = ["it holds no run: below the header line, each line is one"]
        readers = [] if faults else [_LineReader(number, header, cells, common_texts or {}) for number, cells in lines]
        rows = [reader_of_line.row() for reader_of_line in readers]
        faults += [fault for reader_of_line in readers for fault in reader_of_line.faults]
        if faults:
            listed_faults = [f"{path.name}: {fault}" for fault in faults[:_MOST_FAULTS]]
            more = len(faults) - len(listed_faults)
            raise BadInput(listed_faults + ([f"{path.name}: and {more} more"] if more else []))
        names = {*_COLUMNS, *_BATCH, *OTHERS}
        return cls(
            name=path.name,
            rows=tuple(row for row in rows if row is not None),
            columns=tuple(header),
            others=tuple(name for name in header if name in OTHERS),
            ignored=tuple(name for name in header if name not in names and not _EPOCH.fullmatch(name)),
        )


def _column_faults(header: list[str], columns: Mapping[str, str]) -> list[str]:
    """Return the faults of the names that the columns of a file are given."""
    faults = []
    names = {*_COLUMNS, *JobSpec.model_fields}
    for file_name, name in columns.items():
        if file_name not in header:
            hint = did_you_mean(file_name, header) or f"it has {', '.join(header)}"
            faults.append(f"columns: there is no column {file_name}: {hint}")
        if name not in names and not _EPOCH.fullmatch(name):
            hint = did_you_mean(name, names, or_longer=True) or "`paretune import --help` lists all names"
            faults.append(f"columns: {name} is no name of a column here: {hint}")
    columns_of: dict[str, list[str]] = {}
    for column in dict.fromkeys(header):
        columns_of.setdefault(columns.get(column, column), []).append(column)
    for name, file_names in columns_of.items():
        if len(file_names) > 1:
            faults.append(f"columns: {name} must be one column, got {' and '.join(file_names)}: leave one out")
    return faults


def _header_faults(header: list[str]) -> list[str]:
    faults = [f"column {name} is there twice" for name in sorted({name for name in header if header.count(name) > 1})]
    for name in (*NEEDED, "billable_seconds"):
        if name not in header:
            near = difflib.get_close_matches(name, set(header) - {*_COLUMNS}, n=1)
            if name not in NEEDED and not near:
                continue
            hint = f"did you mean it by {near[0]}?" if near else f"it has {', '.join(header) or 'no header line'}"
            faults.append(f"column {name} is missing: {hint}")
    return faults


class _LineReader:
    """Reads one line as a row and collects its faults."""

    def __init__(self, line: int, header: list[str], cells: Sequence[str], common_texts: Mapping[str, str]) -> None:
        self.faults: list[str] = []
        self._line = line
        self._header = header
        if len(cells) != len(header):
            self._fault(f"has {len(cells)} cells, the header line {len(header)}")
        # An empty cell has no value.
        self._own = {name: cell for name, cell in zip(header, cells, strict=False) if cell}
        self._texts = {**common_texts, **self._own}

    def row(self) -> RecordedRow | None:
        status = self._texts.get("status", COMPLETED)
        if status not in STATUSES:
            self._fault(f"status must be one of {', '.join(STATUSES)}, got {status!r}")
        completed = status == COMPLETED
        values = {name: self._parameter(name) for name in CLUSTER}
        for name in CLUSTER:
            if name not in self._texts:
                self._fault(f"{name} is empty")
        seconds = self._number(
            "billable_seconds", needed=completed and "billable_seconds" in self._header, above_zero=True
        )
        f1 = self._number("f1", needed=completed, highest=1.0)
        curve = tuple(self._curve())
        measured = {name: value for name in MEASURED if (value := self._number(name, above_zero=True)) is not None}
        price, cost = self._number("hourly_price_usd", above_zero=True), self._number("cost_usd")
        size, as_of = self._number("dataset_size", above_zero=True), self._texts.get("price_as_of", "")
        if size is not None and not size.is_integer():
            self._fault(f"dataset_size must be a whole number, got {self._texts['dataset_size']!r}")
        for fault in as_of_fault("price_as_of", as_of):
            self._fault(fault)
        others = {name: spell(self._parameter(name)) for name in self._header if name in OTHERS}
        seed = self._parameter("seed") if "seed" in self._texts else None
        if self.faults:
            return None
        batch = self._batch(values, others)
        steps = self._number("num_steps", above_zero=True)
        if self.faults:
            return None
        if steps is not None and "num_train_epochs" in others:
            rows = steps * batch["global_batch_size"] / float(others["num_train_epochs"])
            measured.setdefault("train_rows", float(round(rows)))
        return RecordedRow(
            line=self._line,
            **(values | batch),
            others=others,
            seed=seed,
            status=status,
            billable_seconds=seconds,
            f1=f1 if completed else None,
            curve=curve if completed else (),
            measured=measured,
            dataset_size=None if size is None else int(size),
            hourly_price_usd=price,
            price_as_of=as_of,
            cost_usd=cost,
            texts=self._own,
        )

    def _batch(self, values: Mapping[str, Any], others: Mapping[str, str]) -> dict[str, Any]:
        is_local = values["instance_type"] == "local"
        try:
            accelerators = 1 if is_local else catalog.instance(values["instance_type"]).accelerator_count
        except BadInput as error:
            self._fault(error.faults[0])
            return {}
        processes = 1 if is_local else int(others.get("processes_per_instance") or max(1, accelerators))
        shared = int(others.get("tensor_parallel_degree") or 1)
        rows = values["per_device_train_batch_size"] * max(1, processes * values["instance_count"] // shared)
        total, accumulation = self._parameter("global_batch_size"), self._parameter("gradient_accumulation_steps")
        if total is not None and (total % rows or accumulation not in (None, total // rows)):
            rule = "per-device batch x devices x gradient_accumulation_steps"
            self._fault(f"global_batch_size {total} must be {rule}, {rows} x {accumulation or 'a whole number'}")
            return {}
        accumulation = accumulation or (total // rows if total is not None else 1)
        scaling, reference = self._parameter("learning_rate_scaling"), self._parameter("reference_batch_size")
        return {
            "gradient_accumulation_steps": accumulation,
            "global_batch_size": rows * accumulation,
            "learning_rate": scale_learning_rate(values["learning_rate"], scaling, rows * accumulation, reference),
        }

    def _parameter(self, name: str) -> Any:
        text = self._texts.get(name)
        if text is None:
            return JobSpec.model_fields[name].default
        if name == "strategy" and text == "none":  # AWS's word for a job without a library for it
            return "ddp"
        try:
            return value_of(name, text)
        except BadInput as error:
            for fault in error.faults:
                self._fault(fault)
            return None

    def _number(
        self, name: str, *, needed: bool = False, above_zero: bool = False, highest: float = math.inf
    ) -> float | None:
        text = self._texts.get(name)
        if text is None:
            if needed:
                self._fault(f"{name} is empty, and the run has completed")
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value) and (value > 0 if above_zero else value >= 0) and value <= highest:
            return value
        allowed = "greater than 0" if above_zero else f"from 0 to {highest:g}"
        self._fault(f"{name} must be a number {allowed}, got {text!r}")
        return None

    def _curve(self) -> Iterator[float]:
        numbers = sorted(int(match[1]) for name in self._header if (match := _EPOCH.fullmatch(name)))
        last = max((number for number in numbers if f"f1_epoch_{number}" in self._texts), default=0)
        for number in range(1, last + 1):
            value = self._number(f"f1_epoch_{number}", highest=1.0)
            if f"f1_epoch_{number}" not in self._texts:
                self._fault(f"f1_epoch_{number} is empty, but f1_epoch_{last} is not")
            if value is not None:
                yield value

    def _fault(self, text: str) -> None:
        self.faults.append(f"line {self._line}: {text}")


_COLUMNS = {*NEEDED, "billable_seconds", "status", "seed", "num_steps", *MEASURED, *OF_ALL_ROWS, "cost_usd"}
"""Columns beside the parameters of a job."""
