"""Output of `reconcile`: the bill of each run, why it differs from the recorded cost, and where the rest is."""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from paretune.commands.bill.difference import PARTS, RunBill
from paretune.commands.bill.reading import Sum
from paretune.commands.bill.reconciliation import Reconciled, Reconciliation
from paretune.core.result import Row
from paretune.presentation.table import Cell, Column, Table

COLUMNS = (
    *("job", "run_id", "lines", "cost_usd"),
    *("billed_usd", "billed_least_usd", "effective_usd", "difference_usd"),
    *(f"{name}_usd" for name in PARTS),
    *("residue_usd", "apart_usd", "complete", "remark"),
)
"""Columns of reconcile.csv."""
RESIDUE_COLUMNS = ("run_id", "line_item_id", "line_item_type", "usage_type", "usd")
_MOST = 20  # runs, or names, that are listed
_SHORT = 8  # characters of a run id
_NO_LINES = "the bill has no line of it"
_NO_RUN = "it has no run here"


def rows(reconciliation: Reconciliation) -> list[Row]:
    """Return a row per run: billed runs, runs without a line, then jobs without a run; dollars are exact texts."""
    billed: list[Row] = [
        {
            "job": " ".join(bill.jobs) or bill.recorded.job_name,
            "run_id": bill.run_id,
            "lines": bill.lines,
            "cost_usd": _exact(bill.recorded.cost_usd),
            "billed_usd": _exact(bill.billed_usd),
            "billed_least_usd": _exact(bill.least_usd),
            "effective_usd": _exact(bill.effective_usd),
            "difference_usd": _exact(bill.difference_usd),
            **{f"{name}_usd": _exact(bill.parts.get(name)) for name in PARTS},
            "residue_usd": _exact(bill.residue_usd),
            "apart_usd": _exact(sum(bill.apart_usd.values(), Decimal(0))),
            "complete": bill.is_complete,
            "remark": bill.missing,
        }
        for bill in reconciliation.bills
    ]
    without_lines: list[Row] = [
        {**dict.fromkeys(COLUMNS), "job": cost.job_name, "run_id": cost.run_id, "lines": 0}
        | {"cost_usd": _exact(cost.cost_usd), "complete": True, "remark": _NO_LINES}
        for cost in reconciliation.without_lines
    ]
    unknown: list[Row] = [
        {**dict.fromkeys(COLUMNS), "job": job.name, "lines": job.lines.lines}
        | {"billed_usd": _exact(job.lines.usd), "remark": _NO_RUN}
        for job in reconciliation.unknown
    ]
    return [*billed, *without_lines, *unknown]


def residue_rows(reconciliation: Reconciliation) -> list[Row]:
    """Return a row per line of the bill, or recorded cost, that the parts do not explain."""
    return [
        {"run_id": bill.run_id, "line_item_id": residue.line_id, "line_item_type": residue.type}
        | {"usage_type": residue.usage_type, "usd": _exact(residue.usd)}
        for bill in reconciliation.bills
        for residue in bill.residue
    ]


def as_numbers(table: Iterable[Mapping[str, object]]) -> list[Row]:
    """Return the rows with dollars as numbers, for JSON."""

    def is_dollars(name: str) -> bool:
        return name == "usd" or name.endswith("_usd")

    return [
        {name: float(str(value)) if is_dollars(name) and value is not None else value for name, value in row.items()}
        for row in table
    ]


def answer(reconciled: Reconciled) -> list[str]:
    """Return the note of the command's run: the difference of billed and recorded dollars, and what is missing."""
    reconciliation = reconciled.reconciliation
    count, complete = len(reconciliation.bills), sum(bill.is_complete for bill in reconciliation.bills)
    runs = f"{count:,} runs on the bill, {complete:,} of them complete"
    without = (
        f"{len(reconciliation.without_lines):,} runs without a line, {len(reconciliation.unknown):,} jobs without a run"
    )
    return [*([_sum_of_differences(reconciliation)] if count else []), f"{runs}; {without}"]


def text(reconciled: Reconciled) -> str:
    """Return the runs with the largest differences, the totals and the remarks."""
    reconciliation = reconciled.reconciliation
    ordered = sorted(reconciliation.bills, key=lambda bill: -abs(bill.difference_usd or Decimal(0)))
    blocks = [Table.of(_BILL_COLUMNS, ordered[:_MOST]).text()] if ordered else []
    if len(ordered) > _MOST:
        blocks.append(f"{len(ordered) - _MOST:,} runs more, with smaller differences, are in reconcile.csv")
    totals = list(reconciliation.totals.items())
    whole = Sum(sum(total.lines for _, total in totals), sum((total.usd for _, total in totals), Decimal(0)))
    blocks.append(Table.of(_TOTAL_COLUMNS, [*totals, ("the whole bill", whole)]).text())
    return "\n\n".join([*blocks, "\n".join(f"- {sentence}" for sentence in sentences(reconciled))])


