"""What the command `import` is asked for: a table of recorded runs, each row of it a whole specification."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paretune.core.errors import BadInput, refuse
from paretune.estimating.recorded.run_table import OTHERS, RunTable
from paretune.spec.job import JobSpec, parameter_help
from paretune.spec.parameters import COMPUTES, affecting

_FROM_A_ROW = {*affecting(JobSpec, *COMPUTES, "bill")} - {"probe_steps"}  # a probe is no whole run


@dataclass(frozen=True, kw_only=True)
class ImportRequest:
    """A table, and the job that each of its rows tells of.

    `typed` are the job parameters that were typed: what the table does not say of all its rows.
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
        table = RunTable.read(Path(path))
        twice = [name for name in typed if name in table.columns]
        refuse([f"{name} is a column of {table.name} already: leave it out" for name in twice])
        specs, faults = [], dict[str, list[int]]()
        for row in table.rows:
            own = {name: text for name, text in row.texts.items() if name in _FROM_A_ROW}
            spelled = {name: row.others[name] for name in own if name in OTHERS}
            try:
                specs.append(JobSpec.from_text(typed | own | spelled))
            except BadInput as error:
                for fault in error.faults:
                    faults.setdefault(fault, []).append(row.line)
        refuse([_located(fault, lines, table) for fault, lines in faults.items()])
        return cls(table=table, specs=tuple(specs), typed=typed)


def import_help() -> dict[str, str]:
    """Name of every parameter to one line of help."""
    lines = parameter_help()
    return {
        "recorded_runs": "CSV table of finished runs; its columns are named like the parameters below",
        **{name: lines[name] for name in lines if name in _FROM_A_ROW},
    }


def _located(fault: str, lines: list[int], table: RunTable) -> str:
    if len(lines) == len(table.rows):
        return fault
    shown = ", ".join(map(str, lines[:5])) + (f" and {len(lines) - 5} more" if len(lines) > 5 else "")
    return f"{table.name}: line{'s' if len(lines) > 1 else ''} {shown}: {fault}"
