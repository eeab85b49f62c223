"""Runs of other teams, brought from a table into MLflow: marked `published`, each once."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from paretune.core.errors import TrackingUnavailable
from paretune.estimating.recorded.import_request import ImportRequest
from paretune.estimating.recorded.run_table import COMPLETED, OUT_OF_MEMORY, RecordedRow
from paretune.jobs.priced import price_tags
from paretune.jobs.recording import params_of, run_name
from paretune.launchers.base import JobState
from paretune.pricing.budget import cost_usd
from paretune.pricing.prices import Price
from paretune.spec import metrics
from paretune.spec.container import Event
from paretune.spec.job import JobSpec
from paretune.tracking import RecordedJob, Run, RunStatus, Tracking, schema

ORIGIN = "published"


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What became of a table: ids of new runs, how many rows were known, and the instance types without a price."""

    added: tuple[str, ...]
    known: int
    unpriced: tuple[str, ...]


def import_runs(
    request: ImportRequest, tracking: Tracking, price_of: Callable[[JobSpec], Price | None], now: float
) -> Imported:
    """Make a run of each row that is not there yet; a run that an interrupted import has left is finished.

    Points of curves get the time `now`, in seconds since the epoch.

    Raises:
        TrackingUnavailable: MLflow does not answer; asked again, the rest is imported.
    """
    there = {
        job.row_key: None if job.state else job.run_id
        for job in map(RecordedJob, tracking.runs(f"tags.`{schema.ORIGIN}` = '{ORIGIN}'"))
        if job.row_key
    }
    added: list[str] = []
    known, unpriced, seen = 0, dict[str, None](), Counter[str]()
    for row, spec in zip(request.table.rows, request.specs, strict=True):
        key = _key(row, request, seen)
        unfinished = there.get(key)
        if key in there and unfinished is None:
            known += 1
            continue
        price = price_of(spec)
        if price is None:
            unpriced[spec.instance_type] = None
        tags = {schema.ORIGIN: ORIGIN, schema.ROW_KEY: key}
        run = tracking.run(unfinished) if unfinished else tracking.create(run_name(spec), tags)
        _fill(run, row, spec, price, request.table.name, now)
        if run.has_gap:
            gap = f"MLflow went away after {len(added)} runs: the same command imports what is missing"
            raise TrackingUnavailable(gap)
        added.append(run.run_id)
    return Imported(added=tuple(added), known=known, unpriced=tuple(unpriced))


def _key(row: RecordedRow, request: ImportRequest, seen: Counter[str]) -> str:
    """What makes a row one and the same: what it says, what was typed for it, and its place among equal rows."""
    digest = row.digest()
    seen[digest] += 1
    what = json.dumps([digest, seen[digest], sorted(request.typed.items())])
    return hashlib.sha256(what.encode()).hexdigest()[:24]


def _fill(run: Run, row: RecordedRow, spec: JobSpec, price: Price | None, source: str, now: float) -> None:
    """Everything that a row says, and that it is all."""
    state = JobState.COMPLETED if row.status == COMPLETED else JobState.FAILED
    usd = None if row.billable_seconds is None else cost_usd(price, spec, row.billable_seconds)
    known = {metrics.F1: row.f1, metrics.BILLABLE_SECONDS: row.billable_seconds, metrics.COST_USD: usd}
    found = dict(row.measured) | {name: value for name, value in known.items() if value is not None}
    reason = {COMPLETED: None, OUT_OF_MEMORY: "out of memory, as it was published"}
    with run.later():
        run.log_params(params_of(spec))
        run.log_events(
            Event(time=now, step=epoch, metrics={"eval/f1": value}) for epoch, value in enumerate(row.curve, start=1)
        )
        run.log_metrics(found)
        run.set_tags(
            {
                schema.SOURCE: source,
                schema.SOURCE_LINE: str(row.line),
                schema.SPEC_HASH: spec.spec_hash(),
                schema.COMMAND: spec.command(),
                schema.FAILURE_REASON: reason.get(row.status, "failed, as it was published"),
                schema.MACHINE: None if spec.has_instances else "another",
                **price_tags(price),
                schema.STATE: state.value,
            }
        )
    run.flush()
    run.end(RunStatus.FINISHED if state is JobState.COMPLETED else RunStatus.FAILED)
