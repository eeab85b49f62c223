"""What `reconcile` shows: the bill of each run, why it differs from what was recorded, and where the rest is."""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from paretune.commands.bill.difference import PARTS, RunBill
from paretune.commands.bill.reconcile import Reconciled
from paretune.commands.bill.reconciliation import Reconciliation
from paretune.core.result import Row
from paretune.core.text_table import text_table

COLUMNS = (
    *("job", "run_id", "lines", "cost_usd", "billed_usd", "effective_usd", "difference_usd"),
    *(f"{name}_usd" for name in PARTS),
    *("residue_usd", "apart_usd", "complete", "remark"),
)
"""Of reconcile.csv."""
RESIDUE_COLUMNS = ("run_id", "line_item_id", "line_item_type", "usage_type", "usd")
_MOST = 20  # runs, or names, that are shown
_SHORT = 8
_NO_LINES = "no line of the bill is of it"
_NO_RUN = "no run here tells of it"


def rows(found: Reconciliation) -> list[Row]:
    """A row per run: billed, without a line, then jobs that no run tells of; dollars are exact texts."""
    missing: list[Row] = [
        {**dict.fromkeys(COLUMNS), "job": one.job_name, "run_id": one.run_id, "lines": 0}
        | {"cost_usd": _exact(one.cost_usd), "complete": True, "remark": _NO_LINES}
        for one in found.without_lines
    ]
    unknown: list[Row] = [
        {**dict.fromkeys(COLUMNS), "job": one.name, "lines": one.lines.lines}
        | {"billed_usd": _exact(one.lines.usd), "remark": _NO_RUN}
        for one in found.unknown
    ]
    return [*map(_row, found.bills), *missing, *unknown]


def residue_rows(found: Reconciliation) -> list[Row]:
    """A row per line of the bill, or recorded cost, that the parts do not explain."""
    return [
        {"run_id": bill.run_id, "line_item_id": one.line_id, "line_item_type": one.type}
        | {"usage_type": one.usage_type, "usd": _exact(one.usd)}
        for bill in found.bills
        for one in bill.residue
    ]


def as_numbers(table: Iterable[Mapping[str, object]]) -> list[Row]:
    """The rows with dollars as numbers, for JSON."""
    return [
        {name: float(str(value)) if _is_dollars(name) and value is not None else value for name, value in row.items()}
        for row in table
    ]


def _is_dollars(name: str) -> bool:
    return name == "usd" or name.endswith("_usd")


def text(done: Reconciled) -> str:
    """The runs whose bill differs most, the totals, and what is to be known of them."""
    found = done.found
    ordered = sorted(found.bills, key=lambda bill: -abs(bill.difference_usd or Decimal(0)))
    blocks = [_table(ordered[:_MOST])] if ordered else []
    if len(ordered) > _MOST:
        blocks.append(f"{len(ordered) - _MOST:,} runs more, with smaller differences, are in reconcile.csv")
    return "\n\n".join([*blocks, _totals(found), "\n".join(f"- {one}" for one in sentences(done))])


def sentences(done: Reconciled) -> list[str]:
    """What is to be known of the figures."""
    found = done.found
    said = ["billed_usd is unblended, storage included, before tax, credits, refunds and the fees of Savings Plans"]
    said += [_sum_of_differences(found)] if found.bills else []
    residue = [one for bill in found.bills for one in bill.residue]
    for one in sorted(residue, key=lambda item: -abs(item.usd))[:_MOST]:
        said.append(f"not explained: {_usd(one.usd)} USD, {one.type} {one.usage_type} {one.line_id}".rstrip())
    if open_ones := [bill for bill in found.bills if not bill.is_complete]:
        said.append(
            f"not complete yet: {len(open_ones)} runs, such as {open_ones[0].run_id[:_SHORT]}: {open_ones[0].lacks}"
        )
    names = {
        "the bill covers these runs and has no line of them": [one.run_id for one in found.without_lines],
        "on the bill, and no run here tells of them": [one.name for one in found.unknown],
        "another bill told more of these runs, so its figures stay": list(done.kept),
        "MLflow did not take these figures (repeat the command)": list(done.unwritten),
        "left out, for a later delivery replaces it": list(found.left_out),
        "no effective rate, for the bill does not tell what is paid for all of their hours": list(found.unrated),
        "without a column of tags (resource_tags), so a line belongs to a job by its ARN alone": list(
            found.without_tags
        ),
    }
    said += [f"{what}: {_listed(those)}" for what, those in names.items() if those]
    if found.repeated:
        said.append(f"{found.repeated:,} lines come again and count once")
    return said


