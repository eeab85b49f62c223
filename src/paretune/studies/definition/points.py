"""Designed experiments: the key `points` of a study, and the rows that it describes.

    points: {full: {precision: [fp32, bf16], instance_count: [1, 2]}, replicates: 3}
    points: {d_optimal: 15, factors: {clusters: [{instance_type: ml.g5.xlarge, instance_count: 1}, ...], ...}}
    points: {table: rows.csv, replicates: 2}

A level of a factor is a value of the parameter of the same name, or a mapping of parameters that vary together. The
study's seed shuffles the rows. Each replicate has a different training seed.

For correlations, every factor is sum-coded (its effects are deviations from the mean of all levels), even if it is
numeric, so no shape of its effect is assumed.
"""

import csv
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, combinations, count, product
from typing import TYPE_CHECKING, Any, ClassVar

from paretune.core.errors import BadInput
from paretune.core.packages import missing
from paretune.core.reading import read_text
from paretune.specification.declaration import Parameters, Plain, Rules, Value, parameter, spell
from paretune.specification.metrics import COST_USD
from paretune.studies.definition.space import Point, read_value

if TYPE_CHECKING:
    from pandas import DataFrame

_MOST_COMBINATIONS = 2000  # limit, because an optimal design evaluates every combination for every row
_LARGEST_TABLE = 1_000_000  # bytes
_DEFAULT = "(default)"  # label of the level of an empty cell
_MOST_STARTS = 20  # number of random starts: the result of the exchange algorithm depends on the rows it starts with

Level = dict[str, Any]  # parameter to value, as the user wrote it
Labels = dict[str, str]  # factor to the label of one of its levels


class Points(Parameters):
    """The `points` key of a study file."""

    full: dict[str, Any] = parameter({})
    """levels of each factor; every combination is run"""
    d_optimal: int | None = parameter(None, ge=1)
    """number of rows, chosen to best estimate the main effects"""
    table: str | None = parameter(None)
    """CSV file with a column for each parameter and a line for each row of the design"""
    factors: dict[str, Any] = parameter({})
    """levels of each factor, for d_optimal"""
    replicates: int = parameter(1, ge=1)
    """number of runs of each row, each with a different seed"""

    @property
    def levels(self) -> dict[str, dict[str, Level]]:
        """Levels of each factor, by label; empty for a table."""
        levels = dict[str, dict[str, Level]]()
        for factor, entries in (self.full or self.factors).items():
            by_label = levels[factor] = dict[str, Level]()
            for level in (dict(entry) if isinstance(entry, Mapping) else {factor: entry} for entry in entries):
                label = _label(level)
                by_label[spell(level) if label in by_label else label] = level
        return levels

    rules: ClassVar[Rules] = (lambda points: _points(points),)


def _points(points: Points) -> Iterator[str]:
    kinds = [kind for kind in ("full", "d_optimal", "table") if getattr(points, kind)]
    if len(kinds) != 1:
        got = " and ".join(kinds) or "none"
        yield f"points must have exactly one of full, d_optimal or table, got {got}"
    if kinds == ["d_optimal"] and not points.factors:
        yield "points: d_optimal needs factors, such as {precision: [fp32, bf16], instance_count: [1, 2]}"
    for factor, entries in (points.full or points.factors).items():
        if not isinstance(entries, list | tuple) or len(entries) < 2:
            yield f"points: {factor} must be a list of at least two levels"
            return
    owners = Counter(name for levels in points.levels.values() for name in {*chain(*levels.values())})
    yield from (f"points: {name} is in several factors: keep it in one" for name in owners if owners[name] > 1)
    if math.prod(map(len, points.levels.values())) > _MOST_COMBINATIONS:
        yield f"points: the levels have more than {_MOST_COMBINATIONS:,} combinations: remove some levels"


