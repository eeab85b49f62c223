"""Runs by the values of a setting: what larger clusters do (view=scaling), and one value against another (compare)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from paretune.commands.report.command import DEVICES, SHAPE
from paretune.commands.report.document import Chart, Report, Section, scatter
from paretune.commands.report.jobs import COMPILED, DEFAULTS, QUANTITIES, VERSIONS, dates, frame_of, records
from paretune.commands.report.statistics import CONFIDENCE, SIGNIFICANT, difference, line, tukey
from paretune.core.errors import BadInput
from paretune.presentation.numbers import dollars, duration, p_value, plain, with_error
from paretune.presentation.table import texts
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import COMPUTES, affecting
from paretune.tracking import RecordedJob

_OF_THE_CLUSTER = (SHAPE, DEVICES, "instance_type", "instance_count")
"""Factors of the cluster; runs that are compared by another factor have the same shape."""
_COMPUTING = (
    *("per_device_train_batch_size", "precision", VERSIONS, "max_seq_length", "strategy", COMPILED),
    *("fine_tuning", "spot"),
)
"""Settings that seconds depend on beside the cluster: runs that differ in one are not repeats."""
_EXPECTED_DIFFERENCES = {"seed", "dataset", "model", "instance_type", "instance_count"}
_KIND = ["origin", "is_notional", "model", "dataset", "task", "apart"]  # runs that may be compared are equal in these
_NAMES = {metrics.BILLABLE_SECONDS: "time", metrics.COST_USD: "cost", metrics.F1: "F1"}
_COMPARED = {
    metrics.THROUGHPUT_SAMPLES: "samples/s / first",
    metrics.BILLABLE_SECONDS: "billed time / first",
    metrics.COST_USD: "cost / first",
    metrics.F1: "F1 - first",
}
_MEANS = "Means ± sample standard deviations of the runs that tell the quantity; time is billed per instance"


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs of one origin, model, data set and task by the values of a factor, which are in the column `level`."""

    title: str  # such as published: distilbert-base-uncased on amazon_polarity
    factor: str
    names: Sequence[str]  # the values, in order
    runs: pd.DataFrame

    def of(self, name: str) -> pd.DataFrame:
        """The runs of one level."""
        return self.runs[self.runs.level == name]

    def frame(self) -> pd.DataFrame:
        """A row per level: its kind, number of runs, and mean and sample standard deviation of each quantity."""
        levels = self.runs.groupby("level")
        kind = {name: self.runs[name].iloc[0] for name in _KIND}
        frame = pd.DataFrame({**kind, "factor": self.factor, "level": self.names}, index=self.names)
        frame["n"] = levels.size()
        for name in QUANTITIES:
            frame[f"{name}_mean"], frame[f"{name}_deviation"] = levels[name].mean(), levels[name].std()
        return frame


def groups_report(jobs: Sequence[RecordedJob], view: str, factor: str) -> Report:
    """A section for the completed jobs of each kind, by the values of the factor; raises BadInput if nothing varies."""
    frame = frame_of(jobs, factor)
    used = frame[(frame.state == "Completed") & (frame.probe_steps == "")] if jobs else frame
    groups, left_out = groups_of(used, factor, view)
    sections, tables = zip(*(section_of(group, view) for group in groups), strict=True)
    about = [dates(frame), "Origins, data sets and models stand in tables of their own: compare within one only."]
    if left := len(frame) - len(used):
        about.append(f"{left} of them {'is' if left == 1 else 'are'} left out: not completed, or a probe.")
    others = [Section(heading="Nothing to compare with", sentences=[f"{group}." for group in left_out])]
    return Report(
        title=f"Report by {factor}",
        about=about,
        sections=[*sections, *(others if left_out else [])],
        rows=[row for table in tables for row in records(table)],
    )


def groups_of(runs: pd.DataFrame, factor: str, view: str) -> tuple[list[Group], list[str]]:
    """The runs of each kind with two values of the factor, and a sentence for the others; raises BadInput without any.

    Runs of one shape are compared; factors of the cluster are compared for equal work.
    """
    groups, left_out = list[Group](), list[str]()
    if not runs.empty:
        work = runs.work.map(lambda work: "" if np.isnan(work) else f"{float(f'{work:.3g}'):,.0f} rows x epochs")
        runs = runs.assign(level=runs[factor], apart=work if factor in _OF_THE_CLUSTER else runs[SHAPE])
    for kind, group in runs.groupby(_KIND) if not runs.empty else ():
        origin, is_notional, model, dataset, _, apart = kind
        title = f"{origin}{', notional dollars' * is_notional}: {model} on {dataset}{f', {apart}' if apart else ''}"
        names = _sorted(group.level.unique())
        if factor in (SHAPE, DEVICES, "instance_type"):
            names.sort(key=lambda name: (group.device_count[group.level == name].min(), name))
        if view == "compare":  # the default first, with which the others are compared
            names.sort(key=lambda name: name != DEFAULTS.get(factor))
        if len(names) > 1:
            groups.append(Group(title=title, factor=factor, names=names, runs=group))
        else:
            count = f"{len(group)} run{'s' * (len(group) > 1)}"
            left_out.append(f"{title}: {count}, all with {factor} {names[0] or 'unknown'}")
    if not groups:
        found = "; ".join(left_out) or "no completed run matches"
        raise BadInput(
            [f"view={view} compares at least two values of {factor}, got {found}: choose more runs, or another by"]
        )
    return groups, left_out


