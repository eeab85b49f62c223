"""Tables of recorded runs: CSV files with one finished training job a row, read strictly.

    instance_type,instance_count,per_device_train_batch_size,learning_rate,f1   needed
    billable_seconds             of all completed runs, or no such column: simulated jobs then take what is estimated
    status                       Completed (the default), OutOfMemory or Failed
    train_seconds,throughput_samples_per_second,peak_memory_gib,train_rows    where they were measured
    num_steps                    optimiser steps; with num_train_epochs, train_rows follows from them
    dataset_size                 rows before validation rows were split off
    hourly_price_usd,price_as_of what an hour of one instance cost then, and the day, month or year of that price
    cost_usd                     cost of the job; if left out, it follows from seconds and price
    any parameter of a job       hyperparameters: a job is answered only from rows with the same value

If `global_batch_size` is given and `gradient_accumulation_steps` is not, the latter follows from it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from paretune.core.errors import BadInput, collecting, did_you_mean, refuse
from paretune.pricing.prices import as_of_fault
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec
from paretune.specification.parameters import COMPUTES, Parameters, affecting, parameter, spell
from paretune.storage.tables import read_table

COMPLETED, OUT_OF_MEMORY, FAILED = "Completed", "OutOfMemory", "Failed"
MEASURED = ("train_seconds", "throughput_samples_per_second", "peak_memory_gib", "train_rows")
CLUSTER = ("instance_type", "instance_count", "per_device_train_batch_size", "learning_rate")
NEEDED = (*CLUSTER, "f1")
_BATCH = {*affecting(JobSpec, "batch"), *CLUSTER}
OTHERS = {*affecting(JobSpec, *COMPUTES, without=("batch", "cluster", "noise"))} - {"probe_steps"}
"""Parameters of a job that are further hyperparameters if a table has columns for them."""
OF_A_ROW = {*affecting(JobSpec, *COMPUTES, "dollars")} - {"probe_steps"}  # a probe is no whole run
_MOST_FAULTS = 20  # that are listed; the rest is counted


class _Cells(Parameters):
    """What a row may have beside the parameters of a job."""

    status: Literal["Completed", "OutOfMemory", "Failed"] = parameter(COMPLETED, "how the run ended")
    billable_seconds: float | None = parameter(None, "seconds billed per instance", gt=0)
    f1: float | None = parameter(None, "macro F1", ge=0, le=1)
    train_seconds: float | None = parameter(None, "seconds of the training loop", gt=0)
    throughput_samples_per_second: float | None = parameter(None, "training samples per second", gt=0)
    peak_memory_gib: float | None = parameter(None, "peak memory of a device, GiB", gt=0)
    train_rows: float | None = parameter(None, "training rows", gt=0)
    num_steps: float | None = parameter(None, "optimiser steps", gt=0)
    dataset_size: int | None = parameter(None, "rows before validation rows were split off", gt=0)
    hourly_price_usd: float | None = parameter(None, "price of an hour of one instance", gt=0)
    price_as_of: str = parameter("", "day, month or year of that price")
    cost_usd: float | None = parameter(None, "dollars of the job", ge=0)


_COLUMNS = {*_Cells.model_fields, *CLUSTER, "seed"}
"""Columns that mean something in every table."""


@dataclass(frozen=True, kw_only=True)
class RecordedRow:
    """One run of a table."""

    line: int  # its line in the file, from 1
    spec: JobSpec  # the job, with what the table does not tell at its default
    plan: BatchPlan  # its batch, and the learning rate that was used
    others: Mapping[str, str]  # further hyperparameters of the table, as they would be typed
    seed: int | None
    status: str
    billable_seconds: float | None  # seconds billed per instance; None if the run did not complete or has none
    f1: float | None  # None unless the status is Completed
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

        `columns` maps names of columns in the file to names here; `common_texts` has values for every row.

        Raises:
            BadInput: everything that is wrong with it, with line numbers.
        """
        own_names, lines = read_table(path, must="simulation.runs must be a readable CSV file, and ")
        faults = _header_faults(own_names, columns or {})
        header = [(columns or {}).get(name, name) for name in own_names]
        if not faults and not lines:
            faults = ["it holds no run: below the header line, each line is one"]
        rows, found = list[RecordedRow](), dict[str, list[int]]()
        for line, cells in [] if faults else lines:
            try:
                rows.append(_row(line, header, cells, common_texts or {}))
            except BadInput as error:
                for fault in error.faults:
                    found.setdefault(fault, []).append(line)
        faults += [located(fault, numbers) for fault, numbers in found.items()]
        more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        refuse([f"{path.name}: {fault}" for fault in faults[:_MOST_FAULTS] + more])
        names = {*_COLUMNS, *_BATCH, *OTHERS}
        return cls(
            name=path.name,
            rows=tuple(rows),
            columns=tuple(header),
            others=tuple(name for name in header if name in OTHERS),
            ignored=tuple(name for name in header if name not in names),
        )


