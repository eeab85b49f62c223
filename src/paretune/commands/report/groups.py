"""Runs by the values of a setting: what larger clusters do (view=scaling), and one value against another (compare).

Means, deviations, and what each step saves and costs; report.csv has the numbers, for tests of them.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from paretune.commands.report import DEVICES, SHAPE
from paretune.commands.report.document import Report, Section
from paretune.commands.report.jobs import DEFAULTS, QUANTITIES, VERSIONS, dates, frame_of, records
from paretune.core.errors import BadInput
from paretune.presentation.text import duration
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import COMPUTES, affecting
from paretune.tracking.recorded_job import RecordedJob

_OF_THE_CLUSTER = (SHAPE, DEVICES, "instance_type", "instance_count")
"""Factors of the cluster, compared for equal work; runs that are compared by another factor have the same shape."""
_EXPECTED_DIFFERENCES = {"seed", "dataset", "model", "instance_type", "instance_count"}
_KIND = ["origin", "kind", "model", "dataset", "task", "apart"]  # runs that may be compared are equal in these
_MEANS = "Means ± sample standard deviations of the runs that tell the quantity; time is billed per instance"


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

    Runs of one shape are compared; factors of the cluster are compared for the same rows and epochs, because F1 is only
    comparable on the same validation rows.
    """
    groups, alone = list[Group](), list[str]()
    work = runs.apply(_work, axis="columns")
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


def _work(run: pd.Series) -> str:
    """What a run has trained on, in words; empty if that is unknown."""
    return "" if np.isnan(run.work) else f"{run.rows:,.0f} rows x {run.work / run.rows:.3g} epochs"


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
    """The table and sentences of one kind of runs, and its means as numbers: seconds, USD, shares."""
    title, factor, names, runs = group
    levels = runs.groupby("level")
    numbers = pd.DataFrame({**runs[_KIND].iloc[0], "factor": factor, "level": names}, index=names)
    numbers["n"] = levels.size()
    numbers["devices"] = _devices(runs)
    table = pd.DataFrame({factor: numbers.level, "devices": numbers.devices.astype("string").fillna("")})
    for name, (header, written) in QUANTITIES.items():
        mean, deviation = levels[name].mean()[names], levels[name].std()[names]
        numbers[f"{name}_mean"], numbers[f"{name}_deviation"] = mean, deviation
        table[header] = list(map(partial(_mean, written), mean, deviation))
    table["n"] = numbers.n.astype(str)
    seconds, usd, f1 = (numbers[f"{name}_mean"] for name in (metrics.BILLABLE_SECONDS, metrics.COST_USD, metrics.F1))
    numbers["speed_up"] = seconds.iloc[0] / seconds
    numbers["efficiency"] = numbers.speed_up * numbers.devices.iloc[0] / numbers.devices
    if view == "scaling":
        numbers["step_saves_seconds"], numbers["step_costs_usd"] = -seconds.diff(), usd.diff()
        table["saved by this step"] = _written(numbers.step_saves_seconds, duration)
        table["its dollars"] = _written(numbers.step_costs_usd, "{:+,.2f}".format)
        table["efficiency"] = _written(numbers.efficiency, "{:.0%}".format)
    else:
        numbers["cost_ratio"], numbers["f1_difference"] = usd / usd.iloc[0], f1 - f1.iloc[0]
        table["billed time / first"] = _written(1 / numbers.speed_up, "{:.3f}".format)
        table["cost / first"] = _written(numbers.cost_ratio, "{:.3f}".format)
        table["F1 - first"] = _written(numbers.f1_difference, "{:+.4f}".format)
    settings = {*affecting(JobSpec, *COMPUTES, "evaluation"), VERSIONS} - _EXPECTED_DIFFERENCES - {factor}
    # More devices have a larger batch unless somebody fixes it.
    settings -= {"global_batch_size"} if factor in _OF_THE_CLUSTER else set()
    values = {name: _sorted(set(runs[name]) - {""}) for name in sorted(settings)}
    varying = "; ".join(f"{name} ({_in_few_words(several)})" for name, several in values.items() if len(several) > 1)
    section = Section(
        heading=f"{title[:1].upper()}{title[1:]}, by {factor}",
        tables=[(_MEANS, table.loc[:, table.ne("").any()])],
        sentences=[f"{factor} is not all that differs between these runs: so does {varying}."] if varying else [],
    )
    return section, numbers


def _written(values: pd.Series, written: Callable[[float], str]) -> list[str]:
    return ["" if pd.isna(value) else written(value) for value in values]


def _devices(runs: pd.DataFrame) -> pd.Series:
    """Devices of each level; missing where they are unknown or not the same, and everywhere if no two levels differ."""
    counts = runs.groupby("level").device_count.agg(["min", "max", "count", "size"])
    is_known = (counts["min"] == counts["max"]) & (counts["count"] == counts["size"])
    return counts["min"].where(is_known & (counts["min"].nunique() > 1)).astype("Int64")


def _mean(written: Callable[[float], str], mean: float, deviation: float) -> str:
    """A mean ± its sample standard deviation, with as many decimals."""
    if np.isnan(mean) or np.isnan(deviation):
        return "" if np.isnan(mean) else written(mean)
    text = written(mean)
    error = duration(deviation) if written is duration else f"{deviation:,.{len(text.partition('.')[2])}f}"
    return f"{text} ± {error}"
