"""The totals as tables of a report, and as rows of totals.csv."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from paretune.commands.report.totals.sums import ALL, NONE, Total
from paretune.presentation.numbers import dollars, plain
from paretune.presentation.table import Cell, Column, Table

_HEAD = {
    "key": "",
    "origin": "origin",
    "jobs": "runs",
    "cost_usd": "cost (USD)",
    "billed_usd": "billed (USD)",
    "failed_usd": "of failed jobs (USD)",
    "instance_hours": "instance hours",
    "best_f1": "best F1",
    "first": "first",
    "last": "last",
    "without_cost": "runs without a cost",
}
"""Field of `Total` to the heading of its column; the first is named after the way."""
_TEXTS = ("key", "origin", "first", "last")


def tables(found: Sequence[Total]) -> list[tuple[str, Table]]:
    """A table per way, named; none where no job tells its key."""
    ways = dict.fromkeys(total.way for total in found)
    grouped = {way: [total for total in found if total.way == way] for way in ways}
    return [
        ("Dollars in all" if way == ALL else f"Dollars by {_words(way)}", _table(way, group))
        for way, group in grouped.items()
        if any(total.key != NONE for total in group)
    ]


def rows(found: Sequence[Total]) -> list[dict[str, object]]:
    """What totals.csv holds: all totals, those without a key included; what is not known is None."""
    named = [{"by": total.way, **asdict(total)} for total in found]
    return [{name: value for name, value in row.items() if name != "way"} for row in named]


def sentences(found: Sequence[Total]) -> list[str]:
    """What is to be known of the sums."""
    everything = [total for total in found if total.way == ALL]
    said = []
    if len(everything) > 1:
        said.append(
            "every origin has sums of its own, and so have the notional dollars of local jobs: add none of them"
        )
    for total in everything:
        if total.billed_usd is not None:
            those = f"{total.billed:,} of {total.jobs:,} {total.origin} runs"
            part = f" ({total.billed_in_part:,} of them in part: not complete yet)" if total.billed_in_part else ""
            said.append(
                f"billed is what AWS's bill says of {those}{part}; cost is from list prices, of all that are priced"
            )
    if any(total.best_f1 is not None for total in everything):
        said.append("best F1 is that of any model and data set of the row")
    return said


def _table(way: str, group: Sequence[Total]) -> Table:
    headers = _HEAD | {"key": "" if way == ALL else _words(way)}
    columns = [Column(header, partial(_cell, name=name)) for name, header in headers.items()]
    return Table.of(columns, group).without_empty_columns()


def _cell(total: Total, *, name: str) -> str | Cell:
    value = getattr(total, name)
    if value is None or name in _TEXTS:
        return value or ""
    if name in ("jobs", "without_cost"):
        return Cell(f"{value:,}", value) if value or name == "jobs" else ""
    text = {"best_f1": f"{value:.4f}", "instance_hours": plain(value, 3)}.get(name) or dollars(value)
    return Cell(text, value)


def _words(way: str) -> str:
    return way.replace("_", " ")
