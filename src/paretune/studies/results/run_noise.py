"""The noise of one run, from repeats and prior knowledge: how far two runs must differ to be told apart.

The value of one run is normal around the mean of its job, with an unknown variance that is the same for all jobs of a
study. The variance has a scaled inverse chi-square prior; repeats of a job make its posterior, and a mean has Student's
t distribution (Gelman et al., Bayesian Data Analysis, 3rd edition, section 3.2):

    prior        deviation s0, n0 degrees of freedom
    repeats      S = sum of squares around the mean of each group, n = sum of (runs - 1) over the groups
    posterior    deviation s = sqrt((n0 x s0^2 + S) / (n0 + n)), n0 + n degrees of freedom

The number of validation rows does not matter, because both runs are judged on the same rows. Only if they are so few
that one row matters, the prior is as wide as their binomial error.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtrit

from paretune.estimating.noise import (
    F1_DEGREES,
    SECONDS_DEGREES,
    SECONDS_NOISE,
    Scatter,
    binomial_error,
    posterior_deviation,
)
from paretune.studies.definition.objectives import OBJECTIVES, OF_THE_CLUSTER, Objective

INTERVAL = 0.8  # probability that a stated interval holds the mean of a job over all seeds
_ONE = float(ndtr(1.0))  # probability below one standard deviation
_USUAL_SHARE = 0.4
"""Noise that is likely before any repeats, as a share of the largest that was seen: the median pair of repeated jobs
differs by a tenth of what the largest does."""
_QUALITY_DEGREES = 1
"""Degrees of freedom of the assumed noise of quality: one repeat weighs as much, because models differ five-fold in it.
Chosen, as the share above, on the development worlds of benchmarks/search."""
_FEWEST_DEGREES = 2  # degrees of freedom of Student's t at least: with one, no two values would ever be told apart
FEWEST_EQUAL = 2  # repeats that must all give exactly the same value before a training counts as one without chance
_OF_THE_SPREAD = 0.1
"""Assumed deviation of one run of an unknown metric, as a share of the difference between configurations: with more
noise a search finds nothing."""
_OF_THE_VALUE = 0.01  # the same as a share of the value, if configurations do not differ


@dataclass(frozen=True, kw_only=True)
class RunNoise:
    """Scatter of one objective between runs that differ in nothing but the seed."""

    deviation: float  # standard deviation of one run; a share of the value if `is_relative`
    degrees: float  # degrees of freedom of that deviation
    is_relative: bool  # whether it grows with the value, as for seconds and dollars

    def of_one_run(self, value: float) -> float:
        """Standard deviation of one run around `value`, in the objective's own unit."""
        return self.deviation * (abs(value) if self.is_relative else 1.0)

    def standard_error(self, value: float, runs: float) -> float:
        """Standard error of the mean `value` of this many runs, see `widened`."""
        return self.widened(self.of_one_run(value) / math.sqrt(runs))

    def widened(self, error: float) -> float:
        """The standard error enlarged so that it holds 68 %, as one does, although the deviation is uncertain."""
        return error * float(stdtrit(self.degrees, _ONE))

    def margin(self, error: float) -> float:
        """Half the width of the interval with probability INTERVAL around a mean with this widened error."""
        return error * float(stdtrit(self.degrees, 0.5 + INTERVAL / 2) / stdtrit(self.degrees, _ONE))


def pooled_noise(
    objective: str,
    groups: Sequence[Sequence[float]],
    validation_rows: int | None = None,
    quality: Objective | None = None,
    is_sure: bool = True,
) -> RunNoise:
    """The noise of one objective, from groups of values that differ only in their seed.

    `validation_rows` are the rows that F1 was measured on, if known; `quality` is the metric that models are judged by.
    Without `is_sure` runs of other seeds differ in another metric of the model: equal values are then a coincidence.
    """
    prior_quality = quality if quality is not None and quality.metric == objective else OBJECTIVES.get(objective)
    is_relative = prior_quality is not None and prior_quality.is_relative
    prior, degrees = _prior(objective, groups, validation_rows, prior_quality)
    here = Scatter.of(groups, is_relative=is_relative)
    fewest = FEWEST_EQUAL if len({value for group in groups for value in group}) > 1 else 1
    if is_sure and here.degrees >= fewest and not here.squares and objective not in OF_THE_CLUSTER:
        return RunNoise(deviation=0.0, degrees=here.degrees, is_relative=False)  # it does not depend on the seed
    deviation = posterior_deviation(prior, degrees, here)
    return RunNoise(deviation=deviation, degrees=max(degrees + here.degrees, _FEWEST_DEGREES), is_relative=is_relative)


def _prior(
    objective: str, groups: Sequence[Sequence[float]], validation_rows: int | None, quality: Objective | None
) -> tuple[float, int]:
    """Assumed standard deviation of one run, and its degrees of freedom."""
    if objective in OF_THE_CLUSTER:
        return SECONDS_NOISE, SECONDS_DEGREES
    if quality is None or quality.noise is None:
        means = [statistics.fmean(group) for group in groups if group]
        if spread := _robust_spread(np.array(means)):
            return _OF_THE_SPREAD * spread, F1_DEGREES
        return _OF_THE_VALUE * (abs(statistics.median(means or [0.0])) or 1.0), F1_DEGREES
    values = [value for group in groups for value in group]
    if quality.is_share and validation_rows and values:
        binomial = binomial_error(statistics.median(values), validation_rows)
        if binomial > quality.noise:
            return binomial, F1_DEGREES
    return _USUAL_SHARE * quality.noise, _QUALITY_DEGREES


def _robust_spread(values: np.ndarray) -> float:
    """Standard deviation that the median distance to the median stands for; the plain one if that is 0.

    The median does not move with a run that diverged, and is the same for the negative metric.
    """
    if not len(values) or not np.ptp(values):  # the plain one of equal values is not exactly 0
        return 0.0
    return float(np.median(np.abs(values - np.median(values)))) / 0.6745 or float(values.std())
