"""Reads a bill, matches it with the recorded runs, and records what each was billed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paretune.commands.bill.deliveries import SUFFIXES
from paretune.commands.bill.difference import RunBill
from paretune.commands.bill.reading import BillFiles
from paretune.commands.bill.reconciliation import Reconciliation, reconcile
from paretune.commands.bill.recorded_jobs import recorded_cost, runs_on_the_bill
from paretune.commands.bill.request import ReconcileRequest
from paretune.core.untrusted import at_home
from paretune.jobs.workplace import Workplaces
from paretune.specification import metrics
from paretune.specification.inputs import IN_S3
from paretune.tracking import RecordedRun, Tracking, schema

_NOT_YET = "not complete yet"


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """A bill and the runs, and what became of the runs.

    Attributes:
        written: runs that have got another figure than they had.
        kept: ids of runs whose figures of another bill were kept, for it told all of them and this one does not, or it
            goes further than this one.
        unwritten: ids of runs that MLflow did not take the figures of.
    """

    found: Reconciliation
    written: int
    kept: tuple[str, ...]
    unwritten: tuple[str, ...]


def reconcile_runs(request: ReconcileRequest, tracking: Tracking, environment: Mapping[str, str]) -> Reconciled:
    """Read the bill and record `billed_usd` and `effective_usd` of every run that it has lines of.

    Again with the same bill, nothing is written; a bill that tells less of a run than an earlier one leaves it alone.

    Raises:
        BadInput: the bill cannot be read; nothing has been recorded then.
        TrackingUnavailable: MLflow does not answer.
    """
    address = request.bill if request.bill.startswith(IN_S3) else ""
    files = BillFiles(_on_disk(request.bill, environment), address)
    runs = {run.run_id: run for run in runs_on_the_bill(tracking)}
    found = reconcile(files, [recorded_cost(run) for run in runs.values()])
    until = "" if found.coverage.until is None else f"{found.coverage.until:%Y-%m-%dT%H:%M:%SZ}"
    written, kept, unwritten = 0, list[str](), list[str]()
    for bill in found.bills:
        run = runs[bill.run_id]
        if _tells_less(run, bill, until):
            kept.append(bill.run_id)
        elif _is_new(run, bill, until):
            (unwritten.append(bill.run_id) if not _record(tracking, bill, until) else None)
            written += 1
    return Reconciled(found=found, written=written - len(unwritten), kept=tuple(kept), unwritten=tuple(unwritten))


def _figures(bill: RunBill) -> dict[str, float]:
    told = {metrics.BILLED_USD: bill.billed_usd, metrics.EFFECTIVE_USD: bill.effective_usd}
    return {name: float(usd) for name, usd in told.items() if usd is not None}


def _state(bill: RunBill) -> str:
    return schema.BILL_COMPLETE if bill.is_complete else f"{_NOT_YET}: {bill.lacks}"


def _tells_less(run: RecordedRun, bill: RunBill, until: str) -> bool:
    """Whether what the run has of another bill is more than what this one says of it."""
    had_all = run.tags.get(schema.BILL) == schema.BILL_COMPLETE
    if had_all != bill.is_complete:
        return had_all
    return until < run.tags.get(schema.BILL_UNTIL, "")


def _is_new(run: RecordedRun, bill: RunBill, until: str) -> bool:
    """Whether the run does not say the same already."""
    figures, tags = _figures(bill), _tags(bill, until)
    return any(run.tags.get(name) != tags[name] for name in tags) or any(
        run.metrics.get(name) != figures[name] for name in figures
    )


def _tags(bill: RunBill, until: str) -> dict[str, str]:
    return {schema.BILL: _state(bill), schema.BILL_UNTIL: until}


def _record(tracking: Tracking, bill: RunBill, until: str) -> bool:
    """Write the figures of a run in one request; whether MLflow has taken them."""
    run = tracking.run(bill.run_id)
    with run.later():
        run.log_metrics(_figures(bill))
        run.set_tags({**_tags(bill, until)})
    run.flush()
    return not run.has_gap


def _on_disk(bill: str, environment: Mapping[str, str]) -> Path:
    """Where the bill lies; one in S3 is fetched first, unless it is here already.

    Raises:
        BadInput: it cannot be fetched.
    """
    if not bill.startswith(IN_S3):
        return at_home(bill)
    # Imported here: a bill on this disk needs no boto3.
    from paretune.launchers.sagemaker.objects.fetching import fetch, s3_client

    place = Workplaces.of_process()
    folder, check = place.home / "bills", place.interruption.check
    return fetch(s3_client(None, environment), "bill", bill, folder, suffixes=SUFFIXES, check=check)
