"""Runs by the values of a setting: what larger clusters do (view=scaling), and one value against another (compare).

Least squares, lack of fit, Tukey's test and intervals of differences are those of statsmodels.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from paretune.commands.report import DEVICES, SHAPE
from paretune.commands.report.document import Chart, Report, Section, scatter
from paretune.commands.report.jobs import DEFAULTS, QUANTITIES, VERSIONS, dates, frame_of, records
from paretune.core.errors import BadInput
from paretune.presentation.text import duration, p_value, plain, texts
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import COMPUTES, affecting
from paretune.tracking.recorded_job import RecordedJob

CONFIDENCE = 0.95
SIGNIFICANT = 0.05  # probability below which a test counts as significant
_EXACT = 1e-24  # share of the squares of all values below which what is left is rounding
_OF_THE_CLUSTER = (SHAPE, DEVICES, "instance_type", "instance_count")
"""Factors of the cluster, compared for equal work; runs that are compared by another factor have the same shape."""
_EXPECTED_DIFFERENCES = {"seed", "dataset", "model", "instance_type", "instance_count"}
_KIND = ["origin", "kind", "model", "dataset", "task", "apart"]  # runs that may be compared are equal in these
_NAMES = {metrics.BILLABLE_SECONDS: "time", metrics.COST_USD: "cost", metrics.F1: "F1"}
_COMPARED = {
    metrics.THROUGHPUT_SAMPLES: "samples/s / first",
    metrics.BILLABLE_SECONDS: "billed time / first",
    metrics.COST_USD: "cost / first",
    metrics.F1: "F1 - first",
}
_MEANS = (
    "Means ± sample standard deviations of the runs that tell the quantity, time is billed per instance; "
    f"against the first row with {CONFIDENCE:.0%} intervals where there are repeats"
)


class Group(NamedTuple):
    """Runs of one kind by the values of a factor, which are in the column `level` and, in order, in `names`."""

    title: str  # such as published: distilbert-base-uncased on amazon_polarity
    factor: str
    names: Sequence[str]
    runs: pd.DataFrame


def groups_report(jobs: Sequence[RecordedJob], view: str, factor: str) -> Report:
    """A section for the completed jobs of each kind, by the values of the factor; raises BadInput if nothing varies."""
    frame = frame_of(jobs, factor)
    used = frame[(frame.state == "Completed") & (frame.probe_steps == "")]
    sections, tables = zip(*(section_of(group, view) for group in groups_of(used, factor, view)), strict=True)
    about = [dates(frame), "Origins, data sets and models stand in tables of their own: compare within one only."]
    if left := len(frame) - len(used):
        about.append(f"Left out: {left}, not completed or probes.")
    return Report(title=f"Report by {factor}", about=about, sections=sections, rows=records(pd.concat(tables)))


def groups_of(runs: pd.DataFrame, factor: str, view: str) -> list[Group]:
    """The runs of each kind with two values of the factor; raises BadInput if no kind has two.

    Runs of one shape are compared; factors of the cluster are compared for equal work.
    """
    groups, alone = list[Group](), list[str]()
    work = runs.work.map(lambda work: "" if np.isnan(work) else f"{float(f'{work:.3g}'):,.0f} rows x epochs")
    runs = runs.assign(level=runs[factor], apart=work if factor in _OF_THE_CLUSTER else runs[SHAPE])
    for (_, kind, model, dataset, _, apart), group in runs.groupby(_KIND):
        title = f"{kind}: {model} on {dataset}{f', {apart}' if apart else ''}"
        names = _sorted(group.level.unique())
        if factor in (SHAPE, DEVICES, "instance_type"):
            names.sort(key=lambda name: (group.device_count[group.level == name].min(), name))
        if view == "compare":  # the default first, with which the others are compared
            names.sort(key=lambda name: name != DEFAULTS.get(factor))
        if len(names) > 1:
            groups.append(Group(title, factor, names, group))
        else:
            alone.append(f"{title}: all with {factor} {names[0] or 'unknown'}")
    if not groups:
        got = "; ".join(alone) or "no completed run"
        must = f"view={view} compares at least two values of {factor}"
        raise BadInput([f"{must}, got {got}: choose more runs, or another by"])
    return groups


def _sorted(names: Iterable[str]) -> list[str]:
    """Values of a setting in order: numbers by size, else texts."""
    try:
        return sorted(names, key=float)
    except ValueError:
        return sorted(names)


def _in_few_words(values: Sequence[str]) -> str:
    """All values of a setting, or how many between the first and the last of them."""
    if len(values) <= 5:
        return ", ".join(values)
    ends = [values[0], values[-1]]
    with suppress(ValueError):
        ends = [f"{float(end):.6g}" for end in ends]
    return f"{len(values)} values from {' to '.join(ends)}"


def section_of(group: Group, view: str) -> tuple[Section, pd.DataFrame]:
    """The tables, sentences and charts of one kind of runs, and its means as numbers: seconds, USD, shares."""
    title, factor, names, runs = group
    levels, is_scaling = runs.groupby("level"), view == "scaling"
    numbers = pd.DataFrame({**runs[_KIND].iloc[0], "factor": factor, "level": names}, index=names)
    numbers["n"] = levels.size()
    numbers["devices"] = _devices(runs)
    table = pd.DataFrame({factor: numbers.level, "devices": numbers.devices.astype("string").fillna("")})
    for name, (header, written) in QUANTITIES.items():
        mean, deviation = levels[name].mean()[names], levels[name].std()[names]
        numbers[f"{name}_mean"], numbers[f"{name}_deviation"] = mean, deviation
        table[header] = list(map(partial(_mean, written), mean, deviation))
    table["n"] = numbers.n.astype(str)
    for name, header in _COMPARED.items():
        columns = [f"{name}_{'difference' if name == metrics.F1 else 'ratio'}{end}" for end in ("", "_low", "_high")]
        numbers[columns] = [_against_first(group, name, level) for level in names]
        table[header] = [_interval(name, *ends) for ends in numbers[columns].itertuples(index=False)]
    seconds = numbers[f"{metrics.BILLABLE_SECONDS}_mean"]
    numbers["speed_up"] = seconds.iloc[0] / seconds
    numbers["efficiency"] = numbers.speed_up * numbers.devices.iloc[0] / numbers.devices
    table["efficiency"] = ["" if pd.isna(share) else f"{share:.0%}" for share in numbers.efficiency]
    settings = {*affecting(JobSpec, *COMPUTES, "evaluation"), VERSIONS} - _EXPECTED_DIFFERENCES - {factor}
    # More devices have a larger batch unless somebody fixes it.
    settings -= {"global_batch_size"} if factor in _OF_THE_CLUSTER else set()
    values = {name: _sorted(set(runs[name]) - {""}) for name in sorted(settings)}
    varying = "; ".join(f"{name} ({_in_few_words(several)})" for name, several in values.items() if len(several) > 1)
    section = Section(
        heading=f"{title[:1].upper()}{title[1:]}, by {factor}",
        tables=[(_MEANS, table.loc[:, table.ne("").any()])],
        tests=_tests(group) if is_scaling else [],
        sentences=[f"{factor} is not all that differs between these runs: so does {varying}."] if varying else [],
        charts=_charts(runs) if is_scaling else [],
    )
    return section, numbers


def _devices(runs: pd.DataFrame) -> pd.Series:
    """Devices of each level; missing where they are unknown or not the same, and everywhere if no two levels differ."""
    counts = runs.groupby("level").device_count.agg(["min", "max", "count", "size"])
    is_known = (counts["min"] == counts["max"]) & (counts["count"] == counts["size"])
    return counts["min"].where(is_known & (counts["min"].nunique() > 1)).astype("Int64")


def _against_first(group: Group, quantity: str, level: str) -> np.ndarray:
    """A level's ratio to the first one, of F1 the difference, and the ends of its interval; NaN where it is unknown."""
    runs, is_f1 = group.runs.set_index("rows"), quantity == metrics.F1
    runs = runs[runs[quantity].notna() if is_f1 else runs[quantity] > 0]
    values, base = (runs[quantity][runs.level == name] for name in (level, group.names[0]))
    if level == group.names[0] or values.empty or base.empty:
        return np.full(3, np.nan)
    return difference(values, base) if is_f1 else np.exp(difference(np.log(values), np.log(base)))


