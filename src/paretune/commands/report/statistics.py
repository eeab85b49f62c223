"""Least squares, lack of fit, Tukey's test and intervals of differences, by statsmodels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

CONFIDENCE = 0.95
SIGNIFICANT = 0.05  # probability below which a test counts as significant
DOUBTFUL = 0.25
"""Probability of a lack of fit below which a line is in doubt: the level of preliminary tests whose miss matters more
than a false alarm (Bancroft, Biometrics 20, 1964)."""
INFLUENTIAL = 1.0
"""Cook's distance from which one run decides a line (Cook and Weisberg, Residuals and Influence, 1982)."""
PREDICTORS = {"devices": "device_count", "data size": "rows"}
BOTH = "devices x data size"
"""Names of the terms of a line, with their columns; the last one is the interaction."""
_EXACT = 1e-12  # share of a sum of squares below which runs do not scatter at all


class LackOfFit(NamedTuple):
    """The F test of what a line misses against the scatter of repeats (Draper and Smith, 1998, section 2.1)."""

    f: float
    p: float
    missed: int
    repeated: int


@dataclass(frozen=True, kw_only=True)
class Line:
    """A least-squares line of a quantity over logarithms (base 2) of devices and data size."""

    quantity: str
    formula: str  # what was fitted, in Wilkinson and Rogers' notation (Applied Statistics 22, 1973)
    fit: Any
    """statsmodels' results, with a name per term: effects per doubling, or exponents of a power law."""
    centre: Mapping[str, float]
    """Predictor to the geometric mean of its values, where the effects of the others hold with an interaction."""
    lack_of_fit: LackOfFit | None  # None without repeats, or if there are not more settings than coefficients
    has_repeats: bool  # whether any setting ran twice
    breusch_pagan: float | None
    """Probability of residuals whose variance follows the predictors as much, if it does not at all (Breusch and Pagan,
    Econometrica 47, 1979)."""
    influential: Mapping[str, float]  # run id to its Cook's distance, if that is at least INFLUENTIAL

    @property
    def verdict(self) -> str:
        """Whether the line misses the runs by more than repeats scatter, in words."""
        if self.lack_of_fit is None:
            return "cannot be tested with so few repeats"
        if self.lack_of_fit.p < SIGNIFICANT:
            return "does not hold"
        return "is in doubt" if self.lack_of_fit.p < DOUBTFUL else "fits"

    def predict(self, at: Mapping[str, Any]) -> pd.Series:
        """The line's values (of a power law, their logarithms) at N values of each of its predictors."""
        logarithms = pd.DataFrame({name: np.log2(at[name]) for name in self.centre})
        return self.fit.predict(_design(logarithms, self.centre, BOTH in self.fit.params))


def line(runs: pd.DataFrame, quantity: str, *, power_law: bool = False) -> Line | None:
    """Fit a line through the runs with the quantity, over logarithms of devices and, if it varies, data size.

    A power law is a line of the quantity's logarithm. Any other line has the interaction of the two if there are enough
    runs for it. Returns None if the predictors do not vary, if there are too few runs, or if all lie on the line.
    """
    import statsmodels.api as sm
    from statsmodels.stats.diagnostic import het_breuschpagan

    used = runs[runs[quantity].notna() & (runs.device_count > 0) & ((runs[quantity] > 0) | (not power_law))]
    logarithms = pd.DataFrame(
        {
            name: np.log2(used[column])
            for name, column in PREDICTORS.items()
            if used[column].nunique() > 1 and (used[column] > 0).all()
        }
    )
    if logarithms.empty:
        return None
    centre = {name: float(2 ** logarithms[name].mean()) for name in logarithms}
    designs = [_design(logarithms, centre, has_both) for has_both in (len(centre) > 1 and not power_law, False)]
    design = next((design for design in designs if _is_determined(design)), None)
    if design is None:
        return None
    values = np.log2(used[quantity]) if power_law else used[quantity]
    fit = sm.OLS(values, design).fit()
    if _is_exact(fit.ssr, values):
        return None
    with np.errstate(invalid="ignore", divide="ignore"):  # not a number where nothing can be determined
        breusch_pagan = float(het_breuschpagan(fit.resid, design)[1]) if fit.df_resid > 1 else None
        distances = pd.Series(fit.get_influence().cooks_distance[0], used.run_id)
    settings = logarithms.groupby(list(logarithms)).ngroup()
    predictors = [f"log2({name.replace(' ', '_')})" for name in logarithms]
    outcome, sign = f"log2({quantity})" if power_law else quantity, " * " if BOTH in design else " + "
    return Line(
        quantity=quantity,
        formula=f"{outcome} ~ {sign.join(predictors)}",
        fit=fit,
        centre=centre,
        lack_of_fit=_lack_of_fit(fit, values, settings),
        has_repeats=bool(settings.duplicated().any()),
        breusch_pagan=breusch_pagan,
        influential=distances[distances >= INFLUENTIAL].to_dict(),
    )


