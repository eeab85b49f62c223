"""Points of a study that were not tried and fit what is left of its budget, for when the sampler suggests none."""

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

_MOST_POINTS = 5_000
"""Points that are all looked at; of more, or where a range is searched, as many as `_DRAWN` are drawn."""
_DRAWN = 300


class UntriedPoints:
    """Looks for points of a study in an order drawn by its seed, unless it keeps its own.

    Exact where all of up to 5,000 are choices.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        size = driver.file.size()
        self.is_exact = size is not None and size <= _MOST_POINTS
        self._left = deque(driver.file.jobs_at(driver.file.points()) if self.is_exact else [])
        if not driver.file.keeps_order:
            random.Random(driver.file.seed).shuffle(self._left)
        self._draw = random.Random(driver.file.seed + len(driver.trials))
        self._too_dear, self._least_usd = 0, math.inf
        self._cheapest: JobSpec | None = None  # of those that are too dear

    def next_point(self) -> dict[str, Value] | None:
        """A point whose job could run now, and could be paid; None where there is none."""
        is_affordable = self._driver.admission.affordable()
        self._too_dear, self._least_usd, self._cheapest = 0, math.inf, None
        for point, spec in self._candidates():
            limited = self._driver.admission.worst_case.limited(spec)
            if is_affordable(limited):
                return point
            self._too_dear += 1
            with suppress(BudgetRefused):
                usd = self._driver.admission.worst_case.usd(limited) or math.inf
                if self._cheapest is None or usd < self._least_usd:
                    self._least_usd, self._cheapest = usd, limited
        return None

    def why_exhausted(self) -> str:
        """Why there was none, in words."""
        if not self._too_dear:
            return "every point was tried" if self.is_exact else "no point was found that was not tried"
        found = "no untried point fits" if self.is_exact else f"none of {self._too_dear:,} points drawn fits"
        left = self._driver.admission.tightest_budget(self._cheapest)
        if not left or math.isinf(self._least_usd):
            limit = f"{left}, or max_cost_usd," if left else "max_cost_usd"
            return f"{found} {limit} with its worst case, or has a known price"
        mend = "raise that budget, or lower max_runtime_minutes, which bounds each job"
        return f"{found} {left} with its worst case; the least one is {self._least_usd:.4g} USD: {mend}"

    def _candidates(self) -> Iterator[tuple[dict[str, Value], JobSpec]]:
        """Open points, those of a list in turn: the one that was returned last comes last."""
        driver = self._driver
        if not self.is_exact:
            drawn = (driver.file.jobs_at([_drawn(driver.file, self._draw)]) for _ in range(_DRAWN))
            yield from (pair for found in drawn for pair in found if driver.is_open(pair[1]))
            return
        for _ in range(len(self._left)):
            pair = self._left.popleft()
            if driver.history.is_closed(pair[1]):
                continue
            self._left.append(pair)
            if driver.is_open(pair[1]):
                yield pair


def some_jobs(file: StudyFile, most: int) -> list[JobSpec]:
    """Jobs of the study, the first value of everything first if that makes one; none that contradicts itself."""
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