def _mean(written: Callable[[float], str], mean: float, deviation: float) -> str:
    """A mean ± its sample standard deviation, with as many decimals."""
    if np.isnan(mean) or np.isnan(deviation):
        return "" if np.isnan(mean) else written(mean)
    text = written(mean)
    error = duration(deviation) if written is duration else f"{deviation:,.{len(text.partition('.')[2])}f}"
    return f"{text} ± {error}"


def _interval(quantity: str, value: float, low: float, high: float) -> str:
    form = "+.4f" if quantity == metrics.F1 else ".3f"
    if np.isnan(value):
        return ""
    return f"{round(value, 4) + 0.0:{form}}" + ("" if np.isnan(low) else f" ({low:{form}} to {high:{form}})")


def _tests(group: Group) -> list[tuple[str, pd.DataFrame]]:
    """Tukey's test of each pair of levels, and least-squares lines over devices and data size."""
    tests, columns = list[tuple[str, pd.DataFrame]](), dict[str, Any]()
    if not (pairs := tukey(group.runs, _NAMES)).empty:
        differs = pairs.p.lt(SIGNIFICANT).map({True: "more than noise", False: "not told apart from noise"})
        columns = {"": "quantity", "from": "first", "to": "second", "p": ("p", p_value), "difference": "differs"}
        tests.append(("Tukey's test of all pairs", texts(pairs.assign(differs=differs), columns)))
    for quantity, kind in ((metrics.BILLABLE_SECONDS, "exponent"), (metrics.F1, "change")):
        fitted = line(group.runs, quantity, power_law=kind == "exponent") if group.factor in _OF_THE_CLUSTER else None
        if fitted is not None:
            form = partial(plain, digits=3)
            columns = {"per doubling of": "term", kind: ("value", form), "low": ("low", form), "high": ("high", form)}
            effects = texts(fitted[1], columns | {"p": ("p", p_value)})
            tests.append((f"{fitted[0]}, with {CONFIDENCE:.0%} intervals", effects))
    return tests


