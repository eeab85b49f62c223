"""Straight lines through runs, tests of their fit, and tests of differences between levels, by statsmodels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paretune.commands.report.observations import Observation
from paretune.commands.report.scaling import Level
from paretune.commands.report.spread import CONFIDENCE

SIGNIFICANT = 0.05  # probability below which a test counts as significant
DOUBTFUL = 0.25
"""Probability of a lack of fit below which a line is in doubt: the level of preliminary tests whose miss matters more
than a false alarm (Bancroft, Biometrics 20, 1964)."""
INFLUENTIAL = 1.0
"""Cook's distance from which one run decides a line (Cook and Weisberg, Residuals and Influence, 1982)."""
DEVICES, ROWS, BOTH = "devices", "data size", "devices x data size"
"""Names of the terms of a line; the last one is the interaction of the first two."""
_EXACT = 1e-12  # share of a sum of squares below which runs do not scatter at all


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
    """A least-squares line of a quantity over logarithms (base 2) of devices and data size."""

    quantity: str
    formula: str  # what was fitted, in Wilkinson and Rogers' notation (Applied Statistics 22, 1973)
    terms: tuple[Term, ...]
    """The coefficients, the constant first: per doubling, or exponents where the quantity is a logarithm, too."""
    centre: Mapping[str, float]
    """Predictor to the geometric mean of its values, where the effects of the others hold with an interaction."""
    n: int
    r_squared: float
    lack_of_fit: LackOfFit | None  # None without repeats, or if there are not more settings than coefficients
    has_repeats: bool  # whether any setting ran twice
    breusch_pagan: float | None
    """Probability of residuals whose variance follows the predictors as much, if it does not at all (Breusch and Pagan,
    Econometrica 47, 1979)."""
    influential: tuple[tuple[str, float], ...]  # runs whose Cook's distance is at least INFLUENTIAL
    predict: Callable[[Any], tuple[Any, Any, Any]]
    """Rows of the predictors in `centre`, in their order, to mean and ends of the mean's interval of CONFIDENCE."""

    @property
    def verdict(self) -> str:
        """Whether the line misses the runs by more than repeats scatter, in words."""
        if self.lack_of_fit is None:
            return "cannot be tested with so few repeats"
        if self.lack_of_fit.p < SIGNIFICANT:
            return "does not hold"
        return "is in doubt" if self.lack_of_fit.p < DOUBTFUL else "fits"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two levels compared by Tukey's test: difference of the means, its interval, probability."""

    first: str
    second: str
    difference: float
    low: float
    high: float
    p: float


def line(runs: Sequence[Observation], quantity: str, *, power_law: bool = False) -> Line | None:
    """Fit a line through the runs with the quantity, over logarithms of devices and, if it varies, data size.

    A power law is a line of the quantity's logarithm. Any other line has the interaction of the two if there are enough
    runs for it. Returns None if the predictors do not vary, if there are too few runs, or if all lie on the line.
    """
    used = [run for run in runs if run.value(quantity) and run.devices]
    values = np.array([run.value(quantity) or 0.0 for run in used])
    predictors = {DEVICES: [float(run.devices or 0) for run in used], ROWS: [run.data_size or 0.0 for run in used]}
    varying = {name: np.log2(column) for name, column in predictors.items() if len(set(column)) > 1 and min(column) > 0}
    if not varying:
        return None
    centre = {name: float(column.mean()) for name, column in varying.items()}

    def design(logarithms: Any, has_both: bool) -> Any:
        columns = [logarithms[:, index] - middle for index, middle in enumerate(centre.values())]
        both = [columns[0] * columns[1]] if has_both else []
        return np.column_stack([np.ones(len(logarithms)), *columns, *both])

    at = np.column_stack(list(varying.values()))
    has_both = len(varying) == len(predictors) and not power_law and _is_determined(design(at, True))
    if not _is_determined(design(at, has_both)):
        return None
    import statsmodels.api as sm

    fit = sm.OLS(np.log2(values) if power_law else values, design(at, has_both)).fit()
    if _is_exact(float(fit.ssr), fit.model.endog):
        return None

    def predict(rows: Any) -> tuple[Any, Any, Any]:
        matrix = design(np.log2(np.asarray(rows, dtype=float)), has_both)
        frame = fit.get_prediction(matrix).summary_frame(alpha=1 - CONFIDENCE)
        ends = [frame[name].to_numpy() for name in ("mean", "mean_ci_lower", "mean_ci_upper")]
        return tuple(2**end if power_law else end for end in ends)

    names = [*varying, *([BOTH] if has_both else [])]
    centres = {name: 2**middle for name, middle in centre.items()}
    sides = (f"log2({quantity})" if power_law else quantity, (" * " if has_both else " + ").join(map(_log2, varying)))
    return _line(quantity, " ~ ".join(sides), names, centres, fit, used, predict)


