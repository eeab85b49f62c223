"""The rows of a designed experiment: `points:` of a study.

    points: {full: {precision: [fp32, bf16], instance_count: [1, 2]}, replicates: 3}
    points: {d_optimal: 15, factors: {clusters: [{instance_type: ml.g5.xlarge, instance_count: 1}, ...], ...}}
    points: {fractional: 8, factors: {...}}
    points: {table: rows.csv, add: [{learning_rate: 1e-4}]}

A level is a value of the parameter that the factor is named after, or a mapping of several parameters that vary
together. Rows run in an order drawn by the study's seed; a replicate has another training seed.

In correlations and D-efficiency every factor is coded by sum contrasts (deviations from the mean of all levels), also
if its levels are numbers: no shape of its effect is assumed.
"""

import csv
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from paretune.core.errors import BadInput, collecting, refuse
from paretune.core.packages import missing
from paretune.core.untrusted import read_text
from paretune.specification.parameters import Plain, spell

if TYPE_CHECKING:
    from pandas import DataFrame

    from paretune.studies.results.trials import Trial

KINDS = ("full", "fractional", "d_optimal", "table")
_KEYS = (*KINDS, "factors", "add", "replicates")
_MOST_ROWS = 2000  # combinations of levels at most: an optimal design looks at all of them for every row
_LARGEST_TABLE = 1_000_000  # bytes
_MOST_CORRELATED = 0.2  # |r| between two factors above which their effects are hard to tell apart
_MOST_STARTS = 20  # random orders of the candidates: the result of an exchange depends on the rows it starts with

Point = dict[str, str]  # factor to label; the parameters that it sets are in `Design.levels`