class Design:
    """The rows of `points`, each with the parameters of one job, shuffled by `seed`.

    The training seeds of a row's replicates count up from the row's own `seed`, else from `first_seed`, and skip seeds
    that rows with the same parameters already have. Raises BadInput if a table has no rows, has a row with too many
    cells or cannot be read, if a seed is not a whole number, or if `d_optimal` is too small or its package is missing.
    """

    def __init__(self, points: Points, seed: int, first_seed: int = 42) -> None:
        self.rows, self._labels = list[dict[str, Value]](), list[Labels]()
        order = (_table(points.table) if points.table else _chosen(points, seed)) * points.replicates
        random.Random(seed).shuffle(order)
        taken = set[tuple[str, int]]()
        for level, labels in order:  # every replicate of a row gets a different training seed
            row = {name: _value(name, value) for name, value in level.items()}
            key, own_seed = (
                spell({name: spell(row[name]) for name in row if name != "seed"}),
                row.get("seed", first_seed),
            )
            if not isinstance(own_seed, int):
                raise BadInput([f"points: seed must be a whole number, got {own_seed!r}"])
            seed = next(seed for seed in count(own_seed) if (key, seed) not in taken)
            taken.add((key, seed))
            self.rows.append(row if seed == own_seed else {**row, "seed": seed})
            self._labels.append(labels)

    @property
    def values(self) -> dict[str, tuple[Value, ...]]:
        """Distinct values of each parameter over all rows; not every row sets every parameter."""
        names = dict.fromkeys(chain.from_iterable(self.rows))
        return {name: tuple(dict.fromkeys(row[name] for row in self.rows if name in row)) for name in names}

    def correlations(self) -> "DataFrame":
        """Return the correlation matrix of the main effects, with a row and a column for each sum contrast."""
        return self._coded().corr().fillna(0.0).round(2) + 0.0

    def largest_correlation(self) -> str:
        """Return a sentence about the largest correlation between effects of two factors; "" with one factor."""
        r = self.correlations()
        pairs = [
            (abs(float(r[one][other])), one, other)
            for one, other in combinations(r.columns, 2)
            if one.partition("=")[0] != other.partition("=")[0]
        ]
        if not pairs:
            return ""
        size, one, other = max(pairs)
        apart = "none of the effects of two factors are correlated"
        return f"the largest correlation of two effects is {size:.2f}: {one} and {other}" if size else apart

    def findings(self) -> list[str]:
        """Return a warning, to read before money is spent, if the design cannot show or test all main effects."""
        import numpy as np

        coded = self._coded()
        terms = coded.shape[1] + 1
        if np.linalg.matrix_rank(np.column_stack([np.ones(len(coded)), coded])) < terms:
            return ["the main effects cannot all be estimated from these rows: add rows or remove levels"]
        if len(coded) == terms:
            return ["no rows are left to measure noise, so no effect can be tested: set replicates"]
        return []

    def levels_of(self, point: Point) -> Labels:
        """Return the level of each factor in the row with these parameters; empty if there is no such row."""
        return self._levels_of.get(spell(dict(point)), {})

    @cached_property
    def _levels_of(self) -> dict[str, Labels]:
        return {spell(row): labels for labels, row in zip(self._labels, self.rows, strict=True)}

    def table(self, ended: Sequence[tuple[Point, Mapping[str, Any]]]) -> "DataFrame":
        """Return a table with the rows of the design, numbered from 1, and how the job of each row ended.

        `ended` has the points of ended jobs, each with the columns that describe its outcome. If the job of a row was
        retried, the table shows the last try, with the dollars of all tries.
        """
        import pandas as pd

        ends = dict[str, dict[str, Any]]()
        for point, columns in ended:
            earlier_usd = ends.get(spell(dict(point)), {}).get(COST_USD, 0.0)
            paid = {COST_USD: columns.get(COST_USD, 0.0) + earlier_usd} if earlier_usd else {}
            ends[spell(dict(point))] = {**columns, **paid}
        rows = enumerate(zip(self._labels, self.rows, strict=True), 1)
        return pd.DataFrame(
            [{"row": n, **labels, **row, **ends.get(spell(row), {"status": "Pending"})} for n, (labels, row) in rows]
        )

    def _coded(self) -> "DataFrame":
        """Return the sum contrasts: a column for each level of each factor except its last level.

        An empty cell of a table is a level like any other: the job's default.
        """
        import pandas as pd

        frame = pd.DataFrame(self._labels).fillna(_DEFAULT)
        columns = {}
        for factor in frame:
            *levels, last = dict.fromkeys(frame[factor])
            for level in levels:
                columns[f"{factor}={level}"] = (frame[factor] == level).astype(float) - (frame[factor] == last)
        return pd.DataFrame(columns, index=frame.index)


