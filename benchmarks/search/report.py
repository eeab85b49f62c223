"""What searches have cost, as lines of a table and of a CSV file.

All dollars are in median jobs: divided by the dollars of the middle one of the jobs of the table that complete. So
tables and worlds with dear and with cheap jobs are read, and put together, alike.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from search.scoring import SHARES, Course, middle, short

FRONTS = ("run", "recommended")


@dataclass(frozen=True, kw_only=True)
class Searches:
    """All searches of one method: a course per seed for each budget; dollars in median jobs.

    A method that is not told its budget has searched once a seed, with the largest, and is read off at the others.
    """

    method: str
    budgets: Sequence[float]
    courses: Mapping[float, Sequence[Course]]

    @property
    def longest(self) -> Sequence[Course]:
        """The searches with the largest budget."""
        return self.courses[self.budgets[-1]]

    def shares(self, front: str, budget: float) -> list[float]:
        """Of the true front that is held for so many dollars, a number a seed."""
        return [course.share_at(front, budget) for course in self.courses.get(budget, self.longest)]

    def usd_to(self, front: str, share: float) -> list[float | None]:
        """Dollars until the front has a share, a number a seed; None: never."""
        places = [course.reached(front, share) for course in self.longest]
        return [None if at is None else course.usd[at] for at, course in zip(places, self.longest, strict=True)]

    def fronts(self) -> Iterable[str]:
        """The front that has run, and the recommended one where that is another one."""
        yield "run"
        if any(course.run != course.recommended for course in self.longest):
            yield "recommended"

    def spent(self) -> list[float]:
        """Dollars of the whole search, a number a seed."""
        return [course.usd[-1] if course.usd else 0.0 for course in self.longest]


def lines_of(found: Searches) -> Iterable[tuple[str, ...]]:
    """The lines of a method in the printed table, under `head`."""
    courses = found.longest
    for front in found.fronts():
        usd = [middle(found.usd_to(front, share), found.spent()) for share in SHARES]
        retained = [course.kept(front, 0.9) for course in courses]
        kept_usd = [None if at is None else c.usd[at] for at, c in zip(retained, courses, strict=True)]
        shares = [f"{statistics.median(found.shares(front, budget)):.2f}" for budget in found.budgets]
        full = statistics.median(sum(not status.endswith("Completed") for status in c.statuses) for c in courses)
        again = statistics.median(c.again for c in courses)
        jobs = statistics.median(len(c.usd) for c in courses)
        label = found.method if front == "run" else f"{found.method}, recommended"
        cpu = statistics.median(c.cpu_seconds for c in courses)
        yield label, *usd, middle(kept_usd, found.spent()), *shares, f"{full:g}/{again:g}/{jobs:g}", f"{cpu:.1f}"


def head(budgets: Sequence[float]) -> tuple[str, ...]:
    """The names of the columns of `lines_of`."""
    shares = (f"share at {short(budget)}" for budget in budgets)
    return ("", *(f"to {share:.0%}" for share in SHARES), "to keep 90%", *shares, "lost/again/all", "CPU s")


def csv_head(budgets: Sequence[float]) -> list[str]:
    """The names of the columns of `rows_of`."""
    return [
        *("table", "seeds", "jobs_at_a_time", "objectives", "method", "seed", "front", "jobs", "median_jobs_usd"),
        *(f"to_{share:.0%}" for share in SHARES),
        *(f"share_at_{short(budget)}" for budget in budgets),
        *("out_of_memory", "stopped", "paid_again", "cpu_seconds", "ended_because"),
    ]


def rows_of(where: Sequence[object], seeds: Sequence[int], found: Searches) -> Iterable[list[object]]:
    """The lines of a method in the CSV file: one a seed and front."""
    for front in FRONTS:
        usd = [found.usd_to(front, share) for share in SHARES]
        shares = [found.shares(front, budget) for budget in found.budgets]
        for workspace, (seed, course) in enumerate(zip(seeds, found.longest, strict=True)):
            yield [
                *(*where, seed, front, len(course.usd), round(found.spent()[workspace], 3)),
                *("" if column[workspace] is None else round(column[workspace] or 0.0, 3) for column in usd),
                *(round(column[workspace], 4) for column in shares),
                *(course.statuses.count("OutOfMemory"), course.statuses.count("Stopped"), course.again),
                *(round(course.cpu_seconds, 2), course.remark),
            ]


def show(lines: Sequence[Sequence[str]]) -> None:
    """Print a table, the first column to the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        rest = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        print("  " + "  ".join([line[0].ljust(widths[0]), *rest]))


