"""Replays a user's own training from a CSV table with one finished run per row.

    instance_type,billable_seconds   required
    instance_count                   compared only if the table has this column
    status                           Completed (the default), OutOfMemory or Failed
    settings of the job              script arguments, learning_rate, ...; where the job gives a value, only
                                     rows with the same value are used
    seed                             optional; rows with the job's seed are preferred
    every other numeric column       a metric that the runs measured, such as acc; columns without a name are ignored

Rows with the same settings are repeats, for example with different seeds. Nothing is interpolated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput
from paretune.core.reading import read_table
from paretune.core.result import value_of
from paretune.launchers.simulated.recorded_runs import COMPLETED, STATUSES, ReplayedJob
from paretune.specification.declaration import spell
from paretune.specification.job import JobSpec, share_of

_NEEDED = ("instance_type", "billable_seconds")
_OF_A_RUN = {*_NEEDED, "status", "seed"}


@dataclass(frozen=True)
class UserRuns:
    """The rows of a table, at least one."""

    name: str  # the file's name, without its folder
    rows: tuple[tuple[int, Mapping[str, Any]], ...]  # line number, and the cells by column; numbers are floats

    @classmethod
    def read(cls, path: Path) -> "UserRuns":
        """Read a table. Raises BadInput, which names the missing or repeated columns, or a bad line."""
        header, lines = read_table(path, must="simulation.runs must be a readable CSV file, but ")
        if absent := [name for name in _NEEDED if name not in header]:
            raise BadInput([f"{path.name}: column {name} is missing" for name in absent])
        if twice := sorted({name for name in header if name and header.count(name) > 1}):
            raise BadInput([f"{path.name}: column {name} occurs twice: remove one" for name in twice])
        for line, cells in lines:
            if len(cells) != len(header):
                raise BadInput([f"{path.name}: line {line}: has {len(cells)} cells, the header line {len(header)}"])
        rows = tuple((line, dict(zip(header, map(_value, cells), strict=True))) for line, cells in lines)
        wrong = [line for line, row in rows if not (isinstance(s := row["billable_seconds"], float) and s > 0)]
        if not rows:
            raise BadInput([f"{path.name} has no rows below the header"])
        for line, row in rows:
            if (row.get("status") or COMPLETED) not in STATUSES:
                allowed = ", ".join(STATUSES)
                raise BadInput([f"{path.name}: line {line}: status must be one of {allowed}, got {row['status']!r}"])
        if wrong:
            raise BadInput([f"{path.name}: line {wrong[0]}: billable_seconds must be a number above 0"])
        return cls(path.name, rows)

    def answer(self, spec: JobSpec, *, draw: int = 0, startup_seconds: float = 0.0) -> ReplayedJob:
        """Return how the job ends. Raises BadInput if no row has its settings.

        Among several such rows, those with the job's seed are preferred. `draw` and the seed select one of them.
        """
        # Launcher and seed are not compared: the recorded runs may have used different ones.
        settings = {name: value for name, value in spec.given().items() if name not in ("launcher", "seed")}
        settings |= {"instance_type": spec.instance_type, **spec.training_arguments}
        given = {name: _value(spell(value)) for name, value in ({"instance_count": 1} | settings).items()}
        asked = {name: value for name, value in given.items() if name in self.rows[0][1]}
        alike = [row for row in self.rows if all(row[1][name] == value for name, value in asked.items())]
        if not alike:
            raise BadInput([f"simulation.runs {self.name} has no run with {_words(asked)}"])
        own = [row for row in alike if row[1].get("seed") == spec.seed] or alike
        first = int(share_of(f"{draw} {_words(asked)}") * len(own))
        line, row = own[(first + spec.seed) % len(own)]  # consecutive seeds select different rows
        measured = {
            n: v
            for n, v in row.items()
            if n and isinstance(v, float) and n not in {*given, *_OF_A_RUN, *JobSpec.model_fields}
        }
        status, seconds = str(row.get("status") or COMPLETED), row["billable_seconds"]
        return ReplayedJob(
            billable_seconds=seconds,
            status=status,
            basis=f"the recorded run in line {line}" + f" (one of {len(alike)} repeats)" * (len(alike) > 1),
            startup_seconds=min(startup_seconds, seconds / 2),
            measured=measured if status == COMPLETED else {},
        )


def _value(text: str) -> Any:
    value = value_of(text)
    return float(value) if type(value) is int else value


def _words(settings: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in settings.items()
    )
