"""How far two runs must differ to be told apart: the scatter of one run, from repeats and from what is known without.

The standard deviation of one run is pooled over all groups of repeats. A pair of repeats alone says little (it may
agree by chance), so what is assumed without any counts as one more degree of freedom beside those of the repeats.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from paretune.estimating.noise import F1_NOISE, SECONDS_NOISE
from paretune.spec import metrics
from paretune.studies.definition.objectives import OF_THE_CLUSTER

TELLING_ERRORS = 2.0
"""Standard errors of a difference from which on two values count as different: 95 % of equal ones stay below."""
_RELATIVE = {*OF_THE_CLUSTER, metrics.PERPLEXITY}  # exp(loss): what is absolute in the loss is relative here


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Scatter of one objective between runs that differ in nothing but the seed.

    Attributes:
        deviation: standard deviation of one run; a share of the value where `is_relative`.
        is_relative: whether it grows with the value, as that of seconds and dollars does.
        basis: the repeats that it was found from, or what is assumed without any, in words.
    """

    deviation: float
    is_relative: bool
    basis: str

    def of_one_run(self, value: float) -> float:
        """Standard deviation of one run around `value`, in the objective's own unit."""
        return self.deviation * (abs(value) if self.is_relative else 1.0)

    def standard_error(self, value: float, runs: int) -> float:
        """Standard error of the mean `value` of so many runs."""
        return self.of_one_run(value) / math.sqrt(runs)


def pooled(objective: str, groups: Sequence[Sequence[float]], validation_rows: int | None = None) -> Noise:
    """The noise of one objective, from groups of values that differ only in their seed; one of one tells no scatter.

    `validation_rows` are the rows that F1 was measured on, where known.
    """
    is_relative = objective in _RELATIVE
    prior, assumption = _assumed(objective, [value for group in groups for value in group], validation_rows)
    squares, degrees = 0.0, 0
    for group in groups:
        if len(group) > 1 and (scale := abs(statistics.fmean(group)) if is_relative else 1.0):
            squares += statistics.variance(group) / scale**2 * (len(group) - 1)
            degrees += len(group) - 1
    if not degrees:
        return Noise(deviation=prior, is_relative=is_relative, basis=assumption)
    basis = f"pooled from {degrees} repeat{'s' if degrees > 1 else ''}, with one degree of freedom for what is assumed"
    deviation = math.sqrt((prior**2 + squares) / (1 + degrees))
    return Noise(deviation=deviation, is_relative=is_relative, basis=f"{basis} without: {assumption}")


def are_alike(one: float, other: float, error: float, other_error: float) -> bool:
    """Whether two means cannot be told apart: they differ by less than 2 standard errors of their difference."""
    return abs(one - other) <= TELLING_ERRORS * math.hypot(error, other_error)


def _assumed(objective: str, values: Sequence[float], validation_rows: int | None) -> tuple[float, str]:
    """Standard deviation of one run without any repeats, and why."""
    if objective in OF_THE_CLUSTER:
        return SECONDS_NOISE, "1.4 % between two runs, as repeated SageMaker jobs have shown"
    if objective == metrics.F1 and validation_rows and values:
        f1 = min(max(statistics.median(values), 0.0), 1.0)
        said = f"binomial standard error of F1 on {validation_rows:,} validation rows"
        # At 0 and 1 the formula gives 0; one row more or less is the least that can happen.
        return max(math.sqrt(f1 * (1 - f1) / validation_rows), 1 / validation_rows), said
    kind = f"{100 * F1_NOISE:.1f} % of it" if objective == metrics.PERPLEXITY else str(F1_NOISE)
    return F1_NOISE, f"{kind}, the most that repeated SageMaker jobs have shown in F1"