def _log2(name: str) -> str:
    return f"log2({name.replace(' ', '_')})"


def _is_determined(matrix: Any) -> bool:
    """Whether there are more runs than coefficients, and every coefficient is determined."""
    runs, coefficients = matrix.shape
    return bool(runs > coefficients and np.linalg.matrix_rank(matrix) == coefficients)


def _line(
    quantity: str,
    formula: str,
    names: Sequence[str],
    centre: Mapping[str, float],
    fit: Any,
    runs: Sequence[Observation],
    predict: Callable[[Any], tuple[Any, Any, Any]],
) -> Line:
    from statsmodels.stats.diagnostic import het_breuschpagan

    matrix, values = fit.model.exog, fit.model.endog
    ends = fit.conf_int(1 - CONFIDENCE)
    with np.errstate(invalid="ignore", divide="ignore"):  # not a number for a run without which nothing is determined
        distances = fit.get_influence().cooks_distance[0]
    groups = [values[(matrix == row).all(axis=1)] for row in np.unique(matrix, axis=0)]
    return Line(
        quantity=quantity,
        formula=formula,
        terms=tuple(
            Term(name=name, estimate=float(value), low=float(low), high=float(high), p=float(p))
            for name, value, (low, high), p in zip(["constant", *names], fit.params, ends, fit.pvalues, strict=True)
        ),
        centre=centre,
        n=len(runs),
        r_squared=float(fit.rsquared),
        lack_of_fit=_lack_of_fit(float(fit.ssr), groups, matrix.shape[1]),
        has_repeats=any(len(group) > 1 for group in groups),
        breusch_pagan=float(het_breuschpagan(fit.resid, matrix)[1]) if fit.df_resid > 1 else None,
        influential=tuple(
            (run.job.run_id, float(distance))
            for run, distance in zip(runs, distances, strict=True)
            if distance >= INFLUENTIAL
        ),
        predict=predict,
    )


def _is_exact(squares: float, values: Any) -> bool:
    """Whether a sum of squares is negligible against the scatter of all values, or against their rounding."""
    total = float(((values - values.mean()) ** 2).sum())
    return squares <= _EXACT * max(total, _EXACT * float((values**2).sum()))


def _lack_of_fit(missed: float, groups: Sequence[Any], coefficients: int) -> LackOfFit | None:
    """Return the test of a line with this residual sum of squares; `groups` has the values of each setting."""
    from scipy.stats import f

    pure = float(sum(((group - group.mean()) ** 2).sum() for group in groups))
    repeated = sum(len(group) for group in groups) - len(groups)
    left = len(groups) - coefficients
    if repeated < 1 or left < 1 or _is_exact(pure, np.concatenate(groups)):
        return None
    statistic = max(missed - pure, 0.0) / left / (pure / repeated)
    return LackOfFit(f=statistic, missed=left, repeated=repeated, p=float(f.sf(statistic, left, repeated)))


def tukey(levels: Sequence[Level], quantity: str) -> list[Pair]:
    """Compare every pair of levels, with the error over all pairs at 1 - CONFIDENCE; empty if repeats do not scatter.

    Tukey's honestly significant difference, for unequal numbers of runs after Kramer.
    """
    groups = [
        (level.name, [value for run in level.runs if (value := run.value(quantity)) is not None]) for level in levels
    ]
    groups = [(name, values) for name, values in groups if values]
    values = np.array([value for _, group in groups for value in group])
    names = [name for name, group in groups for _ in group]
    pure = sum(float(((np.array(group) - np.mean(group)) ** 2).sum()) for _, group in groups)
    if len(groups) < 2 or len(values) <= len(groups) or _is_exact(pure, values):
        return []
    from statsmodels.stats.multicomp import pairwise_tukeyhsd

    test = pairwise_tukeyhsd(values, names, alpha=1 - CONFIDENCE)
    order = [
        (first, second) for index, first in enumerate(test.groupsunique) for second in test.groupsunique[index + 1 :]
    ]
    rows = zip(order, test.meandiffs, test.confint, test.pvalues, strict=True)
    return [
        Pair(first=str(first), second=str(second), difference=float(gap), low=float(low), high=float(high), p=float(p))
        for (first, second), gap, (low, high), p in rows
    ]
