"""The command `reconcile`: AWS's bill against the recorded costs."""

from dataclasses import dataclass

from paretune.commands.command import command_of, imported_later
from paretune.core.errors import BadInput
from paretune.core.untrusted import exists
from paretune.specification.inputs import IN_S3
from paretune.specification.parameters import check, parameter


@dataclass(frozen=True, kw_only=True)
class ReconcileRequest:
    """The bill to read; raises BadInput with all faults at once."""

    bill: str = parameter("", "Cost and Usage Report 2.0, Parquet or CSV: a file, a folder, or s3://BUCKET/PREFIX/")

    def __post_init__(self) -> None:
        if not self.bill.strip():
            raise BadInput(["bill must name a Cost and Usage Report 2.0: a file, a folder, or s3://BUCKET/PREFIX/"])
        faults = check(self)
        if not self.bill.startswith(IN_S3) and not exists(self.bill):
            faults.append(f"bill must be a file or folder, or s3://BUCKET/PREFIX/, got {self.bill}: there is no such")
        if faults:
            raise BadInput(faults)


COMMAND = command_of(ReconcileRequest, "reconcile", imported_later("paretune.commands.bill.run:run_reconcile"))
