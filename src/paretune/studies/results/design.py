"""What a designed experiment can tell: correlations of its factors, D-efficiency, and the table of its rows.

Every factor is coded by sum contrasts (deviations from the mean of all levels), also if its levels are numbers: no
shape of its effect is assumed.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from paretune.studies.definition.points import Design
from paretune.studies.results.trials import Trial

MOST_CORRELATED = 0.2  # |r| between two factors above which their effects are hard to tell apart


def correlations(design: Design) -> pd.DataFrame:
    """Correlations of the columns of the main effects."""
    return _coded(design).corr().fillna(0.0).round(2) + 0.0


def findings(design: Design) -> list[str]:
    """What the design can tell, a sentence each, before anything is paid."""
    coded, r = _coded(design), correlations(design)
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
        hard = ": their effects are hard to tell apart; add rows" if abs(largest) > MOST_CORRELATED else ""
        lines.append(f"r of {first} and {second}: {largest:.2f}{hard}")
    if np.linalg.matrix_rank(matrix) < terms:
        lines.append("the main effects cannot all be estimated from these rows: add rows, or take levels out")
    elif count == terms:
        lines.append("no rows are left to measure noise, so no effect is significant: set replicates")
    return lines


def table(design: Design, trials: Mapping[int, Trial]) -> pd.DataFrame:
    """A row for each row of the design: factors, status, run and all that was measured. Rows count from 1."""
    rows: list[dict[str, Any]] = []
    for number, row in enumerate(design.rows, 1):
        ended: dict[str, Any] = {"status": "Pending"}
        if (trial := trials.get(number)) is not None:
            ended = {"status": trial.shown_status, "run_id": trial.run_id, "origin": trial.origin, **trial.measured}
        rows.append({"row": number, **design.label(row), **row, **ended})
    return pd.DataFrame(rows)


def picture(r: pd.DataFrame) -> Any:
    """The correlations as a matplotlib figure."""
    from matplotlib.figure import Figure

    side = min(16.0, 4.0 + 0.5 * len(r))
    figure = Figure(figsize=(side + 1.2, side), layout="constrained")
    axes = figure.add_subplot(title="Correlation of the main effects (sum contrasts)")
    figure.colorbar(axes.imshow(r, cmap="RdBu_r", vmin=-1, vmax=1), ax=axes, label="correlation r", shrink=0.8)
    axes.set_xticks(range(len(r)), r.columns, rotation=45, ha="right")
    axes.set_yticks(range(len(r)), r.index)
    return figure


def _coded(design: Design) -> pd.DataFrame:
    """Sum contrasts of every factor that varies: a column for each level but the last."""
    frame = pd.DataFrame([design.label(row) for row in design.rows])
    columns = {}
    for factor in frame:
        *levels, last = dict.fromkeys(frame[factor])
        for level in levels:
            columns[f"{factor}={level}"] = (frame[factor] == level).astype(float) - (frame[factor] == last)
    return pd.DataFrame(columns)
