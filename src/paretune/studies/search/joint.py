"""All searched parameters at once, as Optuna's sampler suggests.

The first trial is the default job, or the point nearest to it, which the search has to beat.
"""

from collections.abc import Mapping

from paretune.specification.parameters import Value
from paretune.studies.search.default_job import default_point
from paretune.studies.search.driver import MOST_REFUSALS, Driver
from paretune.studies.search.stopping import costs_too_much, has_stalled, lacks_objective
from paretune.studies.search.untried import UntriedPoints


def search(driver: Driver) -> str:
    """Run the study to its end; returns why it ended, in words."""
    suggesting = _Suggesting(driver)
    reason, judged = "", -1
    while True:
        if judged != driver.history.booking_order:  # what has ended may have left dollars, or is to be tried again
            reason, judged = "", driver.history.booking_order
        while not reason and driver.has_free_slot():
            driver.workplace.interruption.check()
            reason = suggesting.begin_next()
        driver.poll()
        if reason and not driver.running and not driver.history.retries and judged == driver.history.booking_order:
            return reason
        driver.wait()
        if driver.history.next_retry(driver.workplace.clock.now()) is not None:
            reason = ""


class _Suggesting:
    """Starts trials: first retries that are due, then the sampler's points, then any untried ones that fit."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._untried = UntriedPoints(driver)
        self._is_affordable = driver.admission.affordable()
        self._refused = 0
        self._judged, self._enough = -1, ""

    def begin_next(self) -> str:
        """Start a trial; returns why none is started, or an empty text."""
        driver = self._driver
        if driver.start_retry():
            return ""
        if reason := self._over():
            return reason
        point = self._untried.next_point()  # no trial is made before it is known that one can be paid
        if point is None:
            return self._untried.why_exhausted()
        self._is_affordable = driver.admission.affordable()
        if not driver.file.tries_all and not driver.history.booking_order and not driver.running:
            first = default_point(driver)
            if first is not None and self._can_be_paid(first) and driver.start(driver.study.ask_for(first)):
                return ""
        if not driver.file.tries_all and self._refused < MOST_REFUSALS:
            suggestion = driver.study.ask(self._can_be_paid, point)
            self._refused = 0 if driver.start(suggestion) else self._refused + 1
            return ""
        if driver.start(driver.study.ask_for(point)):
            self._refused = MOST_REFUSALS // 2
        return ""

    def _can_be_paid(self, point: Mapping[str, Value]) -> bool:
        """Whether no job of a point would be refused for its worst case or its limit."""
        driver, worst_case = self._driver, self._driver.admission.worst_case
        return all(
            not driver.is_open(spec)
            or (self._is_affordable(worst_case.limited(spec)) and not worst_case.exceeds_limit(spec))
            for _, spec in driver.file.jobs_at([dict(point)])
        )

    def _over(self) -> str:
        driver = self._driver
        under_way = sum(job.counts for job in driver.running)
        count, trials = driver.history.booking_order, list(driver.trials.values())
        if driver.admission.has_enough(driver.history.counted + under_way):
            absent = lacks_objective(trials, driver.history.measured, driver.file)
            return absent or f"{driver.file.n_trials} trials were made"
        if count != self._judged:
            self._judged = count
            stalled = "" if driver.file.tries_all else has_stalled(trials, driver.file)
            stalled = stalled or lacks_objective(trials, driver.history.measured, driver.file)
            self._enough = stalled or costs_too_much(trials, driver.file)
        return self._enough
