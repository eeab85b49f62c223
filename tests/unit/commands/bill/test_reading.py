"""Files of a bill: what is refused, what counts once, what the bill covers."""

import csv
import gzip
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from paretune.commands.bill.reading import BillFiles
from paretune.commands.bill.reconciliation import OTHERS, Reconciliation, reconcile
from paretune.commands.bill.recorded_costs import RecordedCost
from paretune.core.errors import BadInput
from tests.stand_ins.bill import ARN, MONTH, UNIT, Bill, BillMaker, write_file

OPTIONAL = (
    *("line_item_net_unblended_cost", "pricing_public_on_demand_cost", "pricing_public_on_demand_rate"),
    *("savings_plan_savings_plan_effective_cost", "reservation_effective_cost", "line_item_unblended_rate"),
    *("line_item_currency_code", "pricing_unit", "resource_tags", "bill_bill_type"),
)


def bill_with(*costs: int, **more: Any) -> Bill:
    """Lines of one training of somebody else's, with these costs in cents."""
    bill = Bill(net=True)
    location = "arn:aws:sagemaker:us-east-1:1:training-job/other"
    for cost in costs:
        report = {"line_item_resource_id": location, "line_item_usage_amount": UNIT, **more}
        bill.row("Usage", "USE1-Train:ml.g5.xlarge", cost * UNIT // 100, MONTH, **report)
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
    first, other = (reconcile(BillFiles(path), bill.recorded) for path in (whole, bare))
    in_all = {entry.run_id: entry.billed_usd for entry in first.bills}
    by_tag = {row["identity_line_item_id"] for row in bill.rows if not row["line_item_resource_id"]}

    assert sum(total.usd for total in first.totals.values()) == sum(total.usd for total in other.totals.values())
    assert other.totals[OTHERS].lines == len(by_tag)
    assert sum(item.billed_usd == in_all[item.run_id] for item in other.bills) > len(other.bills) // 2


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("a.parquet", b"PAR1 but not", "cannot be read as a bill"),
        ("a.csv", b"", "cannot be read as a bill"),
        ("a.csv", b"identity\xed,b\n1,2\n", "cannot be read as a bill"),
        ("a.csv.gz", b"not gzip", "cannot be read as a bill"),
        ("a.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-12], "a.csv.gz"),
        ("a.csv", b"identity/LineItemId,lineItem/UsageType\n1,2\n", "is a legacy Cost and Usage Report"),
        ("a.csv", b"identity_lineitemid,line_item_usagetype\n1,2\n", "is a legacy Cost and Usage Report"),
        ("a.csv", b"BilledCost,ChargePeriodStart,x_UsageType\n1,2,3\n", "is a FOCUS 1.0 export"),
        ("a.csv", b"BilledCost,CapacityReservationId,SkuMeter\n1,2,3\n", "is a FOCUS 1.1 export"),
        ("a.csv", b"BilledCost,BillingAccountType,SkuMeter\n1,2,3\n", "is a FOCUS 1.2 export"),
        ("a.csv", b"InvoiceID,PayerAccountId,RecordType,UnBlendedCost\n1,2,3,4\n", "is a detailed billing report"),
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
        ("line_item_unblended_cost", "1_000", "line_item_unblended_cost must be a number, got '1_000'"),
        ("line_item_unblended_cost", "1e400", "line_item_unblended_cost must be a number, got '1e400'"),
        ("line_item_unblended_cost", "1e-99999999", "line_item_unblended_cost must be a number, got '1e-99999999'"),
        ("line_item_unblended_cost", "1" + "0" * 30, "line_item_unblended_cost must be a number, got '1000"),
        ("line_item_unblended_cost", "9" * 5_000, f"must be a number, got '{'9' * 60}...'"),
        ("line_item_currency_code", "CNY", "line_item_currency_code must be USD, got CNY"),
        ("line_item_usage_end_date", "soon", "line_item_usage_end_date must be times such as 2026-11-01T10:00:00Z"),
        ("line_item_usage_end_date", "1969-12-31T23:00:00Z", "some are not between 1970 and 9999"),
        ("line_item_usage_end_date", "0001-01-01T00:00:00+99:99", "some are not between 1970 and 9999"),
        ("line_item_usage_start_date", "9999-12-31T23:00:00-01:00", "some are not between 1970 and 9999"),
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
    content = read(tmp_path)

    assert content.totals[OTHERS].usd == Decimal("2.07")
    assert content.left_out == ["data/BILLING_PERIOD=2026-11/2026-11-19T06:00:00Z-z9"]


def test_a_line_that_comes_again_counts_once_and_another_cost_is_refused(tmp_path: Path) -> None:
    write_file(bill_with(100, 200).rows, tmp_path / "a.csv")
    write_file(bill_with(100, 200).rows, tmp_path / "b.parquet")
    content = read(tmp_path)
    write_file(bill_with(100, 250).rows, tmp_path / "b.parquet")

    assert content.totals[OTHERS].usd == Decimal(3)
    assert content.repeated == 2
    assert "1 lines of b.parquet have come before with other costs: give one delivery" in faults_of(tmp_path)[0]


def test_costs_of_any_number_of_digits_are_added_exactly(tmp_path: Path) -> None:
    write_file(bill_with(1, line_item_product_code="AmazonEC2").rows, tmp_path / "a.csv")
    long = "0." + "1" * 45
    replace_cell(tmp_path / "a.csv", "line_item_unblended_cost", long)

    assert read(tmp_path).totals[OTHERS].usd == Decimal(long)


def test_the_rate_of_hours_that_cost_more_than_all_money_is_a_number(tmp_path: Path) -> None:
    write_file(bill_with(1, line_item_usage_amount=UNIT // 10**9).rows, tmp_path / "a.csv")
    replace_cell(tmp_path / "a.csv", "line_item_net_unblended_cost", "9" * 20)
    (rate,) = read(tmp_path).rates

    assert rate.usd_per_hour == Decimal("9" * 20) * 10**9


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
    content = read(tmp_path)
    (rate,) = content.rates

    assert content.totals[OTHERS].usd == Decimal(3)
    assert rate.effective_usd == Decimal("2.5")


def test_a_time_is_in_utc_unless_it_names_another_zone(tmp_path: Path) -> None:
    write_file(bill_with(1).rows, tmp_path / "a.csv")
    replace_cell(tmp_path / "a.csv", "line_item_usage_start_date", "2026-10-31T20:00:00-04:00")
    replace_cell(tmp_path / "a.csv", "line_item_usage_end_date", "2026-11-01 01:00:00.000 UTC")

    assert read(tmp_path).coverage.until == MONTH + timedelta(hours=1)

    replace_cell(tmp_path / "a.csv", "line_item_usage_end_date", "2026-11-01T01:00:00 PST")

    assert "must be times such as 2026-11-01T10:00:00Z: ' PST' is no time zone" in faults_of(tmp_path)[0]


def test_a_bill_without_lines_or_with_a_column_named_twice_is_refused(tmp_path: Path) -> None:
    write_file(bill_with(1).rows, tmp_path / "a.csv")
    head, row = (tmp_path / "a.csv").read_text().splitlines()
    (tmp_path / "a.csv").write_text(f"{head}\n")

    assert "the bill has no lines" in faults_of(tmp_path)[0]

    (tmp_path / "a.csv").write_text(f"{head},line_item_unblended_cost\n{row},9\n")

    assert "column line_item_unblended_cost is there 2 times" in faults_of(tmp_path)[0]


def test_the_same_cost_as_decimal_and_as_text_is_no_other_cost(tmp_path: Path) -> None:
    write_file(bill_with(29, *range(300)).rows, tmp_path / "a.csv")
    write_file(bill_with(29, *range(300)).rows, tmp_path / "b.parquet")
    table = parquet.read_table(tmp_path / "b.parquet")
    at = table.schema.get_field_index("line_item_unblended_cost")
    cents = pa.array([Decimal(cost) / 100 for cost in (29, *range(300))], pa.decimal128(38, 12))
    parquet.write_table(table.set_column(at, "line_item_unblended_cost", cents), tmp_path / "b.parquet")

    assert read(tmp_path).repeated == 301


def test_lines_with_one_id_are_two_where_they_charge_for_different_things(tmp_path: Path) -> None:
    bill = bill_with(100)
    for number, more in enumerate(({}, {"line_item_resource_id": "x"}, {"line_item_usage_type": "USE1-Train:Fee"})):
        item = bill.rows[0] | {"identity_line_item_id": "same"} | more
        write_file([item], tmp_path / f"e-0000{number}.csv")

    assert read(tmp_path).totals[OTHERS].usd == Decimal(3)


def test_a_line_without_an_id_is_refused(tmp_path: Path) -> None:
    write_file(bill_with(1, identity_line_item_id="").rows, tmp_path / "a.parquet")

    assert "identity_line_item_id must not be empty" in faults_of(tmp_path)[0]


def test_a_time_of_a_parquet_file_that_no_calendar_has_is_named(tmp_path: Path) -> None:
    write_file(bill_with(1).rows, tmp_path / "a.parquet", leave_out=["line_item_usage_end_date"])
    table = parquet.read_table(tmp_path / "a.parquet")
    late = pa.array([2**62], pa.timestamp("us"))
    parquet.write_table(table.append_column("line_item_usage_end_date", late), tmp_path / "a.parquet")

    assert "line_item_usage_end_date must be times such as" in faults_of(tmp_path)[0]


def tagged(kind: pa.DataType | None, tags: object) -> Any:
    return pa.array([tags], kind)


PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))


@pytest.mark.parametrize(
    ("column", "kind", "tags"),
    [
        ("tags", pa.map_(pa.string(), pa.string()), [("resourceTags/user:paretune:run", "a"), ("user_x", "y")]),
        ("tags", None, '{"resourceTags/user:paretune:run": "a"}'),
        ("resource_tags", PAIRS, [{"key": "x", "value": "y"}, {"key": "user_paretune_run", "value": "a"}]),
        ("resource_tags_user_paretune_run", None, "a"),
        ("tags.user_paretune:run", None, "a"),
    ],
)
def test_the_tag_of_a_run_is_read_from_any_column_that_bills_have_it_in(
    column: str, kind: pa.DataType | None, tags: object, tmp_path: Path
) -> None:
    write_file(bill_with(1, line_item_resource_id="").rows, tmp_path / "a.parquet", leave_out=["resource_tags"])
    table = parquet.read_table(tmp_path / "a.parquet")
    parquet.write_table(table.append_column(column, tagged(kind, tags)), tmp_path / "a.parquet")
    content = read(tmp_path)

    assert [item.name for item in content.unknown] == ["paretune-a-1"]
    assert content.without_tags == []


@pytest.mark.parametrize(
    ("kind", "tags"),
    [
        (None, '{"user_paretune_run": ' + "[" * 100_000),
        (None, '{"user_paretune_run": ["a"]}'),
        (None, '{"user_paretune_run": 1}'),
        (None, '["user_paretune_run", "a"]'),
        (None, "user_paretune_run=a"),
        (pa.map_(pa.int64(), pa.int64()), [(1, 2)]),
    ],
    ids=["nested", "list", "number", "no object", "no JSON", "numbers"],
)
def test_what_cannot_be_the_tag_of_a_run_is_none(kind: pa.DataType | None, tags: object, tmp_path: Path) -> None:
    write_file(bill_with(1, line_item_resource_id="").rows, tmp_path / "a.parquet", leave_out=["resource_tags"])
    table = parquet.read_table(tmp_path / "a.parquet")
    parquet.write_table(table.append_column("resource_tags", tagged(kind, tags)), tmp_path / "a.parquet")

    assert read(tmp_path).unknown == []


def test_a_bill_without_a_column_of_tags_says_so(tmp_path: Path) -> None:
    write_file(bill_with(1).rows, tmp_path / "a.parquet", leave_out=["resource_tags"])

    assert read(tmp_path).without_tags == ["a.parquet"]


PLAN = "savings_plan_savings_plan_effective_cost"


def run_of_a_plan(folder: Path, **more: Any) -> Reconciliation:
    """One hour of 2 USD that a Savings Plan covers."""
    bill = bill_with()
    report = {"line_item_resource_id": f"{ARN}paretune-a-1", "line_item_usage_amount": UNIT}
    bill.row("SavingsPlanCoveredUsage", "USE1-Train:ml.g5.xlarge", 2 * UNIT, MONTH, **report | more)
    bill.row("Usage", "BoxUsage", UNIT, MONTH + timedelta(days=9))
    write_file(bill.rows, folder / "a.csv")
    ran = {"run_id": "a", "job_name": "paretune-a-1", "cost_usd": Decimal(2), "seconds": Decimal(3600)}
    price = {"price_usd_per_hour": Decimal(2), "pool_seconds": Decimal(0), "instance_count": 1}
    times = {"started": MONTH, "ended_at": MONTH + timedelta(hours=1)}
    return reconcile(BillFiles(folder), [RecordedCost(**{**ran, **price, **times})])


def test_what_is_paid_for_covered_hours_is_unknown_where_no_column_tells_it(tmp_path: Path) -> None:
    result = run_of_a_plan(tmp_path)
    (bill,) = result.bills

    assert (bill.billed_usd, bill.effective_usd) == (2, None)
    assert bill.missing.startswith("the bill lacks the effective cost of hours of a plan or reservation: name")
    assert (result.rates, result.unrated) == ((), ["ml.g5.xlarge in us-east-1"])


def test_a_net_share_of_a_plan_of_zero_is_none(tmp_path: Path) -> None:
    report = {PLAN: UNIT, "savings_plan_net_savings_plan_effective_cost": 0}
    result = run_of_a_plan(tmp_path, **report)

    assert [(bill.effective_usd, bill.missing) for bill in result.bills] == [(1, "")]


@pytest.mark.parametrize("empty", [None, 0])
@pytest.mark.parametrize("kind", ["EdpDiscount", "BundledDiscount", "DistributorDiscount"])
def test_lines_of_discounts_count_where_the_column_of_net_costs_tells_none(
    empty: int | None, kind: str, tmp_path: Path
) -> None:
    bill = bill_with(200, line_item_net_unblended_cost=empty)
    less = bill.rows[0] | {"line_item_line_item_type": kind, "line_item_unblended_cost": -UNIT // 2}
    less |= {"identity_line_item_id": "less", "line_item_usage_amount": 0}
    write_file([*bill.rows, less], tmp_path / "a.csv")
    (rate,) = read(tmp_path).rates

    assert rate.effective_usd == Decimal("1.5")