def _design(logarithms: pd.DataFrame, centre: Mapping[str, float], has_both: bool) -> pd.DataFrame:
    design = logarithms - np.log2(pd.Series(centre))
    if has_both:
        design[BOTH] = design.prod(axis="columns")
    design.insert(0, "constant", 1.0)
    return design


def _is_determined(design: pd.DataFrame) -> bool:
    """Whether there are more runs than coefficients, and every coefficient is determined."""
    return len(design) > design.shape[1] and bool(np.linalg.matrix_rank(design) == design.shape[1])


def _is_exact(squares: float, values: pd.Series) -> bool:
    """Whether a sum of squares is negligible against the scatter of all values, or against their rounding."""
    total = float(((values - values.mean()) ** 2).sum())
    return bool(squares <= _EXACT * max(total, _EXACT * float((values**2).sum())))


def _lack_of_fit(fit: Any, values: pd.Series, settings: pd.Series) -> LackOfFit | None:
    """The line against a mean for each setting."""
    import statsmodels.api as sm

    means = sm.OLS(values, pd.get_dummies(settings, dtype=float)).fit()
    missed = int(fit.df_resid - means.df_resid)
    if means.df_resid < 1 or missed < 1 or _is_exact(means.ssr, values):
        return None
    f, p, _ = means.compare_f_test(fit)
    return LackOfFit(float(f), float(p), missed, int(means.df_resid))


def tukey(runs: pd.DataFrame, quantity: str) -> dict[frozenset[str], float]:
    """Probability of each pair of levels, with the error over all pairs at 1 - CONFIDENCE; empty without scatter.

    Tukey's honestly significant difference, for unequal numbers of runs after Kramer.
    """
    used = runs[runs[quantity].notna()]
    values, levels = used[quantity], used.level
    pure = float(((values - values.groupby(levels).transform("mean")) ** 2).sum())
    if levels.nunique() < 2 or len(values) <= levels.nunique() or _is_exact(pure, values):
        return {}
    from statsmodels.stats.multicomp import pairwise_tukeyhsd

    table = pairwise_tukeyhsd(values, levels, alpha=1 - CONFIDENCE).summary_frame()
    return {
        frozenset((first, second)): float(p)
        for first, second, p in zip(table.group_t, table.group_c, table["p-adj"], strict=True)
    }


class Interval(NamedTuple):
    """A difference or ratio of means with its interval of CONFIDENCE, whose ends are None with too few repeats."""

    value: float
    low: float | None = None
    high: float | None = None


def difference(values: pd.Series, base: pd.Series) -> Interval:
    """The mean of `values` minus that of `base`, two series of a quantity by the data size of each run.

    The interval is Welch's (Biometrika 34, 1947). With several data sizes it is the difference within a size, by least
    squares with a constant for each of these blocks (Montgomery, Design and Analysis of Experiments, 2017, chapter 4);
    a size that only one of the two has counts for nothing, unless they share none.
    """
    import statsmodels.api as sm
    from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

    shared = values.index.intersection(base.index).unique()
    if len(values.index.union(base.index).unique()) == 1 or shared.empty:
        centre = float(values.mean() - base.mean())
        if min(len(values), len(base)) < 2 or values.nunique() == base.nunique() == 1:
            return Interval(centre)
        compared = CompareMeans(DescrStatsW(values), DescrStatsW(base))
        return Interval(centre, *map(float, compared.tconfint_diff(1 - CONFIDENCE, usevar="unequal")))
    both = pd.concat({1.0: values[values.index.isin(shared)], 0.0: base[base.index.isin(shared)]})
    blocks = pd.get_dummies(both.index.get_level_values(1).astype(str), dtype=float).to_numpy()
    fit = sm.OLS(both.to_numpy(), np.column_stack([both.index.get_level_values(0), blocks])).fit()
    ends = map(float, fit.conf_int(1 - CONFIDENCE)[0]) if fit.df_resid >= 1 else ()
    return Interval(float(fit.params[0]), *ends)


def ratio(values: pd.Series, base: pd.Series) -> Interval | None:
    """The mean of `values` divided by that of `base`, or None if a value is not above 0.

    With several data sizes it is the ratio within a size. The interval is that of a difference of logarithms.
    """
    if min(values.min(), base.min()) <= 0:
        return None
    within = difference(np.log(values), np.log(base))
    ends = [None if end is None else float(np.exp(end)) for end in within[1:]]
    is_plain = len(values.index.union(base.index).unique()) == 1
    return Interval(float(values.mean() / base.mean() if is_plain else np.exp(within.value)), *ends)
