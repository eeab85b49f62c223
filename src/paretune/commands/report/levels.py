"""The runs of each value of a setting: means, deviations, and what is not comparable."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from paretune.commands.report.command import DEVICES, SHAPE
from paretune.commands.report.document import Chart, records, scatter
from paretune.commands.report.jobs import COMPILED, QUANTITIES, VERSIONS
from paretune.core.errors import BadInput
from paretune.presentation.numbers import duration, with_error
from paretune.presentation.table import Cell
from paretune.specification import metrics

OF_THE_CLUSTER = (SHAPE, DEVICES, "instance_type", "instance_count")
"""Factors of the cluster; runs that are compared by another factor have the same shape."""
COMPUTING = {
    "per_device_train_batch_size": "per-device batch",
    "precision": "precision",
    VERSIONS: "versions",
    "max_seq_length": "sequence length",
    "strategy": "strategy",
    COMPILED: "torch_compile",
    "fine_tuning": "fine-tuning",
    "spot": "spot",
}
"""Settings that seconds depend on beside the cluster, with their names: runs that differ in one are not repeats."""
SAME_WORK = 1.01  # largest ratio of rows x epochs that rounded steps make
MEANS = "Means ± sample standard deviations of the runs that tell the quantity; time is billed per instance"
_KIND = ["origin", "is_notional", "model", "dataset", "task", "apart"]  # runs that may be compared are equal in these


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Runs of one origin, model, data set and task by the values of a factor, which are in the column `level`."""

    title: str  # such as published: distilbert-base-uncased on amazon_polarity
    factor: str
    names: Sequence[str]  # the values, in order
    runs: pd.DataFrame

    @property
    def origin(self) -> str:
        """Measured, simulated, published or estimated."""
        return str(self.runs.origin.iloc[0])

    @property
    def heading(self) -> str:
        """The title of its section."""
        return f"{self.title[:1].upper()}{self.title[1:]}, by {self.factor}"

    @cached_property
    def means(self) -> pd.DataFrame:
        """A row per level: the mean of each quantity over the runs that recorded it, or NaN."""
        return self.runs.groupby("level")[list(QUANTITIES)].mean().loc[list(self.names)]

    def of(self, name: str) -> pd.DataFrame:
        """The runs of one level."""
        return self.runs[self.runs.level == name]

    def marks(self, name: str) -> list[str]:
        """Settings that seconds depend on and in which the runs of a level differ, in words."""
        differing = varying(self.of(name), COMPUTING)
        return [f"{COMPUTING[setting]} differs: {', '.join(values)}" for setting, values in differing.items()]

    @property
    def confounded(self) -> dict[str, list[str]]:
        """Settings that differ between levels but not within them, so that no difference is due to the factor alone."""
        settings = [name for name in COMPUTING if name != self.factor]
        within = {setting for name in self.names for setting in varying(self.of(name), settings)}
        return {name: values for name, values in varying(self.runs, settings).items() if name not in within}

    def frame(self) -> pd.DataFrame:
        """A row per level: its kind, number of runs, and mean and sample standard deviation of each quantity."""
        kind = {name: self.runs[name].iloc[0] for name in _KIND}
        levels = self.runs.groupby("level")
        deviations = levels[list(QUANTITIES)].std()
        frame = pd.DataFrame({**kind, "factor": self.factor, "level": self.names}, index=pd.Index(self.names))
        frame["n"] = levels.size()
        for quantity in QUANTITIES:
            frame[f"{quantity}_mean"], frame[f"{quantity}_deviation"] = self.means[quantity], deviations[quantity]
        return frame

    def trade_offs(self) -> list[Chart | None]:
        """Time and F1 over dollars, a series per level, each with the front of the two."""
        runs = self.runs.assign(series=self.runs.level.replace("", "(none)"))
        caption = "A point per run; the dashed line is the front: no run on it is beaten in both."
        quantities = {metrics.BILLABLE_SECONDS: "Dollars and time", metrics.F1: "Dollars and F1"}
        return [
            scatter(
                runs,
                (metrics.COST_USD, quantity),
                title=f"{title} ({self.origin})",
                caption=caption,
                fronts={"front": runs},
            )
            for quantity, title in quantities.items()
        ]


