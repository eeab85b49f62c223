"""The command `import`: a table of finished runs, brought into MLflow."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paretune.commands.command import Command, imported_later
from paretune.core.commands import options
from paretune.core.errors import BadInput, refuse
from paretune.estimating.recorded_runs import OF_A_ROW, RunTable, located
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Parameters, parameter

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
    """A table; `typed` has the parameters typed for all rows."""

    table: RunTable
    typed: Mapping[str, str]

    @classmethod
    def from_text(cls, texts: Mapping[str, str]) -> "ImportRequest":
        """Read the typed texts, `recorded_runs` and parameters of a job; raises BadInput with all faults."""
        typed = {name: text for name, text in texts.items() if text.strip()}
        of_import: dict[str, str] = {name: typed.pop(name) for name in ("recorded_runs", "columns") if name in typed}
        own = ImportOptions.read(of_import)
        if own.recorded_runs is None:
            raise BadInput(["import needs a table: set recorded_runs to a CSV file"])
        table = RunTable.read(Path(own.recorded_runs), own.columns, typed)
        faults = [
            f"{name} is a column of {table.name} already: leave it out" for name in typed if name in table.columns
        ]
        if "billable_seconds" not in table.columns:
            faults.append(f"{table.name}: column billable_seconds is missing")
        missing = [name for name in _REQUIRED if name not in typed and name not in table.columns]
        if missing:
            words = options(**{name: _REQUIRED[name] for name in missing})
            naming = options(columns=json.dumps({"theirs": missing[0]}))
            faults.append(
                f"{', '.join(missing)} must be known of every run, and {table.name} has no column of that name: type "
                f"what they were, such as {words}, or say which columns hold it with {naming}"
            )
        for name in _REQUIRED:
            empty = [row.line for row in table.rows if name in table.columns and name not in row.texts]
            text = f"{name} must be known of every run, and is empty: fill it in"
            faults += [f"{table.name}: {located(text, empty)}"] if empty else []
        refuse(faults)
        return cls(table=table, typed=typed)


COMMAND = Command(
    read=ImportRequest.from_text,
    run=imported_later("paretune.commands.imports.importing:run_import"),
    options=ImportOptions,
    takes_jobs=True,
    excluded=tuple(name for name in JobSpec.model_fields if name not in OF_A_ROW),
)
