"""Straight lines through runs, whether they hold, and which levels can be told apart; statsmodels computes them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paretune.reporting.observations import Observation
from paretune.reporting.scaling import Level
from paretune.reporting.spread import CONFIDENCE

SIGNIFICANT = 0.05
"""Probability below which a test is taken to tell something."""
INFLUENTIAL = 1.0
"""Cook's distance from which one run decides a line (Cook and Weisberg, Residuals and Influence, 1982)."""
ROWS_UNIT = 100_000
"""Rows of data that an effect of data size is told for."""
_EXACT = 1e-12  # share of the sum of squares below which runs do not scatter at all


@dataclass(frozen=True, kw_only=True)
class Term:
    """One coefficient with its interval of CONFIDENCE and the probability of one as large without an effect."""

    name: str
    estimate: float
    low: float
    high: float
    p: float


@dataclass(frozen=True, kw_only=True)
class LackOfFit:
    """The F test of what a line misses against the scatter of repeats (Draper and Smith, 1998, section 2.1)."""

    f: float
    missed: int
    repeated: int
    p: float


@dataclass(frozen=True, kw_only=True)
class Line:
    """A least-squares line of a quantity over devices and data size.

    Attributes:
        terms: the coefficients, the constant first.
        lack_of_fit: None without repeats, or where there are not more settings than coefficients.
        has_repeats: whether any setting ran twice.
        breusch_pagan: probability of residuals whose variance follows the predictors as much, if it does not at all
            (Breusch and Pagan, Econometrica 47, 1979).
        influential: runs whose Cook's distance is at least INFLUENTIAL.
        predict: rows of predictors (devices, data size) to mean, low and high of the mean's interval of CONFIDENCE.
    """

    quantity: str
    terms: tuple[Term, ...]
    n: int
    r_squared: float
    lack_of_fit: LackOfFit | None
    has_repeats: bool
    breusch_pagan: float | None
    influential: tuple[tuple[str, float], ...]
    predict: Callable[[Any], tuple[Any, Any, Any]]

    @property
    def holds(self) -> bool | None:
        """Whether the line misses no more than repeats scatter; None where that cannot be told."""
        return None if self.lack_of_fit is None else self.lack_of_fit.p >= SIGNIFICANT


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two levels compared by Tukey's test: difference of the means, its interval, probability."""

    first: str
    second: str
    difference: float
    low: float
    high: float
    p: float


def line(found: Sequence[Observation], quantity: str, *, logarithmic: bool = False) -> Line | None:
    """The line through the runs that tell the quantity, over devices and, where it varies, data size.

    With `logarithmic`, logarithms of the quantity over those of the devices. None where the predictors do not vary, or
    there are not more runs than coefficients, or the runs lie on the line exactly.
    """
    bend: Callable[[float], float] = math.log if logarithmic else float
    known = [one for one in found if one.value(quantity) and one.devices]
    values = np.array([bend(one.value(quantity) or 0.0) for one in known])
    names, columns = ["constant"], [np.ones(len(known))]
    sizes = [one.data_size for one in known]
    if len({one.devices for one in known}) > 1:
        names.append("devices")
        columns.append(np.array([bend(one.devices or 0) for one in known]))
    if len(set(sizes)) > 1 and None not in sizes:
        names.append("data size")
        columns.append(np.array([bend(size or 0.0) / (1 if logarithmic else ROWS_UNIT) for size in sizes]))
    if len(names) < 2:
        return None
    matrix = np.column_stack(columns)
    total = float(((values - values.mean()) ** 2).sum())
    if len(known) <= np.linalg.matrix_rank(matrix) or np.linalg.matrix_rank(matrix) < len(names):
        return None
    import statsmodels.api as sm

    fit = sm.OLS(values, matrix).fit()
    if fit.ssr <= _EXACT * total or not total:
        return None
    return _line(quantity, names, fit, known, bend if logarithmic else None)


