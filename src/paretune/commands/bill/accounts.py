"""The recorded runs, and which of them a line of the bill belongs to.

A run may have several jobs, its attempts; a job may train several runs, the trials of a study that share it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from paretune.commands.bill.lines import Line
from paretune.launchers.base import NAMED, NAMED_BY_QUEUE, job_name, run_of
from paretune.launchers.shared import group_of

OF_A_QUEUE = f"{NAMED_BY_QUEUE}{NAMED}".lower()
"""How the names of our training jobs that a queue has named begin, in lower case."""
_STEP = Decimal("1e-12")
"""Shares are rounded to it; the last one of a line takes what is left, so that all add up to the line."""


@dataclass(frozen=True, kw_only=True)
class RecordedCost:
    """What was recorded of the bill of one run; dollars as the numbers that were recorded, exactly.

    Attributes:
        job_name: of its last attempt, as recorded.
        seconds: billed per instance, of all attempts.
        pool_seconds: billed per instance after the job.
        price_usd_per_hour: of one instance.
        instance_type: of its last attempt; empty where it is not known, which is taken for the type of all lines.
        ended: when the last of its instances was given back; None while it runs or is kept.
        training_jobs: names in lower case of its jobs in SageMaker that are named after none of its attempts: a queue
            names them itself.
    """

    run_id: str
    job_name: str
    cost_usd: Decimal | None
    seconds: Decimal
    pool_seconds: Decimal
    instance_count: int
    price_usd_per_hour: Decimal | None
    started: datetime
    ended: datetime | None
    training_jobs: tuple[str, ...] = ()
    instance_type: str = ""

    @property
    def instance_hours(self) -> Decimal:
        """Hours of its jobs, without warm pools, that a bill must have at least; 0 where none need be on one.

        Attempts may have had other numbers of instances than the last one, which is the one recorded; what was booked
        for them tells.
        """
        if self.price_usd_per_hour == 0:  # a training plan has paid for them
            return Decimal(0)
        hours = self.seconds * self.instance_count / 3600
        if self.cost_usd is None or self.price_usd_per_hour is None:
            return hours
        kept = self.pool_seconds * self.instance_count / 3600
        return min(hours, max(Decimal(0), self.cost_usd / self.price_usd_per_hour - kept))


class Accounts:
    """Finds the runs of a line, with the share of each."""

    def __init__(self, recorded: Sequence[RecordedCost]) -> None:
        self.by_run: Mapping[str, RecordedCost] = {one.run_id: one for one in recorded}
        self._groups: dict[str, list[RecordedCost]] = {}
        self._named_by_queue: dict[str, list[RecordedCost]] = {}
        for one in recorded:
            for name in one.training_jobs:
                self._named_by_queue.setdefault(name, []).append(one)
            group, key = group_of(one.job_name)
            if key:
                self._groups.setdefault(group, []).append(one)
        for group, members in self._groups.items():  # its first trial may have had a job of its own later
            first = run_of(group)
            leader = self.by_run.get(first[0]) if first else None
            if leader is not None and leader not in members:
                members.append(leader)

    def runs_of(self, line: Line) -> list[RecordedCost]:
        """The runs that a line is billed for: by the job that its ARN names, else by its tag; empty where none is.

        A training job of another name has a copied tag, unless a queue has named it.
        """
        found = self._of_job(line.job_name)
        if found or not line.run_tag:
            return found
        is_anothers = line.resource.startswith("arn:") and line.job_name and not line.job_name.startswith(OF_A_QUEUE)
        return [] if is_anothers else self._of_job(job_name(line.run_tag, 1))

    def _of_job(self, name: str) -> list[RecordedCost]:
        if name in self._groups:
            return self._groups[name]
        if name in self._named_by_queue:
            return self._named_by_queue[name]
        made_from = run_of(name)
        found = self.by_run.get(made_from[0]) if made_from else None
        return [found] if found is not None else []


def shares(line: Line, runs: Sequence[RecordedCost]) -> list[Line]:
    """The line, split among runs that share a job, as their seconds were: all figures add up to the line's."""
    if len(runs) == 1:
        return [line]
    weights = [one.seconds for one in runs]
    if not any(weights):
        weights = [Decimal(1)] * len(runs)
    split: dict[str, list[Decimal]] = {
        name: _split(value, weights)
        for name in ("amount", "unblended_usd", "list_usd", "effective_usd")
        if (value := getattr(line, name)) is not None
    }
    listed, effective = split.get("list_usd"), split.get("effective_usd")
    return [
        replace(
            line,
            amount=split["amount"][place],
            unblended_usd=split["unblended_usd"][place],
            list_usd=None if listed is None else listed[place],
            effective_usd=None if effective is None else effective[place],
        )
        for place in range(len(runs))
    ]


def _split(value: Decimal, weights: Sequence[Decimal]) -> list[Decimal]:
    whole = sum(weights, Decimal(0))
    parts = [(value * weight / whole).quantize(_STEP) for weight in weights[:-1]]
    return [*parts, value - sum(parts, Decimal(0))]
