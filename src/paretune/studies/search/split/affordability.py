"""The candidates of a split search that can be paid, and the maximum runtime that their jobs get."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from paretune.studies.search.split.candidates import CandidateSpace
from paretune.studies.search.split.predictions import SECONDS_KNOWN, Predictions

_COMFORTABLE = 2.0
"""Times what a job takes if it goes rather badly: the limit that it gets while there are dollars enough."""
_LEAST_LIMIT_S = 900.0
_START_SCATTER = 0.25
"""Standard deviation of the seconds around a training, relative: capacity, images and data come fast or slowly."""
_SURE = 1.0
"""Standard deviations above the expected seconds that a limit must cover: five in six jobs end before it."""
_BRIEF = 0.5
"""Share of a training's dollars from which on a probe is not worth it: the training shows as much, and F1 too."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Affordability:
    """The candidates that the dollars of a study allow. Arrays have one entry per candidate.

    A job that is cut off at its limit was paid for and shows nothing. While seconds are open, a candidate is out of
    reach only if it cannot be paid even if it goes well. While jobs under way may give dollars back, a limit is not cut
    as short as for the last job.

    Attributes:
        left_usd: dollars that the next job may be promised; infinite without a budget.
        reach_usd: dollars that will be left when the jobs under way have cost what is expected.
        is_payable: its job will probably end within a limit that `left_usd` covers.
        is_hopeless: it is impossible, or `reach_usd` will not cover it.
        is_short: whether a possible candidate that was not run is out of reach for want of dollars.
        in_time: probability to end before its limit.
        slow_s: seconds if it goes rather badly.
        follow_usd: dollars that the least training after a probe needs.
    """

    space: CandidateSpace
    predictions: Predictions
    knows_rows: np.ndarray
    left_usd: float
    reach_usd: float
    is_payable: np.ndarray
    is_hopeless: np.ndarray
    is_short: bool
    in_time: np.ndarray
    slow_s: np.ndarray
    follow_usd: float

    @classmethod
    def of(
        cls,
        space: CandidateSpace,
        predictions: Predictions,
        *,
        was_run: np.ndarray,
        knows_rows: np.ndarray,
        left_usd: float,
        reach_usd: float,
    ) -> "Affordability":
        """Compare what jobs are expected to take with the dollars that are left.

        `knows_rows` is true for candidates whose rows are known.
        """
        expected_s, overhead_s = predictions.seconds, predictions.overhead_s
        scatter = np.hypot(predictions.seconds_at(1.0) - expected_s, _START_SCATTER * overhead_s)
        is_open = predictions.seconds_deviation > SECONDS_KNOWN
        takes_s = np.where(is_open, predictions.seconds_at(-1.0), expected_s + _SURE * scatter)
        margin_s = np.where(is_open, 0.0, _SURE * scatter) if left_usd < reach_usd else 0.0
        out_of_reach = takes_s + is_open * overhead_s > _payable_s(space, reach_usd)
        is_hopeless = predictions.is_impossible | out_of_reach
        limit_s = np.minimum(space.limit_s, _payable_s(space, reach_usd))
        is_possible = ~is_hopeless & ~was_run
        is_sure = is_possible & ~is_open & predictions.fits
        needed_usd = space.usd_per_second * (takes_s + space.billed_after_limit_s)
        return cls(
            space=space,
            predictions=predictions,
            knows_rows=knows_rows,
            left_usd=left_usd,
            reach_usd=reach_usd,
            is_payable=takes_s + margin_s <= _payable_s(space, left_usd),
            is_hopeless=is_hopeless,
            is_short=bool((out_of_reach & ~predictions.is_impossible & ~was_run).any()),
            in_time=ndtr((limit_s - expected_s) / scatter),
            slow_s=predictions.seconds_at(2 * np.minimum(1.0, 0.5 / predictions.seconds_deviation)),
            follow_usd=float(needed_usd[is_sure if is_sure.any() else is_possible].min(initial=math.inf)),
        )

    def can_probe(self, index: int, seconds: float) -> bool:
        """Whether a probe of so many seconds can be paid, twice if need be, and some training after it."""
        usd = seconds * float(self.space.usd_per_second[index])
        can_follow = math.isinf(self.reach_usd) or usd + self.follow_usd <= self.reach_usd
        return can_follow and _COMFORTABLE * seconds <= float(_payable_s(self.space, self.left_usd)[index])

    def is_brief(self, index: int, probe_usd: float) -> bool:
        """Whether the candidate's training is known to cost not much more than a probe of so many dollars."""
        return bool(self.knows_rows[index]) and probe_usd > _BRIEF * float(self.predictions.costs_usd[index])

    def limit_minutes(self, index: int, *, is_probe: bool) -> float | None:
        """The maximum runtime of a candidate's job: comfortable if that can be paid; None without a budget."""
        if math.isinf(self.left_usd):
            return None
        comfortable_s = max(_LEAST_LIMIT_S, 0.0 if is_probe else _COMFORTABLE * float(self.slow_s[index]))
        if not (is_probe or self.knows_rows[index]):
            comfortable_s = math.inf
        payable_s = float(_payable_s(self.space, self.left_usd)[index])
        return math.floor(100 * min(float(self.space.limit_s[index]), comfortable_s, payable_s) / 60) / 100


def _payable_s(space: CandidateSpace, usd: float) -> np.ndarray:
    """Maximum runtimes of all candidates, in seconds, whose worst case so many dollars cover."""
    return np.asarray(usd / space.usd_per_second - space.billed_after_limit_s)
