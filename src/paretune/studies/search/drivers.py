"""The drivers that work on a study: each one records a heartbeat in the study's ledger."""

from paretune.jobs.watch import ABANDONED_S
from paretune.launchers.processes import is_alive
from paretune.ledger.study_ledger import StudyLedger


def drivers_at_work(ledger: StudyLedger, now: float) -> set[str]:
    """Drivers of the study that stay until its end and are alive at `now`, seconds since the epoch."""

    def is_living(owner: str, last_heartbeat: float) -> bool:
        alive = is_alive(owner)
        return alive if alive is not None else now - last_heartbeat <= ABANDONED_S

    return {owner for owner, last_heartbeat in ledger.drivers().items() if is_living(owner, last_heartbeat)}
