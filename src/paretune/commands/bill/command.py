"""The command `reconcile`: AWS's bill against the recorded costs."""

from dataclasses import dataclass

from paretune.core.errors import BadInput
from paretune.core.result import CommandOutput
from paretune.core.untrusted import exists
from paretune.specification.command import Command, reader_of
from paretune.specification.job import IN_S3
from paretune.specification.parameters import check, help_lines, parameter, switches_of


@dataclass(frozen=True, kw_only=True)
class ReconcileRequest:
    """Which bill to read.

    Raises:
        BadInput: with all faults at once.
    """

    bill: str = parameter("", "Cost and Usage Report 2.0, Parquet or CSV: a file, a folder, or s3://BUCKET/PREFIX/")

    def __post_init__(self) -> None:
        if not self.bill.strip():
            raise BadInput(["bill must name a Cost and Usage Report 2.0: a file, a folder, or s3://BUCKET/PREFIX/"])
        faults = check(self)
        if not self.bill.startswith(IN_S3) and not exists(self.bill):
            faults.append(f"bill must be a file or folder, or s3://BUCKET/PREFIX/, got {self.bill}: there is no such")
        if faults:
            raise BadInput(faults)


def _run(request: ReconcileRequest) -> CommandOutput:
    from paretune.commands.bill.run import run_reconcile  # MLflow takes a second to import

    return run_reconcile(request)


COMMAND = Command(
    read=reader_of(ReconcileRequest, "reconcile"),
    run=_run,
    parameters=help_lines(ReconcileRequest),
    switches=switches_of(ReconcileRequest),
)
