"""The command `reconcile`: AWS's bill against the recorded costs."""

from paretune.commands.bill.request import ReconcileRequest
from paretune.commands.command import Command, help_lines, reader_of, switches_of
from paretune.core.result import CommandOutput


def _run(request: ReconcileRequest) -> CommandOutput:
    from paretune.commands.bill.run import run_reconcile  # MLflow takes a second to import

    return run_reconcile(request)


COMMAND = Command(
    read=reader_of(ReconcileRequest, "reconcile"),
    run=_run,
    parameters=help_lines(ReconcileRequest),
    switches=switches_of(ReconcileRequest),
)
