"""What a designed experiment can tell: correlation of its factors, D-efficiency, detectable and found differences.

Every factor is coded by sum contrasts (deviations from the mean of all levels), also if its levels are numbers: no
shape of its effect is assumed.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from paretune.estimating.noise import F1_NOISE, SECONDS_NOISE
from paretune.specification import metrics
from paretune.studies.definition.points import Design
from paretune.studies.results.trials import Trial

SIGNIFICANCE, POWER = 0.05, 0.8  # level and power of the two-sided test: the usual values (Cohen 1988)
MOST_CORRELATED = 0.2  # |r| between two factors above which their effects are hard to tell apart
_RESPONSES = (metrics.F1, metrics.PERPLEXITY, metrics.JOB_SECONDS)


def labels(design: Design) -> pd.DataFrame:
    """The factors of all rows, (N rows, F factors), as labels of their levels."""
    return pd.DataFrame([design.label(row) for row in design.rows])


def _coded(frame: pd.DataFrame) -> pd.DataFrame:
    """Sum contrasts of every factor that varies: a column for each level but the last."""
    columns = {}
    for factor in frame:
        *levels, last = list(dict.fromkeys(frame[factor]))
        for level in levels:
            columns[f"{factor}={level}"] = (frame[factor] == level).astype(float) - (frame[factor] == last)
    return pd.DataFrame(columns)


def correlations(frame: pd.DataFrame) -> pd.DataFrame:
    """Correlations of the columns of the main effects."""
    return _coded(frame).corr().fillna(0.0).round(2) + 0.0


def d_efficiency(frame: pd.DataFrame) -> float:
    """|X'X|^(1/P) / N of the model matrix of the main effects; 0 if an effect cannot be estimated."""
    matrix = _matrix(frame)
    sign, logarithm = np.linalg.slogdet(matrix.T @ matrix)
    return math.exp(logarithm / matrix.shape[1]) / len(matrix) if sign > 0 else 0.0


def _matrix(frame: pd.DataFrame) -> np.ndarray:
    return np.column_stack([np.ones(len(frame)), _coded(frame)])


def detectable(frame: pd.DataFrame, factor: str) -> float | None:
    """The smallest difference between two levels, in standard deviations of a run, that is found with POWER.

    None if no rows are left to measure noise, or if the effect cannot be estimated.
    """
    matrix = _matrix(frame)
    left = len(matrix) - int(np.linalg.matrix_rank(matrix))
    if left < 1 or len(matrix) - left < matrix.shape[1]:
        return None
    inverse, coded = np.linalg.inv(matrix.T @ matrix), _coded(frame)
    own = coded.columns.str.startswith(f"{factor}=")
    levels = dict.fromkeys(frame[factor])
    rows = [np.where(own, coded[frame[factor] == level].iloc[0], 0.0) for level in levels]
    pairs = [np.concatenate([[0.0], first - second]) for first, second in itertools.combinations(rows, 2)]
    spread = max((math.sqrt(max(0.0, pair @ inverse @ pair)) for pair in pairs), default=0.0)
    return float(student.ppf(1 - SIGNIFICANCE / 2, left) + student.ppf(POWER, left)) * spread


def findings(design: Design, quality: str) -> list[str]:
    """What the design can tell, a sentence each, before anything is paid."""
    frame = labels(design)
    frame = frame.loc[:, frame.nunique() > 1]
    efficiency, r = d_efficiency(frame), correlations(frame)
    lines = [f"{len(frame)} rows, {r.shape[0] + 1} terms, D-efficiency {efficiency:.2f} (main effects, sum contrasts)"]
    for first, second in itertools.combinations(frame, 2):
        block = r.loc[r.index.str.startswith(f"{first}="), r.columns.str.startswith(f"{second}=")].to_numpy()
        largest = float(block.flat[np.abs(block).argmax()])
        hard = ": their effects are hard to tell apart; add rows" if abs(largest) > MOST_CORRELATED else ""
        lines.append(f"r of {first} and {second}: {largest:.2f}{hard}")
    for factor in frame:
        size = detectable(frame, str(factor))
        if size is not None:
            of_f1 = f" and {size * F1_NOISE:.4f} of F1" if quality == metrics.F1 else ""
            text = f"{factor}: differences from {size * SECONDS_NOISE:.1%} of the seconds{of_f1} are found"
            lines.append(f"{text} with probability {POWER:.0%} (level {SIGNIFICANCE:.0%})")
    if not efficiency:
        lines.append("the main effects cannot all be estimated from these rows: add rows, or take levels out")
    elif len(frame) <= r.shape[0] + 1:
        lines.append("no rows are left to measure noise, so no effect is significant: set replicates")
    return lines


def table(design: Design, trials: Mapping[int, Trial]) -> pd.DataFrame:
    """A row for each row of the design: factors, status, run and all that was measured. Rows count from 1."""
    rows: list[dict[str, Any]] = []
    for number, row in enumerate(design.rows, 1):
        rows.append({"row": number, **design.label(row), **row, "status": "Pending"})
        if (trial := trials.get(number)) is not None:
            ended = {"status": trial.shown_status, "run_id": trial.run_id, "origin": trial.origin}
            rows[-1] |= ended | dict(trial.measured)
    return pd.DataFrame(rows)


def effects(frame: pd.DataFrame, factors: Sequence[str]) -> list[str]:
    """The effects that the runs show, a sentence for each response and factor: an analysis of variance.

    Seconds are compared by their logarithms. Empty if too few rows have ended.
    """
    import statsmodels.formula.api as smf
    from statsmodels.stats.anova import anova_lm

    lines = []
    done = frame[frame["status"] == "Completed"]
    varying = [name for name in factors if done[name].nunique() > 1] if len(done) else []
    for response in _RESPONSES:
        if not varying or response not in done or done[response].notna().sum() <= len(varying) + 1:
            continue
        data = pd.DataFrame({f"x{at}": done[name] for at, name in enumerate(varying)})
        data["y"] = np.log(done[response]) if response == metrics.JOB_SECONDS else done[response]
        model = smf.ols(f"y ~ {' + '.join(f'C(x{at}, Sum)' for at in range(len(varying)))}", data.dropna()).fit()
        if model.df_resid < 1:
            continue
        variance = anova_lm(model, typ=2)
        for at, name in enumerate(varying):
            test = variance.loc[f"C(x{at}, Sum)"]
            verdict = "differs between" if test["PR(>F)"] < SIGNIFICANCE else "shows no difference between"
            means = done.groupby(name, sort=False)[response].mean()
            lines.append(
                f"{response} {verdict} the levels of {name} (F = {test['F']:.3g}, p = {test['PR(>F)']:.2g}): "
                + ", ".join(f"{level} {value:.4g}" for level, value in means.items())
            )
    return lines


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
