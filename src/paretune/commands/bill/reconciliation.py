"""A bill against the recorded costs: every line counts once, every dollar in one place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, localcontext

from paretune.commands.bill.coverage import Coverage
from paretune.commands.bill.difference import RunBill, RunTally
from paretune.commands.bill.discounts import Discounts
from paretune.commands.bill.lines import BILLED, EXACT, Line
from paretune.commands.bill.rates import EffectiveRate, RateSums
from paretune.commands.bill.reading import BillFiles, Sum
from paretune.commands.bill.recorded_costs import RecordedCost, RunsByJob
from paretune.launchers.base import job_name, parse_job_name

RECORDED, APART, UNKNOWN, OTHERS = "recorded jobs", "tax, credits and plans", "unknown jobs of paretune", "others"
"""The place of a line's dollars: `billed_usd` of a run, beside it, a job without a run here, or another line."""
_CLOSING = timedelta(minutes=10)
"""Time from the last billed second of a job to the end of its run, at most; the bill need not cover it."""
_TOLERANCE = Decimal("0.02")
"""Share of the recorded hours that a bill may lack, but at least one and at most five minutes of each instance: AWS and
the record may differ by the seconds of an ending job; an hour that has not been delivered yet is more."""
_COLUMNS_OF_PLANS = (
    "name savings_plan_savings_plan_effective_cost and reservation_effective_cost in the query of the export"
)


@dataclass(frozen=True, kw_only=True)
class UnknownJob:
    """A job that looks like one of paretune's, but has no run here."""

    name: str
    lines: Sum


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """A bill matched with the recorded runs."""

    bills: Sequence[RunBill]  # of the runs that have lines on the bill, in the order of the runs
    without_lines: Sequence[RecordedCost]
    """Runs that should be on the bill, because it covers all of their time, but are not."""
    not_covered: int  # number of runs that the bill does not cover
    unknown: Sequence[UnknownJob]
    totals: Mapping[str, Sum]  # RECORDED, APART, UNKNOWN and OTHERS to their lines; together they are the bill
    rates: Sequence[EffectiveRate]
    unrated: Sequence[str]
    """Instance types and regions without a rate, because the bill lacks the effective cost of some hours."""
    discounts: Discounts  # discounts of an account and SKU, divided among the lines that they discount
    coverage: Coverage
    repeated: int  # lines that came again and were not counted
    left_out: Sequence[str]  # deliveries that a later one replaces
    without_tags: Sequence[str]  # files without a column of tags, whose lines are matched with jobs by their ARNs alone
    files: int


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """A reconciliation and what was written to the runs."""

    reconciliation: Reconciliation
    written: int  # number of runs that got a figure that they did not have before
    left: tuple[str, ...]
    """Ids of runs whose figures from another bill were kept, because that bill was complete and this one is not, or
    because it goes further than this one."""
    unwritten: tuple[str, ...]  # ids of runs that MLflow did not take the figures of


def reconcile(bill: BillFiles, costs: Sequence[RecordedCost]) -> Reconciliation:
    """Read a bill and match its lines with the runs; raises BadInput if files or months cannot be used."""
    runs_by_job, tallies, rates, discounts = RunsByJob(costs), dict[str, RunTally](), RateSums(), Discounts()
    unknown: dict[str, Sum] = {}
    totals = {name: Sum() for name in (RECORDED, APART, UNKNOWN)} | {OTHERS: bill.others}
    with localcontext(EXACT):
        for line in bill.lines():
            rates.add(line)
            run = runs_by_job.run_of(line)
            if run is None:
                discounts.add(line)
                discounts.add_usage(line, ("", line.rated))
                name = _unknown_job_name(line)
                totals[UNKNOWN if name else OTHERS].add(line.unblended_usd)
                if name:
                    unknown.setdefault(name, Sum()).add(line.unblended_usd)
                continue
            totals[RECORDED if line.kind in BILLED else APART].add(line.unblended_usd)
            tallies.setdefault(run.run_id, RunTally(run)).add(line)
            discounts.add_usage(line, (run.run_id, line.rated))
        for (run_id, rated), usd in discounts.spread():
            rates.add_discount(rated, usd)
            if run_id:
                tallies[run_id].add_discount(usd)
        until = bill.coverage.until
        bills = [_bill(tallies[cost.run_id], bill.coverage) for cost in costs if cost.run_id in tallies]
        others = [cost for cost in costs if cost.run_id not in tallies]
        without_lines = [cost for cost in others if cost.seconds and not _missing(cost, bill.coverage)]
        return Reconciliation(
            bills=bills,
            without_lines=without_lines,
            not_covered=len(others) - len(without_lines),
            unknown=[UnknownJob(name=name, lines=lines) for name, lines in sorted(unknown.items())],
            totals=totals,
            rates=rates.rates("" if until is None else f"{until:%Y-%m-%d}"),
            unrated=[f"{kind} in {region}" for kind, region in sorted(rates.unknown)],
            discounts=discounts,
            coverage=bill.coverage,
            repeated=bill.repeated,
            left_out=bill.left_out,
            without_tags=bill.without_tags,
            files=len(bill.files),
        )


def _unknown_job_name(line: Line) -> str:
    """Return the job or tagged run that a line without a recorded run names; empty if it is not paretune's."""
    if parse_job_name(line.job_name) is not None:
        return line.job_name
    if not line.run_tag:
        return ""
    return line.job_name or job_name(line.run_tag, 1)


def _bill(tally: RunTally, coverage: Coverage) -> RunBill:
    """Return the bill of a run, with the reason if it is not complete."""
    cost, hours = tally.recorded, tally.hours
    expected = cost.instance_hours
    lacking = expected - hours
    has_all_hours = expected > 0 and lacking <= Decimal(cost.instance_count) / 3600
    missing = ""
    if files := tally.doubled_files:
        missing = (
            f"the bill has its lines twice under different ids, in {' and '.join(files[:2])}, so it is billed "
            f"{tally.least_usd:.2f} to {tally.billed_usd:.2f} USD: give a bill with one delivery of each month"
        )
    missing = missing or _missing(cost, coverage, has_all_hours=has_all_hours)
    minute = Decimal(cost.instance_count) / 60
    if not missing and lacking > max(minute, min(5 * minute, expected * _TOLERANCE)):
        missing = f"the bill has {hours:.2f} of {expected:.2f} recorded instance hours"
    if not missing and tally.lacks_discount:
        missing = "the bill has a discount of its account without the usage that it is for: reconcile whole months"
    if not missing and tally.effective_usd is None:
        missing = f"the bill lacks the effective cost of hours of a plan or reservation: {_COLUMNS_OF_PLANS}"
    return tally.bill(missing)


def _missing(cost: RecordedCost, coverage: Coverage, *, has_all_hours: bool = False) -> str:
    """Return why the bill of a run is not complete yet, or an empty text.

    If it has all hours, months before the end of the run need not be on the bill.
    """
    if cost.ended_at is None:
        return "the job, or its warm pool, has not ended"
    if not has_all_hours:
        return coverage.missing(cost.started, cost.ended_at)
    spare = timedelta(0) if cost.pool_seconds else _CLOSING
    return coverage.missing(cost.ended_at - spare, cost.ended_at, spare)
