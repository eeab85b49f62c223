"""Bills of made-up jobs, matched to the last digit: the oracle counts integers when it makes a line."""

from decimal import Decimal, localcontext
from pathlib import Path

import pytest

from paretune.billing.reading import EXACT, BillFiles
from paretune.billing.reconciliation import APART, OTHERS, RECORDED, UNKNOWN, Reconciliation, reconcile
from tests.stand_ins.bill import UNIT, Bill, BillMaker, Truth, write

CENT = Decimal("0.01")


def usd(units: int) -> Decimal:
    return Decimal(units) / UNIT


def reconciled(bill: Bill, folder: Path, seed: int = 0) -> tuple[Reconciliation, int]:
    repeated = write(bill, folder, seed)
    return reconcile(BillFiles(folder), bill.recorded), repeated


def require_truth(bill: Bill, found: Reconciliation, repeated: int) -> None:
    """Every run to the last digit, every difference explained, every line in one place."""
    by_run = {one.run_id: one for one in found.bills}
    with localcontext(EXACT):
        for run_id, truth in bill.truths.items():
            if run_id in bill.silent:
                assert run_id not in by_run
                continue
            one = by_run[run_id]
            require_one(truth, [one.billed_usd], [one.effective_usd], sum(one.apart_usd.values(), Decimal(0)))
            assert sum((item.usd for item in one.residue), Decimal(0)) == usd(truth.unexplained)
            assert one.parts["storage"] == usd(truth.parts["storage"])
            assert one.parts["discount"] == usd(truth.parts["discount"])
            assert abs(one.parts["pool"] - usd(truth.parts["pool"])) < Decimal("1e-9")
            assert abs(one.parts["rounding"]) < Decimal("1e-4")
            assert one.is_complete == (run_id not in bill.unfinished)
        for ids, truth in bill.group_truths.items():
            members = [by_run[run_id] for run_id in ids]
            apart = sum((usd for one in members for usd in one.apart_usd.values()), Decimal(0))
            require_one(truth, [one.billed_usd for one in members], [one.effective_usd for one in members], apart)
            weights = [one.recorded.seconds for one in members]
            for one, weight in zip(members, weights, strict=True):
                assert abs(one.billed_usd - usd(truth.billed) * weight / sum(weights)) < Decimal("1e-9")
        for one in found.bills:
            assert one.difference_usd is not None
            residue = sum((item.usd for item in one.residue), Decimal(0))
            assert sum(one.parts.values(), residue) == one.difference_usd
        assert sum((one.usd for one in found.totals.values()), Decimal(0)) == usd(bill.total)
        assert found.totals[OTHERS].usd == usd(bill.others)
        assert {one.name: one.lines.usd for one in found.unknown} == {n: usd(u) for n, u in bill.unknown.items()}
        assert found.totals[UNKNOWN].usd == usd(sum(bill.unknown.values()))
        assert found.totals[RECORDED].usd == sum((one.billed_usd for one in found.bills), Decimal(0))
    assert sum(one.lines for one in found.totals.values()) == len(bill.rows)
    assert (found.repeated, found.changed) == (repeated, 0)
    assert {one.run_id for one in found.without_lines} == bill.silent - bill.unfinished


def require_one(truth: Truth, billed: list[Decimal], effective: list[Decimal], apart: Decimal) -> None:
    assert sum(billed, Decimal(0)) == usd(truth.billed)
    assert sum(effective, Decimal(0)) == usd(truth.effective)
    assert apart == usd(truth.apart)


@pytest.mark.parametrize(("seed", "net"), [(1, True), (2, False), (3, True)])
def test_every_job_is_matched_to_the_cent_and_every_dollar_is_in_one_place(
    seed: int, net: bool, tmp_path: Path
) -> None:
    bill = BillMaker(seed, net=net).add_jobs(150).add_unknown(3).add_others(400).bill
    found, repeated = reconciled(bill, tmp_path, seed)

    require_truth(bill, found, repeated)
    assert found.totals[APART].lines
    assert repeated
    assert bill.silent | bill.unfinished


@pytest.mark.slow
def test_the_bill_of_five_thousand_jobs_is_matched_to_the_cent(tmp_path: Path) -> None:
    bill = BillMaker(7).add_jobs(5000).add_unknown(20).add_others(20_000).bill
    found, repeated = reconciled(bill, tmp_path)

    require_truth(bill, found, repeated)
