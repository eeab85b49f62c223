"""Which delivery of a month counts, and when that is not known."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from paretune.commands.bill import deliveries
from paretune.commands.bill.deliveries import bill_files
from paretune.commands.bill.reading import BillFiles
from paretune.commands.bill.reconciliation import Reconciliation, reconcile
from paretune.commands.bill.recorded_costs import RecordedCost
from paretune.core.errors import BadInput
from tests.stand_ins.bill import ARN, MONTH, UNIT, Bill, write_file

MONTHS = "data/BILLING_PERIOD=2026-11"


def lines(*ids: str, **more: Any) -> Sequence[Mapping[str, Any]]:
    """Lines of 1 USD with these ids, one an hour."""
    bill = Bill(net=False)
    for hour, name in enumerate(ids):
        report = {"identity_line_item_id": name, "line_item_resource_id": f"{ARN}other", "line_item_usage_amount": UNIT}
        bill.row("Usage", "USE1-Train:ml.g5.xlarge", UNIT, MONTH + timedelta(hours=hour), **report | more)
    return bill.rows


def put(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(rows, path, net=False)


def read(folder: Path, address: str = "") -> Reconciliation:
    return reconcile(BillFiles(folder, address), [])


def a_run() -> RecordedCost:
    """Two hours at 1 USD."""
    return RecordedCost(
        run_id="a",
        job_name="paretune-a-1",
        cost_usd=Decimal(2),
        seconds=Decimal(7200),
        pool_seconds=Decimal(0),
        instance_count=1,
        price_usd_per_hour=Decimal(1),
        started=MONTH,
        ended_at=MONTH + timedelta(hours=2),
    )


def dollars(reconciliation: Reconciliation) -> Decimal:
    return sum((total.usd for total in reconciliation.totals.values()), Decimal(0))


def fault(folder: Path) -> str:
    with pytest.raises(BadInput) as refused:
        read(folder)
    return refused.value.faults[0]


@pytest.mark.parametrize(
    ("item", "other"),
    [
        ("nov-20.csv", "nov-21.csv"),  # snapshots
        ("hourly.csv", "daily.parquet"),
        (f"a/{MONTHS}/a-00001.csv.gz", f"b/{MONTHS}/b-00001.csv.gz"),  # two exports
        (f"{MONTHS}/a-00001.parquet", f"{MONTHS}/a-00001.csv.gz"),  # its format was changed
        (f"{MONTHS}/a-00001.csv", f"{MONTHS}/2026-11-20T06:00:00Z-b1/a-00001.csv"),  # its delivery was changed
    ],
)
def test_a_month_of_an_account_in_two_deliveries_is_refused(item: str, other: str, tmp_path: Path) -> None:
    put(lines("a", "b"), tmp_path / item)
    put(lines("c", "d"), tmp_path / other)
    message = fault(tmp_path)

    assert message.startswith("the bill has 2026-11 twice, in ")
    assert "give a bill with one delivery of each month" in message


def test_an_account_that_a_bill_does_not_name_may_be_any(tmp_path: Path) -> None:
    put(lines("a"), tmp_path / "one.csv")
    put(lines("b", line_item_usage_account_id="1"), tmp_path / "other.csv")

    assert "the bill has 2026-11 twice" in fault(tmp_path)


def test_parts_of_a_delivery_and_exports_of_different_accounts_are_one_bill(tmp_path: Path) -> None:
    for number, account in enumerate("12"):
        report = {"bill_payer_account_id": "9", "line_item_usage_account_id": account}
        for part in (1, 2):
            put(lines(f"{account}{part}", **report), tmp_path / account / MONTHS / f"e-0000{part}.csv")
        put(lines(f"{number}"), tmp_path / account / f"data/BILLING_PERIOD=2026-0{number + 1}" / "e-00001.csv")

    assert dollars(read(tmp_path)) == 6


@pytest.mark.parametrize("address", ["", "s3://bills/e/data/BILLING_PERIOD=2026-11/"])
def test_of_the_folder_of_a_month_itself_the_newest_delivery_counts(address: str, tmp_path: Path) -> None:
    root = tmp_path / "fetched" if address else tmp_path / MONTHS
    put(lines("a", "b"), root / "2026-11-20T06:00:00.000Z-0a1b" / "e-00001.parquet")
    put(lines("c", "d", "e"), root / "2026-11-21T06:00:00.000Z-9f" / "e-00001.csv.gz")
    content = read(root, address)

    assert dollars(content) == 3
    assert content.left_out == ["2026-11-20T06:00:00.000Z-0a1b"]


def test_the_newest_delivery_counts_where_lines_have_kept_their_ids(tmp_path: Path) -> None:
    put(lines("a", line_item_unblended_cost=5), tmp_path / MONTHS / "20261120T060000Z-b" / "e-00001.csv")
    put(lines("a"), tmp_path / MONTHS / "20261121T060000Z-a" / "e-00001.csv")

    assert dollars(read(tmp_path / MONTHS)) == dollars(read(tmp_path)) == 1


def test_a_single_file_is_one_delivery(tmp_path: Path) -> None:
    put(lines("a"), tmp_path / MONTHS / "e-00001.csv")
    (file,), left_out = bill_files(tmp_path / MONTHS / "e-00001.csv")

    assert (file.month, left_out) == ("2026-11", [])


def test_a_folder_that_is_none_of_a_bill_is_refused_before_all_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        (tmp_path / f"{number}.csv").write_text("a,b\n")
    with pytest.raises(BadInput) as refused:
        BillFiles(tmp_path)
    assert len(refused.value.faults) < 60

    monkeypatch.setattr(deliveries, "_MOST_FILES", 59)
    with pytest.raises(BadInput, match="holds more than 59 files: name the folder `data`"):
        BillFiles(tmp_path)


@pytest.mark.parametrize("newer_usd", [1, 3])
def test_two_deliveries_under_the_names_of_parts_give_a_lower_bound_beside_the_bill(
    newer_usd: int, tmp_path: Path
) -> None:
    """Two snapshots whose ids differ: AWS keeps no id from one delivery to the next."""
    job = {"line_item_resource_id": f"{ARN}paretune-a-1"}
    put(lines("a", "b", **job), tmp_path / MONTHS / "e-00001.csv.gz")
    put(lines("c", "d", **job, line_item_unblended_cost=newer_usd * UNIT), tmp_path / MONTHS / "e-00002.csv.gz")
    (bill,) = reconcile(BillFiles(tmp_path), [a_run()]).bills

    assert (bill.least_usd, bill.billed_usd) == (2 * newer_usd, 2 + 2 * newer_usd)
    assert bill.missing.startswith(
        "the bill has its lines twice under different ids, in e-00001.csv.gz and e-00002.csv.gz, so it is billed "
        f"{2 * newer_usd}.00 to {2 + 2 * newer_usd}.00 USD"
    )


def test_parts_of_one_delivery_are_no_bounds(tmp_path: Path) -> None:
    job = {"line_item_resource_id": f"{ARN}paretune-a-1"}
    hours = lines("a", "b", **job)
    put(hours[:1], tmp_path / MONTHS / "e-00001.csv.gz")
    put(hours[1:], tmp_path / MONTHS / "e-00002.csv.gz")
    (bill,) = reconcile(BillFiles(tmp_path), [a_run()]).bills

    assert bill.least_usd == bill.billed_usd == 2
    assert bill.is_complete
