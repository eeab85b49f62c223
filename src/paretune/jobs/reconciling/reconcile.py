"""Reads a bill, matches it with the recorded runs, and records what each was billed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paretune.billing.difference import RunBill
from paretune.billing.reading import SUFFIXES, BillFiles
from paretune.billing.reconciliation import Reconciliation, reconcile
from paretune.core.untrusted import at_home
from paretune.jobs.reconciling.recorded import recorded_cost, runs_on_the_bill
from paretune.jobs.reconciling.request import ReconcileRequest
from paretune.jobs.workplace import Workplaces
from paretune.spec import metrics
from paretune.spec.job import IN_S3
from paretune.tracking import RecordedRun, Tracking, schema

_NOT_YET = "not complete yet"


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """A bill and the runs, and what became of the runs.

    Attributes:
        written: runs that have got another figure than they had.
        kept: ids of runs whose figures of a bill that told all of them were kept, for this one does not.
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
    files = BillFiles(_on_disk(request.bill, environment))
    runs = {run.run_id: run for run in runs_on_the_bill(tracking)}
    found = reconcile(files, [recorded_cost(run) for run in runs.values()])
    written, kept, unwritten = 0, list[str](), list[str]()
    for bill in found.bills:
        run = runs[bill.run_id]
        if run.tags.get(schema.BILL) == schema.BILL_COMPLETE and not bill.is_complete:
            kept.append(bill.run_id)
        elif _is_new(run, bill):
            (unwritten.append(bill.run_id) if not _record(tracking, bill) else None)
            written += 1
    return Reconciled(found=found, written=written - len(unwritten), kept=tuple(kept), unwritten=tuple(unwritten))


def _figures(bill: RunBill) -> dict[str, float]:
    return {metrics.BILLED_USD: float(bill.billed_usd), metrics.EFFECTIVE_USD: float(bill.effective_usd)}


def _state(bill: RunBill) -> str:
    return schema.BILL_COMPLETE if bill.is_complete else f"{_NOT_YET}: {bill.lacks}"


def _is_new(run: RecordedRun, bill: RunBill) -> bool:
    """Whether the run does not say the same already."""
    figures = _figures(bill)
    return run.tags.get(schema.BILL) != _state(bill) or any(run.metrics.get(name) != figures[name] for name in figures)


def _record(tracking: Tracking, bill: RunBill) -> bool:
    """Write the figures of a run in one request; whether MLflow has taken them."""
    run = tracking.run(bill.run_id)
    with run.later():
        run.log_metrics(_figures(bill))
        run.set_tags({schema.BILL: _state(bill)})
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
