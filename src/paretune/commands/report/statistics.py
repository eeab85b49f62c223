"""Least squares, lack of fit, Tukey's test and intervals of differences, by statsmodels."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from paretune.presentation.numbers import p_value, plain

CONFIDENCE = 0.95
SIGNIFICANT = 0.05  # probability below which a test counts as significant
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

    formula: str  # what was fitted, in Wilkinson and Rogers' notation (Applied Statistics 22, 1973)
    fit: Any
    """statsmodels' results with terms `devices`, `data_size` and `devices:data_size`: effects per doubling, or
    exponents of a power law."""
    centre: pd.Series
    """Geometric means of devices and data size, where the effect of one holds if it depends on the other."""
    lack_of_fit: LackOfFit | None  # None without repeats, or if there are not more settings than coefficients

    def about(self) -> str:
        """What was fitted, to how many runs, where its effects hold, and whether it fits."""
        at = ""
        if "devices:data_size" in self.fit.params:
            at = f", effects at {self.centre.devices:.1f} devices and {self.centre.data_size:,.0f} rows"
        fits = "too few repeats to tell whether it fits"
        if (test := self.lack_of_fit) is not None:
            verdict = "does not hold" if test.p < SIGNIFICANT else "is not refuted"
            fits = f"it {verdict}, lack of fit F({test.missed}, {test.repeated}) {plain(test.f, 3)}, {p_value(test.p)}"
        return f"{self.formula}, least squares over {int(self.fit.nobs)} runs{at}; {fits}"


def line(runs: pd.DataFrame, quantity: str, *, power_law: bool = False) -> Line | None:
    """Fit a line through the runs with the quantity, over logarithms of devices and, if it varies, data size.

    A power law is a line of the quantity's logarithm. Any other line has the interaction of the two if there are enough
    runs for it. Returns None if the predictors do not vary, if there are too few runs, or if all lie on the line.
    """
    import statsmodels.formula.api as smf

    used = runs[runs[quantity].notna() & (runs.device_count > 0) & ((runs[quantity] > 0) | (not power_law))]
    known = used[["device_count", "rows"]].rename(columns={"device_count": "devices", "rows": "data_size"})
    names = [name for name in known if known[name].nunique() > 1 and (known[name] > 0).all()]
    if not names:
        return None
    logarithms = np.log2(known[names])
    data = logarithms - logarithms.mean()
    data["y"] = np.log2(used[quantity]) if power_law else used[quantity]
    for sign in ("+",) if power_law else ("*", "+"):
        fit = smf.ols(f"y ~ {f' {sign} '.join(names)}", data).fit()
        if fit.df_resid >= 1 and fit.model.rank == len(fit.params):
            break
    else:
        return None
    if _is_exact(fit.ssr, data.y):
        return None
    outcome = f"log2({quantity})" if power_law else quantity
    return Line(
        formula=f"{outcome} ~ {f' {sign} '.join(f'log2({name})' for name in names)}",
        fit=fit,
        centre=2 ** logarithms.mean(),
        lack_of_fit=_lack_of_fit(fit, data.assign(setting=data.groupby(names).ngroup())),
    )


def _is_exact(squares: float, values: pd.Series) -> bool:
    """Whether a sum of squares is negligible against the scatter of all values, or against their rounding."""
    total = float(((values - values.mean()) ** 2).sum())
    return bool(squares <= _EXACT * max(total, _EXACT * float((values**2).sum())))


def _lack_of_fit(fit: Any, data: pd.DataFrame) -> LackOfFit | None:
    """The line against a mean for each setting."""
    import statsmodels.formula.api as smf

    means = smf.ols("y ~ C(setting)", data).fit()
    missed = int(fit.df_resid - means.df_resid)
    if means.df_resid < 1 or missed < 1 or _is_exact(means.ssr, data.y):
        return None
    f, p, _ = means.compare_f_test(fit)
    return LackOfFit(float(f), float(p), missed, int(means.df_resid))


def tukey(runs: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """A row with `quantity` (its name), `first`, `second` and `p` per quantity and pair of levels that scatter.

    Tukey's honestly significant difference, for unequal numbers of runs after Kramer: the error over all pairs of a
    quantity is 1 - CONFIDENCE.
    """
    from statsmodels.stats.multicomp import pairwise_tukeyhsd

    tables = [pd.DataFrame(columns=["quantity", "first", "second", "p"])]
    for quantity, name in names.items():
        used = runs[runs[quantity].notna()]
        values, levels = used[quantity], used.level
        pure = float(((values - values.groupby(levels).transform("mean")) ** 2).sum())
        if levels.nunique() > 1 and len(values) > levels.nunique() and not _is_exact(pure, values):
            table = pairwise_tukeyhsd(values, levels, alpha=1 - CONFIDENCE).summary_frame()
            table = table.rename(columns={"group_t": "first", "group_c": "second", "p-adj": "p"})
            tables.append(table.assign(quantity=name)[["quantity", "first", "second", "p"]])
    return pd.concat(tables[1:] or tables, ignore_index=True)


class Interval(NamedTuple):
    """A difference or ratio of means with its interval of CONFIDENCE, whose ends are None with too few repeats."""

    value: float
    low: float | None = None
    high: float | None = None


def difference(values: pd.Series, base: pd.Series) -> Interval:
    """The mean of `values` minus that of `base`, two series of a quantity by the data size of each run.

    By least squares, within the data sizes that both have, each with a constant of its own (Montgomery, Design and
    Analysis of Experiments, 2017, chapter 4); over all runs if they share none.
    """
    import statsmodels.formula.api as smf

    data = (
        pd.concat({1.0: values, 0.0: base})
        .rename_axis(["changed", "size"])
        .reset_index(name="value")
        .fillna({"size": 0})
    )
    shared = data[data.groupby("size").changed.transform("nunique") == 2]
    blocks = " + C(size)" if shared["size"].nunique() > 1 else ""
    fit = smf.ols(f"value ~ changed{blocks}", data if shared.empty else shared).fit()
    if fit.df_resid < 1 or _is_exact(fit.ssr, data.value):
        return Interval(float(fit.params["changed"]))
    return Interval(float(fit.params["changed"]), *map(float, fit.conf_int(1 - CONFIDENCE).loc["changed"]))


def ratio(values: pd.Series, base: pd.Series) -> Interval | None:
    """The same of logarithms: the ratio of geometric means, or None if a value is not above 0."""
    if min(values.min(), base.min()) <= 0:
        return None
    value, *ends = difference(np.log(values), np.log(base))
    return Interval(math.exp(value), *(None if end is None else math.exp(end) for end in ends))
