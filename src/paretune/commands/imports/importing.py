"""Runs of other teams, brought from a table into MLflow: marked `published`, each once."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from paretune.commands.imports.request import ImportRequest
from paretune.core.errors import TrackingUnavailable
from paretune.estimating.recorded.run_table import COMPLETED, OUT_OF_MEMORY, RecordedRow
from paretune.jobs.bill import price_tags
from paretune.jobs.record import params_of, run_name
from paretune.launchers.base import JobState
from paretune.pricing.budget import cost_usd
from paretune.pricing.prices import Price
from paretune.specification import metrics
from paretune.specification.container import Event
from paretune.specification.job import JobSpec
from paretune.specification.placement import Placement
from paretune.tracking import RecordedJob, Run, RunStatus, Tracking, schema
from paretune.tracking.recorded_job import DATASET_SIZE

ORIGIN = "published"
_SAME_COST = 0.01  # of a cost: rounded seconds and prices make no larger a difference


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What became of a table: ids of new runs, how many rows were known, and the instance types without a price.

    `lines_apart` are those of new rows whose cost_usd is not seconds x instances x hourly price, by more than 1 %.
    """

    added: tuple[str, ...]
    known: int
    unpriced: tuple[str, ...]
    lines_apart: tuple[int, ...] = ()


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
    known, unpriced, apart, seen = 0, dict[str, None](), list[int](), Counter[str]()
    for row, spec in zip(request.table.rows, request.specs, strict=True):
        key = _key(row, request, seen)
        unfinished = there.get(key)
        if key in there and unfinished is None:
            known += 1
            continue
        price = _price(row, spec, request.table.name) or (price_of(spec) if row.cost_usd is None else None)
        if _is_apart(row, spec, price):
            apart.append(row.line)
        if price is None and row.cost_usd is None:
            unpriced[spec.instance_type] = None
        tags = {schema.ORIGIN: ORIGIN, schema.ROW_KEY: key}
        run = tracking.run(unfinished) if unfinished else tracking.create(run_name(spec), tags)
        _fill(run, row, spec, price, request.table.name, now)
        if run.has_gap:
            gap = f"MLflow went away after {len(added)} runs: the same command imports what is missing"
            raise TrackingUnavailable(gap)
        added.append(run.run_id)
    return Imported(added=tuple(added), known=known, unpriced=tuple(unpriced), lines_apart=tuple(apart))


def _price(row: RecordedRow, spec: Placement, source: str) -> Price | None:
    """The price that the table tells of the row; None where it tells none."""
    if row.hourly_price_usd is None:
        return None
    return Price(
        usd_per_hour=row.hourly_price_usd,
        region=spec.region or "",
        as_of=row.price_as_of,
        source=f"{source}: hourly_price_usd",
        instance_type=spec.instance_type,
        confidence="user",
    )


def _is_apart(row: RecordedRow, spec: JobSpec, price: Price | None) -> bool:
    """Whether the cost that the table tells is another one than its seconds and its price make."""
    if price is None or row.cost_usd is None or row.billable_seconds is None:
        return False
    return not math.isclose(row.cost_usd, cost_usd(price, spec, row.billable_seconds) or 0.0, rel_tol=_SAME_COST)


def _key(row: RecordedRow, request: ImportRequest, seen: Counter[str]) -> str:
    """What makes a row one and the same: what it says, what was typed for it, and its place among equal rows."""
    digest = row.digest()
    seen[digest] += 1
    what = json.dumps([digest, seen[digest], sorted(request.typed.items())])
    return hashlib.sha256(what.encode()).hexdigest()[:24]


def _fill(run: Run, row: RecordedRow, spec: JobSpec, price: Price | None, source: str, now: float) -> None:
    """Everything that a row says, and that it is all."""
    state = JobState.COMPLETED if row.status == COMPLETED else JobState.FAILED
    usd = row.cost_usd
    if usd is None and row.billable_seconds is not None:
        usd = cost_usd(price, spec, row.billable_seconds)
    known = {metrics.F1: row.f1, metrics.BILLABLE_SECONDS: row.billable_seconds, metrics.COST_USD: usd}
    found = dict(row.measured) | {name: value for name, value in known.items() if value is not None}
    reason = {COMPLETED: None, OUT_OF_MEMORY: "out of memory, as it was published"}
    with run.later():
        run.log_params(params_of(spec))
        if row.dataset_size is not None:
            run.log_params({DATASET_SIZE: str(row.dataset_size)})
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
