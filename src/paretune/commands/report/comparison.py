"""One setting of jobs against another: native against compiled, full against LoRA, one strategy against the next."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from paretune.commands.report.document import Section, records, table
from paretune.commands.report.jobs import DEFAULTS, QUANTITIES, VERSIONS
from paretune.commands.report.levels import MEANS, Levels, varying, with_cells
from paretune.commands.report.statistics import CONFIDENCE, Interval, difference, ratio
from paretune.presentation.table import Cell
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import COMPUTES, affecting

_RATIOS = {metrics.THROUGHPUT_SAMPLES: "samples/s", metrics.BILLABLE_SECONDS: "billed time", metrics.COST_USD: "cost"}
_EXPECTED_DIFFERENCES = {"seed", "dataset", "model", "instance_type", "instance_count"}


def comparison_section(group: Levels) -> tuple[Section, pd.DataFrame]:
    """The table, sentences and charts of one kind of runs, and the table as numbers.

    The first level is the default of the setting if that ran, else the first by size or name; the others are compared
    with it.
    """
    first, *others = sorted(group.names, key=lambda name: name != DEFAULTS.get(group.factor))
    group = replace(group, names=[first, *others])
    rows, sentences = records(group.frame()), []
    for row in rows:
        for quantity in (*_RATIOS, metrics.F1):
            compared, is_f1 = None, quantity == metrics.F1
            values, base = (group.of(name).set_index("rows")[quantity].dropna() for name in (row["level"], first))
            if row["level"] != first and len(values) and len(base):
                compared = difference(values, base) if is_f1 else ratio(values, base)
            kind = f"{quantity}_{'difference' if is_f1 else 'ratio'}"
            row |= dict(zip((kind, f"{kind}_low", f"{kind}_high"), compared or (None, None, None), strict=True))
            if compared is not None:
                words = f"F1 {_words(compared, '+.4f', 0)}" if is_f1 else f"{_RATIOS[quantity]} x {_words(compared)}"
                sentences.append(f"{row['level'] or '(none)'} against {first or '(none)'}: {words}.")
    settings = {*affecting(JobSpec, *COMPUTES, "evaluation"), VERSIONS} - _EXPECTED_DIFFERENCES - {group.factor}
    for name, values in varying(group.runs, sorted(settings)).items():
        listed = ", ".join(values[:6]) + (" and more" if len(values) > 6 else "")
        sentences.append(f"{group.factor} is not all that differs between these runs: so does {name} ({listed}).")
    shown = [{**row, **{f"{name}_ratio": _ratio_cell(row, name) for name in _RATIOS}} for row in with_cells(rows)]
    columns = {group.factor: "level", "n": "n"}
    columns |= {header: name for name, header in QUANTITIES.items() if name != metrics.ESTIMATED_SECONDS}
    columns |= {f"{word} / first": f"{quantity}_ratio" for quantity, word in _RATIOS.items()}
    about = f"{MEANS}; ratios to the first row with {CONFIDENCE:.0%} intervals"
    tables = [(about, table(shown, columns))]
    section = Section(heading=group.heading, tables=tables, sentences=sentences, charts=group.trade_offs())
    return section, pd.DataFrame(rows)


def _ratio_cell(row: Mapping[str, Any], quantity: str) -> Cell | None:
    value, low, high = (row[f"{quantity}_ratio{end}"] for end in ("", "_low", "_high"))
    ends = "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
    return None if value is None else Cell(f"{value:.3f}{ends}", value)


def _words(compared: Interval, form: str = ".3f", equal: int = 1) -> str:
    """The comparison in words; `equal` is its value if both means are equal."""
    value, low, high = compared
    if low is None or high is None:
        return f"{value:{form}}; too few repeats to tell it from {equal}"
    verdict = f"cannot be told from {equal}" if low <= equal <= high else f"differs from {equal} by more than noise"
    return f"{value:{form}} ({CONFIDENCE:.0%} interval {low:{form}} to {high:{form}}), {verdict}"
