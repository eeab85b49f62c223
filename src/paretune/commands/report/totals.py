"""Dollars, instance hours and the best F1 of recorded jobs by study, month, user, team, tag and instance type."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from paretune.commands.report.factors import TOTAL_KEYS
from paretune.commands.report.observations import LOCAL, began, day
from paretune.presentation.numbers import dollars, plain
from paretune.presentation.table import Cell, Column, Table
from paretune.specification import metrics
from paretune.tracking import RecordedJob, schema

NONE = "(none)"
ALL = "all runs"
_TEAM = "team"  # key of the parameter `tags` that names the team if the run has no tag for it
_HEADERS = {
    "key": "",
    "origin": "origin",
    "jobs": "runs",
    "cost_usd": "cost (USD)",
    "billed_usd": "billed (USD)",
    "failed_usd": "of failed jobs (USD)",
    "downloading_usd": "of data and image (USD)",
    "training_usd": "of training (USD)",
    "uploading_usd": "of uploading (USD)",
    "instance_hours": "instance hours",
    "best_f1": "best F1",
    "first": "first",
    "last": "last",
    "without_cost": "runs without a cost",
}
"""Field of `Total` to the header of its column; the first is replaced by the name of the key."""
_BILLED_PHASES = ("downloading", "training", "uploading")
_TEXTS = ("key", "origin", "first", "last")


@dataclass(frozen=True, kw_only=True)
class Total:
    """Cost and results of the jobs of one origin with one key; a sum is None if no job has a value.

    Attributes:
        by: the key by which the jobs are grouped: one of TOTAL_KEYS, or ALL.
        key: their study, month, ...
        origin: measured, simulated or published, and whether the dollars are notional, because they are not billed.
        first, last: day on which the first and the last of them began, in UTC; empty if unknown.
        cost_usd: from list prices, of all jobs, also failed ones.
        billed_usd: on AWS's bill, as far as `reconcile` has recorded it.
        failed_usd: part of `cost_usd` of jobs that failed.
        downloading_usd, training_usd, uploading_usd: parts of `cost_usd` by phase, of jobs that recorded their phases.
        instance_hours: billable seconds, with those of kept instances, times instances, in hours.
        best_f1: of the completed jobs, on any data.
        without_cost: jobs whose dollars are unknown.
        billed: jobs in `billed_usd`; for `billed_in_part` of them, no bill is complete yet.
    """

    by: str
    key: str
    origin: str
    jobs: int
    first: str
    last: str
    cost_usd: float | None
    billed_usd: float | None
    failed_usd: float | None
    downloading_usd: float | None
    training_usd: float | None
    uploading_usd: float | None
    instance_hours: float | None
    best_f1: float | None
    without_cost: int
    billed: int
    billed_in_part: int


def totals(jobs: Sequence[RecordedJob], studies: Mapping[str, str], by: str | None = None) -> list[Total]:
    """Return totals of all jobs, then by each of TOTAL_KEYS, or only by one; origins and notional dollars apart.

    `studies` has the name of each study by its run's id. A job with several tags counts for each of them. Simulated
    jobs are never added to measured ones.
    """
    rows = []
    for name in (ALL, *([by] if by else TOTAL_KEYS)):
        groups: dict[tuple[str, str], list[RecordedJob]] = {}
        for job in jobs:
            for key in [ALL] if name == ALL else keys_of(job, name, studies):
                groups.setdefault((key, origin_of(job)), []).append(job)
        rows += [_total(name, key, origin, group) for (key, origin), group in sorted(groups.items())]
    return rows


def keys_of(job: RecordedJob, by: str, studies: Mapping[str, str]) -> list[str]:
    """Return the values of one of TOTAL_KEYS that a job counts for; NONE if it has none."""
    tags = _cost_allocation_tags(job)
    keys = {
        "study": lambda: [job.run.tags.get(schema.STUDY) or studies.get(job.parent_run_id, "")],
        "month": lambda: [began(job, "%Y-%m")],
        "user": lambda: [job.run.tags.get(schema.USER, "")],
        "team": lambda: [job.run.tags.get(schema.TEAM) or tags.get(_TEAM, "")],
        "tag": lambda: [f"{name}={value}" for name, value in sorted(tags.items())],
        "instance_type": lambda: [job.cluster.instance_type or LOCAL],
    }[by]()
    return [key or NONE for key in keys] or [NONE]


def origin_of(job: RecordedJob) -> str:
    """Return the origin of a job, and whether its dollars are notional: those of a job on this machine."""
    return job.origin if job.cluster.instance_type.startswith("ml.") else f"{job.origin}, notional dollars"


def _total(by: str, key: str, origin: str, group: Sequence[RecordedJob]) -> Total:
    days = sorted(filter(None, map(day, group)))
    costs = [job.bill.cost_usd for job in group]
    billed = [job.run.metrics.get(metrics.BILLED_USD) for job in group]
    hours = [
        None
        if job.bill.billable_seconds is None
        else (job.bill.billable_seconds + job.bill.warm_pool_seconds) * job.cluster.instance_count / 3600
        for job in group
    ]
    return Total(
        by=by,
        key=key,
        origin=origin,
        jobs=len(group),
        first=days[0] if days else "",
        last=days[-1] if days else "",
        cost_usd=_sum(costs),
        billed_usd=_sum(billed),
        failed_usd=_sum(job.bill.cost_usd for job in group if job.state == "Failed"),
        **{f"{phase}_usd": _sum(usd.get(phase) for usd in map(_usd_by_phase, group)) for phase in _BILLED_PHASES},
        instance_hours=_sum(hours),
        best_f1=max((job.f1 for job in group if job.is_completed and job.f1 is not None), default=None),
        without_cost=costs.count(None),
        billed=len(billed) - billed.count(None),
        billed_in_part=sum(
            usd is not None and job.run.tags.get(schema.BILL) != schema.BILL_COMPLETE
            for job, usd in zip(group, billed, strict=True)
        ),
    )


def _usd_by_phase(job: RecordedJob) -> dict[str, float]:
    """Divide the dollars of a job, without those of kept instances, by its billed phases; empty if they are unknown."""
    bill, seconds = job.bill, job.run.metrics
    if bill.cost_usd is None or not bill.billable_seconds or metrics.DOWNLOADING_SECONDS not in seconds:
        return {}
    usd = bill.cost_usd * bill.billable_seconds / (bill.billable_seconds + bill.warm_pool_seconds)
    whole = bill.training_seconds or bill.billable_seconds  # on spot fewer seconds are billed than pass
    downloading = min(1.0, seconds[metrics.DOWNLOADING_SECONDS] / whole)
    uploading = min(1.0 - downloading, seconds.get(metrics.UPLOADING_SECONDS, 0.0) / whole)
    shares = (downloading, 1.0 - downloading - uploading, uploading)
    return {phase: usd * share for phase, share in zip(_BILLED_PHASES, shares, strict=True)}


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of the values that are not None, or None if there are none."""
    present = [value for value in values if value is not None]
    return sum(present) if present else None


