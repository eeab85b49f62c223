"""Dollars of recorded jobs by study, month, tag and instance type."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from paretune.presentation.numbers import dollars
from paretune.presentation.page import Cell, Table
from paretune.reporting.observations import LOCAL
from paretune.tracking import RecordedJob

_NONE = "(none)"


def day(job: RecordedJob) -> str:
    """Day on which its run began, in UTC; of an imported run, on which it was imported."""
    return _began(job, "%Y-%m-%d")


def totals(jobs: Sequence[RecordedJob], studies: Mapping[str, str]) -> dict[str, Table]:
    """Runs and dollars by study, month, tag and instance type; `studies` has the name of each study by its run's id.

    Every origin has rows of its own, and so have notional dollars. A run with several tags counts for each of them.
    """
    ways: dict[str, Callable[[RecordedJob], list[str]]] = {
        "study": lambda job: [studies.get(job.parent_run_id, _NONE)],
        "month": lambda job: [_began(job, "%Y-%m")],
        "tag": lambda job: _tags(job),
        "instance type": lambda job: [job.instance_type or LOCAL],
    }
    return {way: _table(way, jobs, keys) for way, keys in ways.items()}


def _table(way: str, jobs: Sequence[RecordedJob], keys: Callable[[RecordedJob], list[str]]) -> Table:
    groups: dict[tuple[str, str], list[RecordedJob]] = {}
    for job in jobs:
        dollars_of = job.origin if job.instance_type.startswith("ml.") else f"{job.origin}, notional dollars"
        for key in keys(job):
            groups.setdefault((key, dollars_of), []).append(job)
    rows = []
    for (key, origin), group in sorted(groups.items()):
        known = [job.cost_usd for job in group if job.cost_usd is not None]
        without = len(group) - len(known)
        cost = Cell(dollars(sum(known)), sum(known)) if known else ""
        rows.append([key, origin, str(len(group)), cost, str(without) if without else ""])
    head = [way, "origin", "runs", "cost (USD)", "runs without a cost"]
    return Table(head=head, rows=rows, right=(2, 3, 4)).filled()


def _began(job: RecordedJob, form: str) -> str:
    return datetime.fromtimestamp(job.run.started, UTC).strftime(form) if job.run.started else ""


def _tags(job: RecordedJob) -> list[str]:
    """The job's own cost allocation tags, as name=value."""
    try:
        found = json.loads(job.param("tags") or "{}")
    except json.JSONDecodeError:
        found = {}
    return [f"{name}={value}" for name, value in sorted(found.items())] or [_NONE]
