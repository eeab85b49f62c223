"""Defects of earlier versions, put back one at a time: what finds no history of them checks nothing.

Each entry replaces one function by what it did, or left out, before the defect was mended.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from unittest import mock

from paretune.commands.sync import sync
from paretune.core.errors import LaunchRefused
from paretune.jobs import record
from paretune.launchers.base import job_name
from paretune.launchers.sagemaker.training_jobs import TrainingJobs
from paretune.ledger.budget_ledger import BudgetLedger
from paretune.tracking import schema


def _refused(_jobs: TrainingJobs, error: Exception, name: str) -> NoReturn:
    raise LaunchRefused(f"AWS would not create {name}: {error}") from error


def _book_kept(ledger: BudgetLedger, run_id: str, usd: float) -> None:
    entries = ledger._table
    booked = {"booked_usd": entries.c.booked_usd + usd, "kept_usd": 0.0}
    ledger._write(entries.update().where(entries.c.run_id == run_id).values(**booked))


def _last_job_name(run_id: str, tags: Any) -> str:
    return str(tags.get(schema.JOB_NAME) or job_name(run_id, 1))


DEFECTS: dict[str, tuple[Any, str, Any]] = {
    "memory retry": (sync, "first_job_name", _last_job_name),
    "first tag": (record, "opening_tags", lambda *_: {}),
    "lost answer": (TrainingJobs, "adopt_after", _refused),
    "reused pool": (BudgetLedger, "book_kept", _book_kept),
    "stale bill": (record.JobRecord, "recorded_usd", lambda _: None),
}
"""Name of a defect to the owner and the name of a function, and to what that did.

memory retry    `sync` began with the last attempt of a job that had run out of memory, and lost the dollars before it
first tag       a run had no tags until its job was described, so `sync` never closed one whose launcher died before
lost answer     a CreateTrainingJob without an answer counted as refused
reused pool     a warm pool was booked by the job that reused it and once more by `sync`
stale bill      a watcher that had seen less of the bill lowered what another had recorded
"""


@contextmanager
def put_back(name: str | None) -> Iterator[None]:
    """Have one of the DEFECTS again; None changes nothing."""
    if name is None:
        yield
        return
    owner, function, before = DEFECTS[name]
    with mock.patch.object(owner, function, before):
        yield
