"""Threads that end a job when it hangs, when it reaches its deadline, or when its parent process has ended.

A job counts as hanging if, for half an hour, its events file does not change, it uses almost no CPU time, and all GPUs
are idle. On systems without /proc, hangs go unnoticed.

This file is also copied into the jobs of MLflow projects, where paretune is not installed. So it uses only the standard
library of Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import subprocess
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

STARTED_AT = "PARETUNE_STARTED_AT"
"""Variable in which container_start.py keeps the time of the container's start, in seconds of time.monotonic(), which
all processes of a Linux machine share. Outside of SageMaker's containers, it is not set."""
SILENCE_S = 1800.0  # seconds without activity after which a job counts as hanging
SAMPLES = 10  # minimum number of samples within SILENCE_S
_LONGEST_INTERVAL_S = 10.0
_IDLE = 0.05
"""CPU use up to this share of one core counts as idle: in a job that hangs, torchrun and NCCL still use a little."""
_LEAST_S = 0.05  # this many CPU seconds between two samples always count as idle; /proc counts in hundredths
_SMI = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


def watch(events: Path | None, end: Callable[[str], None]) -> None:
    """Start a thread that calls `end` with a reason if this process and its descendants are inactive for SILENCE_S.

    The processes are active if the size of the file `events` changes, if they use more than a twentieth of a core, or
    if any GPU of the machine is in use.
    """
    if Path("/proc/self/stat").exists():
        threading.Thread(target=_watch, args=(SILENCE_S, events, end), name="watchdog", daemon=True).start()


def stop_at(deadline_s: float, grace_s: float, begin: Callable[[str], None], end: Callable[[], None]) -> None:
    """Stop this process `deadline_s` seconds after its container started, or after this call if STARTED_AT is not set.

    A thread then calls `begin` with the reason, sends this process SIGTERM, waits `grace_s` seconds and calls `end`.
    """
    stops_at = float(os.environ.get(STARTED_AT) or time.monotonic()) + deadline_s

    def wait() -> None:
        time.sleep(max(0.0, stops_at - time.monotonic()))
        begin(
            f"the job stopped itself {deadline_s / 60:.1f} minutes after its container started, to leave time to save "
            "and upload within its worst case"
        )
        _stop(grace_s, end)

    threading.Thread(target=wait, name="deadline", daemon=True).start()


def end_with(parent: int, grace_s: float, end: Callable[[], None]) -> None:
    """Stop this process when its parent, whose process id is `parent`, has ended.

    A thread then sends this process SIGTERM, waits `grace_s` seconds and calls `end`.
    """

    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        # The launcher takes the time of the log's last change as the end of the job, so print something now.
        print("the process that started this one has ended", flush=True)
        _stop(grace_s, end)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def _stop(grace_s: float, end: Callable[[], None]) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_s)
    end()


def _watch(limit_s: float, events: Path | None, end: Callable[[str], None]) -> None:
    interval = min(_LONGEST_INTERVAL_S, limit_s / SAMPLES)
    active_at = sampled_at = time.monotonic()
    used, size = cpu_seconds(os.getpid()), _size(events)
    while True:
        time.sleep(interval)
        now, new_size = time.monotonic(), _size(events)
        idle_s = max(_LEAST_S, _IDLE * (now - sampled_at))
        is_active = new_size != size or cpu_seconds(os.getpid()) - used > idle_s or _a_gpu_works()
        sampled_at, size, used = now, new_size, cpu_seconds(os.getpid())  # read again: taking a sample is not activity
        if is_active:
            active_at = now
        elif now - active_at >= limit_s:
            faulthandler.dump_traceback(all_threads=True)  # shows in the log where the job hangs
            end(
                f"it hangs: no new event, almost no CPU time and no GPU in use for {limit_s / 60:g} minutes; "
                "the log shows where"
            )
            return


def cpu_seconds(root: int) -> float:
    """Return the CPU seconds of a process and its descendants, including ended ones that their parents waited for."""
    children, ticks = defaultdict(list), {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_bytes().rpartition(b")")[2].split()  # the name before it may not be UTF-8
            pid, parent = int(path.parent.name), int(fields[1])
            children[parent].append(pid)
            ticks[pid] = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime: man 5 proc
    family, total = [root], 0
    for pid in family:
        family += children[pid]
        total += ticks.get(pid, 0)
    return total / os.sysconf("SC_CLK_TCK")


def _size(path: Path | None) -> int:
    return path.stat().st_size if path is not None and path.exists() else 0


def _a_gpu_works() -> bool:
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        output = subprocess.run(_SMI, capture_output=True, text=True, timeout=30, check=True).stdout
        return any(int(line) > 0 for line in output.split())
    return False
