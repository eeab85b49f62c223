"""How a trial ended, as the ledger records it."""

from enum import Enum


class TrialStatus(Enum):
    """How a trial ended."""

    COMPLETED = "Completed"
    OUT_OF_MEMORY = "OutOfMemory"
    """Infeasible: it is told to the sampler as a constraint that is violated, and is never tried again."""
    FAILED = "Failed"
    STOPPED = "Stopped"
    """Stopped early, because even an optimistic end would have been dominated; its partial cost is booked."""
