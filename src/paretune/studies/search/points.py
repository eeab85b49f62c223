"""Suggests the points of one of Optuna's samplers; every point in turn for `grid` and `points`."""

import math
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from paretune.core.errors import BudgetRefused
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices, Range, is_whole
from paretune.studies.results.trials import Trial, TrialStatus
from paretune.studies.search.driver import Driver

FEWEST_WITHOUT = 2  # completed trials that all lack an objective, after which a study ends
_MOST_POINTS = 5_000  # points that are all listed; of more points, or if a range is searched, `_DRAWN` are drawn
_DRAWN = 300


class Points:
    """Begins the trials of a study whose sampler is not `split`.

    Points of choices are all listed if there are at most 5,000, in an order drawn by the study's seed unless the study
    keeps its own. Of others some are drawn.
    """

    is_repeating = False

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._worst_case = driver.admission.worst_case
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
        if reason := why_over(driver):
            return reason
        self._is_affordable = driver.admission.affordable()
        point, refused = self._first_that_can_be_paid()  # no trial is made before there is one
        if point is None:
            return self._why_none(refused)
        if driver.file.tries_all:
            driver.begin(point)
        else:
            driver.start(*driver.table.ask(self._accepts, point))
        return ""

    def _first_that_can_be_paid(self) -> tuple[dict[str, Value] | None, list[JobSpec]]:
        """A point whose job can be paid, or None; and the jobs of those before it, which cannot."""
        refused = list[JobSpec]()
        for point, spec in self._candidates():
            if self._can_be_paid(spec):
                return point, refused
            refused.append(spec)
        return None, refused

    def _candidates(self) -> Iterator[tuple[dict[str, Value], JobSpec]]:
        """Points whose jobs could be started now."""
        file = self._driver.file
        drawn = (pair for _ in range(_DRAWN) for pair in file.jobs_at([_drawn(file, self._draw)]))
        while self._left and self._driver.history.is_closed(self._left[0][1]):  # that is looked up once
            self._left.popleft()
        points = self._left if self._is_exact else drawn
        return ((point, spec) for point, spec in points if self._driver.is_open(spec))

    def _can_be_paid(self, spec: JobSpec) -> bool:
        return not self._worst_case.exceeds_limit(spec) and self._is_affordable(self._worst_case.limited(spec))

    def _accepts(self, point: Mapping[str, Value]) -> bool:
        """Whether the point makes a job that could run now, and would not be refused for its worst case or limit."""
        jobs = self._driver.file.jobs_at([dict(point)])
        return any(self._driver.is_open(spec) and self._can_be_paid(spec) for _, spec in jobs)

    def _why_none(self, refused: Sequence[JobSpec]) -> str:
        """The reason why there is no point, `refused` having been too long or too dear, in words."""
        dear = [self._worst_case.limited(spec) for spec in refused if not self._worst_case.exceeds_limit(spec)]
        too_long = len(refused) - len(dear)
        if dear:
            reason = self._why_too_dear(dear)
        elif self._is_exact:
            reason = f"every {'other ' * bool(too_long)}point was tried"
        else:
            reason = "no point was found that was not tried"
        if not too_long:
            return reason
        return (
            f"{reason}; not tried: {too_long:,} that max_runtime_minutes would end by their estimates (raise it, or "
            "set force)"
        )

    def _why_too_dear(self, specs: Sequence[JobSpec]) -> str:
        none_fits = "no untried point fits" if self._is_exact else f"none of {len(specs):,} points drawn fits"
        worst_usd = [self._worst_usd(spec) for spec in specs]
        least_usd = min(worst_usd)
        left = self._driver.admission.tightest_budget(specs[worst_usd.index(least_usd)])
        if not left or math.isinf(least_usd):
            limit = f"{left}, or max_cost_usd," if left else "max_cost_usd"
            return f"{none_fits} {limit} with its worst case, or has a known price"
        mend = "raise that budget, or lower max_runtime_minutes, which bounds each job"
        return f"{none_fits} {left} with its worst case; the least one is {least_usd:.4g} USD: {mend}"

    def _worst_usd(self, spec: JobSpec) -> float:
        with suppress(BudgetRefused):  # above max_cost_usd
            return self._worst_case.reserved_usd(spec) or math.inf
        return math.inf


def some_jobs(file: StudyFile, most: int) -> list[JobSpec]:
    """Valid jobs of at most `most` drawn points; the first point has the first value of everything."""
    draw = random.Random(0)
    first: dict[str, Value] = {name: entry.corners[0] for name, entry in file.search.items()}
    return [spec for _, spec in file.jobs_at([first, *(_drawn(file, draw) for _ in range(most - 1))])]


def why_over(driver: Driver) -> str:
    """The reason why a study begins no further trial, whatever suggests it; empty while it may."""
    absent = lacks_objective(list(driver.trials.values()), driver.file)
    under_way = sum(job.trial.counts for job in driver.running)
    if driver.admission.has_enough(driver.history.counted + under_way):
        return absent or f"{driver.file.n_trials} trials were made"
    return absent


def lacks_objective(trials: Sequence[Trial], file: StudyFile) -> str:
    """The reason why no trial will ever have all objectives, in words; empty while one may.

    A training of the user's own that has completed twice without logging a metric will not log it the next time.
    """
    if not file.is_own:
        return ""
    done = [trial for trial in trials if trial.status is TrialStatus.COMPLETED]
    absent = [name for name in file.objectives if not any(name in trial.values for trial in done)]
    if len(done) < FEWEST_WITHOUT or not absent:
        return ""
    logged = ", ".join(sorted({name for trial in done for name in trial.measured} - {*file.objectives}))
    return (
        f"{len(done)} jobs have completed and none has logged {' or '.join(absent)}, which is an objective; what they "
        f"have logged beside the others is {logged or 'nothing'}: name one of these in objectives"
    )


def _drawn(file: StudyFile, draw: random.Random) -> dict[str, Value]:
    return {name: _value(name, entry, draw) for name, entry in file.search.items()}


def _value(name: str, entry: Choices | Range, draw: random.Random) -> Value:
    if isinstance(entry, Choices):
        return draw.choice(entry.values)
    value = entry.at(draw.random())
    return round(value) if is_whole(name, entry) else value
