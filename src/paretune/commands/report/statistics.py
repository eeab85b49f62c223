"""Least squares, lack of fit, Tukey's test and intervals of differences, by statsmodels."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from paretune.presentation.text import p_value, plain

CONFIDENCE = 0.95
SIGNIFICANT = 0.05  # probability below which a test counts as significant
_EXACT = 1e-12  # share of a sum of squares below which runs do not scatter at all


def line(runs: pd.DataFrame, quantity: str, *, power_law: bool = False) -> tuple[str, pd.DataFrame] | None:
    """Fit a line through the runs with the quantity, over logarithms (base 2) of devices and, if it varies, data size.

    A power law is a line of the quantity's logarithm. Any other line has the interaction of the two if there are enough
    runs for it. Returns the model in Wilkinson and Rogers' notation with its lack of fit, and a row of `term`, `value`,
    `low`, `high` and `p` per effect of a doubling, or exponent. None if the predictors do not vary, if there are too
    few runs, or if all lie on the line.
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
    outcome, at = f"log2({quantity})" if power_law else quantity, ""
    if "devices:data_size" in fit.params:  # the effect of one depends on the other
        centre = 2 ** logarithms.mean()
        at = f", effects at {centre.devices:.1f} devices and {centre.data_size:,.0f} rows"
    formula = f"{outcome} ~ {f' {sign} '.join(f'log2({name})' for name in names)}"
    fits = _lack_of_fit(fit, data.assign(setting=data.groupby(names).ngroup()))
    interval = fit.conf_int(1 - CONFIDENCE)
    effects = pd.DataFrame({"value": fit.params, "low": interval[0], "high": interval[1], "p": fit.pvalues})[1:]
    about = f"{formula}, least squares over {int(fit.nobs)} runs{at}; {fits}"
    return about, effects.rename_axis("term").reset_index()


def _is_exact(squares: float, values: pd.Series) -> bool:
    """Whether a sum of squares is negligible against the scatter of all values, or against their rounding."""
    total = float(((values - values.mean()) ** 2).sum())
    return bool(squares <= _EXACT * max(total, _EXACT * float((values**2).sum())))


def _lack_of_fit(fit: Any, data: pd.DataFrame) -> str:
    """The F test of the line against a mean for each setting (Draper and Smith, 1998, section 2.1), in words."""
    import statsmodels.formula.api as smf

    means = smf.ols("y ~ C(setting)", data).fit()
    missed, repeated = int(fit.df_resid - means.df_resid), int(means.df_resid)
    if repeated < 1 or missed < 1 or _is_exact(means.ssr, data.y):
        return "too few repeats to tell whether it fits"
    f, p, _ = means.compare_f_test(fit)
    verdict = "does not hold" if p < SIGNIFICANT else "is not refuted"
    return f"it {verdict}, lack of fit F({missed}, {repeated}) {plain(f, 3)}, {p_value(p)}"


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


def difference(values: pd.Series, base: pd.Series) -> np.ndarray:
    """The mean of `values` minus that of `base`, and the ends of its interval of CONFIDENCE; NaN with too few repeats.

    Both are series of a quantity by the data size of each run. By least squares, within the data sizes that both have,
    each with a constant of its own (Montgomery, Design and Analysis of Experiments, 2017, chapter 4); over all runs if
    they share none.
    """
    import statsmodels.formula.api as smf

    data = pd.concat({1.0: values, 0.0: base}).rename_axis(["changed", "size"]).reset_index(name="value")
    data = data.fillna({"size": 0})
    shared = data[data.groupby("size").changed.transform("nunique") == 2]
    blocks = " + C(size)" if shared["size"].nunique() > 1 else ""
    fit = smf.ols(f"value ~ changed{blocks}", data if shared.empty else shared).fit()
    has_interval = fit.df_resid >= 1 and not _is_exact(fit.ssr, data.value)
    ends = fit.conf_int(1 - CONFIDENCE).loc["changed"] if has_interval else (np.nan, np.nan)
    return np.array([fit.params["changed"], *ends])
