"""What searches have cost, as lines of tables.

All dollars are in median jobs: divided by the dollars of the middle one of the jobs of the table that complete. So
tables and worlds with dear and with cheap jobs are read, and put together, alike.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import published

from search.scoring import SHARES, Course, middle, short

PRODUCT = ("split",)
_OURS = (*PRODUCT, "sampler")
"""The product, and its sampler alone: neither is a peer."""
_SOURCE = Path(__file__).parents[2] / "src" / "paretune"
MODULES = ("studies/sampler/*.py",)
"""The sampler and its models, whose lines have an aim."""
_MOST_LINES = 700


@dataclass(frozen=True, kw_only=True)
class Searches:
    """All searches of one method; a course per seed for each budget; dollars in median jobs.

    A method that is not told its budget has searched once a seed, with the largest, and is read off at the others.
    """

    method: str
    budgets: Sequence[float]
    courses: Mapping[float, Sequence[Course]]

    @property
    def longest(self) -> Sequence[Course]:
        """The searches with the largest budget."""
        return self.courses[self.budgets[-1]]

    def shares(self, budget: float) -> list[float]:
        """The share of the true front that each seed holds for so many dollars."""
        return [course.share_at(budget) for course in self.courses.get(budget, self.longest)]

    def usd_to(self, share: float) -> list[float]:
        """Dollars until the front has a share, a number a seed; infinite: never."""
        ends = [course.reached(share) for course in self.longest]
        return [math.inf if at is None else course.usd[at] for at, course in zip(ends, self.longest, strict=True)]

    def spent(self) -> list[float]:
        """Dollars of the whole search, a number a seed."""
        return [course.usd[-1] if course.usd else 0.0 for course in self.longest]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """All searches of one table, or of all worlds of a kind, for some objectives and so many jobs at a time."""

    name: str
    objectives: str
    parallel: int
    searches: Sequence[Searches]


def line_of(search: Searches) -> tuple[str, ...]:
    """The line of a method in the printed table, under `head`."""
    courses = search.longest
    usd = [middle(search.usd_to(share), search.spent()) for share in SHARES]
    shares = [f"{statistics.median(search.shares(budget)):.2f}" for budget in search.budgets]
    full = statistics.median(sum(not status.endswith("Completed") for status in c.statuses) for c in courses)
    again = statistics.median(c.again for c in courses)
    jobs = statistics.median(len(c.usd) for c in courses)
    cpu = statistics.median(c.cpu_seconds for c in courses)
    return search.method, *usd, *shares, f"{full:g}/{again:g}/{jobs:g}", f"{cpu:.1f}"


def head(budgets: Sequence[float]) -> tuple[str, ...]:
    """The names of the columns of `line_of`."""
    shares = (f"share at {short(budget)}" for budget in budgets)
    return ("", *(f"to {share:.0%}" for share in SHARES), *shares, "lost/again/all", "CPU s")


def show(lines: Sequence[Sequence[str]]) -> None:
    """Print a table, the first column to the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        rest = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        print("  " + "  ".join([line[0].ljust(widths[0]), *rest]))


def block(conditions: str, settings: Sequence[Setting], slow_jobs: int) -> list[str]:
    """The block of the page: aims, methods over all tables, and the tables apart."""
    lines = [conditions, "", *published.table(AIMS_HEAD, aims(settings))]
    for objectives, parallel in sorted({(item.objectives, item.parallel) for item in settings}):
        chosen = [item for item in settings if (item.objectives, item.parallel) == (objectives, parallel)]
        setting = f"{objectives}, {parallel} at a time"
        methods = sorted(_by_method(chosen).items(), key=lambda item: _to_90(item[1]))
        rows = [_method_row(method, searches) for method, searches in methods]
        lines += ["", f"{setting}, all tables together; slow methods had {slow_jobs} jobs at most:", ""]
        lines += published.table(_METHODS_HEAD, rows)
        if len(chosen) > 1:
            lines += ["", f"{setting}, dollars to 90 % and share held at the end, by table:", ""]
            lines += published.table(_TABLES_HEAD, map(_table_row, chosen))
    return lines


AIMS_HEAD = ("over all tables of this run", "aim", *_OURS, "best peer", "random")
_METHODS_HEAD = (
    *("method", "dollars to 90 %", "to 95 %", "held at 1", "at the end", "at the end, worst table"),
    *("jobs", "CPU s"),
)
_TABLES_HEAD = (
    *("table", "to 90 %: random", "best peer", "which", *_OURS),
    *("at the end: random", "best peer", "which", *_OURS),
)