def levels_of(runs: pd.DataFrame, factor: str, view: str) -> tuple[list[Levels], list[str]]:
    """The runs of each kind with two values of the factor, and a sentence for the others; raises BadInput without any.

    Runs of one shape are compared; factors of the cluster are compared for equal work.
    """
    comparable, left_out = [], []
    if not runs.empty:
        runs = runs.assign(level=runs[factor], apart=_work(runs) if factor in OF_THE_CLUSTER else runs[SHAPE])
    for kind, group in runs.groupby(_KIND) if not runs.empty else ():
        origin, is_notional, model, dataset, _, apart = kind
        title = f"{origin}{', notional dollars' * is_notional}: {model} on {dataset}{f', {apart}' if apart else ''}"
        names = sorted_values(group.level.unique())
        if factor in (SHAPE, DEVICES, "instance_type"):
            names.sort(key=lambda name: (devices_of(group, name) or 0, name))
        if len(names) > 1:
            comparable.append(Levels(title=title, factor=factor, names=names, runs=group))
        else:
            count = f"{len(group)} run{'s' * (len(group) > 1)}"
            left_out.append(f"{title}: {count}, all with {factor} {names[0] or 'unknown'}")
    if not comparable:
        found = "; ".join(left_out) or "no completed run matches"
        raise BadInput(
            [f"view={view} compares at least two values of {factor}, got {found}: choose more runs, or another by"]
        )
    return comparable, left_out


def _work(runs: pd.DataFrame) -> pd.Series:
    """The rows x epochs of each run in words, if its kind has runs of several; empty otherwise."""

    def words(work: pd.Series) -> pd.Series:
        ordered = work.dropna().sort_values()
        part = (ordered > SAME_WORK * ordered.shift()).cumsum()
        if part.nunique() < 2:
            return pd.Series("", work.index)
        known = ordered.groupby(part).transform("min").map("{:,.0f} rows x epochs".format)
        return known.reindex(work.index, fill_value="an unknown number of rows x epochs")

    return runs.groupby(_KIND[:-1], group_keys=False).work.apply(words)


def devices_of(runs: pd.DataFrame, level: str) -> int | None:
    """Accelerators of a level's clusters, or None if they are unknown or differ between its runs."""
    counts = runs.device_count[runs.level == level]
    return int(counts.iloc[0]) if counts.nunique() == 1 and counts.notna().all() else None


def sorted_values(names: Iterable[str]) -> list[str]:
    """Values of a setting in order: numbers by size, else texts."""
    try:
        return sorted(names, key=float)
    except ValueError:
        return sorted(names)


def varying(runs: pd.DataFrame, names: Iterable[str]) -> dict[str, list[str]]:
    """Name to values, for those settings that have several values; unknown values are left out."""
    values = {name: sorted_values(set(runs[name]) - {""}) for name in names}
    return {name: several for name, several in values.items() if len(several) > 1}


def with_cells(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `Levels.frame` with a cell per quantity: its mean ± sample standard deviation."""
    return [{**row, **{quantity: _cell(row, quantity) for quantity in QUANTITIES}} for row in rows]


def _cell(row: Mapping[str, Any], quantity: str) -> Cell | None:
    mean, deviation = row[f"{quantity}_mean"], row[f"{quantity}_deviation"]
    if mean is None:
        return None
    if quantity == metrics.COST_USD and mean < 1:
        return Cell(with_error(mean, deviation), mean)
    decimals = {metrics.F1: 4, metrics.THROUGHPUT_SAMPLES: 1}.get(quantity, 2)
    write: Callable[[float], str] = duration if quantity.endswith("seconds") else f"{{:,.{decimals}f}}".format
    return Cell(write(mean) + ("" if deviation is None else f" ± {write(deviation)}"), mean)


def rows_of(frames: Iterable[pd.DataFrame]) -> list[dict[str, Any]]:
    """The rows of several frames; unknown values are None."""
    return [row for frame in frames for row in records(frame)]
