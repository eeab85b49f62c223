"""The costs of searches, as lines of tables.

All dollars are in median jobs: they are divided by the median dollars of the jobs in the table that complete. So worlds
with expensive jobs and worlds with cheap jobs can be compared and summarized together.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import published

from search.scoring import SHARES, Course, middle, short

_OURS = ("split", "sampler")
"""The product, and its sampler alone; neither is a peer."""
_SAMPLER = Path(__file__).parents[2] / "src" / "paretune" / "studies" / "sampler"


@dataclass(frozen=True, kw_only=True)
class Searches:
    """All searches of one method in the worlds of one kind, with one course per seed."""

    method: str
    budget: float  # of each search
    courses: Sequence[Course]

    def share(self, budget: float) -> float:
        """Return the median share of the true front that is reached with this many dollars."""
        return statistics.median(course.share_at(budget) for course in self.courses)

    @property
    def end(self) -> float:
        """Median share of the true front that is reached at the end."""
        return self.share(self.budget)

    def usd_to(self, share: float) -> list[float]:
        """Return the dollars until the front has a share, one number per seed; infinite if it never does."""
        return [course.reached(share) for course in self.courses]


Settings = Mapping[str, Sequence[Searches]]
"""Maps the kind of world to the searches of each method."""


def line_of(search: Searches) -> tuple[str, ...]:
    """Return the line of a method in the printed table, under `head`."""
    courses = search.courses
    spent = [course.usd[-1] if course.usd else 0.0 for course in courses]
    usd = [middle(search.usd_to(share), spent) for share in SHARES]
    lost = statistics.median(sum(not status.endswith("Completed") for status in c.statuses) for c in courses)
    again = statistics.median(c.again for c in courses)
    jobs = statistics.median(len(c.usd) for c in courses)
    cpu = statistics.median(c.cpu_seconds for c in courses)
    return search.method, *usd, f"{search.end:.2f}", f"{lost:g}/{again:g}/{jobs:g}", f"{cpu:.1f}"


def head(budget: float) -> tuple[str, ...]:
    """Return the names of the columns of `line_of`."""
    return ("", *(f"to {share:.0%}" for share in SHARES), f"share at {short(budget)}", "lost/again/all", "CPU s")


def show(lines: Sequence[Sequence[str]]) -> None:
    """Print a table; only its first column is aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        rest = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        print("  " + "  ".join([line[0].ljust(widths[0]), *rest]))


def block(conditions: str, settings: Settings, slow_jobs: int) -> list[str]:
    """Return the block of the page: the aims, the methods over all kinds of worlds, and each kind separately."""
    by_method = _by_method(settings)
    methods = sorted(by_method.items(), key=lambda item: _to_90(item[1]))
    lines = [conditions, "", *published.table(_AIMS_HEAD, _aims(by_method))]
    lines += ["", f"cost/F1, 1 at a time, all tables together; slow methods had {slow_jobs} jobs at most:", ""]
    lines += published.table(_METHODS_HEAD, [_method_row(method, searches) for method, searches in methods])
    if len(settings) > 1:
        lines += ["", "cost/F1, 1 at a time, dollars to 90 % and share held at the end, by table:", ""]
        lines += published.table(_TABLES_HEAD, [_table_row(name, searches) for name, searches in settings.items()])
    return lines


_AIMS_HEAD = ("over all tables of this run", "aim", *_OURS, "best peer", "random")
_METHODS_HEAD = (
    *("method", "dollars to 90 %", "to 95 %", "held at 1", "at the end", "at the end, worst table"),
    *("spent", "jobs", "CPU s"),
)
_TABLES_HEAD = (
    *("table", "to 90 %: random", "best peer", "which", *_OURS),
    *("at the end: random", "best peer", "which", *_OURS),
)