def sentences(reconciled: Reconciled) -> list[str]:
    """Return remarks on the figures."""
    reconciliation = reconciled.reconciliation
    remarks = ["billed_usd is unblended, storage included, before tax, credits, refunds and the fees of Savings Plans"]
    remarks += [_sum_of_differences(reconciliation)] if reconciliation.bills else []
    residues = [residue for bill in reconciliation.bills for residue in bill.residue]
    for residue in sorted(residues, key=lambda item: -abs(item.usd))[:_MOST]:
        remarks.append(
            f"not explained: {_usd(residue.usd)} USD, {residue.type} {residue.usage_type} {residue.line_id}".rstrip()
        )
    if open_bills := [bill for bill in reconciliation.bills if not bill.is_complete]:
        example = open_bills[0]
        remarks.append(
            f"not complete yet: {len(open_bills)} runs, such as {example.run_id[:_SHORT]}: {example.missing}"
        )
    names = {
        "the bill covers these runs and has no line of them": [cost.run_id for cost in reconciliation.without_lines],
        "on the bill, but without a run here": [job.name for job in reconciliation.unknown],
        "another bill covered more of these runs, so its figures stay": list(reconciled.left),
        "MLflow did not take these figures (repeat the command)": list(reconciled.unwritten),
        "left out, because a later delivery replaces it": list(reconciliation.left_out),
        "no effective rate, because the bill lacks the effective cost of some hours, or the usage of a discount": list(
            reconciliation.unrated
        ),
        "discounts without the usage that they are for, so its effective cost is unknown": sorted(
            reconciliation.discounts.unspread
        ),
        "without a column of tags (resource_tags), so a line belongs to a job by its ARN alone": list(
            reconciliation.without_tags
        ),
    }
    remarks += [f"{remark}: {_listed(values)}" for remark, values in names.items() if values]
    if reconciliation.discounts.lines:
        remarks.append(
            f"{reconciliation.discounts.lines:,} discounts of an account are in effective_usd and the rates, divided "
            "by the cost of the lines with their SKU"
        )
    if reconciliation.repeated:
        remarks.append(f"{reconciliation.repeated:,} lines come again and count once")
    return remarks


def _sum_of_differences(reconciliation: Reconciliation) -> str:
    bills = [bill for bill in reconciliation.bills if bill.difference_usd is not None]
    total = sum((bill.difference_usd or Decimal(0) for bill in bills), Decimal(0))
    parts = {name: sum((bill.parts[name] for bill in bills), Decimal(0)) for name in PARTS}
    parts["residue"] = sum((bill.residue_usd for bill in bills), Decimal(0))
    words = ", ".join(f"{name} {_usd(value)}" for name, value in parts.items() if value)
    return f"billed minus recorded: {_usd(total)} USD" + (f" ({words})" if words else "")


def _exact(usd: Decimal | None) -> str | None:
    """Return all digits, without an exponent and without trailing zeros."""
    if usd is None:
        return None
    digits = f"{usd:f}"
    return (digits.rstrip("0").rstrip(".") if "." in digits else digits) or "0"


def _usd(value: Decimal) -> str:
    """Return dollars to the cent, or to a hundredth of a cent if they are less than one."""
    digits = 2 if abs(value) >= Decimal("0.005") else 4
    return f"{value:+,.{digits}f}" if abs(value) >= Decimal("0.00005") else "0"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
    return f"{len(names):,}: {', '.join(names[:_MOST])}{more}"


def _part_column(name: str) -> Column[RunBill]:
    return Column(name, lambda bill: bill.parts.get(name), _usd)


_BILL_COLUMNS: list[Column[RunBill]] = [
    Column("run", lambda bill: bill.run_id[:_SHORT]),
    Column("cost USD", lambda bill: bill.recorded.cost_usd, ",.2f"),
    Column("billed USD", lambda bill: bill.billed_usd, ",.2f"),
    Column("effective USD", lambda bill: bill.effective_usd, ",.2f"),
    Column("difference", lambda bill: bill.difference_usd, _usd),
    *map(_part_column, PARTS),
    Column("residue", lambda bill: bill.residue_usd, _usd),
    Column("complete", lambda bill: Cell("yes" if bill.is_complete else "not yet")),
]
_TOTAL_COLUMNS: list[Column[tuple[str, Sum]]] = [
    Column("dollars of", lambda total: total[0]),
    Column("lines", lambda total: total[1].lines, ",d"),
    Column("USD", lambda total: total[1].usd, ",.2f"),
]
