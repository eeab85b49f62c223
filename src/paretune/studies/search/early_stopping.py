"""Stops running jobs that cannot end on the front, even if they gain as much as the best finished job from there."""

import operator
from collections.abc import Mapping, Sequence

import numpy as np

from paretune.ledger.trial_entry import Curve
from paretune.specification import metrics
from paretune.studies.definition.objectives import costs
from paretune.studies.definition.quality import F1, Quality
from paretune.studies.search.driver import Driver
from paretune.studies.search.trial_job import TrialJob

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
