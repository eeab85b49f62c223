"""One process of a job: `python -m paretune.training FOLDER`.

A launcher starts this module once per instance. If the job has several processes, this first process runs torchrun,
which starts the module again for each training process (see processes.py).
"""

import errno
import gc
import os
import re
import subprocess
import sys
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path

from paretune.core import watchdog
from paretune.core.errors import BadInput, causes, first_line, is_error_in_code
from paretune.specification.container import Hosts, JobFolder
from paretune.specification.ending import Cause
from paretune.specification.order import Order
from paretune.training import processes
from paretune.training.processes import GRACE_S, SAGEMAKER_GRACE_S

_LONGEST_COMMAND = 100  # characters of a command in a message
_LOST_CONNECTION = re.compile(
    "connection closed by peer|connection reset by peer|broken pipe|remote process exited|socket closed", re.IGNORECASE
)
"""Parts of gloo's and NCCL's messages after another process has ended; the process that ended reports the cause."""


def main(folder: JobFolder) -> int:
    """Run this process's share of the job in `folder`, and return the exit code of this process.

    The code is 0 if the job finished or stopped as requested, ENOSPC (28) if the disk is full, and otherwise 1.
    """
    hosts = Hosts.read(folder.resource_config)
    grace_s = GRACE_S if hosts is None else SAGEMAKER_GRACE_S
    processes.watch_parent(grace_s)
    try:
        order = Order.read(folder.document)
        is_first_process = "LOCAL_RANK" not in os.environ
        if order.deadline_s is not None:
            grace_s = max(grace_s, order.max_seconds - order.deadline_s)
            begin, end = partial(folder.write_failure, Cause.TIME_LIMIT), partial(_end_all, folder)
            if is_first_process:
                watchdog.stop_at(order.deadline_s, grace_s, begin, end)
        if is_first_process and _run_on_all_devices(order, hosts, folder, grace_s):
            pass
        else:
            stop_requested = processes.stop_request()
            from paretune.training.job import train

            if not train(order, folder, stop_requested):
                folder.stopped.touch()
            else:
                with suppress(OSError):  # a full disk must not fail a job that has finished
                    folder.finished.touch()
        # A job that stopped early has failed if the failure file gives a reason, such as its deadline.
        return int(is_first_process and folder.stopped.exists() and folder.failure.exists())
    except Exception as error:
        cause, sentence = classify_failure(error, runs_here=watchdog.STARTED_AT not in os.environ)
        if not folder.failure.exists():  # otherwise a child process has reported it
            with suppress(OSError):  # a full disk has no room for the log; the exit code reports it
                traceback.print_exc()
        folder.write_failure(cause, sentence)
        return errno.ENOSPC if cause is Cause.DISK_FULL else 1


def _run_on_all_devices(order: Order, hosts: Hosts | None, folder: JobFolder, grace_s: float) -> bool:
    """Prepare this instance, and run the job in one process per device.

    Returns False, without running anything, if this process is the only one of the job.
    """
    if hosts is None or hosts.rank == 0:  # watch only one: if an instance hangs, the others wait for it
        watchdog.watch(folder.events, partial(_end_all, folder))
    return processes.run_on_all_devices(order, hosts, folder, grace_s=grace_s)


def classify_failure(error: Exception, *, runs_here: bool = False) -> tuple[Cause, str]:
    """Return the cause of a failure, and one sentence for the user.

    `runs_here` means that the job runs in this machine's Python rather than in a container image.
    """
    sentence = first_line(error)
    if isinstance(error, BadInput):
        return Cause.BAD_INPUT, str(error)
    # The error of a library, such as transformers, may have no name, but be raised from the one that has it.
    missing = (link.name for link in causes(error) if isinstance(link, ModuleNotFoundError) and link.name)
    if isinstance(error, ModuleNotFoundError) and (name := next(missing, None)):
        package = name.partition(".")[0]
        remedy = "list it in the job's requirements, or set sagemaker.training_image to an image that has it"
        if runs_here:
            remedy = f"install it for {sys.executable}"
        return Cause.CODE, f"package {package} is missing where the job runs: {remedy}"
    from paretune.training.device import is_out_of_memory
    from paretune.training.meter import Diverged

    if isinstance(error, Diverged):
        return Cause.DIVERGED, sentence
    if is_out_of_memory(error):
        return Cause.OUT_OF_MEMORY, sentence
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or "No space left on device" in str(error):
        return Cause.DISK_FULL, f"the disk is full: {sentence}"
    if isinstance(error, RuntimeError) and _LOST_CONNECTION.search(str(error)):  # as gloo and NCCL raise it
        return Cause.ERROR, f"another process of the job ended first: {sentence}"
    if isinstance(error, subprocess.CalledProcessError):  # the command itself has printed why
        words = error.cmd if isinstance(error.cmd, str) else " ".join(map(str, error.cmd))
        command = words if len(words) <= _LONGEST_COMMAND else f"{words[:_LONGEST_COMMAND]}..."
        return Cause.SILENT, f"its command {command!r} ended with exit code {error.returncode}"
    if isinstance(error, FileNotFoundError) and error.filename and not os.path.isabs(error.filename):
        sentence += f" (looked in {Path.cwd()})"
    cause = causes(error)[-1]
    is_new = (type(cause), first_line(cause)) != (type(error), first_line(error))
    is_shown = is_new and isinstance(cause, Exception)
    reason = f", because of {type(cause).__name__}: {first_line(cause)}" if is_shown else ""
    return Cause.CODE if is_error_in_code(error) else Cause.ERROR, f"{type(error).__name__}: {sentence}{reason}"


def _end_all(folder: JobFolder, sentence: str = "") -> None:
    """Kill all descendants of this process, and exit with code 1.

    `sentence` is recorded as the reason for the failure, unless a reason was recorded before.
    """
    import psutil

    if sentence:
        folder.write_failure(Cause.ERROR, sentence)
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()
    os._exit(1)


def leave(code: int) -> None:
    """Flush the output and end this process without running Python's shutdown.

    During that shutdown, torch 2.13 on a CPU aborted in gloo's destructors in 2 of 14 runs, so finished jobs failed.
    """
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main(JobFolder(Path(sys.argv[1]))))
