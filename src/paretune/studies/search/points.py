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
from paretune.studies.search.default_job import default_point
from paretune.studies.search.driver import Driver

FEWEST_WITHOUT = 2  # completed trials that all lack an objective, after which a study ends
_MOST_REFUSALS = 12  # suggestions in a row that make no job, or repeat one, before untried points are listed instead
_MOST_POINTS = 5_000  # points that are all listed; of more points, or if a range is searched, `_DRAWN` are drawn
_DRAWN = 300


class Points:
    """Begins the trials of a study whose sampler is not `split`."""

    is_repeating = False

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._untried = UntriedPoints(driver)
        self._refused = 0

    def begin_next(self) -> str:
        """Start a trial; returns why none is started, or an empty text."""
        driver, tries_all = self._driver, self._driver.file.tries_all
        if reason := why_over(driver):
            return reason
        point = self._untried.next_point()  # no trial is made before it is known that one can be paid
        if point is None:
            return self._untried.why_exhausted()
        self._is_affordable = driver.admission.affordable()
        if not tries_all and not driver.bookings and not driver.running:
            first = default_point(driver)
            if first is not None and self._can_be_paid(first) and driver.begin(first) is not None:
                return ""
        if not tries_all and self._refused < _MOST_REFUSALS:
            number, suggested = driver.table.ask(self._can_be_paid, point)
            self._refused = 0 if driver.start(number, suggested) else self._refused + 1
        elif driver.begin(point) is not None:
            self._refused = _MOST_REFUSALS // 2
        return ""

    def _can_be_paid(self, point: Mapping[str, Value]) -> bool:
        """Whether the point makes a job that could run now, and would not be refused for its worst case or limit."""
        driver, worst_case = self._driver, self._driver.admission.worst_case
        jobs = driver.file.jobs_at([dict(point)])
        return bool(jobs) and all(
            driver.is_open(spec)
            and self._is_affordable(worst_case.limited(spec))
            and not worst_case.exceeds_limit(spec)
            for _, spec in jobs
        )


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
        worst_case, is_affordable = self._driver.admission.worst_case, self._driver.admission.affordable()
        self._count_too_long = self._count_too_dear = 0
        self._least_usd, self._cheapest = math.inf, None
        for point, spec in self._candidates():
            if worst_case.exceeds_limit(spec):
                self._count_too_long += 1
                continue
            limited = worst_case.limited(spec)
            if is_affordable(limited):
                return point
            self._count_too_dear += 1
            with suppress(BudgetRefused):
                usd = worst_case.usd(limited) or math.inf
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
