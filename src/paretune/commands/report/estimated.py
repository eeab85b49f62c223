"""Jobs of `estimate`, which have not run, as a report compares them: beside those that have, in tables of their own."""

import csv
import io
from collections.abc import Callable, Iterable

from paretune.commands.report.factors import DEFAULTS
from paretune.specification import metrics
from paretune.tracking import RecordedJob, RecordedRun, schema

ORIGIN = "estimated"
TABLE = "estimate.csv"
_METRICS = {
    "seconds": metrics.BILLABLE_SECONDS,
    "cost_usd": metrics.COST_USD,
    "memory_gib_per_device": metrics.PEAK_MEMORY_GIB,
}
_OF_A_JOB = {*DEFAULTS, "global_batch_size"}


def estimated_jobs(runs: Iterable[RecordedRun], table_of: Callable[[str], str | None]) -> list[RecordedJob]:
    """The rows of the tables of estimates as completed jobs; those that do not fit into memory are left out.

    So are trainings of a user's own, which model and data do not tell apart.

    A job that was estimated several times is there once, as in the first of `runs`: estimates are no repeats.
    `table_of` gives the text of a run's TABLE by the run's id. Of what neither the table nor the command's own
    parameters tell, a job has the default.
    """
    found: dict[frozenset[tuple[str, str]], RecordedJob] = {}
    for run in runs:
        for row in csv.DictReader(io.StringIO(table_of(run.run_id) or "")):
            if row.get("fits") == "no" or row.get("project") or row.get("entry_script"):
                continue
            told = {**run.params, **{name: text for name, text in row.items() if text}}
            params = {name: text for name, text in told.items() if name in _OF_A_JOB}
            numbers = {own: float(row[name]) for name, own in _METRICS.items() if row[name]}
            tags = {schema.ORIGIN: ORIGIN, schema.STATE: "Completed"}
            job = RecordedJob(RecordedRun(run.run_id, params, tags, numbers, run.started))
            found.setdefault(frozenset(params.items()), job)
    return list(found.values())