def _sorted(names: Iterable[str]) -> list[str]:
    """Values of a setting in order: numbers by size, else texts."""
    try:
        return sorted(names, key=float)
    except ValueError:
        return sorted(names)


def _varying(runs: pd.DataFrame, names: Iterable[str]) -> str:
    """Those settings that have several values, each with its values in brackets; unknown values are left out."""
    values = {name: _sorted(set(runs[name]) - {""}) for name in names}
    return "; ".join(f"{name} ({', '.join(several)})" for name, several in values.items() if len(several) > 1)


def section_of(group: Group, view: str) -> tuple[Section, pd.DataFrame]:
    """The tables, sentences and charts of one kind of runs, and its means as numbers: seconds, USD, shares."""
    frame, tables, charts = group.frame(), list[tuple[str, pd.DataFrame]](), list[Chart | None]()
    columns: dict[str, Any] = {group.factor: "level"}
    if view == "scaling":
        _add_steps(group, frame)
        tables, charts = _tests(group), _scaling_charts(group)
        shown, about = [*_NAMES, metrics.THROUGHPUT_SAMPLES], _MEANS
        columns["devices"] = "devices"
        added = _STEPS
    else:
        _add_ratios(group, frame)
        shown = [name for name in QUANTITIES if name != metrics.ESTIMATED_SECONDS]
        about = f"{_MEANS}; against the first row with {CONFIDENCE:.0%} intervals where there are repeats"
        added = {header: f"{name}_against" for name, header in _COMPARED.items()}
    for name in shown:
        pairs = zip(frame[f"{name}_mean"], frame[f"{name}_deviation"], strict=True)
        columns[QUANTITIES[name]], frame[name] = name, [_mean(name, *pair) for pair in pairs]
    listed = texts(frame, columns | {"n": "n"} | added)
    frame = frame.drop(columns=[*shown, *frame.filter(regex="_against$")])
    heading = f"{group.title[:1].upper()}{group.title[1:]}, by {group.factor}"
    settings = {*affecting(JobSpec, *COMPUTES, "evaluation"), VERSIONS} - _EXPECTED_DIFFERENCES - {group.factor}
    # More devices have a larger batch unless somebody fixes it.
    settings -= {"global_batch_size"} if group.factor in _OF_THE_CLUSTER else set()
    varying = _varying(group.runs, sorted(settings))
    sentences = [f"{group.factor} is not all that differs between these runs: so does {varying}."] if varying else []
    tables = [(about, listed), *tables]
    return Section(heading=heading, tables=tables, sentences=sentences, charts=charts, has_tests=True), frame


def _mean(quantity: str, mean: float, deviation: float) -> str:
    """A mean ± its sample standard deviation."""
    if np.isnan(mean):
        return ""
    if quantity == metrics.COST_USD and mean < 1:
        return with_error(mean, deviation)
    decimals = {metrics.F1: 4, metrics.THROUGHPUT_SAMPLES: 1}.get(quantity, 2)
    write = duration if quantity.endswith("seconds") else f"{{:,.{decimals}f}}".format
    return write(mean) + ("" if np.isnan(deviation) else f" ± {write(deviation)}")


def _signed(value: float) -> str:
    """A difference in dollars, such as + 20.57, - 0.0123."""
    return f"{'-' if value < 0 else '+'} {dollars(abs(value))}"


_STEPS: dict[str, Any] = {
    "time saved, one step up": ("saved_seconds", duration),
    "cost, one step up (USD)": ("dearer_usd", _signed),
    "speed-up": ("speed_up", ".2f"),
    "efficiency": ("efficiency", ".0%"),
    "estimated before": (f"{metrics.ESTIMATED_SECONDS}_mean", duration),
    "no repeats: so differs": "remark",
}


