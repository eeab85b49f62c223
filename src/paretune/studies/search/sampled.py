"""The next job by one of Optuna's samplers; for `grid` and `points`, every point in turn."""

import math
import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from paretune.core.errors import BudgetRefused, refuse
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices, Range, is_whole
from paretune.studies.search.driver import Driver

_MOST_POINTS = 5_000  # points that are all listed; of more points, or if a range is searched, `_DRAWN` are drawn
_DRAWN = 300


class Sampled:
    """Begins the trials of a study whose sampler is not `split`.

    Points of choices are all listed if there are at most 5,000, in an order drawn by the study's seed unless the study
    keeps its own. Of others some are drawn.
    """

    is_repeating = False

    def __init__(self, driver: Driver) -> None:
        self._driver, self._money = driver, driver.money
        file, size = driver.file, driver.file.size()
        self._is_exact = size is not None and size <= _MOST_POINTS
        points = file.jobs_at(file.points_in_turn()) if self._is_exact else []
        if not file.design:
            random.Random(file.seed).shuffle(points)
        self._left = deque(points)
        self._draw = random.Random(file.seed + len(driver.trials))

    def begin_next(self) -> str:
        """Start a trial; returns why none is started, or an empty text."""
        driver = self._driver
        if reason := driver.why_over():
            return reason
        self._is_affordable = self._money.affordable()
        too_long, dear = 0, list[JobSpec]()
        for point, spec in self._candidates():
            if not driver.is_open(spec):
                continue
            if self._can_be_paid(spec):  # no trial is made before there is such a point
                if driver.file.tries_all:
                    driver.begin(point)
                else:
                    driver.start(*driver.table.ask(self._accepts, point))
                return ""
            if self._money.exceeds_limit(spec):
                too_long += 1
            else:
                dear.append(self._money.limited(spec))
        return self._why_none(too_long, dear)

    def _candidates(self) -> Iterable[tuple[dict[str, Value], JobSpec]]:
        while self._left and self._driver.history.is_closed(self._left[0][1]):  # that is looked up once
            self._left.popleft()
        file = self._driver.file
        return self._left if self._is_exact else file.jobs_at(_drawn(file, self._draw) for _ in range(_DRAWN))

    def _can_be_paid(self, spec: JobSpec) -> bool:
        return not self._money.exceeds_limit(spec) and self._is_affordable(self._money.limited(spec))

    def _accepts(self, point: Mapping[str, Value]) -> bool:
        """Whether the point makes a job that could run now, and would not be refused for its worst case or limit."""
        jobs = self._driver.file.jobs_at([dict(point)])
        return any(self._driver.is_open(spec) and self._can_be_paid(spec) for _, spec in jobs)

    def _why_none(self, too_long: int, dear: Sequence[JobSpec]) -> str:
        """The reason why there is no point, in words: jobs are too long or too dear, or all have run."""
        reason = "no point was found that was not tried"
        if dear:
            reason = self._why_too_dear(dear)
        elif self._is_exact:
            reason = f"every {'other ' * bool(too_long)}point was tried"
        limit = "that max_runtime_minutes would end by their estimates (raise it, or set force)"
        return f"{reason}; not tried: {too_long:,} {limit}" if too_long else reason

    def _why_too_dear(self, specs: Sequence[JobSpec]) -> str:
        none_fits = "no untried point fits" if self._is_exact else f"none of {len(specs):,} points drawn fits"
        worst_usd = [math.inf]
        for spec in specs:
            with suppress(BudgetRefused):  # above max_cost_usd
                worst_usd.append(self._money.worst_usd(spec) or math.inf)
        left, least_usd = self._money.tightest_budget(), min(worst_usd)
        if not left or math.isinf(least_usd):
            limit = f"{left}, or max_cost_usd," if left else "max_cost_usd"
            return f"{none_fits} {limit} with its worst case, or has a known price"
        mend = "raise that budget, or lower max_runtime_minutes, which bounds each job"
        return f"{none_fits} {left} with its worst case; the least one is {least_usd:.4g} USD: {mend}"


def some_jobs(file: StudyFile, most: int) -> list[JobSpec]:
    """Jobs of at most `most` drawn points, the first with the first value of everything; BadInput if there are none."""
    draw = random.Random(0)
    first: dict[str, Value] = {name: entry.corners[0] for name, entry in file.search.items()}
    jobs = [spec for _, spec in file.jobs_at([first, *(_drawn(file, draw) for _ in range(most - 1))])]
    refuse([] if jobs else [f"search: none of {most} points drawn makes a job: leave out what contradicts itself"])
    return jobs


def _drawn(file: StudyFile, draw: random.Random) -> dict[str, Value]:
    return {name: _value(name, entry, draw) for name, entry in file.search.items()}


def _value(name: str, entry: Choices | Range, draw: random.Random) -> Value:
    if isinstance(entry, Choices):
        return draw.choice(entry.values)
    value = entry.at(draw.random())
    return round(value) if is_whole(name, entry) else value
