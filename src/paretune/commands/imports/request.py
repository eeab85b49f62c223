"""The request of the command `import`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paretune.core.commands import options
from paretune.core.errors import BadInput, refuse
from paretune.core.untrusted import parse_json
from paretune.estimating.recorded.run_table import OF_ALL_ROWS, OTHERS, RunTable
from paretune.specification.job import JobSpec, parameter_help
from paretune.specification.parameters import COMPUTES, affecting

_FROM_A_ROW = {*affecting(JobSpec, *COMPUTES, "dollars")} - {"probe_steps"}  # a probe is no whole run
_MUST_KNOW = {
    "model": "distilbert-base-uncased",
    "dataset": "fancyzhx/amazon_polarity",
    "num_train_epochs": "3",
    "max_seq_length": "512",
    "precision": "fp32",
}
"""What decides seconds and F1 and is not to be guessed, each with an example: a default would be taken for a fact."""
_OWN_HELP = {
    "columns": 'JSON object from their names of columns to these: {"seconds": "billable_seconds"}',
    "dataset_size": "rows before validation rows were split off",
    "hourly_price_usd": "what an hour of one instance cost then; a cost follows from it where cost_usd is no column",
    "price_as_of": "day, month or year of that price, such as 2021-08",
}


@dataclass(frozen=True, kw_only=True)
class ImportRequest:
    """A table, and the job that each of its rows tells of.

    `typed` is what was typed beside the table: what it does not say of all its rows.
    """

    table: RunTable
    specs: tuple[JobSpec, ...]
    typed: Mapping[str, str]

    @classmethod
    def from_text(cls, texts: Mapping[str, str]) -> "ImportRequest":
        """The request from what was typed: `recorded_runs` and parameters of a job.

        Raises:
            BadInput: everything that is wrong with the table, or with a row of it as a job.
        """
        typed = {name: text for name, text in texts.items() if text.strip()}
        path = typed.pop("recorded_runs", None)
        if path is None:
            raise BadInput(["import needs a table: set recorded_runs to a CSV file"])
        columns = _columns(typed.pop("columns", "{}"))
        said = {name: typed[name].strip() for name in OF_ALL_ROWS if name in typed}
        table = RunTable.read(Path(path), columns, said)
        twice = [name for name in typed if name in table.columns]
        refuse([f"{name} is a column of {table.name} already: leave it out" for name in twice])
        of_jobs = {name: text for name, text in typed.items() if name not in OF_ALL_ROWS}
        specs, faults = list[JobSpec](), dict[str, list[int]]()
        for row in table.rows:
            own = {name: text for name, text in row.texts.items() if name in _FROM_A_ROW}
            spelled = {name: row.others[name] for name in own if name in OTHERS}
            try:
                specs.append(JobSpec.from_text(of_jobs | own | spelled))
            except BadInput as error:
                for fault in error.faults:
                    faults.setdefault(fault, []).append(row.line)
        refuse([*(_located(fault, lines, table) for fault, lines in faults.items()), *_untold(table, typed)])
        return cls(table=table, specs=tuple(specs), typed=typed)


def import_help() -> dict[str, str]:
    """Name of every parameter to one line of help."""
    lines = parameter_help()
    return {
        "recorded_runs": "CSV table of finished runs; its columns are named like the parameters below",
        **_OWN_HELP,
        **{name: lines[name] for name in lines if name in _FROM_A_ROW},
    }


def _columns(text: str) -> dict[str, str]:
    """Their names of columns to ours.

    Raises:
        BadInput: it is no JSON object of texts, or one of its names stands there twice.
    """
    example = 'columns must be a JSON object such as {"seconds": "billable_seconds"}'
    names: list[str] = []

    def noting_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names.extend(name for name, _ in pairs)
        return dict(pairs)

    try:
        found = parse_json(text, noting_names)
    except ValueError as error:
        raise BadInput([f"{example}, got {text!r}: {error}"]) from None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
        raise BadInput([f"{example}, got {text!r}"])
    twice = sorted({name for name in names if names.count(name) > 1})
    refuse([f"columns: {name} is mapped twice: leave one out" for name in twice])
    return found


def _untold(table: RunTable, typed: Mapping[str, str]) -> list[str]:
    """What must be known of every run and is said neither by the table nor by what was typed."""
    untold = [name for name in _MUST_KNOW if name not in typed and name not in table.columns]
    faults = []
    if untold:
        words = options(**{name: _MUST_KNOW[name] for name in untold})
        columns = options(columns=json.dumps({"theirs": untold[0]}))
        faults.append(
            f"{', '.join(untold)} must be known of every run, and {table.name} has no column of that name: type what "
            f"they were, such as {words}, or say which columns hold it with {columns}"
        )
    for name in _MUST_KNOW:
        empty = [row.line for row in table.rows if name in table.columns and name not in row.texts]
        if empty:
            faults.append(_at_lines(f"{name} must be known of every run, and is empty: fill it in", empty, table))
    return faults


def _located(fault: str, lines: list[int], table: RunTable) -> str:
    if len(lines) == len(table.rows):
        return fault
    return _at_lines(fault, lines, table)


def _at_lines(fault: str, lines: list[int], table: RunTable) -> str:
    shown = ", ".join(map(str, lines[:5])) + (f" and {len(lines) - 5} more" if len(lines) > 5 else "")
    return f"{table.name}: line{'s' if len(lines) > 1 else ''} {shown}: {fault}"
