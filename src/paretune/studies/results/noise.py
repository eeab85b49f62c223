"""The noise of a study's metrics: how much runs differ whose jobs differ only in the seed.

All configurations of a study share the noise of a metric. It is not known exactly, so intervals use Student's t
distribution, whose degrees of freedom say how well it is known. It has no influence on ranks and on the front. It says
how far a stated mean may be from the truth, and which means cannot be told apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, polygamma, stdtrit

from paretune.core.noise import SECONDS_DEGREES, SECONDS_NOISE, Scatter, binomial_error, posterior_deviation
from paretune.studies.definition.objectives import Objective

INTERVAL = 0.8  # probability that a stated interval contains a configuration's mean over all seeds
_ONE = float(ndtr(1.0))  # probability that a normal variable is less than one standard deviation above its mean
_FEWEST_DEGREES = 2.0  # minimum degrees of freedom of Student's t: with one, no two values would ever be distinguished
_UNSURE = 0.7
"""Before there are repeats, the natural logarithm of the noise is believed to be normally distributed with this
standard deviation, around that of the scatter of the runs around the quality model's surface. Chosen on the first half
of the drawn studies of benchmarks/search_statements.py. A scaled inverse chi-square prior with two degrees of freedom
cannot believe that the noise is much smaller than that scatter: its 80 % intervals held in 99 % of the quiet studies
there, although repeats had shown how quiet they were."""
_LOGS = np.linspace(math.log(1e-4), math.log(1e4), 800)  # logarithms of the deviations that are weighed


@dataclass(frozen=True, kw_only=True)
class RunNoise:
    """The noise of one metric between runs that differ only in the seed."""

    deviation: float  # standard deviation of one run; a share of the value if `is_relative`
    degrees: float  # degrees of freedom of that deviation
    is_relative: bool = False  # whether the deviation grows with the value, as for seconds and dollars

    def of_one_run(self, value: float) -> float:
        """Return the standard deviation of one run around `value`, in the metric's own unit."""
        return self.deviation * (abs(value) if self.is_relative else 1.0)

    def standard_error(self, value: float, runs: float) -> float:
        """Return the standard error of `value`, the mean of this many runs, widened as in `widened`."""
        return self.widened(self.of_one_run(value) / math.sqrt(runs))

    def widened(self, error: float) -> float:
        """Return a standard error widened so that ± covers 68 %, although the deviation itself is uncertain."""
        return error * float(stdtrit(self.degrees, _ONE))

    def margin(self, error: float) -> float:
        """Return half the width of the interval (probability INTERVAL) around a mean with this widened error."""
        return error * float(stdtrit(self.degrees, 0.5 + INTERVAL / 2) / stdtrit(self.degrees, _ONE))


def noise_of_cluster(groups: Sequence[Sequence[float]]) -> RunNoise:
    """Return the noise of seconds or dollars, from groups of values whose jobs should take equally long."""
    scatter = Scatter.of(groups, is_relative=True)
    deviation = posterior_deviation(SECONDS_NOISE, SECONDS_DEGREES, scatter)
    return RunNoise(deviation=deviation, degrees=SECONDS_DEGREES + scatter.degrees, is_relative=True)


def noise_of_repeats(groups: Sequence[Sequence[float]]) -> RunNoise | None:
    """Return the noise of a metric from repeats alone, or None if there are none.

    The runs of a group differ only in the seed.
    """
    scatter = Scatter.of(groups)
    if not scatter.degrees:
        return None
    deviation = math.sqrt(scatter.squares / scatter.degrees)
    return RunNoise(deviation=deviation, degrees=max(float(scatter.degrees), _FEWEST_DEGREES))


def noise_of_quality(
    groups: Sequence[Sequence[float]], residue: float, quality: Objective, validation_rows: int | None = None
) -> RunNoise:
    """Return the noise of the metric that judges models, which is known, roughly, before there are repeats.

    Args:
        groups: values of runs; those of a group differ only in the seed, and none of them collapsed.
        residue: standard deviation of runs around the quality model's surface (`QualityModel.residue`).
        quality: the metric.
        validation_rows: the number of rows that it was measured on, if known. If it is a share, such as F1, the noise
            is believed to be at least its binomial error.
    """
    values, center = [value for group in groups for value in group], residue
    if quality.is_share and validation_rows and values:
        center = max(center, binomial_error(median(values), validation_rows))
    return _posterior(center, Scatter.of(groups))


def _posterior(center: float, scatter: Scatter) -> RunNoise:
    """Return what is believed of a deviation after repeats have shown their scatter.

    The prior of its logarithm is normal, around that of `center`. A mean is then distributed like a mixture of normal
    distributions, which is replaced by Student's t distribution. Its degrees of freedom are those of the scaled inverse
    chi-square distribution whose logarithm has the variance of the posterior (Gelman et al., Bayesian Data Analysis,
    3rd edition, section 3.2), and its scale is the one at which the intervals of probability INTERVAL are equal.
    """
    logs = _LOGS + math.log(center)
    evidence = -0.5 * ((logs - math.log(center)) / _UNSURE) ** 2
    evidence -= scatter.degrees * logs + scatter.squares / (2.0 * np.exp(2.0 * logs))
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    spread = 4.0 * float(weights @ (logs - weights @ logs) ** 2)  # variance of the logarithm of the variance
    half = float(brentq(lambda each: polygamma(1, each) - spread, 1e-2, 1e7))
    degrees = max(2.0 * half, _FEWEST_DEGREES)

    def surplus(log_width: float) -> float:
        return float(weights @ (2.0 * ndtr(np.exp(log_width - logs)) - 1.0)) - INTERVAL

    width = math.exp(float(brentq(surplus, logs[0], logs[-1])))
    return RunNoise(deviation=width / float(stdtrit(degrees, 0.5 + INTERVAL / 2)), degrees=degrees)