def aims(settings: Sequence[Setting]) -> Iterable[tuple[str, ...]]:
    """Rows under `AIMS_HEAD`: the aim, and what the product and others reach; empty cells were not searched for.

    Dollars are medians over all seeds and tables; a share held is the median over seeds, then the median or the worst
    over tables.
    """
    for objectives, parallel, share, aim in _DOLLARS:
        chosen = [item for item in settings if (item.objectives, item.parallel) == (objectives, parallel)]
        label = f"{objectives}, {parallel} at a time, dollars to {share:.0%}"
        values = {method: _usd(searches, share) for method, searches in _by_method(chosen).items()}
        yield label, aim, *_cells(values, min)
    for label, budget, over_tables, aim in _HELD:
        chosen = [item for item in settings if (item.objectives, item.parallel) == ("cost/F1", 1)]
        chosen = [item for item in chosen if item.searches[0].budgets[-1] >= budget]
        values = {
            method: over_tables([statistics.median(search.shares(budget)) for search in searches])
            for method, searches in _by_method(chosen).items()
        }
        yield label, aim, *_cells(values, max)
    lines = sum(len(path.read_text().splitlines()) for pattern in MODULES for path in _SOURCE.glob(pattern))
    yield "lines of the search and its models", f"at most {_MOST_LINES}", str(lines), "", "", ""


_DOLLARS = (
    ("cost/F1", 1, 0.9, "2"),
    ("cost/F1", 1, 0.95, "2.5"),
    ("cost/F1", 4, 0.9, "20"),
    ("cost/F1", 4, 0.95, "30"),
    ("time/F1", 1, 0.9, "35"),
)
_HELD: tuple[tuple[str, float, Callable[[Iterable[float]], float], str], ...] = (
    ("cost/F1, 1 at a time, share held at 1 median job, median table", 1.0, statistics.median, "random's"),
    ("cost/F1, 1 at a time, share held at 40 median jobs, worst table", 40.0, min, "0.94 and best peer's"),
)


def _by_method(settings: Sequence[Setting]) -> dict[str, list[Searches]]:
    """The searches of each method that has searched all these tables."""
    result: dict[str, list[Searches]] = {}
    for search in (search for setting in settings for search in setting.searches):
        result.setdefault(search.method, []).append(search)
    return {method: searches for method, searches in result.items() if len(searches) == len(settings)}


def _cells(values: Mapping[str, float], best: Callable[[Iterable[float]], float]) -> tuple[str, ...]:
    """The values of ours, of the best peer with its name, and of random search; empty for methods that did not run."""
    peers = {method: value for method, value in values.items() if method not in {*_OURS, "random"}}
    top = best(peers.values()) if peers else None
    name = next((method for method, value in peers.items() if value == top), "")
    peer = "" if top is None else _text(top) + (f" ({name})" if math.isfinite(top) else "")
    return (*(_text(values.get(method)) for method in _OURS), peer, _text(values.get("random")))


def _method_row(method: str, searches: Sequence[Searches]) -> tuple[str, ...]:
    ends = [statistics.median(search.shares(search.budgets[-1])) for search in searches]
    courses = [course for search in searches for course in search.longest]
    return (
        method,
        *(_text(_usd(searches, share)) for share in (0.9, 0.95)),
        f"{statistics.median(statistics.median(search.shares(1.0)) for search in searches):.2f}",
        f"{statistics.median(ends):.2f}",
        f"{min(ends):.2f}",
        f"{statistics.median(len(course.usd) for course in courses):g}",
        f"{statistics.median(course.cpu_seconds for course in courses):.1f}",
    )


def _table_row(setting: Setting) -> tuple[str, ...]:
    by_method = {search.method: search for search in setting.searches}
    peers = [search for method, search in by_method.items() if method not in {*_OURS, "random"}]

    def row(measure: Callable[[Searches], float], best: Callable[..., Searches | None]) -> list[str]:
        top = best(peers, key=measure, default=None)
        chosen = [by_method.get("random"), top, *(by_method.get(method) for method in _OURS)]
        cells = [_text(None if search is None else measure(search)) for search in chosen]
        return [*cells[:2], top.method if top and math.isfinite(measure(top)) else "", *cells[2:]]

    to_90 = row(lambda search: _usd([search], 0.9), min)
    return (setting.name, *to_90, *row(lambda search: statistics.median(search.shares(search.budgets[-1])), max))


def _usd(searches: Sequence[Searches], share: float) -> float:
    """Median dollars over all seeds until the front has a share; infinite: half of the searches never had it."""
    return statistics.median_high([usd for search in searches for usd in search.usd_to(share)])


def _to_90(searches: Sequence[Searches]) -> tuple[float, float]:
    """Orders methods: median dollars to 90 %, then the share that is held at the end."""
    shares = [share for search in searches for share in search.shares(search.budgets[-1])]
    return _usd(searches, 0.9), -statistics.median(shares)


def _text(value: float | None) -> str:
    return "" if value is None else short(value) if math.isfinite(value) else "not"
