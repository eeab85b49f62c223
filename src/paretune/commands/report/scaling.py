"""What larger clusters, or the values of any other setting, do to seconds, dollars and F1."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from paretune.commands.report.document import Chart, Section, records, scatter, table
from paretune.commands.report.levels import (
    COMPUTING,
    MEANS,
    OF_THE_CLUSTER,
    SAME_WORK,
    Levels,
    devices_of,
    varying,
    with_cells,
)
from paretune.commands.report.statistics import BOTH, CONFIDENCE, SIGNIFICANT, Line, line, tukey
from paretune.presentation.numbers import dollars, duration, p_value, plain
from paretune.specification import metrics

_NAMES = {metrics.BILLABLE_SECONDS: "time", metrics.COST_USD: "cost", metrics.F1: "F1"}
_RATES = {"learning_rate": "learning rate", "learning_rate_scaling": "scaling of the learning rate"}


def scaling_section(group: Levels) -> tuple[Section, pd.DataFrame]:
    """The table, sentences and charts of one kind of runs, and the table as numbers: seconds, USD, shares."""
    frame = group.frame()
    frame["devices"] = pd.array([devices_of(group.runs, name) for name in group.names], dtype="Int64")
    seconds = group.means[metrics.BILLABLE_SECONDS]
    frame["saved_seconds"], frame["dearer_usd"] = -seconds.diff(), group.means[metrics.COST_USD].diff()
    frame["speed_up"] = seconds.iloc[0] / seconds
    has_several = frame.devices.nunique(dropna=False) > 1
    frame["efficiency"] = frame.speed_up * frame.devices.iloc[0] / frame.devices if has_several else np.nan
    frame["remark"] = ["; ".join(group.marks(name)) for name in group.names]
    rows = records(frame)
    columns = {
        group.factor: "level",
        "devices": "devices",
        "n": "n",
        "time": metrics.BILLABLE_SECONDS,
        "cost (USD)": metrics.COST_USD,
        "F1": metrics.F1,
        "samples/s": metrics.THROUGHPUT_SAMPLES,
        "time saved, one step up": ("saved_seconds", duration),
        "cost, one step up (USD)": ("dearer_usd", _signed),
        "speed-up": ("speed_up", ".2f"),
        "efficiency": ("efficiency", ".0%"),
        "estimated before": (f"{metrics.ESTIMATED_SECONDS}_mean", duration),
        "remark": "remark",
    }
    sentences = [*_cautions(group), *_steps(group, rows, {name: tukey(group.runs, name) for name in _NAMES})]
    if group.factor in OF_THE_CLUSTER:
        for quantity, is_power_law in ((metrics.BILLABLE_SECONDS, True), (metrics.F1, False)):
            if fitted := line(group.runs, quantity, power_law=is_power_law):
                sentences += [_effects(fitted, is_power_law), *_verdicts(fitted, is_power_law)]
    tables, charts = [(MEANS, table(with_cells(rows), columns))], [*_charts(group), *group.trade_offs()]
    return Section(heading=group.heading, tables=tables, sentences=sentences, charts=charts), frame


def _signed(value: float) -> str:
    """A difference in dollars, such as + 20.57, - 0.0123."""
    return f"{'-' if value < 0 else '+'} {dollars(abs(value))}"


def _cautions(group: Levels) -> list[str]:
    sentences = [
        f"{name}: the runs are no repeats of each other: {mark}." for name in group.names for mark in group.marks(name)
    ]
    if confounded := group.confounded:
        other = "; ".join(f"{COMPUTING[name]} ({', '.join(values)})" for name, values in confounded.items())
        sentences.append(f"{group.factor.capitalize()} is not all that differs between the rows: so does {other}.")
    mixed = {rate for name in group.names for rate in varying(group.of(name), _RATES)}
    if mixed:
        listed = " and ".join(word for name, word in _RATES.items() if name in mixed)
        sentences.append(f"F1 is of runs that differ in {listed}: a filter takes only those of one.")
    if group.runs.work.max() > SAME_WORK * group.runs.work.min():
        sentences.append(
            "The runs do not train on equally many rows times epochs: seconds and dollars are not of equal work."
        )
    return sentences


def _steps(
    group: Levels, rows: Sequence[Mapping[str, Any]], tests: Mapping[str, Mapping[frozenset[str], float]]
) -> list[str]:
    """What each step up saves and costs, and whether that is more than noise, by `tests` of quantities and pairs."""
    sentences = []
    for before, row in pairwise(rows):
        parts, tested, untested = [], [], []
        if (saved := row["saved_seconds"]) is not None:
            share = abs(saved) / (before[f"{metrics.BILLABLE_SECONDS}_mean"] or 1.0)
            parts.append(f"{'saves' if saved >= 0 else 'takes longer by'} {duration(abs(saved))} ({share:.0%})")
        if row["dearer_usd"] is not None:
            parts.append(f"costs {_signed(row['dearer_usd'])} USD")
        if row["efficiency"] is not None:
            over = f"speed-up {row['speed_up']:.2f} over {rows[0]['level']}"
            parts.append(f"{over}, efficiency {row['efficiency']:.0%}")
        pair = [before["level"], row["level"]]
        sentences += [f"From {' to '.join(pair)}: {', '.join(parts)}."] if parts else []
        for quantity, probabilities in tests.items():
            if row[f"{quantity}_mean"] is None:
                continue
            p = probabilities.get(frozenset(pair))
            if p is None:
                untested.append(_NAMES[quantity])
                continue
            verdict = "differs by more than noise" if p < SIGNIFICANT else "cannot be told apart from noise"
            mixed = quantity == metrics.F1 and any(group.of(name).rows.nunique() > 1 for name in pair)
            noise = ", where data sizes that differ within them count as noise" if mixed else ""
            tested.append(f"{_NAMES[quantity]} {verdict} ({p_value(p)}{noise})")
        tested += [f"too few repeats to tell {', '.join(untested)} apart"] if untested else []
        sentences += [f"{' and '.join(pair)}, by Tukey's test: {'; '.join(tested)}."] if tested else []
    return sentences


def _effects(fitted: Line, is_power_law: bool) -> str:
    """The coefficients of a line with their intervals, in words."""
    fit, parts = fitted.fit, []
    ends = fit.conf_int(1 - CONFIDENCE)
    at = {}
    if BOTH in fit.params:
        at["devices"] = f" at {fitted.centre['data size']:,.0f} rows"
        at["data size"] = f" at {plain(fitted.centre['devices'], 2)} devices"
    for name in fit.params.index[1:]:
        interval = f"{plain(ends.loc[name, 0], 3)} to {plain(ends.loc[name, 1], 3)}"
        value = f"{plain(fit.params[name], 3)} ({interval}, {p_value(fit.pvalues[name])})"
        if is_power_law:
            parts.append(f"{name} to the power {value}")
        elif name == BOTH:
            parts.append(f"the effect of devices by {value} per doubling of data size")
        else:
            parts.append(f"by {value} per doubling of {name}{at.get(name, '')}")
    basis = f"{fitted.formula}, least squares, {int(fit.nobs)} runs, {CONFIDENCE:.0%} intervals"
    listed = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    return f"{_capital(_NAMES[fitted.quantity])} {'goes with' if is_power_law else 'changes'} {listed} ({basis})."


def _verdicts(fitted: Line, is_power_law: bool) -> list[str]:
    """Whether the line holds, and what puts it in doubt."""
    word, test = _NAMES[fitted.quantity], fitted.lack_of_fit
    kind = "A power law" if is_power_law else "A straight line"
    if test is None:
        reason = "there are not more settings than coefficients" if fitted.has_repeats else "no setting ran twice"
        sentences = [f"{_capital(word)}: too few repeats to tell whether {kind.lower()} fits ({reason})."]
    else:
        degrees = f"F({test.missed}, {test.repeated}) {plain(test.f, 3)}, {p_value(test.p)}"
        repeats = f"lack of fit against the scatter of repeats: {degrees}"
        sentences = [f"{kind} {fitted.verdict} for {word} ({fitted.formula}; {repeats})."]
    if fitted.breusch_pagan is not None and fitted.breusch_pagan < SIGNIFICANT:
        unequal = f"Breusch-Pagan, {p_value(fitted.breusch_pagan)}"
        sentences.append(f"{_capital(word)} does not scatter equally everywhere ({unequal}): its intervals are rough.")
    if fitted.influential:
        runs = ", ".join(f"{run_id[:8]} ({plain(distance, 2)})" for run_id, distance in fitted.influential.items())
        sentences.append(f"Single runs decide the line of {word} (Cook's distance): {runs}.")
    return sentences


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _charts(group: Levels) -> list[Chart | None]:
    """Time over devices by global batch size, F1 over devices with its line, and F1 by rule of the learning rate."""
    runs, charts = group.runs[group.runs.device_count > 0], []
    counts = runs.device_count.unique()
    if len(counts) > 1:
        batches = "global batch " + runs.global_batch_size.replace("", "unknown")
        means = runs.groupby("device_count")[metrics.BILLABLE_SECONDS].mean().dropna()
        charts.append(
            scatter(
                runs.assign(series=batches),
                ("device_count", metrics.BILLABLE_SECONDS),
                title=f"Time over devices ({group.origin})",
                caption="A point per run; lines join the means of one global batch size.",
                curves={"perfect scaling": means.iloc[:1].sum() * means.index.min() / means.index.to_series()},
                is_joined=True,
            )
        )
        along, curves = np.geomspace(counts.min(), counts.max(), 24), {}
        caption = "A point per run. Rows are those of the data set where they are told, else those trained on."
        fitted = line(runs, metrics.F1)
        if fitted is not None and "devices" in fitted.centre:
            has_sizes = "data size" in fitted.centre
            for rows in sorted(runs.rows.unique()) if has_sizes else [1.0]:
                means = fitted.predict({"devices": along, "data size": np.full_like(along, rows)})
                curves[f"line of {rows:,.0f} rows" if has_sizes else "line"] = pd.Series(means.to_numpy(), along)
            caption += f" Lines: {fitted.formula}, least squares; a straight line {fitted.verdict}."
        charts.append(
            scatter(
                runs.sort_values("rows").assign(series=lambda runs: runs.rows.map("{:,.0f} rows".format)),
                ("device_count", metrics.F1),
                title=f"F1 over devices ({group.origin})",
                caption=caption,
                curves=curves,
            )
        )
    rules = group.runs.learning_rate_scaling.map(
        lambda rule: "fixed rate" if rule == "none" else f"rate scaled: {rule}"
    )
    if rules.nunique() > 1:
        batch = pd.to_numeric(group.runs.global_batch_size, errors="coerce")
        charts.append(
            scatter(
                group.runs.assign(series=rules, batch=batch),
                ("batch", metrics.F1),
                title=f"Scaled against fixed learning rate ({group.origin})",
                caption="A point per run; lines join the means.",
                is_joined=True,
            )
        )
    return charts
