"""A bill against what was recorded: every line once, every dollar in one place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import localcontext

from paretune.billing.accounts import Accounts, RecordedCost, shares
from paretune.billing.difference import Account, RunBill
from paretune.billing.lines import BILLED, Line
from paretune.billing.rates import EffectiveRate, RateSums
from paretune.billing.reading import EXACT, BillFiles, Coverage, Sum
from paretune.launchers.base import NAMED, NAMED_BY_QUEUE, job_name, run_of

RECORDED, APART, UNKNOWN, OTHERS = "recorded jobs", "tax, credits and plans", "unknown jobs of paretune", "others"
"""Where a line's dollars are: in `billed_usd` of a run, beside it, on a job that no run here knows, or elsewhere."""
_OF_A_QUEUE = f"{NAMED_BY_QUEUE}{NAMED}".lower()


@dataclass(frozen=True, kw_only=True)
class UnknownJob:
    """A job that looks like one of paretune's, and that no run here tells of."""

    name: str
    lines: Sum


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """What a bill says of the recorded runs.

    Attributes:
        bills: of the runs that the bill has lines of, in the order of the runs.
        without_lines: runs that should be on the bill, for it covers all of their time, and are not.
        not_covered: how many runs the bill does not tell of, and need not.
        totals: RECORDED, APART, UNKNOWN and OTHERS to their lines; together they are the bill.
        repeated: lines that came again and were not counted; `changed` of them with another cost.
        left_out: deliveries that a later one replaces.
    """

    bills: Sequence[RunBill]
    without_lines: Sequence[RecordedCost]
    not_covered: int
    unknown: Sequence[UnknownJob]
    totals: Mapping[str, Sum]
    rates: Sequence[EffectiveRate]
    coverage: Coverage
    repeated: int
    changed: int
    left_out: Sequence[str]
    files: int


def reconcile(bill: BillFiles, recorded: Sequence[RecordedCost]) -> Reconciliation:
    """Read a bill and match its lines with the runs.

    Raises:
        BadInput: a file of the bill cannot be read.
    """
    known, accounts, rates = Accounts(recorded), dict[str, Account](), RateSums()
    unknown: dict[str, Sum] = {}
    totals = {name: Sum() for name in (RECORDED, APART, UNKNOWN)} | {OTHERS: bill.others}
    with localcontext(EXACT):
        for line in bill.lines():
            rates.add(line)
            runs = known.runs_of(line)
            if not runs:
                name = _looks_like_ours(line)
                totals[UNKNOWN if name else OTHERS].add(line.unblended_usd)
                if name:
                    unknown.setdefault(name, Sum()).add(line.unblended_usd)
                continue
            totals[RECORDED if line.kind in BILLED else APART].add(line.unblended_usd)
            for one, share in zip(runs, shares(line, runs), strict=True):
                accounts.setdefault(one.run_id, Account(one)).add(share)
        until = bill.coverage.until
        bills = [accounts[one.run_id].closed(_lacks(one, bill.coverage)) for one in recorded if one.run_id in accounts]
        rest = [one for one in recorded if one.run_id not in accounts]
        missing = [one for one in rest if one.seconds and not _lacks(one, bill.coverage)]
        return Reconciliation(
            bills=bills,
            without_lines=missing,
            not_covered=len(rest) - len(missing),
            unknown=[UnknownJob(name=name, lines=found) for name, found in sorted(unknown.items())],
            totals=totals,
            rates=rates.rates("" if until is None else f"{until:%Y-%m-%d}"),
            coverage=bill.coverage,
            repeated=bill.repeated,
            changed=bill.changed,
            left_out=bill.left_out,
            files=len(bill.files),
        )


def _looks_like_ours(line: Line) -> str:
    """The job or tagged run that a line without a recorded run names; empty for other people's lines."""
    if run_of(line.job_name) is not None or line.job_name.startswith(_OF_A_QUEUE):
        return line.job_name
    return job_name(line.run_tag, 1) if line.run_tag else ""


def _lacks(one: RecordedCost, coverage: Coverage) -> str:
    if one.ended is None:
        return "the job, or its warm pool, has not ended"
    return coverage.lacks(one.started, one.ended)
