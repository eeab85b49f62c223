"""Discounts that AWS states once for an account and SKU, instead of on the lines that they discount."""

from collections import defaultdict
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from paretune.commands.bill.reading import BillFiles
from paretune.commands.bill.reconciliation import Reconciled, Reconciliation, reconcile
from paretune.commands.bill.recorded_costs import RecordedCost
from paretune.commands.bill.tables import sentences
from tests.stand_ins.bill import ARN, MONTH, UNIT, Bill, BillMaker, write_file

USAGE = "USE1-Train:ml.g5.xlarge"
RUNS = ("a", "b")
CASES = (  # the usage type, SKU, begin and length of the discount
    (USAGE, "SKU1", MONTH, timedelta(hours=1)),
    ("", "SKU1", MONTH, timedelta(days=1)),
    (USAGE, "", MONTH, timedelta(days=30)),
    ("", "SKU1", MONTH + timedelta(days=29), timedelta(hours=1)),  # stated at the end of its month
)


def run(name: str, hours: int) -> RecordedCost:
    return RecordedCost(
        run_id=name,
        job_name=f"paretune-{name}-1",
        cost_usd=Decimal(2 * hours),
        seconds=Decimal(3600 * hours),
        pool_seconds=Decimal(0),
        instance_count=1,
        price_usd_per_hour=Decimal(2),
        started=MONTH,
        ended_at=MONTH + timedelta(hours=1),
    )


def reconciled(folder: Path, *discounts: dict[str, Any], net: bool = False) -> Reconciliation:
    """Run a has 3 hours, run b 4 and somebody else 3, all for 2 USD; another account has the same SKU."""
    bill = Bill(net=net)
    for name, hours, account in (("paretune-a-1", 3, "1"), ("paretune-b-1", 4, "1"), ("x", 3, "1"), ("y", 50, "2")):
        report = {"line_item_usage_amount": hours * UNIT, "line_item_usage_account_id": account, "product_sku": "SKU1"}
        bill.row("Usage", USAGE, 2 * hours * UNIT, MONTH, line_item_resource_id=ARN + name, **report)
    bill.row("Usage", "BoxUsage", UNIT, MONTH + timedelta(days=3), line_item_product_code="AmazonEC2")
    for discount in discounts:
        values = {"kind": "EdpDiscount", "usage_type": USAGE, "cost": -UNIT, "start": MONTH, "product_sku": "SKU1"}
        bill.row(**{**values, "line_item_resource_id": "", "line_item_usage_account_id": "1", **discount})
    write_file(bill.rows, folder / "a.csv", net=net)
    return reconcile(BillFiles(folder), [run("a", 3), run("b", 4)])


@pytest.mark.parametrize(("usage_type", "sku", "start", "length"), CASES)
def test_a_discount_of_an_account_is_divided_among_the_usage_of_its_sku(
    usage_type: str, sku: str, start: datetime, length: timedelta, tmp_path: Path
) -> None:
    times = {"start": start, "line_item_usage_end_date": start + length}
    report = reconciled(tmp_path, {"usage_type": usage_type, "product_sku": sku, **times})

    assert [bill.effective_usd for bill in report.bills] == [Decimal("5.7"), Decimal("7.6")]
    assert [bill.billed_usd for bill in report.bills] == [6, 8]
    assert all(bill.is_complete for bill in report.bills)
    assert [(rate.instance_hours, rate.effective_usd) for rate in report.rates] == [(60, 119)]


def test_shares_of_a_discount_add_up_to_its_last_digit(tmp_path: Path) -> None:
    report = reconciled(tmp_path, {"cost": -1}, {"kind": "PrivateRateDiscount", "cost": -UNIT // 7})
    discount = Decimal(UNIT // 7 + 1 + 1) / UNIT

    assert report.rates[0].effective_usd == 120 - discount
    assert report.discounts.lines == 2


@pytest.mark.parametrize(
    "discount",
    [
        {"line_item_usage_account_id": "9"},  # the account that pays for both
        {"start": MONTH - timedelta(days=3)},
        {"usage_type": "", "product_sku": ""},
        {"cost": -21 * UNIT},  # more than all of the usage
    ],
)
def test_nobody_has_an_effective_cost_if_the_usage_of_a_discount_is_not_on_the_bill(
    discount: dict[str, Any], tmp_path: Path
) -> None:
    report = reconciled(tmp_path, discount)

    assert [bill.effective_usd for bill in report.bills] == [None, None]
    assert "a discount of its account without the usage" in report.bills[0].missing
    assert (report.rates, report.unrated) == ((), ["ml.g5.xlarge in us-east-1"])
    texts = sentences(Reconciled(reconciliation=report, written=2, left=(), unwritten=()))
    assert any(text.startswith("discounts without the usage that they are for") for text in texts)


def test_a_discount_of_something_else_than_training_concerns_no_run(tmp_path: Path) -> None:
    report = reconciled(tmp_path, {"usage_type": "USE1-Host:ml.g5.xlarge", "product_sku": "SKU2"})

    assert [bill.effective_usd for bill in report.bills] == [6, 8]
    assert all(bill.is_complete for bill in report.bills)


def test_net_costs_contain_the_discount_already(tmp_path: Path) -> None:
    report = reconciled(tmp_path, {"line_item_net_unblended_cost": 0}, net=True)

    assert [bill.effective_usd for bill in report.bills] == [6, 8]


def test_the_effective_cost_of_every_job_holds_its_share_of_discounts(tmp_path: Path) -> None:
    """Five percent of all usage on demand, stated by usage type for the month."""
    bill = BillMaker(6, net=False).add_jobs(40).add_others(200).bill
    rows = [row for row in bill.rows if row["line_item_line_item_type"] != "EdpDiscount"]
    write_file(rows, tmp_path / "a.csv", net=False)
    before = reconcile(BillFiles(tmp_path), bill.recorded)
    listed: dict[str, int] = defaultdict(int)
    of_run: dict[str, Decimal] = defaultdict(Decimal)
    for row in rows:
        if row["line_item_line_item_type"] == "Usage" and "Train" in row["line_item_usage_type"]:
            listed[row["line_item_usage_type"]] += row["line_item_unblended_cost"]
            tags = [value for name, value in row["resource_tags"].items() if "run" in name]
            name = row["line_item_resource_id"].removeprefix(ARN)
            of_run[name.split("-")[1] if "paretune" in name else (tags or [""])[0]] += row["line_item_unblended_cost"]
    bill.rows = rows
    month = {"line_item_usage_end_date": MONTH + timedelta(days=30), "line_item_resource_id": ""}
    for usage_type, cost in listed.items():
        bill.row("EdpDiscount", usage_type, -cost // 20, MONTH, **month)
    write_file(rows, tmp_path / "a.csv", net=False)
    after = {item.run_id: item.effective_usd for item in reconcile(BillFiles(tmp_path), bill.recorded).bills}
    alone = [item for item in before.bills if item.run_id in bill.truths]

    assert len(alone) > 20
    for item in alone:
        assert item.effective_usd is not None
        assert abs(after[item.run_id] - item.effective_usd + of_run[item.run_id] / 20 / UNIT) < Decimal("1e-6")
