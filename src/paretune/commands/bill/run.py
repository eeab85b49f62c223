"""The command `reconcile`: AWS's bill against what was recorded."""

import os

from paretune.commands.bill import rates
from paretune.commands.bill import tables as bill_tables
from paretune.commands.bill.reconcile import Reconciled, reconcile_runs
from paretune.commands.bill.request import ReconcileRequest
from paretune.core.clock import SystemClock
from paretune.core.result import CommandOutput, csv_text
from paretune.tracking import RunStatus, Tracking, schema


def run_reconcile(request: ReconcileRequest) -> CommandOutput:
    """What each run was billed, recorded with the run; the whole reconciliation is kept with the command's own run."""
    environment = dict(os.environ)
    tracking = Tracking(environment, SystemClock())
    done = reconcile_runs(request, tracking, environment)
    run_id = _keep(done, request, tracking)
    where = tracking.open_command(run_id)
    found = done.found
    return CommandOutput(
        text=f"{bill_tables.text(done)}\n\nreconcile.csv is in run {run_id}, with residue.csv and rates.csv: {where}",
        document={
            "run_id": run_id,
            "rows": bill_tables.as_numbers(bill_tables.rows(found)),
            "residue": bill_tables.as_numbers(bill_tables.residue_rows(found)),
            "totals": {name: {"lines": one.lines, "usd": float(one.usd)} for name, one in found.totals.items()},
            "rates": bill_tables.as_numbers(
                {**one.row(), "instance_hours": float(one.instance_hours), "usd_per_hour": float(one.usd_per_hour)}
                for one in found.rates
            ),
            "covered_until": None if found.coverage.until is None else found.coverage.until.isoformat(),
            "recorded": done.written,
            "remarks": bill_tables.sentences(done),
            "open_command": where,
        },
    )


def _keep(done: Reconciled, request: ReconcileRequest, tracking: Tracking) -> str:
    """The reconciliation as artifacts of the command's own run."""
    own = tracking.begin("reconcile")
    own.set_tags({schema.KIND: "reconcile"})
    own.log_params({"bill": request.bill})
    tables = {
        "reconcile.csv": csv_text(bill_tables.COLUMNS, bill_tables.rows(done.found)),
        "residue.csv": csv_text(bill_tables.RESIDUE_COLUMNS, bill_tables.residue_rows(done.found)),
        rates.FILE: csv_text(rates.COLUMNS, [one.row() for one in done.found.rates]),
    }
    for name, text in tables.items():
        own.log_text(text, name)
    own.end(RunStatus.FINISHED)
    return own.run_id