class Design:
    """The rows of `points:`. Raises BadInput with all faults of its keys.

    `levels` is factor to label of each level to the parameters that it sets, empty for a table; `rows` are the
    parameters of the job of each row, in the order of launch.
    """

    def __init__(self, points: Mapping[str, Any], seed: int) -> None:
        faults = [f"points has no {key}: there are {', '.join(_KEYS)}" for key in points if key not in _KEYS]
        kinds = [kind for kind in KINDS if kind in points]
        if len(kinds) != 1:
            faults.append(f"points must have one of {', '.join(KINDS)}, got {' and '.join(kinds) or 'none'}")
        refuse(faults)
        (self.kind,), self._points, self._seed = kinds, points, seed
        self.levels = {} if self.kind == "table" else self._read_levels()
        added = points.get("add", [])
        if not isinstance(added, list | tuple) or not all(isinstance(row, Mapping) for row in added):
            raise BadInput(["points: add must be a list of rows, such as [{learning_rate: 1e-4}]"])
        rows = self._table() if self.kind == "table" else self._choose()
        order = [*rows, *map(dict, added)] * self._whole("replicates", 1)
        random.Random(seed).shuffle(order)
        seen, self.rows = Counter[str](), list[dict[str, Any]]()
        for row in order:  # each repetition of a row has another training seed
            key = spell({name: spell(value) for name, value in row.items()})
            self.rows.append({**row, "seed": int(row.get("seed", 42)) + seen[key]} if seen[key] else dict(row))
            seen[key] += 1

    def correlations(self) -> "DataFrame":
        """Correlations of the columns of the main effects."""
        return self._coded().corr().fillna(0.0).round(2) + 0.0

    def findings(self) -> list[str]:
        """What the design can tell, a sentence each, before anything is paid."""
        import numpy as np

        coded, r = self._coded(), self.correlations()
        matrix = np.column_stack([np.ones(len(coded)), coded])
        count, terms = matrix.shape
        efficiency = max(0.0, float(np.linalg.det(matrix.T @ matrix / count))) ** (1 / terms)
        lines = [f"{count} rows, {terms} terms, D-efficiency {efficiency:.2f} (main effects, sum contrasts)"]
        columns: dict[str, list[str]] = {}
        for name in coded:
            columns.setdefault(name.partition("=")[0], []).append(name)
        for first, second in itertools.combinations(columns, 2):
            block = r.loc[columns[first], columns[second]].to_numpy()
            largest = float(block.flat[np.abs(block).argmax()])
            hard = ": their effects are hard to tell apart; add rows" if abs(largest) > _MOST_CORRELATED else ""
            lines.append(f"r of {first} and {second}: {largest:.2f}{hard}")
        if np.linalg.matrix_rank(matrix) < terms:
            lines.append("the main effects cannot all be estimated from these rows: add rows, or take levels out")
        elif count == terms:
            lines.append("no rows are left to measure noise, so no effect is significant: set replicates")
        return lines

    def table(self, trials: "Mapping[int, Trial]") -> "DataFrame":
        """A row for each row of the design: factors, status, run and all that was measured. Rows count from 1."""
        import pandas as pd

        rows: list[dict[str, Any]] = []
        for number, row in enumerate(self.rows, 1):
            ended: dict[str, Any] = {"status": "Pending"}
            if (trial := trials.get(number)) is not None:
                ended = {"status": trial.shown_status, "run_id": trial.run_id, "origin": trial.origin, **trial.measured}
            rows.append({"row": number, **self._labels(row), **row, **ended})
        return pd.DataFrame(rows)

    def picture(self) -> Any:
        """The correlations as a matplotlib figure."""
        from matplotlib.figure import Figure

        r = self.correlations()
        side = min(16.0, 4.0 + 0.5 * len(r))
        figure = Figure(figsize=(side + 1.2, side), layout="constrained")
        axes = figure.add_subplot(title="Correlation of the main effects (sum contrasts)")
        figure.colorbar(axes.imshow(r, cmap="RdBu_r", vmin=-1, vmax=1), ax=axes, label="correlation r", shrink=0.8)
        axes.set_xticks(range(len(r)), r.columns, rotation=45, ha="right")
        axes.set_yticks(range(len(r)), r.index)
        return figure

    def _coded(self) -> "DataFrame":
        """Sum contrasts of every factor that varies: a column for each level but the last."""
        import pandas as pd

        frame = pd.DataFrame([self._labels(row) for row in self.rows])
        columns = {}
        for factor in frame:
            *levels, last = dict.fromkeys(frame[factor])
            for level in levels:
                columns[f"{factor}={level}"] = (frame[factor] == level).astype(float) - (frame[factor] == last)
        return pd.DataFrame(columns)

    def _labels(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Factor to label of a row's level; for a table its parameters themselves."""
        if not self.levels:
            return {name: spell(value) for name, value in row.items() if name != "seed"}
        return {
            factor: next((label for label, level in levels.items() if level.items() <= row.items()), "")
            for factor, levels in self.levels.items()
        }

    def _read_levels(self) -> dict[str, dict[str, dict[str, Any]]]:
        factors = self._points["full"] if self.kind == "full" else self._points.get("factors")
        if not isinstance(factors, Mapping) or not factors:
            example = "{precision: [fp32, bf16], instance_count: [1, 2]}"
            raise BadInput([f"points: {self.kind} needs factors, each with its levels, such as {example}"])
        levels, faults = dict[str, dict[str, dict[str, Any]]](), list[str]()
        for factor, entries in factors.items():
            if not isinstance(entries, list | tuple) or len(entries) < 2:
                faults.append(f"points: {factor} must be a list of at least two levels")
                continue
            each = [dict(entry) if isinstance(entry, Mapping) else {factor: entry} for entry in entries]
            levels[str(factor)] = {_label(level): level for level in each}
        names = [{key for level in entries.values() for key in level} for entries in levels.values()]
        owners = Counter(name for each in names for name in each)
        faults += [
            f"points: {name} is in several factors: take it out of all but one" for name in owners if owners[name] > 1
        ]
        if math.prod(map(len, levels.values())) > _MOST_ROWS:
            faults.append(f"points: the levels have more than {_MOST_ROWS:,} combinations: take some out")
        refuse(faults)
        return levels

    def _choose(self) -> list[dict[str, Any]]:
        every = [dict(zip(self.levels, labels, strict=True)) for labels in itertools.product(*self.levels.values())]
        if self.kind != "full":
            if reason := missing("design"):
                raise BadInput([reason])
            count = self._whole(self.kind)
            every = self._fraction(count) if self.kind == "fractional" else self._optimal(every, count)
        return [
            {name: value for factor, label in point.items() for name, value in self.levels[factor][label].items()}
            for point in every
        ]

    def _whole(self, name: str, usual: Any = None) -> int:
        value = self._points.get(name, usual)
        with suppress(TypeError, ValueError):
            if int(value) >= 1:
                return int(value)
        raise BadInput([f"points: {name} must be a whole number of at least 1, got {value!r}"])

    def _optimal(self, every: list[Point], count: int) -> list[Point]:
        """The rows with the largest |X'X| of the main effects."""
        import numpy as np
        import pandas as pd
        from pydoe import optimal_design

        columns = pd.get_dummies(pd.DataFrame(every), drop_first=True, dtype=float).to_numpy()
        terms = columns.shape[1] + 1
        if count < terms:
            raise BadInput([f"points: d_optimal must be at least {terms}, the terms of the main effects, got {count}"])
        candidates = np.tile(columns, (math.ceil(count / len(every)) + 1, 1))  # pydoe takes each candidate once
        draw = np.random.default_rng(self._seed)
        found = (
            optimal_design(draw.permutation(candidates), count, degree=1, criterion="D", method="modified_fedorov")
            for _ in range(_MOST_STARTS)
        )
        rows, _ = max(found, key=lambda each: float(each[1]["score"]))
        return [every[int(np.abs(columns - row).sum(axis=1).argmin())] for row in rows]

    def _fraction(self, count: int) -> list[Point]:
        """A generalised subset design: the largest with at most so many rows.

        Source: Surowiec et al., Analytical Chemistry 89 (2017), 6491-6497.
        """
        from pydoe import gsd

        sizes = [len(levels) for levels in self.levels.values()]
        for reduction in range(2, max(sizes) + 1):
            try:
                rows = [[int(index) for index in row] for row in gsd(sizes, reduction)]
            except ValueError:  # the reduction is too large for so few levels
                break
            if len(rows) <= count:
                names = [(factor, list(levels)) for factor, levels in self.levels.items()]
                return [{name: labels[at] for (name, labels), at in zip(names, row, strict=True)} for row in rows]
        raise BadInput([f"points: no balanced fraction of {math.prod(sizes)} combinations has {count} rows: raise it"])

    def _table(self) -> list[dict[str, Any]]:
        path = str(self._points["table"])
        text = read_text(path, _LARGEST_TABLE, must="points: table must name a CSV file, and ")
        lines = csv.DictReader(text.splitlines())
        rows = [{name: Plain(cell) for name, cell in row.items() if name and cell} for row in lines]
        if not rows:
            raise BadInput([f"points: {path} has no rows: a header line with parameters, then a row each"])
        return rows


def row_faults(rows: Sequence[Mapping[str, Any]], make: Callable[[Mapping[str, Any]], Any]) -> list[str]:
    """The faults of rows that make no job, each once with the first of its rows; `make` makes the job of a row."""
    numbers: dict[str, list[int]] = {}
    for number, row in enumerate(rows, 1):
        with collecting(faults := list[str]()):
            make(row)
        for fault in faults:
            numbers.setdefault(fault, []).append(number)
    shown = {fault: f"row {at[0]}" + (f" and {len(at) - 1} more" if at[1:] else "") for fault, at in numbers.items()}
    return [f"points: {which}: {fault}" for fault, which in shown.items()]


def _label(level: Mapping[str, Any]) -> str:
    """A short text for a level: its values, such as `2 x ml.g5.xlarge / bf16`."""
    rest = dict(level)
    cluster = []
    if {"instance_type", "instance_count"} <= rest.keys():
        cluster = [f"{spell(rest.pop('instance_count'))} x {spell(rest.pop('instance_type'))}"]
    return " / ".join([*cluster, *map(spell, rest.values())])