def _chosen(points: Points, seed: int) -> list[tuple[Level, Labels]]:
    """Return the rows of `full` or `d_optimal`. Raises BadInput if d_optimal is too small or its package is missing."""
    levels = points.levels
    rows = every = list(product(*levels.values()))
    if not points.full:
        if reason := missing("design"):
            raise BadInput([reason])
        rows = _optimal(every, points.d_optimal or 1, seed)
    labels = [dict(zip(levels, row, strict=True)) for row in rows]
    return [({k: v for factor in levels for k, v in levels[factor][row[factor]].items()}, row) for row in labels]


def _optimal(every: Sequence[tuple[str, ...]], count: int, seed: int) -> list[tuple[str, ...]]:
    """Choose `count` rows that make |X'X| large, where X is the model matrix of the main effects (D-optimality).

    Return the best result of `_MOST_STARTS` random starts. Raises BadInput if X has more columns than rows.
    """
    import numpy as np
    import pandas as pd
    from pydoe import optimal_design

    columns = pd.get_dummies(pd.DataFrame(every), drop_first=True, dtype=float).to_numpy()
    terms = columns.shape[1] + 1
    if count < terms:
        raise BadInput([f"points: d_optimal must be at least {terms}, the number of main-effect terms, got {count}"])
    candidates = np.tile(columns, (math.ceil(count / len(every)) + 1, 1))  # pydoe uses each candidate at most once
    draw = np.random.default_rng(seed)
    designs = (
        optimal_design(draw.permutation(candidates), count, degree=1, criterion="D", method="modified_fedorov")
        for _ in range(_MOST_STARTS)
    )
    rows, _ = max(designs, key=lambda design: float(design[1]["score"]))
    return [every[int(np.abs(columns - row).sum(axis=1).argmin())] for row in rows]


def _table(path: str) -> list[tuple[Level, Labels]]:
    text = read_text(path, _LARGEST_TABLE, must="points: table must name a CSV file, and ")
    lines = csv.reader(text.splitlines(), skipinitialspace=True)
    numbered = [pair for pair in enumerate(lines, 1) if any(map(str.strip, pair[1]))]
    header = [name.strip() for name in numbered[0][1]] if numbered else []
    if ragged := [number for number, line in numbered if any(map(str.strip, line[len(header) :]))]:
        fault = f"line {ragged[0]} of {path} has more cells than the header"
        remedy = "quote a cell that contains a comma, and write decimals with a point"
        raise BadInput([f"points: {fault}: begin with a header line of parameter names, {remedy}"])
    pairs = (zip(header, line, strict=False) for _, line in numbered[1:])
    cells = ({name: Plain(cell.strip()) for name, cell in line if name and cell.strip()} for line in pairs)
    rows = [row for row in cells if row]
    if not rows:
        raise BadInput([f"points: {path} has no rows: write a header line of parameter names, then one line per row"])
    return [(row, {name: spell(value) for name, value in row.items() if name != "seed"}) for row in rows]


def _value(name: str, raw: Any) -> Value:
    """Return the value as a trial records it; as a string if it is a mapping or invalid."""
    with suppress(BadInput):
        return read_value(name, raw)
    return spell(raw)


def _label(level: Level) -> str:
    """Return a short label for a level's values, such as `2 x ml.g5.xlarge / bf16`."""
    rest, cluster = dict(level), []
    if {"instance_type", "instance_count"} <= rest.keys():
        cluster = [f"{spell(rest.pop('instance_count'))} x {spell(rest.pop('instance_type'))}"]
    return " / ".join([*cluster, *map(spell, rest.values())])