def _aims(by_method: Mapping[str, Sequence[Searches]]) -> Iterable[tuple[str, ...]]:
    """Yield rows under `_AIMS_HEAD`: the aim, and what the product and others reach; a cell without searches is empty.

    Dollars are medians over all seeds and tables; a share is the median over seeds, then the median or the worst over
    tables.
    """

    def row(measure: Callable[[Sequence[Searches]], float], best: Callable[..., str]) -> list[str]:
        values = {method: measure(searches) for method, searches in by_method.items()}
        peers = {method: value for method, value in values.items() if method not in {*_OURS, "random"}}
        peer = ""
        if peers:
            top = best(peers, key=lambda method: peers[method])
            peer = _text(peers[top]) + (f" ({top})" if math.isfinite(peers[top]) else "")
        return [*(_text(values.get(method)) for method in _OURS), peer, _text(values.get("random"))]

    for share, aim in ((0.9, "2"), (0.95, "2.5")):
        yield f"dollars to {share:.0%}", aim, *row(partial(_usd, share=share), min)
    by_median = row(lambda searches: statistics.median(search.share(1.0) for search in searches), max)
    yield "share held at 1 median job, median table", "random's", *by_median
    by_worst = row(lambda searches: min(search.share(40.0) for search in searches), max)
    yield "share held at 40 median jobs, worst table", "0.94 and best peer's", *by_worst
    lines = sum(len(path.read_text().splitlines()) for path in _SAMPLER.glob("*.py"))
    yield "lines of the search and its models", "at most 800", str(lines), "", "", ""


def _by_method(settings: Settings) -> dict[str, list[Searches]]:
    """Return the searches of each method that has searched all these tables."""
    result: dict[str, list[Searches]] = {}
    for search in (search for searches in settings.values() for search in searches):
        result.setdefault(search.method, []).append(search)
    return {method: searches for method, searches in result.items() if len(searches) == len(settings)}


def _method_row(method: str, searches: Sequence[Searches]) -> tuple[str, ...]:
    ends = [search.end for search in searches]
    courses = [course for search in searches for course in search.courses]
    return (
        method,
        *(_text(_usd(searches, share)) for share in (0.9, 0.95)),
        f"{statistics.median(search.share(1.0) for search in searches):.2f}",
        f"{statistics.median(ends):.2f}",
        f"{min(ends):.2f}",
        short(statistics.median(course.usd[-1] if course.usd else 0.0 for course in courses)),
        f"{statistics.median(len(course.usd) for course in courses):g}",
        f"{statistics.median(course.cpu_seconds for course in courses):.1f}",
    )


def _table_row(name: str, searches: Sequence[Searches]) -> tuple[str, ...]:
    by_method = {search.method: search for search in searches}
    peers = [search for method, search in by_method.items() if method not in {*_OURS, "random"}]

    def row(measure: Callable[[Searches], float], best: Callable[..., Searches | None]) -> list[str]:
        top = best(peers, key=measure, default=None)
        chosen = [by_method.get("random"), top, *(by_method.get(method) for method in _OURS)]
        cells = [_text(None if search is None else measure(search)) for search in chosen]
        return [*cells[:2], top.method if top and math.isfinite(measure(top)) else "", *cells[2:]]

    return (name, *row(lambda search: _usd([search], 0.9), min), *row(lambda search: search.end, max))


def _usd(searches: Sequence[Searches], share: float) -> float:
    """Return the median dollars over all seeds until the front has a share; infinite if half the searches never do."""
    return statistics.median_high([usd for search in searches for usd in search.usd_to(share)])


def _to_90(searches: Sequence[Searches]) -> tuple[float, float]:
    """Return a sort key for methods: median dollars to 90 %, then the share that is reached at the end."""
    shares = [course.share_at(search.budget) for search in searches for course in search.courses]
    return _usd(searches, 0.9), -statistics.median(shares)


def _text(value: float | None) -> str:
    return "" if value is None else short(value) if math.isfinite(value) else "not"
