"""How much of the processor other programs take while a job trains: seconds and throughput are theirs, too, then."""

import os
import time
from dataclasses import dataclass

import psutil

from paretune.estimating.hardware import usable_cores

WORTH_SAYING = 0.25
"""Share of the usable cores from which on a measurement says so."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Processor time since some moment in the past, in core-seconds, and when it was read.

    Attributes:
        time_s: of a clock that never goes back.
        machine_s: of all programs of the machine.
        own_s: of the processes of this job.
    """

    time_s: float
    machine_s: float
    own_s: float

    @classmethod
    def now(cls) -> "Usage":
        """Up to now. A job's processes are those of its session, which a launcher starts it in."""
        spent = psutil.cpu_times()
        # Linux counts the time of virtual machines in `user` as well.
        counted_twice = getattr(spent, "guest", 0.0) + getattr(spent, "guest_nice", 0.0)
        idle = spent.idle + getattr(spent, "iowait", 0.0)
        return cls(time_s=time.monotonic(), machine_s=sum(spent) - counted_twice - idle, own_s=_of_session())

    def others_share(self, later: "Usage", *, usable: int, cores: int) -> float:
        """Share of the `usable` cores that other programs took between this moment and a `later` one, 0 to 1.

        `cores` is how many the machine has: where a job may use some of them only, others have room beside it.
        """
        seconds = later.time_s - self.time_s
        if seconds <= 0:
            return 0.0
        others = max(0.0, (later.machine_s - self.machine_s) - (later.own_s - self.own_s)) / seconds
        free = cores - others
        return min(1.0, max(0.0, (usable - free) / usable))


def others_share_since(begin: Usage) -> float | None:
    """Share of the usable cores that other programs have taken since then; None where it is not worth saying."""
    share = begin.others_share(Usage.now(), usable=usable_cores(), cores=os.cpu_count() or 1)
    return share if share > WORTH_SAYING else None


def _of_session() -> float:
    """Core-seconds of all processes of this session, and of those that have ended and were waited for."""
    if not hasattr(os, "getsid"):
        return _spent(psutil.Process())
    own, total = os.getsid(0), 0.0
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == own:
                total += _spent(process)
        except (OSError, psutil.Error):  # it has just ended
            continue
    return total


def _spent(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:4]))  # user, system, and the same of its ended children
