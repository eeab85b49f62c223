"""Untried points that fit what is left of a study's budget, for when the sampler suggests none."""

import math
import random
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

from paretune.core.errors import BudgetRefused
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices, Range, is_whole
from paretune.studies.search.driver import Driver

_MOST_POINTS = 5_000  # points that are all listed; of more points, or if a range is searched, `_DRAWN` are drawn
_DRAWN = 300


class UntriedPoints:
    """Finds untried points of a study, in an order drawn by its seed unless the study keeps its own order.

    Finds all points if there are at most 5,000, all of choices.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        size = driver.file.size()
        self.is_exact = size is not None and size <= _MOST_POINTS
        self._left = deque(driver.file.jobs_at(driver.file.points_in_turn()) if self.is_exact else [])
        if not driver.file.design:
            random.Random(driver.file.seed).shuffle(self._left)
        self._draw = random.Random(driver.file.seed + len(driver.trials))
        self._count_too_long = self._count_too_dear = 0
        self._least_usd = math.inf
        self._cheapest: JobSpec | None = None  # of those that are too dear

    def next_point(self) -> dict[str, Value] | None:
        """A point whose job could run now and can be paid, or None."""
        is_affordable = self._driver.admission.affordable()
        self._count_too_long = self._count_too_dear = 0
        self._least_usd, self._cheapest = math.inf, None
        for point, spec in self._candidates():
            if self._driver.admission.worst_case.exceeds_limit(spec):
                self._count_too_long += 1
                continue
            limited = self._driver.admission.worst_case.limited(spec)
            if is_affordable(limited):
                return point
            self._count_too_dear += 1
            with suppress(BudgetRefused):
                usd = self._driver.admission.worst_case.usd(limited) or math.inf
                if self._cheapest is None or usd < self._least_usd:
                    self._least_usd, self._cheapest = usd, limited
        return None

    def why_exhausted(self) -> str:
        """The reason why `next_point` has found none, in words."""
        if self._count_too_long:
            reason = "that max_runtime_minutes would end by their estimates (raise it, or set force)"
            return f"{self._why_no_other()}; not tried: {self._count_too_long:,} {reason}"
        return self._why_no_other()

    def _why_no_other(self) -> str:
        if not self._count_too_dear:
            return (
                f"every {'other ' * bool(self._count_too_long)}point was tried"
                if self.is_exact
                else "no point was found that was not tried"
            )
        none_fits = "no untried point fits" if self.is_exact else f"none of {self._count_too_dear:,} points drawn fits"
        left = self._driver.admission.tightest_budget(self._cheapest)
        if not left or math.isinf(self._least_usd):
            limit = f"{left}, or max_cost_usd," if left else "max_cost_usd"
            return f"{none_fits} {limit} with its worst case, or has a known price"
        mend = "raise that budget, or lower max_runtime_minutes, which bounds each job"
        return f"{none_fits} {left} with its worst case; the least one is {self._least_usd:.4g} USD: {mend}"

    def _candidates(self) -> Iterator[tuple[dict[str, Value], JobSpec]]:
        """Points whose jobs could be started now; those of a list in turn, the point returned last at the end."""
        driver = self._driver
        if not self.is_exact:
            drawn = (driver.file.jobs_at([_drawn(driver.file, self._draw)]) for _ in range(_DRAWN))
            yield from (pair for pairs in drawn for pair in pairs if driver.is_open(pair[1]))
            return
        for _ in range(len(self._left)):
            pair = self._left.popleft()
            if driver.history.is_closed(pair[1]):
                continue
            self._left.append(pair)
            if driver.is_open(pair[1]):
                yield pair


def some_jobs(file: StudyFile, most: int) -> list[JobSpec]:
    """Valid jobs of at most `most` drawn points; the first point has the first value of everything."""
    draw = random.Random(0)
    first: dict[str, Value] = {name: entry.corners[0] for name, entry in file.search.items()}
    return [spec for _, spec in file.jobs_at([first, *(_drawn(file, draw) for _ in range(most - 1))])]


def _drawn(file: StudyFile, draw: random.Random) -> dict[str, Value]:
    return {name: _value(name, entry, draw) for name, entry in file.search.items()}


def _value(name: str, entry: Choices | Range, draw: random.Random) -> Value:
    if isinstance(entry, Choices):
        return draw.choice(entry.values)
    value = entry.at(draw.random())
    return round(value) if is_whole(name, entry) else value