def _cost_allocation_tags(job: RecordedJob) -> dict[str, str]:
    try:
        tags = json.loads(job.param("tags") or "{}")
    except json.JSONDecodeError:
        return {}
    return {str(name): str(value) for name, value in tags.items()} if isinstance(tags, dict) else {}


def total_tables(rows: Sequence[Total]) -> list[tuple[str, Table]]:
    """Return a table with its caption for each key that any job has."""
    tables = []
    for by in dict.fromkeys(total.by for total in rows):
        group = [total for total in rows if total.by == by]
        if all(total.key == NONE for total in group):
            continue
        words = by.replace("_", " ")
        headers = _HEADERS | {"key": "" if by == ALL else words}
        columns: list[Column[Total]] = [Column(header, partial(_cell, name=name)) for name, header in headers.items()]
        caption = "Dollars in all" if by == ALL else f"Dollars by {words}"
        tables.append((caption, Table.of(columns, group).without_empty_columns()))
    return tables


def total_rows(rows: Sequence[Total]) -> list[dict[str, object]]:
    """Return the rows of totals.csv: all totals, also those without a key; unknown values are None."""
    return [asdict(total) for total in rows]


def total_sentences(rows: Sequence[Total]) -> list[str]:
    """Return remarks on the sums."""
    overall = [total for total in rows if total.by == ALL]
    sentences = []
    if len(overall) > 1:
        sentences.append(
            "every origin has sums of its own, and so have the notional dollars of local jobs: do not add them up"
        )
    for total in overall:
        if total.billed_usd is not None:
            runs = f"{total.billed:,} of {total.jobs:,} {total.origin} runs"
            part = f" ({total.billed_in_part:,} of them in part: not complete yet)" if total.billed_in_part else ""
            sentences.append(
                f"billed is AWS's bill of {runs}{part}; cost is from list prices, of all runs with a known price"
            )
    if any(total.best_f1 is not None for total in overall):
        sentences.append("best F1 is that of any model and data set of the row")
    return sentences


def _cell(total: Total, *, name: str) -> str | Cell:
    value = getattr(total, name)
    if value is None or name in _TEXTS:
        return value or ""
    if name in ("jobs", "without_cost"):
        return Cell(f"{value:,}", value) if value or name == "jobs" else ""
    text = {"best_f1": f"{value:.4f}", "instance_hours": plain(value, 3)}.get(name) or dollars(value)
    return Cell(text, value)
