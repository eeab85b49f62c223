"""A bill against what was recorded: every line once, every dollar in one place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, localcontext

from paretune.commands.bill.accounts import OF_A_QUEUE, Accounts, RecordedCost, shares
from paretune.commands.bill.coverage import Coverage
from paretune.commands.bill.difference import Account, RunBill
from paretune.commands.bill.lines import BILLED, EXACT, Line
from paretune.commands.bill.rates import EffectiveRate, RateSums
from paretune.commands.bill.reading import BillFiles, Sum
from paretune.launchers.base import job_name, run_of

RECORDED, APART, UNKNOWN, OTHERS = "recorded jobs", "tax, credits and plans", "unknown jobs of paretune", "others"
"""Where a line's dollars are: in `billed_usd` of a run, beside it, on a job that no run here knows, or elsewhere."""
_CLOSING = timedelta(minutes=10)
"""Time from the last billed second of a job to the end of its run, at most; the bill need not cover it."""
_SHORT = Decimal("0.02")
"""Share of the recorded hours that a bill may lack, but one minute of each instance at least and five at most: AWS and
the record may differ by the seconds of an ending job, and an hour that has not been delivered yet is more."""
_NAME_THEM = "name savings_plan_savings_plan_effective_cost and reservation_effective_cost in the query of the export"


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
        unrated: instance types and regions without a rate, for the bill does not tell what is paid for all hours.
        repeated: lines that came again and were not counted.
        left_out: deliveries that a later one replaces.
        without_tags: files without a column of tags, whose lines belong to jobs by their ARNs alone.
    """

    bills: Sequence[RunBill]
    without_lines: Sequence[RecordedCost]
    not_covered: int
    unknown: Sequence[UnknownJob]
    totals: Mapping[str, Sum]
    rates: Sequence[EffectiveRate]
    unrated: Sequence[str]
    coverage: Coverage
    repeated: int
    left_out: Sequence[str]
    without_tags: Sequence[str]
    files: int


def reconcile(bill: BillFiles, recorded: Sequence[RecordedCost]) -> Reconciliation:
    """Read a bill and match its lines with the runs.

    Raises:
        BadInput: a file of the bill cannot be read, or has a month of an account twice.
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
        bills = [_closed(accounts[one.run_id], bill.coverage) for one in recorded if one.run_id in accounts]
        rest = [one for one in recorded if one.run_id not in accounts]
        missing = [one for one in rest if one.seconds and not _lacks(one, bill.coverage)]
        return Reconciliation(
            bills=bills,
            without_lines=missing,
            not_covered=len(rest) - len(missing),
            unknown=[UnknownJob(name=name, lines=found) for name, found in sorted(unknown.items())],
            totals=totals,
            rates=rates.rates("" if until is None else f"{until:%Y-%m-%d}"),
            unrated=[f"{kind} in {region}" for kind, region in sorted(rates.unknown)],
            coverage=bill.coverage,
            repeated=bill.repeated,
            left_out=bill.left_out,
            without_tags=bill.without_tags,
            files=len(bill.files),
        )


def _looks_like_ours(line: Line) -> str:
    """The job or tagged run that a line without a recorded run names; empty for other people's lines."""
    if run_of(line.job_name) is not None or line.job_name.startswith(OF_A_QUEUE):
        return line.job_name
    if not line.run_tag:
        return ""
    return line.job_name or job_name(line.run_tag, 1)


def _closed(account: Account, coverage: Coverage) -> RunBill:
    """The bill of a run, and what it lacks."""
    one, hours = account.recorded, account.hours
    expected = one.instance_hours
    short = expected - hours
    has_all = expected > 0 and short <= Decimal(one.instance_count) / 3600
    lacks = _lacks(one, coverage, has_all_hours=has_all)
    minute = Decimal(one.instance_count) / 60
    if not lacks and short > max(minute, min(5 * minute, expected * _SHORT)):
        lacks = f"the bill has {hours:.2f} of {expected:.2f} recorded instance hours"
    if not lacks and account.effective_usd is None:
        lacks = f"the bill does not tell what is paid in effect for hours of a plan or reservation: {_NAME_THEM}"
    return account.closed(lacks)


def _lacks(one: RecordedCost, coverage: Coverage, *, has_all_hours: bool = False) -> str:
    """Why the bill does not tell all of a run yet; with all hours, months before its end tell nothing of it."""
    if one.ended is None:
        return "the job, or its warm pool, has not ended"
    if not has_all_hours:
        return coverage.lacks(one.started, one.ended)
    spare = timedelta(0) if one.pool_seconds else _CLOSING
    return coverage.lacks(one.ended - spare, one.ended, spare)