def located(fault: str, lines: Sequence[int]) -> str:
    """The fault with the lines that have it."""
    numbers = ", ".join(map(str, lines[:5])) + (f" and {len(lines) - 5} more" if len(lines) > 5 else "")
    return f"line{'s' * (len(lines) > 1)} {numbers}: {fault}"


def _header_faults(own_names: Sequence[str], columns: Mapping[str, str]) -> list[str]:
    """Return the faults of the header line of a file, and of the names that its columns are given."""
    known, held = {*_COLUMNS, *JobSpec.model_fields}, f"it has {', '.join(own_names) or 'no header line'}"
    absent = {name: did_you_mean(name, own_names) or held for name in columns if name not in own_names}
    faults = [f"columns: there is no column {name}: {hint}" for name, hint in absent.items()]
    for name in columns.values():
        if name not in known:
            hint = did_you_mean(name, known, or_longer=True) or "`paretune import --help` lists all names"
            faults.append(f"columns: {name} is no name of a column here: {hint}")
    header = [columns.get(name, name) for name in own_names]
    faults += [f"column {name} is there twice: leave one out" for name in sorted(set(header)) if header.count(name) > 1]
    for name in (*NEEDED, "billable_seconds"):
        hint = did_you_mean(name, set(header) - _COLUMNS, most=1)
        if name not in header and (hint or name in NEEDED):
            faults.append(f"column {name} is missing: {hint or held}")
    return faults


def _row(line: int, header: Sequence[str], cells: Sequence[str], common_texts: Mapping[str, str]) -> RecordedRow:
    """Return the row of a line; an empty cell has no value. Raises BadInput with all its faults."""
    own = {name: cell for name, cell in zip(header, cells, strict=False) if cell}
    texts, faults = {**common_texts, **own}, list[str]()
    parameters = {*common_texts, *OF_A_ROW, "seed"} - {*_Cells.model_fields}
    if texts.get("strategy") == "none":  # AWS's word for a job without a library for it
        texts["strategy"] = "ddp"
    values, spec = _Cells(), JobSpec()
    with collecting(faults):
        values = _Cells.read({name: text for name, text in texts.items() if name in _Cells.model_fields})
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
    plan = spec.plan()
    others = {name: spell(getattr(spec, name)) for name in header if name in OTHERS}
    measured: dict[str, Any] = {name: value for name in MEASURED if (value := getattr(values, name)) is not None}
    if values.num_steps is not None and "num_train_epochs" in others:
        measured.setdefault(
            "train_rows", float(round(values.num_steps * plan.global_batch_size / spec.num_train_epochs))
        )
    return RecordedRow(
        line=line,
        spec=spec,
        plan=plan,
        others=others,
        seed=spec.seed if "seed" in own else None,
        status=values.status,
        billable_seconds=values.billable_seconds,
        f1=values.f1 if has_completed else None,
        measured=measured,
        dataset_size=values.dataset_size,
        hourly_price_usd=values.hourly_price_usd,
        price_as_of=values.price_as_of,
        cost_usd=values.cost_usd,
        texts=own,
    )
