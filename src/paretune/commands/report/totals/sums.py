"""Dollars, instance hours and the best F1 of recorded jobs by study, month, user, team, tag and instance type."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from paretune.commands.report.factors import WAYS
from paretune.commands.report.observations import LOCAL, began, day
from paretune.specification import metrics
from paretune.tracking import RecordedJob, schema

NONE = "(none)"
ALL = "all runs"
_TEAM = "team"  # key of the parameter `tags` that names it where the run has no tag of its own


@dataclass(frozen=True, kw_only=True)
class Total:
    """What jobs of one origin with one key have cost and reached; a sum of what no job tells is None.

    Attributes:
        way: what the jobs are grouped by: one of WAYS, or ALL.
        key: their study, month, ...
        origin: measured, simulated or published; and whether the dollars are notional, for nobody bills them.
        first, last: day on which the first and the last of them began, in UTC; empty where it is not known.
        cost_usd: from list prices, whatever became of the job.
        billed_usd: what AWS's bill says, as far as `reconcile` has recorded it.
        failed_usd: part of `cost_usd` of jobs that failed.
        instance_hours: billable seconds, with those of kept instances, times instances, in hours.
        best_f1: of the jobs that completed, whatever they trained on.
        without_cost: jobs whose dollars are not known.
        billed: jobs that `billed_usd` is of; of `billed_in_part` of them, no bill has told all yet.
    """

    way: str
    key: str
    origin: str
    jobs: int
    first: str
    last: str
    cost_usd: float | None
    billed_usd: float | None
    failed_usd: float | None
    instance_hours: float | None
    best_f1: float | None
    without_cost: int
    billed: int
    billed_in_part: int


def totals(jobs: Sequence[RecordedJob], studies: Mapping[str, str], by: str | None = None) -> list[Total]:
    """All jobs together, then by each of WAYS, or only `by` one; every origin, and notional dollars, by themselves.

    `studies` has the name of each study by its run's id. A job with several tags counts for each of them. Jobs of
    simulation are never added to measured ones.
    """
    ways: dict[str, Callable[[RecordedJob], list[str]]] = {ALL: lambda job: [ALL]}
    ways |= {way: lambda job, way=way: keys_of(job, way, studies) for way in ([by] if by else WAYS)}  # type: ignore[misc]
    found = []
    for way, keys in ways.items():
        groups: dict[tuple[str, str], list[RecordedJob]] = {}
        for job in jobs:
            for key in keys(job):
                groups.setdefault((key, origin_of(job)), []).append(job)
        found += [_total(way, key, origin, group) for (key, origin), group in sorted(groups.items())]
    return found


def keys_of(job: RecordedJob, way: str, studies: Mapping[str, str]) -> list[str]:
    """What a job counts for in one of WAYS; NONE where it tells nothing."""
    tags = _tags(job)
    found = {
        "study": lambda: [job.run.tags.get(schema.STUDY) or studies.get(job.parent_run_id, "")],
        "month": lambda: [began(job, "%Y-%m")],
        "user": lambda: [job.run.tags.get(schema.USER, "")],
        "team": lambda: [job.run.tags.get(schema.TEAM) or tags.get(_TEAM, "")],
        "tag": lambda: [f"{name}={value}" for name, value in sorted(tags.items())],
        "instance_type": lambda: [job.cluster.instance_type or LOCAL],
    }[way]()
    return [key or NONE for key in found] or [NONE]


def origin_of(job: RecordedJob) -> str:
    """Its origin, and whether its dollars are notional: those of a job on this machine."""
    return job.origin if job.cluster.instance_type.startswith("ml.") else f"{job.origin}, notional dollars"


def _total(way: str, key: str, origin: str, group: Sequence[RecordedJob]) -> Total:
    days = sorted(filter(None, map(day, group)))
    costs = [job.bill.cost_usd for job in group]
    billed = [job.run.metrics.get(metrics.BILLED_USD) for job in group]
    return Total(
        way=way,
        key=key,
        origin=origin,
        jobs=len(group),
        first=days[0] if days else "",
        last=days[-1] if days else "",
        cost_usd=_sum(costs),
        billed_usd=_sum(billed),
        failed_usd=_sum(job.bill.cost_usd for job in group if job.state == "Failed"),
        instance_hours=_sum(map(_hours, group)),
        best_f1=max((job.f1 for job in group if job.is_completed and job.f1 is not None), default=None),
        without_cost=costs.count(None),
        billed=len(billed) - billed.count(None),
        billed_in_part=sum(
            usd is not None and job.run.tags.get(schema.BILL) != schema.BILL_COMPLETE
            for job, usd in zip(group, billed, strict=True)
        ),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _hours(job: RecordedJob) -> float | None:
    if job.bill.billable_seconds is None:
        return None
    return (job.bill.billable_seconds + job.bill.warm_pool_seconds) * job.cluster.instance_count / 3600


def _tags(job: RecordedJob) -> dict[str, str]:
    """The job's own cost allocation tags."""
    try:
        found = json.loads(job.param("tags") or "{}")
    except json.JSONDecodeError:
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
