"""The command `import`: a table of finished runs, brought into MLflow."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paretune.commands.command import Command, imported_later
from paretune.core.commands import options
from paretune.core.errors import BadInput, refuse
from paretune.estimating.recorded.run_table import OF_ALL_ROWS, RunTable
from paretune.specification.job import JobSpec
from paretune.specification.parameters import COMPUTES, Parameters, affecting, parameter

_FROM_A_ROW = {*affecting(JobSpec, *COMPUTES, "dollars")} - {"probe_steps"}  # a probe is no whole run
_REQUIRED = {
    "model": "distilbert-base-uncased",
    "dataset": "fancyzhx/amazon_polarity",
    "num_train_epochs": "3",
    "max_seq_length": "512",
    "precision": "fp32",
}
"""Parameters that decide seconds and F1, with an example: a default must not be taken for a fact."""


class ImportOptions(Parameters):
    """The options of the command; others are parameters of a job."""

    recorded_runs: str | None = parameter(None, "CSV table of finished runs; its columns are named like parameters")
    columns: dict[str, str] = parameter(
        {}, "names of columns in the file to these", example={"seconds": "billable_seconds"}
    )
    dataset_size: int | None = parameter(None, "rows before validation rows were split off", ge=1)
    hourly_price_usd: float | None = parameter(
        None, "price of an hour of one instance then; without a column cost_usd, the cost follows from it", gt=0
    )
    price_as_of: str | None = parameter(None, "day, month or year of that price, such as 2021-08")


@dataclass(frozen=True, kw_only=True)
class ImportRequest:
    """A table, and the job of each of its rows; `typed` has the parameters typed for all rows."""

    table: RunTable
    specs: tuple[JobSpec, ...]
    typed: Mapping[str, str]

    @classmethod
    def from_text(cls, texts: Mapping[str, str]) -> "ImportRequest":
        """Read the typed texts, `recorded_runs` and parameters of a job; raises BadInput with all faults."""
        typed = {name: text for name, text in texts.items() if text.strip()}
        known = {name: typed.pop(name) for name in ("recorded_runs", "columns") if name in typed}
        own = ImportOptions.read(known)
        if own.recorded_runs is None:
            raise BadInput(["import needs a table: set recorded_runs to a CSV file"])
        of_all = {name: typed[name] for name in OF_ALL_ROWS if name in typed}
        table = RunTable.read(Path(own.recorded_runs), own.columns, of_all)
        doubled = [name for name in typed if name in table.columns]
        refuse([f"{name} is a column of {table.name} already: leave it out" for name in doubled])
        of_jobs = {name: text for name, text in typed.items() if name not in OF_ALL_ROWS}
        specs, faults = list[JobSpec](), dict[str, list[int]]()
        for row in table.rows:
            own = {name: row.others.get(name, text) for name, text in row.texts.items() if name in _FROM_A_ROW}
            try:
                specs.append(JobSpec.read(of_jobs | own))
            except BadInput as error:
                for fault in error.faults:
                    faults.setdefault(fault, []).append(row.line)
        located = [_located(fault, lines, table) for fault, lines in faults.items()]
        if "billable_seconds" not in table.columns:
            located.insert(0, f"{table.name}: column billable_seconds is missing")
        missing = [name for name in _REQUIRED if name not in typed and name not in table.columns]
        if missing:
            words = options(**{name: _REQUIRED[name] for name in missing})
            naming = options(columns=json.dumps({"theirs": missing[0]}))
            located.append(
                f"{', '.join(missing)} must be known of every run, and {table.name} has no column of that name: type "
                f"what they were, such as {words}, or say which columns hold it with {naming}"
            )
        for name in _REQUIRED:
            empty = [row.line for row in table.rows if name in table.columns and name not in row.texts]
            text = f"{name} must be known of every run, and is empty: fill it in"
            located += [_located(text, empty, table, is_always=True)] if empty else []
        refuse(located)
        return cls(table=table, specs=tuple(specs), typed=typed)


def _located(fault: str, lines: Sequence[int], table: RunTable, *, is_always: bool = False) -> str:
    """The fault with its lines, unless all lines have it."""
    if len(lines) == len(table.rows) and not is_always:
        return fault
    numbers = ", ".join(map(str, lines[:5])) + (f" and {len(lines) - 5} more" if len(lines) > 5 else "")
    return f"{table.name}: line{'s' * (len(lines) > 1)} {numbers}: {fault}"


COMMAND = Command(
    read=ImportRequest.from_text,
    run=imported_later("paretune.commands.imports.importing:run_import"),
    options=ImportOptions,
    takes_jobs=True,
    excluded=tuple(name for name in JobSpec.model_fields if name not in _FROM_A_ROW),
)
