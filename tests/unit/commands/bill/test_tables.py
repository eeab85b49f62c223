"""What `reconcile` prints."""

from decimal import Decimal
from pathlib import Path

from paretune.commands.bill.reading import BillFiles
from paretune.commands.bill.reconciliation import Reconciled, reconcile
from paretune.commands.bill.tables import as_numbers, rows, text
from tests.stand_ins.bill import BillMaker, write


def test_the_text_has_the_largest_differences_the_sums_and_what_is_on_one_side_only(tmp_path: Path) -> None:
    bill = BillMaker(5).add_jobs(60).add_unknown(1).add_others(20).bill
    repeated = write(bill, tmp_path)
    report = reconcile(BillFiles(tmp_path), bill.recorded)
    message = text(Reconciled(reconciliation=report, written=1, left=("kept-before",), unwritten=()))
    largest = max(report.bills, key=lambda entry: abs(entry.difference_usd or 0))
    lines = message.splitlines()

    assert lines[1].startswith(largest.run_id[:8])
    assert f"{len(report.bills) - 20} runs more, with smaller differences, are in reconcile.csv" in message
    assert any(line.startswith("the whole bill") and line.endswith(f"{bill.total / 10**10:,.2f}") for line in lines)
    assert f"- {repeated} lines come again and count once" in lines
    assert f"1: {next(iter(bill.unknown))}" in message
    assert f"{len(bill.silent - bill.unfinished)}: " in message
    assert "another bill covered more of these runs, so its figures stay: 1: kept-before" in message
    assert sum(line.startswith("- not explained: ") for line in lines) == sum(
        len(item.residue) for item in report.bills
    )


def test_dollars_are_exact_in_the_table_and_numbers_in_json(tmp_path: Path) -> None:
    bill = BillMaker(3).add_jobs(5).bill
    write(bill, tmp_path)
    report = reconcile(BillFiles(tmp_path), bill.recorded)
    table = rows(report)

    assert [Decimal(str(row["billed_usd"])) for row in table] == [entry.billed_usd for entry in report.bills]
    assert not any("E" in str(row["rounding_usd"]) for row in table)
    assert [row["billed_usd"] for row in as_numbers(table)] == [float(item.billed_usd) for item in report.bills]
