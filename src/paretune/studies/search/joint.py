"""`method: joint`: all searched parameters at once, as Optuna's sampler suggests.

The first trial is the default job, or the point nearest to it, which the search has to beat.
"""

import operator
from collections.abc import Mapping, Sequence

import numpy as np

from paretune.ledger.trial_entry import Curve
from paretune.specification import metrics
from paretune.specification.parameters import Value
from paretune.studies.definition.objectives import costs
from paretune.studies.definition.quality import F1, Quality
from paretune.studies.search.default_job import default_point
from paretune.studies.search.driver import MOST_REFUSALS, Driver
from paretune.studies.search.stopping import costs_too_much, has_stalled, lacks_objective
from paretune.studies.search.trial_job import TrialJob
from paretune.studies.search.untried import UntriedPoints

FEWEST_CURVES = 3  # finished curves that are needed to predict how a curve ends
_MARGIN = 2.0  # standard deviations of one run
_NEVER_BEFORE = 0.15  # share of the training before which no curve is judged
_FORESEEN = {metrics.COST_USD, metrics.BILLABLE_SECONDS, metrics.JOB_SECONDS}
"""Objectives whose value at the end of a job is known while it runs."""


class EarlyStopping:
    """Stops jobs whose optimistic end the front already dominates; what they have used is paid."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        names, self._quality = set(driver.file.objectives), driver.file.judged_by
        self._is_possible = self._quality is not None and names <= {self._quality.metric, *_FORESEEN}
        self._judged: dict[int, int] = {}

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
        ahead, hoped = job.expected_end(), optimistic_end(job.curve, driver.history.curves, quality)
        if hoped is None or ahead is None:
            return
        end = {quality.metric: hoped, **ahead}
        if is_hopeless(end, [trial.values for trial in driver.history.front], driver.file.objectives):
            reason = f"even an optimistic end ({quality.metric} {hoped:.3f}) would be beaten by the front"
            job.stop_early(reason, {**end, quality.metric: job.curve[-1][1]})


def optimistic_end(curve: Curve, finished: Sequence[Curve], quality: Quality = F1) -> float | None:
    """The quality that a job may still reach: its value now, the largest gain of any job from here, and noise.

    At most the best possible value. None while too few jobs have shown how curves end, or if the metric's noise is
    unknown.
    """
    if not curve or quality.noise is None:
        return None
    share, value = curve[-1]
    complete = [other for other in finished if other and other[-1][0] >= 1.0 and other[0][0] <= share <= other[-1][0]]
    gains = [quality.sign * (other[-1][1] - float(np.interp(share, *np.transpose(other)))) for other in complete]
    if len(gains) < FEWEST_CURVES:
        return None
    noise = quality.noise * (abs(value) if quality.is_relative else 1.0)
    hoped = value + quality.sign * (max(0.0, *gains) + _MARGIN * noise)
    return min(quality.highest, max(quality.lowest, hoped))


def is_hopeless(
    optimistic: Mapping[str, float], front: Sequence[Mapping[str, float]], objectives: Mapping[str, str]
) -> bool:
    """Whether a point of the front is at least as good in every objective as the job's optimistic end."""
    if not set(objectives) <= set(optimistic):
        return False
    hoped = costs(optimistic, objectives)
    return any(all(map(operator.le, costs(point, objectives), hoped)) for point in front)


_LOOKS = 200
"""The front is compared with all trials each time their number has grown by this part; below 200, after each trial."""


def search(driver: Driver) -> str:
    """Run the study to its end; returns why it ended, in words."""
    suggesting = _Suggesting(driver)
    stopping = EarlyStopping(driver)
    reason, judged = "", -1
    while True:
        if judged != driver.history.booking_order:  # what has ended may have left dollars, or is to be tried again
            reason, judged = "", driver.history.booking_order
        while not reason and driver.has_free_slot():
            driver.workplace.interruption.check()
            reason = suggesting.begin_next()
        stopping.poll()
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
        self._judged, self._next_look, self._enough = -1, 0, ""

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
        if driver.file.sampler != "grid" and not driver.history.booking_order and not driver.running:
            first = default_point(driver)
            if first is not None and self._can_be_paid(first) and driver.start(driver.study.ask_for(first)):
                return ""
        if driver.file.sampler != "grid" and self._refused < MOST_REFUSALS:
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
        if driver.admission.deadline is not None and (reason := driver.admission.deadline.why_over()):
            return reason
        under_way = sum(job.counts for job in driver.running)
        count, trials = driver.history.booking_order, list(driver.trials.values())
        if driver.admission.has_enough(driver.history.counted + under_way):
            absent = lacks_objective(trials, driver.history.measured, driver.file)
            return absent or f"{driver.file.n_trials} trials were made"
        if count != self._judged and (self._enough or count >= self._next_look):
            self._judged, self._next_look = count, count + 1 + count // _LOOKS
            stalled = "" if driver.file.sampler == "grid" else has_stalled(trials, driver.file)
            stalled = stalled or lacks_objective(trials, driver.history.measured, driver.file)
            self._enough = stalled or costs_too_much(trials, driver.file)
        return self._enough
