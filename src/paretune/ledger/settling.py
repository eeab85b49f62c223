"""Reservations of jobs that have ended and that nobody has booked: the storage did not answer then."""

from paretune.ledger.accounts import Accounts
from paretune.specification import metrics
from paretune.tracking import Tracking, schema

_ENDED = ("Completed", "Failed", "Stopped")


def book_ended(accounts: Accounts, tracking: Tracking) -> dict[str, float | None]:
    """Book the jobs whose runs have ended; run to dollars, None where they are not known and the worst case counts.

    Those whose instances are kept still are left to whoever books these.

    Raises:
        LostContact: the storage of the accounts does not answer.
        TrackingUnavailable: MLflow does not answer.
    """
    booked = {}
    for run_id in accounts.unbooked():
        for run in tracking.runs(f"attributes.run_id = '{run_id}'"):
            has_ended = run.tags.get(schema.STATE) in _ENDED
            if has_ended and run.tags.get(schema.WARM_POOL) != schema.WARM_POOL_KEPT:
                booked[run_id] = run.metrics.get(metrics.COST_USD)
                accounts.book(run_id, booked[run_id])
    return booked
