"""Files of a bill: what is refused, what counts once, what the bill covers."""

import csv
import gzip
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from paretune.billing.reading import BillFiles, Coverage
from paretune.billing.reconciliation import OTHERS, Reconciliation, reconcile
from paretune.core.errors import BadInput
from tests.stand_ins.bill import MONTH, UNIT, Bill, BillMaker, write_file

OPTIONAL = (
    *("line_item_net_unblended_cost", "pricing_public_on_demand_cost", "pricing_public_on_demand_rate"),
    *("savings_plan_savings_plan_effective_cost", "reservation_effective_cost", "line_item_unblended_rate"),
    *("line_item_currency_code", "pricing_unit", "resource_tags", "bill_bill_type"),
)


def bill_with(*costs: int, **more: Any) -> Bill:
    """Lines of one training of somebody else's, with these costs in cents."""
    bill = Bill(net=True)
    where = "arn:aws:sagemaker:us-east-1:1:training-job/other"
    for cost in costs:
        told = {"line_item_resource_id": where, "line_item_usage_amount": UNIT, **more}
        bill.row("Usage", "USE1-Train:ml.g5.xlarge", cost * UNIT // 100, MONTH, **told)
    return bill


def read(folder: Path) -> Reconciliation:
    return reconcile(BillFiles(folder), [])


def replace_cell(path: Path, column: str, text: str) -> None:
    """Another text in a column of a CSV with one line."""
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerow(row | {column: text})


def faults_of(folder: Path) -> tuple[str, ...]:
    with pytest.raises(BadInput) as refused:
        read(folder)
    return refused.value.faults


def test_missing_columns_of_all_files_are_named_with_the_setting_that_includes_them(tmp_path: Path) -> None:
    rows = bill_with(1).rows
    write_file(rows, tmp_path / "a.parquet", leave_out=["line_item_resource_id"])
    write_file(rows, tmp_path / "b.csv", leave_out=["line_item_usage_start_date", "line_item_unblended_cost"])
    faults = "\n".join(faults_of(tmp_path))

    assert "a.parquet: column line_item_resource_id is missing: make the export with INCLUDE_RESOURCES TRUE" in faults
    assert "b.csv: column line_item_usage_start_date is missing" in faults
    assert "TIME_GRANULARITY HOURLY" in faults
    assert "b.csv: column line_item_unblended_cost is missing: name it in the query of the export" in faults


def test_without_the_columns_that_may_be_missing_the_dollars_are_the_same(tmp_path: Path) -> None:
    bill = BillMaker(5).add_jobs(20).bill
    whole, bare = tmp_path / "whole.csv", tmp_path / "bare.csv"
    write_file(bill.rows, whole)
    write_file(bill.rows, bare, leave_out=OPTIONAL)
    one, other = (reconcile(BillFiles(path), bill.recorded) for path in (whole, bare))
    in_all = {one.run_id: one.billed_usd for one in one.bills}
    by_tag = {row["identity_line_item_id"] for row in bill.rows if not row["line_item_resource_id"]}

    assert sum(total.usd for total in one.totals.values()) == sum(total.usd for total in other.totals.values())
    assert other.totals[OTHERS].lines == len(by_tag)
    assert sum(one.billed_usd == in_all[one.run_id] for one in other.bills) > len(other.bills) // 2


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("a.parquet", b"PAR1 but not", "cannot be read as a bill"),
        ("a.csv", b"", "cannot be read as a bill"),
        ("a.csv.gz", b"not gzip", "cannot be read as a bill"),
        ("a.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-12], "a.csv.gz"),
        ("a.csv", b"identity/LineItemId,lineItem/UsageType\n1,2\n", "is a legacy Cost and Usage Report"),
        ("a.txt", b"", "has no file that ends in .parquet, .csv, .gz"),
    ],
)
def test_what_is_no_bill_is_refused(name: str, content: bytes, part: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)

    assert part in "\n".join(faults_of(tmp_path))