def _charts(runs: pd.DataFrame) -> list[Chart | None]:
    """Time over devices by global batch size, F1 over devices by data size, and F1 by rule of the learning rate."""
    origin, charts, sized = f"({runs.origin.iloc[0]})", list[Chart | None](), runs[runs.device_count > 0]
    if sized.device_count.nunique() > 1:
        sized = sized.sort_values("rows").assign(hours=sized.billable_seconds / 3600)
        means = sized.groupby("device_count").hours.mean().dropna()
        perfect = {"perfect scaling": means.iloc[:1].sum() * means.index.min() / means.index.to_series()}
        by_batch = sized.assign(series="global batch " + sized.global_batch_size.replace("", "unknown"))
        by_size = sized.assign(series=sized.rows.map("{:,.0f} rows".format))
        title, axes = f"Time over devices {origin}", ("device_count", "hours")
        charts.append(scatter(by_batch, axes, title=title, lines=perfect))
        charts.append(scatter(by_size, ("device_count", metrics.F1), title=f"F1 over devices {origin}"))
    if runs.learning_rate_scaling.nunique() > 1:
        by_rule = runs.assign(series=runs.learning_rate_scaling.replace("none", "fixed rate"))
        by_rule["batch"] = pd.to_numeric(runs.global_batch_size, errors="coerce")
        title = f"Scaled against fixed learning rate {origin}"
        charts.append(scatter(by_rule, ("batch", metrics.F1), title=title))
    return charts


def line(runs: pd.DataFrame, quantity: str, *, power_law: bool = False) -> tuple[str, pd.DataFrame] | None:
    """Fit a line through the runs with the quantity, over logarithms (base 2) of devices and, if it varies, data size.

    A power law is a line of the quantity's logarithm. Any other line has the interaction of the two if there are enough
    runs for it. Returns the model in Wilkinson and Rogers' notation with its lack of fit, and a row of `term`, `value`,
    `low`, `high` and `p` per effect of a doubling, or exponent. None if the predictors do not vary, if there are too
    few runs, or if all lie on the line.
    """
    import statsmodels.formula.api as smf

    used = runs[runs[quantity].notna() & (runs.device_count > 0) & ((runs[quantity] > 0) | (not power_law))]
    sizes = used[["device_count", "rows"]].set_axis(["devices", "data_size"], axis="columns")
    names = [name for name in sizes if sizes[name].nunique() > 1 and (sizes[name] > 0).all()]
    if not names:
        return None
    logarithms = np.log2(sizes[names])
    data = logarithms - logarithms.mean()
    data["y"] = np.log2(used[quantity]) if power_law else used[quantity]
    fits = [
        (sign, smf.ols(f"y ~ {sign.join(names)}", data).fit()) for sign in ([" + "] if power_law else [" * ", " + "])
    ]
    fits = [(sign, fit) for sign, fit in fits if fit.df_resid >= 1 and fit.model.rank == len(fit.params)]
    if not fits or _is_exact(fits[0][1].ssr, data.y):
        return None
    sign, fit = fits[0]
    at = ""
    if "devices:data_size" in fit.params:  # the effect of one depends on the other
        centre = 2 ** logarithms.mean()
        at = f", effects at {centre.devices:.1f} devices and {centre.data_size:,.0f} rows"
    outcome = f"log2({quantity})" if power_law else quantity
    formula = f"{outcome} ~ {sign.join(f'log2({name})' for name in names)}"
    interval = fit.conf_int(1 - CONFIDENCE)
    effects = pd.DataFrame({"value": fit.params, "low": interval[0], "high": interval[1], "p": fit.pvalues})[1:]
    lack_of_fit = _lack_of_fit(fit, data.assign(setting=data.groupby(names).ngroup()))
    about = f"{formula}, least squares over {int(fit.nobs)} runs{at}; {lack_of_fit}"
    return about, effects.rename_axis("term").reset_index()


def _is_exact(squares: float, values: pd.Series) -> bool:
    """Whether a sum of squares is negligible against the size of the values: such runs do not scatter at all."""
    return bool(squares <= _EXACT * float((values**2).sum()))


def _lack_of_fit(fit: Any, data: pd.DataFrame) -> str:
    """The F test of the line against a mean for each setting (Draper and Smith, 1998, section 2.1), in words."""
    import statsmodels.formula.api as smf

    means = smf.ols("y ~ C(setting)", data).fit()
    if means.df_resid < 1 or means.df_resid >= fit.df_resid or _is_exact(means.ssr, data.y):
        return "too few repeats to tell whether it fits"
    f, p, missed = means.compare_f_test(fit)
    verdict = "does not hold" if p < SIGNIFICANT else "is not refuted"
    return f"it {verdict}, lack of fit F({missed:.0f}, {means.df_resid:.0f}) {plain(f, 3)}, {p_value(p)}"


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
        squares = float(((values - values.groupby(levels).transform("mean")) ** 2).sum())
        if levels.nunique() > 1 and len(values) > levels.nunique() and not _is_exact(squares, values):
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
