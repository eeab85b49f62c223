"""Bills of made-up jobs, matched to the last digit: the oracle counts integers when it makes a line."""

from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from paretune.commands.bill.reading import EXACT, BillFiles
from paretune.commands.bill.reconciliation import APART, OTHERS, RECORDED, UNKNOWN, Reconciliation, reconcile
from paretune.commands.bill.recorded_costs import RecordedCost
from tests.stand_ins.bill import ARN, MONTH, UNIT, Bill, BillMaker, write, write_file

CENT = Decimal("0.01")


def usd(units: int) -> Decimal:
    return Decimal(units) / UNIT


def reconciled(bill: Bill, folder: Path, seed: int = 0) -> tuple[Reconciliation, int]:
    repeated = write(bill, folder, seed)
    return reconcile(BillFiles(folder), bill.recorded), repeated


def require_truth(bill: Bill, reconciliation: Reconciliation, repeated: int) -> None:
    """Every run to the last digit, every difference explained, every line in one place."""
    by_run = {item_.run_id: item_ for item_ in reconciliation.bills}
    with localcontext(EXACT):
        for run_id, truth in bill.truths.items():
            if run_id in bill.silent:
                assert run_id not in by_run
                continue
            one = by_run[run_id]
            assert one.billed_usd == usd(truth.billed)
            assert one.effective_usd == usd(truth.effective)
            assert sum(one.apart_usd.values(), Decimal(0)) == usd(truth.apart)
            assert sum((item.usd for item in one.residue), Decimal(0)) == usd(truth.unexplained)
            assert one.parts["storage"] == usd(truth.parts["storage"])
            assert one.parts["discount"] == usd(truth.parts["discount"])
            assert abs(one.parts["pool"] - usd(truth.parts["pool"])) < Decimal("1e-9")
            assert abs(one.parts["rounding"]) < Decimal("1e-4")
            assert one.is_complete == (run_id not in bill.unfinished)
        for one in reconciliation.bills:
            assert one.difference_usd is not None
            residue = sum((item.usd for item in one.residue), Decimal(0))
            assert sum(one.parts.values(), residue) == one.difference_usd
        assert sum((first.usd for first in reconciliation.totals.values()), Decimal(0)) == usd(bill.total)
        assert reconciliation.totals[OTHERS].usd == usd(bill.others)
        assert {entry.name: entry.lines.usd for entry in reconciliation.unknown} == {
            n: usd(u) for n, u in bill.unknown.items()
        }
        assert reconciliation.totals[UNKNOWN].usd == usd(sum(bill.unknown.values()))
        assert reconciliation.totals[RECORDED].usd == sum((one.billed_usd for one in reconciliation.bills), Decimal(0))
    assert sum(single.lines for single in reconciliation.totals.values()) == len(bill.rows)
    assert reconciliation.repeated == repeated
    assert {without_line.run_id for without_line in reconciliation.without_lines} == bill.silent - bill.unfinished


@pytest.mark.parametrize(("seed", "net"), [(1, True), (2, False), (3, True)])
def test_every_job_is_matched_to_the_cent_and_every_dollar_is_in_one_place(
    seed: int, net: bool, tmp_path: Path
) -> None:
    bill = BillMaker(seed, net=net).add_jobs(150).add_unknown(3).add_others(400).bill
    result, repeated = reconciled(bill, tmp_path, seed)

    require_truth(bill, result, repeated)
    assert result.totals[APART].lines
    assert repeated
    assert bill.silent | bill.unfinished


def one_job(started: datetime, hours: int, billed: int, tail: datetime) -> Reconciliation:
    """A job of so many hours, so many of which are on a bill that goes on with other services until `tail`."""
    bill = Bill(net=False)
    for hour in range(billed):
        report = {"line_item_resource_id": f"{ARN}paretune-a-1", "line_item_usage_amount": UNIT}
        bill.row("Usage", "USE1-Train:ml.g5.xlarge", 2 * UNIT, MONTH + timedelta(hours=hour), **report)
    bill.row("Usage", "BoxUsage", UNIT, tail, line_item_product_code="AmazonEC2")
    ran = {"run_id": "a", "job_name": "paretune-a-1", "cost_usd": Decimal(2 * hours), "seconds": Decimal(3600 * hours)}
    price = {"price_usd_per_hour": Decimal(2), "pool_seconds": Decimal(0), "instance_count": 1}
    times = {"started": started, "ended_at": MONTH + timedelta(hours=hours, minutes=1)}
    with TemporaryDirectory() as folder:
        write_file(bill.rows, Path(folder) / "a.csv", net=False)
        return reconcile(BillFiles(Path(folder)), [RecordedCost(**{**ran, **price, **times})])


def test_a_bill_that_lacks_recorded_hours_of_a_job_is_not_complete_however_late_it_is() -> None:
    early = one_job(MONTH, 3, 1, MONTH + timedelta(hours=4))
    late = one_job(MONTH, 3, 1, MONTH + timedelta(days=20))

    assert early.bills[0].missing.startswith("the bill has SageMaker's hours up to 2026-11-01 01:00 UTC")
    assert late.bills[0].missing == "the bill has 1.00 of 3.00 recorded instance hours"
    assert one_job(MONTH, 3, 3, MONTH + timedelta(days=20)).bills[0].missing == ""
    assert "99.00 of 100.00" in one_job(MONTH, 100, 99, MONTH + timedelta(days=20)).bills[0].missing


def test_a_run_created_before_the_month_of_all_of_its_hours_does_not_wait_for_the_month_before() -> None:
    before = MONTH - timedelta(seconds=10)

    assert one_job(before, 1, 1, MONTH + timedelta(days=20)).bills[0].is_complete
    assert "reconcile a folder with all months" in one_job(before, 2, 1, MONTH + timedelta(days=20)).bills[0].missing


@pytest.mark.slow
def test_the_bill_of_five_thousand_jobs_is_matched_to_the_cent(tmp_path: Path) -> None:
    bill = BillMaker(7).add_jobs(5000).add_unknown(20).add_others(20_000).bill
    result, repeated = reconciled(bill, tmp_path)

    require_truth(bill, result, repeated)
