"""Points of a study that were not tried and fit what is left of its budget, for when the sampler suggests none."""

import random
from contextlib import suppress

from paretune.core.errors import BudgetRefused
from paretune.spec.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices, Range, Value, kind_of
from paretune.studies.search.driver import Driver

_MOST_POINTS = 5_000
"""Points that are all looked at; of more, or where a range is searched, as many as `_DRAWN` are drawn."""
_DRAWN = 300


class UntriedPoints:
    """Looks for points of a study in an order drawn by its seed. Exact where all of up to 5,000 are choices."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        size = driver.file.size()
        self.is_exact = size is not None and size <= _MOST_POINTS
        self._left = driver.file.jobs_at(driver.file.points()) if self.is_exact else []
        random.Random(driver.file.seed).shuffle(self._left)
        self._draw = random.Random(driver.file.seed + len(driver.trials))
        self._too_dear = 0

    def next_point(self) -> dict[str, Value] | None:
        """A point whose job could run now; None where there is none."""
        ahead = None if self._driver.file.budget_usd is None else self._driver.left_usd()
        self._too_dear = 0
        for point, spec in self._candidates():
            with suppress(BudgetRefused):  # it is above max_cost_usd, or has no price
                worst = self._driver.worst_case.usd(spec)
                if ahead is None or (worst is not None and worst <= ahead):
                    return point
            self._too_dear += 1
        return None

    def why_exhausted(self) -> str:
        """Why there was none, in words."""
        if not self._too_dear:
            return "every point was tried" if self.is_exact else "no point was found that was not tried"
        found = "no untried point fits" if self.is_exact else f"none of {self._too_dear:,} points drawn fits"
        return f"{found} what is left of the budget ({self._driver.left_usd():.4g} USD) with its worst case"

    def _candidates(self) -> list[tuple[dict[str, Value], JobSpec]]:
        driver = self._driver
        if not self.is_exact:
            found = driver.file.jobs_at(_drawn(driver.file, self._draw) for _ in range(_DRAWN))
        else:
            found = self._left = [pair for pair in self._left if not driver.is_closed(pair[1])]
        return [pair for pair in found if driver.is_open(pair[1])]


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
    return round(value) if kind_of(name) is int else value