def _line(quantity: str, names: Sequence[str], fit: Any, known: Sequence[Observation], bend: Any) -> Line:
    from statsmodels.stats.diagnostic import het_breuschpagan

    matrix, values = fit.model.exog, fit.model.endog
    ends = fit.conf_int(1 - CONFIDENCE)
    distances = fit.get_influence().cooks_distance[0]
    groups = [values[(matrix == row).all(axis=1)] for row in np.unique(matrix, axis=0)]

    def predict(rows: Any) -> tuple[Any, Any, Any]:
        at = np.asarray(rows, dtype=float)
        if bend is not None:
            at = np.log(at)
        frame = fit.get_prediction(np.column_stack([np.ones(len(at)), at])).summary_frame(alpha=1 - CONFIDENCE)
        found = [frame[name].to_numpy() for name in ("mean", "mean_ci_lower", "mean_ci_upper")]
        return tuple(np.exp(item) if bend is not None else item for item in found)

    return Line(
        quantity=quantity,
        terms=tuple(
            Term(name=name, estimate=float(value), low=float(low), high=float(high), p=float(p))
            for name, value, (low, high), p in zip(names, fit.params, ends, fit.pvalues, strict=True)
        ),
        n=len(known),
        r_squared=float(fit.rsquared),
        lack_of_fit=_lack_of_fit(float(fit.ssr), groups, len(names), float(fit.centered_tss)),
        has_repeats=any(len(group) > 1 for group in groups),
        breusch_pagan=float(het_breuschpagan(fit.resid, matrix)[1]) if fit.df_resid > 1 else None,
        influential=tuple(
            (one.job.run_id, float(distance))
            for one, distance in zip(known, distances, strict=True)
            if distance >= INFLUENTIAL
        ),
        predict=predict,
    )


def _lack_of_fit(missed: float, groups: Sequence[Any], coefficients: int, total: float) -> LackOfFit | None:
    """The test of a line that misses this sum of squares; `groups` has the values of each setting."""
    from scipy.stats import f

    pure = float(sum(((group - group.mean()) ** 2).sum() for group in groups))
    repeated = sum(len(group) for group in groups) - len(groups)
    left = len(groups) - coefficients
    if repeated < 1 or left < 1 or pure <= _EXACT * total:
        return None
    statistic = max(missed - pure, 0.0) / left / (pure / repeated)
    return LackOfFit(f=statistic, missed=left, repeated=repeated, p=float(f.sf(statistic, left, repeated)))


def tukey(levels: Sequence[Level], quantity: str) -> list[Pair]:
    """Every pair of levels compared, errors over all pairs held at 1 - CONFIDENCE; empty without repeats that scatter.

    Tukey's honestly significant difference, for unequal numbers of runs after Kramer.
    """
    groups = [
        (level.name, [value for one in level.found if (value := one.value(quantity)) is not None]) for level in levels
    ]
    groups = [(name, values) for name, values in groups if values]
    values = np.array([value for _, group in groups for value in group])
    names = [name for name, group in groups for _ in group]
    pure = sum(float(((np.array(group) - np.mean(group)) ** 2).sum()) for _, group in groups)
    if len(groups) < 2 or len(values) <= len(groups) or pure <= _EXACT * float(((values - values.mean()) ** 2).sum()):
        return []
    from statsmodels.stats.multicomp import pairwise_tukeyhsd

    found = pairwise_tukeyhsd(values, names, alpha=1 - CONFIDENCE)
    order = [
        (first, second) for place, first in enumerate(found.groupsunique) for second in found.groupsunique[place + 1 :]
    ]
    rows = zip(order, found.meandiffs, found.confint, found.pvalues, strict=True)
    return [
        Pair(first=str(one), second=str(two), difference=float(gap), low=float(low), high=float(high), p=float(p))
        for (one, two), gap, (low, high), p in rows
    ]