def summary(name: str, searches: Sequence[Searches], ours: Sequence[str]) -> tuple[str, ...]:
    """One line of the README: dollars to 90 % and the share at two budgets, of chance, the best peer, and ours."""
    by_name = {result.method: result for result in searches}
    peers = [search for search in searches if search.method not in {*ours, "naive", "random"}]
    cells = [_cell(by_name.get("random"))]
    best = min(peers, key=_to_90, default=None)
    cells.append(f"{_cell(best)} ({best.method})" if best else "")
    return (name, *cells, *(_cell(by_name.get(method)) for method in ours))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """All searches of one table, or of all worlds of a kind, for some objectives and so many jobs at a time."""

    name: str
    objectives: str
    parallel: int
    searches: Sequence[Searches]


AIMS_HEAD = ("over all tables of this run", *("split", "best peer", "random", "aim"))


def aims(settings: Sequence[Setting]) -> Iterable[tuple[str, ...]]:
    """What the product aims at beside what it and others reach, under `AIMS_HEAD`; empty cells were not searched for.

    Dollars are medians over all seeds and tables; a share held is the median over seeds, then the median or the worst
    over tables.
    """
    for objectives, parallel, front, share, aim in _DOLLARS:
        chosen = [item for item in settings if (item.objectives, item.parallel) == (objectives, parallel)]
        label = f"{objectives}, {parallel} at a time, dollars to {share:.0%}, {front}"
        yield label, *_reached(chosen, partial(_pooled_usd, front=front, share=share), min), aim
    over_tables = [item for item in settings if item.parallel == 1]
    for label, budget, middle_of, aim in _HELD:
        chosen = [item for item in over_tables if item.searches[0].budgets[-1] >= budget]
        yield label, *_reached(chosen, partial(_held, budget=budget, middle_of=middle_of), max), aim


_DOLLARS = (
    ("cost/F1", 1, "run", 0.9, "12"),
    ("cost/F1", 1, "run", 0.95, "20"),
    ("cost/F1", 4, "run", 0.9, "20"),
    ("cost/F1", 4, "run", 0.95, "30"),
    ("time/F1", 1, "run", 0.9, "35"),
    ("time/F1", 1, "recommended", 0.9, "20"),
)
_HELD: tuple[tuple[str, float, Callable[[Iterable[float]], float], str], ...] = (
    ("share held at 1 median job, median table", 1.0, statistics.median, "random's"),
    ("share held at 40 median jobs, worst table", 40.0, min, "0.97 and best peer's"),
)


def _reached(
    settings: Sequence[Setting],
    measure: Callable[[Sequence[Searches]], float],
    best: Callable[[Iterable[float]], float],
) -> tuple[str, str, str]:
    """The measure of split, of the best peer, and of random search; empty for those that searched none of these."""
    by_method: dict[str, list[Searches]] = {}
    for searches in (searches for setting in settings for searches in setting.searches):
        by_method.setdefault(searches.method, []).append(searches)
    values = {method: measure(searches) for method, searches in by_method.items()}
    peers = {method: value for method, value in values.items() if method not in {"split", "joint", "naive", "random"}}
    top = best(peers.values()) if peers else None
    names = [method for method, value in peers.items() if value == top]
    cells = [values.get("split"), top, values.get("random")]
    split, peer, random = ("" if cell is None else short(cell) if cell < math.inf else "not" for cell in cells)
    return split, f"{peer} ({names[0]})" if names else "", random


def _pooled_usd(found: Sequence[Searches], *, front: str, share: float) -> float:
    usd = [math.inf if at is None else at for searches in found for at in searches.usd_to(front, share)]
    return statistics.median_high(usd)


def _held(found: Sequence[Searches], *, budget: float, middle_of: Callable[[Iterable[float]], float]) -> float:
    return middle_of([statistics.median(searches.shares("run", budget)) for searches in found])


def _to_90(found: Searches) -> tuple[float, float]:
    """Orders methods: median dollars to 90 %, then the share that is left at the end."""
    usd = sorted(float("inf") if value is None else value for value in found.usd_to("run", 0.9))
    return statistics.median_high(usd), -statistics.median(found.shares("run", found.budgets[-1]))


def shown(budgets: Sequence[float]) -> tuple[float, float]:
    """The two budgets of the README: a small one and the largest."""
    return budgets[len(budgets) // 3], budgets[-1]


def _cell(found: Searches | None) -> str:
    """`3.1; 0.42, 0.97`: dollars to 90 %, and the shares at the two budgets of the README."""
    if found is None:
        return ""
    usd = _to_90(found)[0]
    shares = ", ".join(f"{statistics.median(found.shares('run', budget)):.2f}" for budget in shown(found.budgets))
    return f"{short(usd) if usd < float('inf') else 'not'}; {shares}"
