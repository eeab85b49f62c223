"""Runs by the values of a setting: what larger clusters do (view=scaling), and one value against another (compare).

Means, deviations, and what each step saves and costs; report.csv has the numbers, for tests of them.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

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
_SETTINGS = {*affecting(JobSpec, *COMPUTES, "evaluation"), VERSIONS} - {
    *("seed", "dataset", "model", "instance_type", "instance_count")
}
"""Settings that should not differ between the runs of a table."""
_KIND = ["origin", "kind", "model", "dataset", "task", "apart"]  # runs that may be compared are equal in these
_RATIOS: dict[str, tuple[str, Callable[[float], str]]] = {
    "step_saves_seconds": ("saved by this step", duration),
    "step_costs_usd": ("its dollars", "{:+,.2f}".format),
    "efficiency": ("efficiency", "{:.0%}".format),
    "time_ratio": ("billed time / first", "{:.3f}".format),
    "cost_ratio": ("cost / first", "{:.3f}".format),
    "f1_difference": ("F1 - first", "{:+.4f}".format),
}
"""Columns that compare a row with the one before or with the first: name in report.csv, heading and format."""


def groups_report(jobs: Sequence[RecordedJob], factor: str) -> Report:
    """A table for the completed jobs of each kind, by the values of the factor; raises BadInput if nothing varies.

    Runs of one shape are compared; factors of the cluster are compared for the same rows and epochs, because F1 is only
    comparable on the same validation rows.
    """
    frame = frame_of(jobs, factor)
    runs = frame[(frame.state == "Completed") & (frame.probe_steps == "")]
    work = runs.apply(_work, axis="columns") if factor in _OF_THE_CLUSTER else runs[SHAPE]
    groups = {_title(kind): group for kind, group in runs.assign(apart=work).groupby(_KIND)}
    several = {title: group for title, group in groups.items() if group[factor].nunique() > 1}
    if not several:
        alone = [f"{title}: all with {factor} {group[factor].iloc[0] or 'unknown'}" for title, group in groups.items()]
        got = "; ".join(alone) or "no completed run"
        raise BadInput([f"at least two values of {factor} are compared, got {got}: choose more runs, or another by"])
    tables = {title: numbers_of(group, factor) for title, group in several.items()}
    about = [dates(frame), "Origins, data sets and models stand in tables of their own: compare within one only."]
    if left := len(frame) - len(runs):
        about.append(f"Left out: {left}, not completed or probes.")
    return Report(
        title=f"Report by {factor}",
        about=about,
        sections=[section_of(title, factor, several[title], numbers) for title, numbers in tables.items()],
        rows=records(pd.concat(tables.values())),
    )


def _title(kind: Sequence[str]) -> str:
    _, words, model, dataset, _, apart = kind
    return f"{words[:1].upper()}{words[1:]}: {model} on {dataset}{f', {apart}' if apart else ''}"


def _work(run: pd.Series) -> str:
    """The rows and epochs that a run has trained on, in words; empty if they are unknown."""
    return "" if np.isnan(run.work) else f"{run.rows:,.0f} rows x {run.work / run.rows:.3g} epochs"


def _sorted(names: Iterable[str]) -> list[str]:
    try:
        return sorted(names, key=float)
    except ValueError:
        return sorted(names)


def numbers_of(runs: pd.DataFrame, factor: str) -> pd.DataFrame:
    """Means and deviations by the values of the factor, and ratios to the first: seconds, USD, shares.

    Clusters come in the order of their devices; of another setting the default comes first.
    """
    names, levels = _sorted(runs[factor].unique()), runs.groupby(factor)
    names.sort(key=lambda name: name != DEFAULTS.get(factor))
    if factor in _OF_THE_CLUSTER:
        names.sort(key=lambda name: levels.device_count.min()[name])
    numbers = pd.DataFrame({**runs[_KIND].iloc[0], "factor": factor, "level": names}, index=names)
    counts = levels.device_count.agg(["min", "max"])
    numbers["devices"] = counts["min"].where(counts["min"] == counts["max"]).astype("Int64")
    numbers["n"] = levels.size()
    for name in QUANTITIES:
        numbers[f"{name}_mean"], numbers[f"{name}_deviation"] = levels[name].mean(), levels[name].std()
    seconds, usd, f1 = (numbers[f"{name}_mean"] for name in (metrics.BILLABLE_SECONDS, metrics.COST_USD, metrics.F1))
    numbers["time_ratio"], numbers["cost_ratio"] = seconds / seconds.iloc[0], usd / usd.iloc[0]
    numbers["f1_difference"] = f1 - f1.iloc[0]
    if numbers.devices.nunique() > 1:
        numbers["efficiency"] = numbers.devices.iloc[0] / numbers.devices / numbers.time_ratio
        numbers["step_saves_seconds"], numbers["step_costs_usd"] = -seconds.diff(), usd.diff()
    return numbers


def section_of(title: str, factor: str, runs: pd.DataFrame, numbers: pd.DataFrame) -> Section:
    """The numbers of one kind of runs as a table, and a sentence on what else differs between these runs."""
    table = pd.DataFrame({factor: numbers.level, "devices": numbers.devices.astype("string").fillna("")})
    for name, (header, written) in QUANTITIES.items():
        table[header] = list(map(partial(_mean, written), numbers[f"{name}_mean"], numbers[f"{name}_deviation"]))
    table["n"] = numbers.n.astype(str)
    for name, (header, written) in _RATIOS.items():
        if name in numbers:
            table[header] = ["" if pd.isna(value) else written(value) for value in numbers[name]]
    # More devices have a larger batch unless somebody fixes it.
    settings = _SETTINGS - {factor} - ({"global_batch_size"} if factor in _OF_THE_CLUSTER else set())
    values = {name: _sorted(set(runs[name]) - {""}) for name in sorted(settings)}
    varying = "; ".join(f"{name} ({', '.join(several)})" for name, several in values.items() if len(several) > 1)
    return Section(
        f"{title}, by {factor}: means ± sample standard deviations",
        table.loc[:, table.ne("").any()],
        [f"{factor} is not all that differs between these runs: so does {varying}."] if varying else [],
    )


def _mean(written: Callable[[float], str], mean: float, deviation: float) -> str:
    """A mean ± its sample standard deviation, with as many decimals."""
    if np.isnan(mean) or np.isnan(deviation):
        return "" if np.isnan(mean) else written(mean)
    text = written(mean)
    error = duration(deviation) if written is duration else f"{deviation:,.{len(text.partition('.')[2])}f}"
    return f"{text} ± {error}"
