"""Runs `reconcile`: reads a bill, matches it with the recorded runs, and records what each was billed."""

import os
from collections.abc import Mapping
from pathlib import Path

from paretune.commands.bill import rates, tables
from paretune.commands.bill.command import ReconcileRequest
from paretune.commands.bill.deliveries import SUFFIXES
from paretune.commands.bill.difference import RunBill
from paretune.commands.bill.reading import BillFiles
from paretune.commands.bill.reconciliation import Reconciled, reconcile
from paretune.commands.bill.recorded_costs import recorded_cost, runs_on_the_bill
from paretune.core.clock import SystemClock
from paretune.core.result import CommandOutput, csv_text
from paretune.core.untrusted import at_home, markdown
from paretune.jobs.workplace import Workplaces
from paretune.specification import metrics
from paretune.specification.inputs import IN_S3
from paretune.tracking import RecordedRun, RunStatus, Tracking, schema

_NOT_YET = "not complete yet"


def run_reconcile(request: ReconcileRequest) -> CommandOutput:
    """Record what each run was billed; the tables are kept with the command's own run."""
    environment = dict(os.environ)
    tracking = Tracking(environment, SystemClock())
    reconciled = reconcile_runs(request, tracking, environment)
    reconciliation = reconciled.reconciliation
    rate_rows = [rate.row() for rate in reconciliation.rates]
    run = tracking.begin("reconcile")
    run.set_tags({schema.KIND: "reconcile", schema.NOTE: markdown("\n\n".join(tables.answer(reconciled)))})
    run.log_params({"bill": request.bill})
    run.log_text(csv_text(tables.COLUMNS, tables.rows(reconciliation)), "reconcile.csv")
    run.log_text(csv_text(tables.RESIDUE_COLUMNS, tables.residue_rows(reconciliation)), "residue.csv")
    run.log_text(csv_text(rates.COLUMNS, rate_rows), rates.FILE)
    run.end(RunStatus.FINISHED)
    open_command = tracking.open_command(run.run_id)
    until = reconciliation.coverage.until
    hint = f"reconcile.csv is in run {run.run_id}, with residue.csv and rates.csv: {open_command}"
    return CommandOutput(
        text=f"{tables.text(reconciled)}\n\n{hint}",
        document={
            "run_id": run.run_id,
            "rows": tables.as_numbers(tables.rows(reconciliation)),
            "residue": tables.as_numbers(tables.residue_rows(reconciliation)),
            "totals": {
                name: {"lines": total.lines, "usd": float(total.usd)} for name, total in reconciliation.totals.items()
            },
            "rates": tables.as_numbers(
                {**row, **{name: float(str(row[name])) for name in ("instance_hours", "usd_per_hour")}}
                for row in rate_rows
            ),
            "covered_until": None if until is None else until.isoformat(),
            "recorded": reconciled.written,
            "remarks": tables.sentences(reconciled),
            "open_command": open_command,
        },
    )


def reconcile_runs(request: ReconcileRequest, tracking: Tracking, environment: Mapping[str, str]) -> Reconciled:
    """Read the bill and record `billed_usd` and `effective_usd` of every run that has lines on it.

    Nothing is written again for the same bill. A bill that covers less of a run than an earlier one does not change it.

    Raises:
        BadInput: the bill cannot be read; nothing has been recorded then.
        TrackingUnavailable: MLflow does not answer.
    """
    address = request.bill if request.bill.startswith(IN_S3) else ""
    files = BillFiles(_on_disk(request.bill, environment), address)
    runs = {run.run_id: run for run in runs_on_the_bill(tracking)}
    reconciliation = reconcile(files, [recorded_cost(run) for run in runs.values()])
    end = reconciliation.coverage.until
    until = "" if end is None else f"{end:%Y-%m-%dT%H:%M:%SZ}"
    written, kept_ids, unwritten = 0, list[str](), list[str]()
    for bill in reconciliation.bills:
        run = runs[bill.run_id]
        if _covers_less(run, bill, until):
            kept_ids.append(bill.run_id)
            continue
        values = {metrics.BILLED_USD: bill.billed_usd, metrics.EFFECTIVE_USD: bill.effective_usd}
        figures = {name: float(usd) for name, usd in values.items() if usd is not None}
        state = schema.BILL_COMPLETE if bill.is_complete else f"{_NOT_YET}: {bill.missing}"
        tags: dict[str, str | None] = {schema.BILL: state, schema.BILL_UNTIL: until}
        is_recorded = all(run.tags.get(name) == tag for name, tag in tags.items()) and all(
            run.metrics.get(name) == figure for name, figure in figures.items()
        )
        if is_recorded:
            continue
        tracked = tracking.run(bill.run_id)
        with tracked.later():  # one request for all
            tracked.log_metrics(figures)
            tracked.set_tags(tags)
        tracked.flush()
        if tracked.has_gap:
            unwritten.append(bill.run_id)
        else:
            written += 1
    return Reconciled(reconciliation=reconciliation, written=written, left=tuple(kept_ids), unwritten=tuple(unwritten))


def _covers_less(run: RecordedRun, bill: RunBill, until: str) -> bool:
    """Whether the figures that the run has from another bill cover more of it than this bill."""
    was_complete = run.tags.get(schema.BILL) == schema.BILL_COMPLETE
    if was_complete != bill.is_complete:
        return was_complete
    return until < run.tags.get(schema.BILL_UNTIL, "")


def _on_disk(bill: str, environment: Mapping[str, str]) -> Path:
    """Return the path of the bill; one in S3 is fetched first, unless it is here. Raises BadInput if it cannot be."""
    if not bill.startswith(IN_S3):
        return at_home(bill)
    # Imported here: a bill on this disk needs no boto3.
    from paretune.launchers.sagemaker.s3_download import fetch, s3_client

    workplaces = Workplaces.of_process()
    folder, check = workplaces.home / "bills", workplaces.interruption.check
    return fetch(s3_client(None, environment), "bill", bill, folder, suffixes=SUFFIXES, check=check)
