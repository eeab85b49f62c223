"""What a search has found after each of its jobs: its front's share of the true front's hypervolume."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paretune.core.pareto import front
from paretune.studies.results.front import hypervolume
from search.tables import Costs, Point, Table

SHARES = (0.8, 0.9, 0.95)
_MINIMIZED = (False, False)
_MARGIN = 0.1  # distance of the reference point from the front: share of each objective's range, or of its size


@dataclass(frozen=True, kw_only=True)
class EndedJob:
    """One job that has ended.

    Attributes:
        usd: what it has cost, however it ended.
        point: its point of the search space; None for a job outside it, such as a probe.
        costs: dollars and negative F1; None unless it completed.
        status: how it ended.
    """

    usd: float
    point: Point | None
    costs: Costs | None
    status: str


@dataclass(frozen=True, kw_only=True)
class Course:
    """A search, job by job: dollars so far, and the share of the true front's hypervolume that was found."""

    usd: tuple[float, ...]
    run: tuple[float, ...]
    statuses: tuple[str, ...]
    again: int = 0
    cpu_seconds: float = 0.0

    def reached(self, share: float) -> float:
        """Return the dollars after which the search first had that share of the front; infinite if it never did."""
        return next((usd for usd, value in zip(self.usd, self.run, strict=True) if value >= share), math.inf)

    def share_at(self, usd: float) -> float:
        """Return the share of the front that was found when this many dollars had been spent."""
        done = [value for spent, value in zip(self.usd, self.run, strict=True) if spent <= usd + 1e-9]
        return done[-1] if done else 0.0


class Score:
    """Scores the searches of one table.

    The reference point is the worst of each objective on the true front, moved away by a tenth of the front's range.
    If it were the worst of the whole table, nearly every front would seem good, because the F1 of a diverged run is
    near chance.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        best = [costs for costs, is_best in zip(table.truths, front(table.truths, _MINIMIZED), strict=True) if is_best]
        spans = [(max(column), max(column) - min(column)) for column in zip(*best, strict=True)]
        self._reference = tuple(worst + _MARGIN * (span or abs(worst)) for worst, span in spans)
        self._whole = hypervolume(best, self._reference)
        self.on_front = len(best)
        self._best = sorted(best)

    def share(self, points: Iterable[Point]) -> float:
        """Return the hypervolume of points at their true values, as a share of that of the true front."""
        truths = [truth for point in points if (truth := self._table.truth(point)) is not None]
        return hypervolume(truths, self._reference) / self._whole

    def cheapest(self, share: float) -> float:
        """Return what an oracle pays: the dollars of the cheapest set of jobs with that share of the true front."""
        (x, y), needed = self._reference, share * self._whole
        sets: list[list[tuple[float, float]]] = []  # for each last job: dollars and volume, both rising
        for index, (usd, quality) in enumerate(self._best):
            own = (usd, (x - usd) * (y - quality))
            options = [own] if usd < x and quality < y else []
            for before, (_, earlier) in enumerate(self._best[:index]):
                options += [(paid + usd, v + (x - usd) * (earlier - quality)) for paid, v in sets[before]]
            kept, most = list[tuple[float, float]](), -1.0
            for paid, volume in sorted(options, key=lambda option: (option[0], -option[1])):
                if volume > most:
                    kept.append((paid, volume))
                    most = volume
            sets.append(kept)
        return min((paid for each in sets for paid, volume in each if volume >= needed - 1e-12), default=math.inf)

    def course(self, ended: Sequence[EndedJob], cpu_seconds: float) -> Course:
        """Return the course of a search, with dollars in median jobs; `ended` is in the order in which jobs ended."""
        usd, run = list[float](), list[float]()
        ran, points = list[tuple[Costs, Point]](), [str(job.point) for job in ended if job.point is not None]
        for job in ended:
            if job.point is not None and job.costs is not None:
                ran.append((job.costs, job.point))
            best = front([costs for costs, _ in ran], _MINIMIZED)
            usd.append(job.usd + (usd[-1] if usd else 0.0))
            run.append(self.share(point for (_, point), is_best in zip(ran, best, strict=True) if is_best))
        return Course(
            usd=tuple(spent / self._table.median_usd for spent in usd),
            run=tuple(run),
            statuses=tuple(job.status for job in ended),
            again=len(points) - len(set(points)),
            cpu_seconds=cpu_seconds,
        )


def short(value: float) -> str:
    """Return a number with three significant digits, without an exponent even if it is 1000 or more."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def middle(values: Sequence[float], spent: Sequence[float]) -> str:
    """Return the median over searches, with the range; a search that never got there counts as infinite."""
    reached = sorted(value for value in values if value < math.inf)
    if 2 * len(reached) <= len(values):
        least = short(statistics.median(spent))
        return f"not in {least}" + (f" ({len(reached)}/{len(values)})" if reached else "")
    last = "-" if len(reached) < len(values) else short(reached[-1])
    return f"{short(statistics.median_high(values))} ({short(reached[0])}..{last})"
