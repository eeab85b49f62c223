"""What a search has found after each of its jobs: the share of the true front's hypervolume that its front has."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from paretune.core.pareto import front
from paretune.studies.results.front import MARGIN, hypervolume
from search.tables import Point, Table, Truth

OBJECTIVES = {
    "cost/F1": ("cost_usd", "f1"),
    "time/F1": ("billable_seconds", "f1"),
    "cost/time/F1": ("cost_usd", "billable_seconds", "f1"),
}
"""What is searched for; F1, the last one, is maximised and the others are minimised."""
SHARES = (0.8, 0.9, 0.95)


@dataclass(frozen=True, kw_only=True)
class Booked:
    """One job that has ended.

    Attributes:
        usd: what it has cost, whatever its end.
        point: of the search space; None for a job off it, such as a probe.
        measured: the objectives' values, F1 last; None unless it completed.
        status: how it ended.
    """

    usd: float
    point: Point | None
    measured: tuple[float, ...] | None
    status: str


@dataclass(frozen=True, kw_only=True)
class Course:
    """A search, job by job: dollars so far, and the share of the true front that has run."""

    usd: tuple[float, ...]
    run: tuple[float, ...]
    statuses: tuple[str, ...]
    again: int = 0
    cpu_seconds: float = 0.0
    remark: str = ""

    def reached(self, share: float) -> int | None:
        """The number of the job after which that share of the front was found first; None if never."""
        return next((job for job, value in enumerate(self.run) if value >= share), None)

    def share_at(self, usd: float) -> float:
        """The share of the front that was found when so many dollars were spent."""
        done = [value for spent, value in zip(self.usd, self.run, strict=True) if spent <= usd + 1e-9]
        return done[-1] if done else 0.0


@dataclass
class Score:
    """Scores the searches of one table for some objectives.

    The reference point is the worst of each objective on the true front, moved away by a tenth of the front's range:
    with the worst of the whole table nearly every front would seem good, for a diverged run has F1 near chance.
    """

    table: Table
    objectives: str
    reference: tuple[float, ...] = field(init=False)
    whole: float = field(init=False)
    on_front: int = field(init=False)

    def __post_init__(self) -> None:
        costs = [self._costs(truth) for truth in self.table.truths]
        best = [cost for cost, retained in zip(costs, front(costs, [False] * len(costs[0])), strict=True) if retained]
        spans = [(max(column), max(column) - min(column)) for column in zip(*best, strict=True)]
        self.reference = tuple(worst + MARGIN * (span or abs(worst)) for worst, span in spans)
        self.whole = hypervolume(best, self.reference)
        self.on_front = len(best)

    def share(self, points: Iterable[Point]) -> float:
        """Hypervolume of points at their true values, as a share of that of the true front."""
        result = [truth for point in points if (truth := self.table.truth(point)) is not None]
        return hypervolume([self._costs(truth) for truth in result], self.reference) / self.whole

    def course(self, booked: Sequence[Booked], cpu_seconds: float, remark: str = "") -> Course:
        """The course of a search, jobs in the order in which they ended."""
        usd, run = [], []
        spent, ran, again = 0.0, list[tuple[tuple[float, ...], Point]](), 0
        seen: set[str] = set()
        for job in booked:
            spent += job.usd
            if job.point is not None:
                again += str(job.point) in seen
                seen.add(str(job.point))
                if job.measured is not None:
                    ran.append(((*job.measured[:-1], -job.measured[-1]), job.point))
            trials = front([costs for costs, _ in ran], [False] * len(self.reference))
            usd.append(spent)
            run.append(self.share(point for (_, point), best in zip(ran, trials, strict=True) if best))
        return Course(
            usd=tuple(usd),
            run=tuple(run),
            statuses=tuple(job.status for job in booked),
            again=again,
            cpu_seconds=cpu_seconds,
            remark=remark,
        )

    def _costs(self, truth: Truth) -> tuple[float, ...]:
        *minimised, f1 = (getattr(truth, name) for name in OBJECTIVES[self.objectives])
        return (*minimised, -f1)


def short(value: float) -> str:
    """Three digits, and no powers of ten in thousands."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def middle(values: Sequence[float], spent: Sequence[float]) -> str:
    """Median over searches with the range, of dollars or jobs; a search that did not get there counts as infinite."""
    reached = sorted(value for value in values if value < math.inf)
    if 2 * len(reached) <= len(values):
        least = short(statistics.median(spent))
        return f"not in {least}" + (f" ({len(reached)}/{len(values)})" if reached else "")
    last = "-" if len(reached) < len(values) else short(reached[-1])
    return f"{short(statistics.median_high(values))} ({short(reached[0])}..{last})"