def _sum_of_differences(found: Reconciliation) -> str:
    """All differences in one sentence."""
    known = [bill for bill in found.bills if bill.difference_usd is not None]
    whole = sum((bill.difference_usd or Decimal(0) for bill in known), Decimal(0))
    parts = {name: sum((bill.parts[name] for bill in known), Decimal(0)) for name in PARTS}
    parts["residue"] = sum((_residue(bill) for bill in known), Decimal(0))
    told = ", ".join(f"{name} {_usd(value)}" for name, value in parts.items() if value)
    return f"billed less recorded: {_usd(whole)} USD" + (f" ({told})" if told else "")


def _totals(found: Reconciliation) -> str:
    head = ["dollars of", "lines", "USD"]
    table = [[name, f"{one.lines:,}", f"{one.usd:,.2f}"] for name, one in found.totals.items()]
    lines, usd = sum(one.lines for one in found.totals.values()), sum(one.usd for one in found.totals.values())
    return text_table(head, [*table, ["the whole bill", f"{lines:,}", f"{usd:,.2f}"]], {"lines", "USD"})


def _table(bills: list[RunBill]) -> str:
    head = ["run", "cost USD", "billed USD", "effective USD", "difference", *PARTS, "residue", "complete"]
    cells = [
        [
            bill.run_id[:_SHORT],
            "" if bill.recorded.cost_usd is None else f"{bill.recorded.cost_usd:,.2f}",
            *("" if usd is None else f"{usd:,.2f}" for usd in (bill.billed_usd, bill.effective_usd)),
            "" if bill.difference_usd is None else _usd(bill.difference_usd),
            *(_usd(bill.parts[name]) if bill.parts else "" for name in PARTS),
            _usd(_residue(bill)),
            "yes" if bill.is_complete else "not yet",
        ]
        for bill in bills
    ]
    return text_table(head, cells, {*head} - {"run", "complete"})


def _row(bill: RunBill) -> Row:
    return {
        "job": " ".join(bill.jobs) or bill.recorded.job_name,
        "run_id": bill.run_id,
        "lines": bill.lines,
        "cost_usd": _exact(bill.recorded.cost_usd),
        "billed_usd": _exact(bill.billed_usd),
        "effective_usd": _exact(bill.effective_usd),
        "difference_usd": _exact(bill.difference_usd),
        **{f"{name}_usd": _exact(bill.parts.get(name)) for name in PARTS},
        "residue_usd": _exact(_residue(bill)),
        "apart_usd": _exact(sum(bill.apart_usd.values(), Decimal(0))),
        "complete": bill.is_complete,
        "remark": bill.lacks,
    }


def _residue(bill: RunBill) -> Decimal:
    return sum((one.usd for one in bill.residue), Decimal(0))


def _exact(usd: Decimal | None) -> str | None:
    """All digits, without an exponent and without zeros at the end."""
    if usd is None:
        return None
    digits = f"{usd:f}"
    return (digits.rstrip("0").rstrip(".") if "." in digits else digits) or "0"


def _usd(value: Decimal) -> str:
    """To the cent; to a hundredth of a cent what is less than one."""
    digits = 2 if abs(value) >= Decimal("0.005") else 4
    return f"{value:+,.{digits}f}" if abs(value) >= Decimal("0.00005") else "0"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
    return f"{len(names):,}: {', '.join(names[:_MOST])}{more}"
