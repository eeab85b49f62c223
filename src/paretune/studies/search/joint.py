"""`method: joint`: all searched parameters at once, as Optuna's sampler suggests.

The first trial is the default job, or the point nearest to it, which the search has to beat.
"""

import itertools
from collections.abc import Iterable, Mapping

from paretune.core.pareto import front
from paretune.spec import metrics
from paretune.studies.definition.objectives import Constraints, costs
from paretune.studies.definition.space import Value
from paretune.studies.results.trials import Trial, TrialStatus
from paretune.studies.search.default_job import default_point
from paretune.studies.search.driver import MOST_REFUSALS, Driver
from paretune.studies.search.early_stopping import is_hopeless, optimistic_end
from paretune.studies.search.optuna_study import violations
from paretune.studies.search.stopping import costs_too_much, has_stalled, lacks_objective
from paretune.studies.search.trial_job import TrialJob
from paretune.studies.search.untried import UntriedPoints

_FORESEEN = {metrics.COST_USD, metrics.BILLABLE_SECONDS, metrics.JOB_SECONDS}
"""Objectives whose value at the end of a job is known while it runs."""
_NEVER_BEFORE = 0.15  # share of the training before which no curve is judged


def search(driver: Driver) -> str:
    """Run the study to its end; why it ended, in words."""
    suggesting = _Suggesting(driver)
    stopping = _EarlyStopping(driver)
    reason, judged = "", -1
    while True:
        if judged != driver.history.booking_order:  # what has ended may have left dollars, or is to be tried again
            reason, judged = "", driver.history.booking_order
        while not reason and driver.has_free_slot():
            driver.workplace.interruption.check()
            reason = suggesting.begin_next()
        stopping.poll()
        driver.poll()
        if reason and not driver.running and not driver.history.due and judged == driver.history.booking_order:
            return reason
        driver.wait()
        if driver.next_due() is not None:
            reason = ""


def front_of(
    trials: Iterable[Trial], objectives: Mapping[str, str], constraints: Constraints | None = None
) -> list[Trial]:
    """Completed first trials that meet the constraints and no other one beats, the cheapest first."""
    found = [
        trial
        for trial in trials
        if trial.status is TrialStatus.COMPLETED
        and trial.repeats is None
        and set(objectives) <= set(trial.values)
        and all(amount <= 0 for amount in violations(trial.values, constraints or {}).values())
    ]
    marks = front([costs(trial.values, objectives) for trial in found], [False] * len(objectives))
    return sorted(itertools.compress(found, marks), key=lambda trial: trial.cost_usd or 0.0)


class _Suggesting:
    """Starts trials: first retryable ones that are due, then the sampler's, then any that are untried and fit."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._untried = UntriedPoints(driver)
        self._is_affordable = driver.affordable()
        self._refused = 0
        self._judged, self._enough = -1, ""

    def begin_next(self) -> str:
        """Start one; in words why none is started, else an empty text."""
        driver = self._driver
        if driver.start_due():
            return ""
        if reason := self._over():
            return reason
        point = self._untried.next_point()  # no trial is made before it is known that one can be paid
        if point is None:
            return self._untried.why_exhausted()
        self._is_affordable = driver.affordable()
        if driver.file.sampler != "grid" and not driver.history.booking_order and not driver.running:
            first = default_point(driver)
            if first is not None and self._can_be_paid(first) and driver.start(driver.study.ask_for(first)):
                return ""
        if driver.file.sampler != "grid" and self._refused < MOST_REFUSALS:
            asked = driver.study.ask(self._can_be_paid, point)
            self._refused = 0 if driver.start(asked) else self._refused + 1
            return ""
        if driver.start(driver.study.ask_for(point)):
            self._refused = MOST_REFUSALS // 2
        return ""

    def _can_be_paid(self, point: Mapping[str, Value]) -> bool:
        """False for a point whose job would be refused for its worst case; the others teach the sampler something."""
        driver = self._driver
        jobs = driver.file.jobs_at([dict(point)])
        return all(not driver.is_open(spec) or self._is_affordable(driver.worst_case.limited(spec)) for _, spec in jobs)

    def _over(self) -> str:
        driver = self._driver
        under_way = sum(job.counts for job in driver.running)
        if driver.has_enough(driver.history.begun + under_way):
            return f"{driver.file.n_trials} trials were made"
        if driver.history.booking_order != self._judged:
            self._judged, trials = driver.history.booking_order, list(driver.trials.values())
            stalled = "" if driver.file.sampler == "grid" else has_stalled(trials, driver.file)
            stalled = stalled or lacks_objective(trials, driver.history.measured, driver.file)
            self._enough = stalled or costs_too_much(trials, driver.file)
        return self._enough


class _EarlyStopping:
    """Stops jobs whose optimistic end the front already dominates; what they have used is paid."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        names, self._quality = set(driver.file.objectives), driver.file.judged_by
        self._is_possible = self._quality is not None and names <= {self._quality.metric, *_FORESEEN}
        self._judged: dict[int, int] = {}
        self._known = -1
        self._best: list[Mapping[str, float]] = []

    def poll(self) -> None:
        """Judge each job whose curve has grown since the last call."""
        for job in self._driver.running if self._is_possible else ():
            if self._judged.get(job.number) != len(job.curve):
                self._judged[job.number] = len(job.curve)
                self._judge(job)

    def _judge(self, job: TrialJob) -> None:
        driver, quality = self._driver, self._quality
        if quality is None or not job.curve or not _NEVER_BEFORE <= job.curve[-1][0] < 1.0:
            return
        ahead, hoped = job.expected_end(), optimistic_end(job.curve, list(driver.history.curves.values()), quality)
        if hoped is None or ahead is None:
            return
        end = {quality.metric: hoped, **ahead}
        if self._known != driver.history.booking_order:
            found = front_of(driver.trials.values(), driver.file.objectives, driver.file.constraints)
            self._known, self._best = driver.history.booking_order, [trial.values for trial in found]
        if is_hopeless(end, self._best, driver.file.objectives):
            reason = f"even an optimistic end ({quality.metric} {hoped:.3f}) would be beaten by the front"
            job.stop_early(reason, {**end, quality.metric: job.curve[-1][1]})
