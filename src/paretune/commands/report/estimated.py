"""Jobs of `estimate`, which have not run, as a report compares them: in tables of their own."""

import csv
import io
from collections.abc import Callable, Iterable

from paretune.commands.report.factors import DEFAULTS
from paretune.specification import metrics
from paretune.tracking import RecordedJob, RecordedRun, schema

TABLE = "estimate.csv"
_METRICS = {
    "seconds": metrics.BILLABLE_SECONDS,
    "cost_usd": metrics.COST_USD,
    "memory_gib_per_device": metrics.PEAK_MEMORY_GIB,
}
_JOB_PARAMETERS = {*DEFAULTS, "global_batch_size"}


def estimated_jobs(runs: Iterable[RecordedRun], table_of: Callable[[str], str | None]) -> list[RecordedJob]:
    """Return the rows of estimates as completed jobs, each job once, as in the first of `runs`.

    Jobs that do not fit into memory are left out, and so are trainings of a user's own, which model and data do not
    identify. `table_of` returns the text of a run's TABLE by the run's id. Parameters that are neither in the table nor
    among those of the command have their defaults.
    """
    jobs: dict[frozenset[tuple[str, str]], RecordedJob] = {}
    for run in runs:
        for row in csv.DictReader(io.StringIO(table_of(run.run_id) or "")):
            if row.get("fits") == "no" or row.get("project") or row.get("entry_script"):
                continue
            texts = {**run.params, **{name: text for name, text in row.items() if text}}
            params = {name: text for name, text in texts.items() if name in _JOB_PARAMETERS}
            numbers = {metric: float(row[name]) for name, metric in _METRICS.items() if row[name]}
            tags = {schema.ORIGIN: schema.ESTIMATED, schema.STATE: "Completed"}
            job = RecordedJob(RecordedRun(run.run_id, params, tags, numbers, run.started))
            jobs.setdefault(frozenset(params.items()), job)
    return list(jobs.values())