@pytest.mark.parametrize(
    ("column", "value", "part"),
    [
        ("line_item_unblended_cost", "dear", "line_item_unblended_cost must be a number, got 'dear'"),
        ("line_item_unblended_cost", "nan", "line_item_unblended_cost must be a number, got 'nan'"),
        ("line_item_currency_code", "CNY", "line_item_currency_code must be USD, got CNY"),
        ("line_item_usage_end_date", "soon", "line_item_usage_end_date must be times such as 2026-11-01T10:00:00Z"),
    ],
)
@pytest.mark.parametrize("product", ["AmazonSageMaker", "AmazonEC2"])
def test_a_cell_that_cannot_be_meant_is_named(column: str, value: str, part: str, product: str, tmp_path: Path) -> None:
    write_file(bill_with(1, line_item_product_code=product).rows, tmp_path / "a.csv")
    replace_cell(tmp_path / "a.csv", column, value)
    if (column, product) == ("line_item_currency_code", "AmazonEC2"):
        assert read(tmp_path).totals[OTHERS].lines == 1  # nobody asks in which currency others pay
    else:
        assert part in "\n".join(faults_of(tmp_path))


def test_of_several_deliveries_of_a_month_the_newest_counts(tmp_path: Path) -> None:
    for delivery, cost in {"2026-11-20T06:00:00Z-b1": 200, "2026-11-19T06:00:00Z-z9": 100}.items():
        folder = tmp_path / "data" / "BILLING_PERIOD=2026-11" / delivery
        folder.mkdir(parents=True)
        write_file(bill_with(cost).rows, folder / "a.parquet")
    october = tmp_path / "data" / "BILLING_PERIOD=2026-10" / "2026-10-31T06:00:00Z-a0"
    october.mkdir(parents=True)
    write_file(bill_with(7, identity_line_item_id="october").rows, october / "a.csv")
    found = read(tmp_path)

    assert found.totals[OTHERS].usd == Decimal("2.07")
    assert found.left_out == ["data/BILLING_PERIOD=2026-11/2026-11-19T06:00:00Z-z9"]


def test_a_line_that_comes_again_counts_once_and_another_cost_is_told(tmp_path: Path) -> None:
    write_file(bill_with(100, 200).rows, tmp_path / "a.csv")
    write_file(bill_with(100, 250).rows, tmp_path / "b.parquet")
    found = read(tmp_path)

    assert found.totals[OTHERS].usd == Decimal(3)
    assert (found.repeated, found.changed) == (2, 1)


def test_costs_of_any_number_of_digits_are_added_exactly(tmp_path: Path) -> None:
    write_file(bill_with(1, line_item_product_code="AmazonEC2").rows, tmp_path / "a.csv")
    long = "0." + "1" * 45
    replace_cell(tmp_path / "a.csv", "line_item_unblended_cost", long)

    assert read(tmp_path).totals[OTHERS].usd == Decimal(long)


def test_null_tags_and_null_costs_of_a_parquet_file_are_nothing(tmp_path: Path) -> None:
    write_file(bill_with(100, 200).rows, tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    kind = table.schema.field("resource_tags").type
    table = table.set_column(
        table.schema.get_field_index("resource_tags"), "resource_tags", pa.array([None, [("user_x", None)]], kind)
    )
    at = table.schema.get_field_index("line_item_net_unblended_cost")
    table = table.set_column(at, "line_item_net_unblended_cost", pa.array([None, 1.5]))
    parquet.write_table(table, tmp_path / "a.parquet")
    found = read(tmp_path)
    (rate,) = found.rates

    assert found.totals[OTHERS].usd == Decimal(3)
    assert rate.effective_usd == Decimal("2.5")


def test_a_job_is_covered_by_all_months_of_its_time_up_to_the_last_hour() -> None:
    coverage = Coverage()
    job = datetime(2026, 10, 31, 23, tzinfo=UTC), datetime(2026, 11, 1, 1, 30, tzinfo=UTC)
    november = datetime(2026, 11, 1, tzinfo=UTC)
    coverage.add(november, datetime(2026, 12, 1, tzinfo=UTC))

    assert "no lines of an hour or a day" in coverage.lacks(*job)

    coverage.add(november, datetime(2026, 11, 1, 1, tzinfo=UTC))

    assert coverage.lacks(*job) == "the bill has no lines of 2026-10"

    coverage.add(job[0], november)

    assert coverage.lacks(*job) == "the bill ends at 2026-11-01 01:00 UTC and the job at 2026-11-01 01:30"

    coverage.add(job[1].replace(minute=0), datetime(2026, 11, 1, 2, tzinfo=UTC))

    assert coverage.lacks(*job) == ""
