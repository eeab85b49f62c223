"""How much the seconds and F1 of repeated runs differ: assumptions that are used until repeats have been measured.

Measured on the runs of aws-samples/amazon-sagemaker-huggingface-benchmark (data/processed/experiment_results.csv,
2021): eight pairs of identical SageMaker jobs. Their seconds differ by 1.4 % (median; 6.2 % at most), their F1 by
0.0005 (median; 0.0052 at most). If one run has the standard deviation s, the difference of two runs has the standard
deviation s * 2 ** 0.5. The median absolute value of a standard normal number is 0.6745. So the median difference of
such pairs is 0.6745 * 2 ** 0.5 * s.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

SECONDS_NOISE = 0.014 / (0.6745 * math.sqrt(2))
"""Relative standard deviation of the seconds of one run, and so of its dollars: 0.0147."""
SECONDS_NOISE_OF_OTHER_DATA = 0.03
"""The same for predictions of a time model that was fitted to other data sets, whose runs differ by 2.9 % (median)."""
F1_NOISE = 0.004
"""Largest absolute standard deviation seen in the F1 of one run; also assumed for its evaluation loss.

The prior noise of a run is a share of this value or, if that is higher than this value, the binomial error of its F1
(`studies.results.front`). Measured repeats are weighed against that prior.

It is 0.0052 / 2 ** 0.5 = 0.0037, rounded up: the largest difference of those pairs is taken as one standard deviation
of a difference. Too large is safer than too small, because this decides which values count as equal."""
SECONDS_DEGREES = 4  # degrees of freedom of SECONDS_NOISE: the seconds of those pairs agree better than their F1
Z80 = 1.2816  # half width of a central 80 % interval of a normal distribution, in standard deviations
# Two means that are more than this many standard errors apart count as different. By chance, so do 5 % of the pairs
# that have the same true mean.
TELLING_ERRORS = 2.0


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """Scatter of repeats: the sum of squares around the mean of each group, and its degrees of freedom."""

    squares: float
    degrees: int

    @classmethod
    def of(cls, groups: Sequence[Sequence[float]], *, is_relative: bool = False) -> "Scatter":
        """Measure the scatter within groups of runs that differ only in seed, relative to the mean if `is_relative`."""
        squares, degrees = 0.0, 0
        for group in groups:
            if len(group) > 1 and (scale := abs(statistics.fmean(group)) if is_relative else 1.0):
                squares += statistics.variance(group) / scale**2 * (len(group) - 1)
                degrees += len(group) - 1
        return cls(squares=squares, degrees=degrees)


def posterior_deviation(prior: float, degrees: float, scatter: Scatter) -> float:
    """Estimate the standard deviation of one run from an assumed one, `prior`, and from the scatter of repeats.

    The assumption has the weight of `degrees` degrees of freedom. Source: Gelman et al., Bayesian Data Analysis, 3rd
    edition, section 3.2, scaled inverse chi-square prior.
    """
    return math.sqrt((degrees * prior**2 + scatter.squares) / (degrees + scatter.degrees))


def binomial_error(f1: float, rows: int) -> float:
    """Return the binomial standard error of an F1 that was measured on `rows` rows; at least 1 / rows."""
    share = min(max(f1, 0.0), 1.0)
    # At 0 and 1 the formula gives 0, but one row more or less is always possible.
    return max(math.sqrt(share * (1 - share) / rows), 1 / rows)


def are_alike(first: float, second: float, first_error: float, second_error: float) -> bool:
    """Return whether two means differ by at most 2 standard errors of their difference."""
    return abs(first - second) <= TELLING_ERRORS * math.hypot(first_error, second_error)
