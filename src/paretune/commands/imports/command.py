"""The command `import`: a table of finished runs, brought into MLflow."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paretune.commands.command import Command, imported_later
from paretune.core.commands import options
from paretune.core.errors import BadInput, refuse
from paretune.core.untrusted import parse_json
from paretune.estimating.recorded.run_table import OF_ALL_ROWS, OTHERS, RunTable
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
        path = typed.pop("recorded_runs", None)
        if path is None:
            raise BadInput(["import needs a table: set recorded_runs to a CSV file"])
        columns = _columns(typed.pop("columns", "{}"))
        common_texts = {name: typed[name].strip() for name in OF_ALL_ROWS if name in typed}
        table = RunTable.read(Path(path), columns, common_texts)
        doubled = [name for name in typed if name in table.columns]
        refuse([f"{name} is a column of {table.name} already: leave it out" for name in doubled])
        of_jobs = {name: text for name, text in typed.items() if name not in OF_ALL_ROWS}
        specs, faults = list[JobSpec](), dict[str, list[int]]()
        for row in table.rows:
            row_texts = {name: text for name, text in row.texts.items() if name in _FROM_A_ROW}
            spelled = {name: row.others[name] for name in row_texts if name in OTHERS}
            try:
                specs.append(JobSpec.read(of_jobs | row_texts | spelled))
            except BadInput as error:
                for fault in error.faults:
                    faults.setdefault(fault, []).append(row.line)
        untimed = [] if "billable_seconds" in table.columns else [f"{table.name}: column billable_seconds is missing"]
        located = [_located(fault, lines, table) for fault, lines in faults.items()]
        refuse([*untimed, *located, *_missing_faults(table, typed)])
        return cls(table=table, specs=tuple(specs), typed=typed)


def _columns(text: str) -> dict[str, str]:
    """Return names of columns in the file to names here; raises BadInput if that is no JSON object of texts."""
    example = 'columns must be a JSON object such as {"seconds": "billable_seconds"}'
    names: list[str] = []

    def noting_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names.extend(name for name, _ in pairs)
        return dict(pairs)

    try:
        columns = parse_json(text, noting_names)
    except ValueError as error:
        raise BadInput([f"{example}, got {text!r}: {error}"]) from None
    if not isinstance(columns, dict) or not all(isinstance(name, str) for name in columns.values()):
        raise BadInput([f"{example}, got {text!r}"])
    doubled = sorted({name for name in names if names.count(name) > 1})
    refuse([f"columns: {name} is mapped twice: leave one out" for name in doubled])
    return columns


def _missing_faults(table: RunTable, typed: Mapping[str, str]) -> list[str]:
    """Return faults for required parameters that neither the table nor the typed texts have."""
    missing = [name for name in _REQUIRED if name not in typed and name not in table.columns]
    faults = []
    if missing:
        words = options(**{name: _REQUIRED[name] for name in missing})
        columns = options(columns=json.dumps({"theirs": missing[0]}))
        faults.append(
            f"{', '.join(missing)} must be known of every run, and {table.name} has no column of that name: type what "
            f"they were, such as {words}, or say which columns hold it with {columns}"
        )
    for name in _REQUIRED:
        empty = [row.line for row in table.rows if name in table.columns and name not in row.texts]
        if empty:
            faults.append(_at_lines(f"{name} must be known of every run, and is empty: fill it in", empty, table))
    return faults


def _located(fault: str, lines: list[int], table: RunTable) -> str:
    if len(lines) == len(table.rows):
        return fault
    return _at_lines(fault, lines, table)


def _at_lines(fault: str, lines: list[int], table: RunTable) -> str:
    numbers = ", ".join(map(str, lines[:5])) + (f" and {len(lines) - 5} more" if len(lines) > 5 else "")
    return f"{table.name}: line{'s' if len(lines) > 1 else ''} {numbers}: {fault}"


COMMAND = Command(
    read=ImportRequest.from_text,
    run=imported_later("paretune.commands.imports.importing:run_import"),
    options=ImportOptions,
    takes_jobs=True,
    excluded=tuple(name for name in JobSpec.model_fields if name not in _FROM_A_ROW),
)