def _add_ratios(group: Group, frame: pd.DataFrame) -> None:
    """Add ratios to the first level with their intervals, and differences of F1, as numbers and in words."""
    base = group.of(group.names[0]).set_index("rows")
    for quantity in _COMPARED:
        is_f1 = quantity == metrics.F1
        form, kind = ("+.4f", f"{quantity}_difference") if is_f1 else (".3f", f"{quantity}_ratio")
        columns = [kind, f"{kind}_low", f"{kind}_high"]
        frame[columns] = np.nan
        for name in group.names[1:]:
            values, others = (runs[quantity].dropna() for runs in (group.of(name).set_index("rows"), base))
            if values.empty or others.empty or not (is_f1 or min(values.min(), others.min()) > 0):
                continue
            logarithms = difference(values, others) if is_f1 else difference(np.log(values), np.log(others))
            frame.loc[name, columns] = logarithms if is_f1 else np.exp(logarithms)
        frame[f"{quantity}_against"] = [
            _interval(value, low, high, form) for value, low, high in frame[columns].to_numpy()
        ]


def _interval(value: float, low: float, high: float, form: str) -> str:
    if np.isnan(value):
        return ""
    return f"{value:{form}}" + ("" if np.isnan(low) else f" ({low:{form}} to {high:{form}})")


def _add_steps(group: Group, frame: pd.DataFrame) -> None:
    """Add devices, what each step up saves and costs, and in what the runs of a row differ."""
    counts = group.runs.groupby("level").device_count.agg(["min", "max", "count", "size"]).loc[list(group.names)]
    is_known = (counts["min"] == counts["max"]) & (counts["count"] == counts["size"])
    frame["devices"] = counts["min"].where(is_known).astype("Int64")
    seconds = frame[f"{metrics.BILLABLE_SECONDS}_mean"]
    frame["saved_seconds"], frame["dearer_usd"] = -seconds.diff(), frame[f"{metrics.COST_USD}_mean"].diff()
    frame["speed_up"] = seconds.iloc[0] / seconds
    has_several = frame.devices.nunique(dropna=False) > 1
    frame["efficiency"] = (frame.speed_up * frame.devices.iloc[0] / frame.devices) if has_several else np.nan
    frame["remark"] = [_varying(group.of(name), _COMPUTING) for name in group.names]


def _tests(group: Group) -> list[tuple[str, pd.DataFrame]]:
    """Tukey's test of each pair of levels, and least-squares lines over devices and data size."""
    tables, columns = list[tuple[str, pd.DataFrame]](), dict[str, Any]()
    if not (pairs := tukey(group.runs, _NAMES)).empty:
        differs = pairs.p.lt(SIGNIFICANT).map({True: "more than noise", False: "not told apart from noise"})
        columns = {"": "quantity", "from": "first", "to": "second", "p": ("p", p_value), "difference": "differs"}
        tables.append(("Tukey's test of all pairs", texts(pairs.assign(differs=differs), columns)))
    if group.factor not in _OF_THE_CLUSTER:
        return tables
    for quantity, power_law in ((metrics.BILLABLE_SECONDS, True), (metrics.F1, False)):
        if fitted := line(group.runs, quantity, power_law=power_law):
            about, effects = fitted
            form = partial(plain, digits=3)
            columns = {"per doubling of": "term", "exponent" if power_law else "change": ("value", form)}
            columns |= {"low": ("low", form), "high": ("high", form), "p": ("p", p_value)}
            tables.append((f"{about}, with {CONFIDENCE:.0%} intervals", texts(effects, columns)))
    return tables


def _scaling_charts(group: Group) -> list[Chart | None]:
    """Time over devices by global batch size, F1 over devices by data size, and F1 by rule of the learning rate."""
    runs, charts = group.runs[group.runs.device_count > 0], list[Chart | None]()
    origin, rules = f"({group.runs.origin.iloc[0]})", group.runs.learning_rate_scaling
    if runs.device_count.nunique() > 1:
        means = runs.groupby("device_count")[metrics.BILLABLE_SECONDS].mean().dropna()
        perfect = {"perfect scaling": means.iloc[:1].sum() * means.index.min() / means.index.to_series()}
        by_batch = runs.assign(series="global batch " + runs.global_batch_size.replace("", "unknown"))
        by_size = runs.sort_values("rows").assign(series=lambda runs: runs.rows.map("{:,.0f} rows".format))
        axes = ("device_count", metrics.BILLABLE_SECONDS), ("device_count", metrics.F1)
        charts = [
            scatter(by_batch, axes[0], title=f"Time over devices {origin}", lines=perfect, joins=True),
            scatter(by_size, axes[1], title=f"F1 over devices {origin}", joins=True),
        ]
    if rules.nunique() > 1:
        batch = pd.to_numeric(group.runs.global_batch_size, errors="coerce")
        by_rule = group.runs.assign(series=rules.replace("none", "fixed rate"), batch=batch)
        title = f"Scaled against fixed learning rate {origin}"
        charts.append(scatter(by_rule, ("batch", metrics.F1), title=title, joins=True))
    return charts
