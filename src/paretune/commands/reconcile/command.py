"""The command `reconcile`: AWS's bill against the recorded costs."""

from collections.abc import Iterator
from typing import ClassVar

from paretune.commands.command import command_of, imported_later
from paretune.core.untrusted import exists
from paretune.specification.inputs import IN_S3
from paretune.specification.parameters import Fault, Parameters, Rules, parameter


class ReconcileRequest(Parameters):
    """The bill to read."""

    bill: str = parameter("", "export of CUR 2.0 or FOCUS, Parquet or CSV: a file, a folder, or s3://BUCKET/PREFIX/")

    listed_by: ClassVar[str] = "reconcile"
    rules: ClassVar[Rules] = (lambda request: _bill(request.bill),)


def _bill(bill: str) -> Iterator[Fault]:
    if not bill.strip():
        text = "bill must name an export of CUR 2.0 or FOCUS: a file, a folder, or s3://BUCKET/PREFIX/"
        yield Fault(("bill",), text)
    elif not bill.startswith(IN_S3) and not exists(bill):
        text = f"bill must be a file or folder, or s3://BUCKET/PREFIX/, got {bill}: there is no such"
        yield Fault(("bill",), text)


COMMAND = command_of(ReconcileRequest, imported_later("paretune.commands.reconcile.run:run_reconcile"))
