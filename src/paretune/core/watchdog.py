"""Ends a job that hangs: no event, no CPU time and no work on a GPU for longer than its limit.

It travels alone into the jobs of MLflow projects, so it needs the standard library only, of Python 3.8 or newer. On
systems without /proc nothing is watched.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import subprocess
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLES = 10
"""Looks at the job within its limit of silence."""
_LONGEST_INTERVAL_S = 10.0
_IDLE = 0.05
"""Share of one core that counts as no work: torchrun and the threads of NCCL look around in a job that hangs, too."""
_LEAST_S = 0.05  # CPU seconds that are no work in however short a time: /proc counts in hundredths
_SMI = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


def watch(limit_s: float, events: Path | None, end: Callable[[str], None]) -> None:
    """Call `end` with one sentence, in a thread, once this process and its children have been silent for `limit_s`.

    Signs of life are growth of the file `events`, CPU time of more than a twentieth of a core, and any GPU in use.
    Without effect where `limit_s` is 0.
    """
    if limit_s > 0 and Path("/proc/self/stat").exists():
        threading.Thread(target=_watch, args=(limit_s, events, end), name="watch-silence", daemon=True).start()


def _watch(limit_s: float, events: Path | None, end: Callable[[str], None]) -> None:
    interval = min(_LONGEST_INTERVAL_S, limit_s / SAMPLES)
    alive_at = looked_at = time.monotonic()
    used, told = cpu_seconds(os.getpid()), _size(events)
    while True:
        time.sleep(interval)
        now, told_now = time.monotonic(), _size(events)
        idle_s = max(_LEAST_S, _IDLE * (now - looked_at))
        works = told_now != told or cpu_seconds(os.getpid()) - used > idle_s or _a_gpu_works()
        looked_at, told, used = now, told_now, cpu_seconds(os.getpid())  # without what looking itself has used
        if works:
            alive_at = now
        elif now - alive_at >= limit_s:
            faulthandler.dump_traceback(all_threads=True)  # where it hangs, into the log
            end(
                f"it hangs: no event, no CPU time and no work on a GPU for {limit_s / 60:g} minutes, which is "
                "max_silence_minutes (0: only max_runtime_minutes ends a job)"
            )
            return


def cpu_seconds(root: int) -> float:
    """CPU time of a process, its descendants, and those of them that have ended."""
    children, ticks = defaultdict(list), {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            pid, parent = int(path.parent.name), int(fields[1])
            children[parent].append(pid)
            ticks[pid] = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime: man 5 proc
    found, total = [root], 0
    for pid in found:
        found += children[pid]
        total += ticks.get(pid, 0)
    return total / os.sysconf("SC_CLK_TCK")


def _size(path: Path | None) -> int:
    return path.stat().st_size if path is not None and path.exists() else 0


def _a_gpu_works() -> bool:
    """Whether any GPU of the machine is in use; False where there is none."""
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        said = subprocess.run(_SMI, capture_output=True, text=True, timeout=30, check=True).stdout
        return any(int(line) > 0 for line in said.split())
    return False
