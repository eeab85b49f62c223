"""One process of a job: `python -m paretune.training FOLDER`.

A launcher starts it once per instance. In a job of several processes it runs torchrun, which starts it once per process
(see processes.py).

Without FOLDER it forks jobs of one launcher after it has imported their libraries, so that they begin sooner. Each line
of standard input is a job as JSON: its folder, and the variables of its process. The answer is its process id, and its
exit code goes to the file `exit_code` in the folder. It ends with its launcher, and its jobs end with it.
"""

import errno
import gc
import json
import os
import re
import select
import sys
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from paretune.core import watchdog
from paretune.core.errors import BadInput, causes, first_line, refuse
from paretune.specification.container import FailureKind, Hosts, JobDocument, JobFolder, write_json_once
from paretune.training import processes
from paretune.training.processes import GRACE_S, SAGEMAKER_GRACE_S, StopSignal

_LOST_CONNECTION = re.compile(
    "connection closed by peer|connection reset by peer|broken pipe|remote process exited|socket closed", re.IGNORECASE
)
"""Parts of gloo's and NCCL's messages when another process has ended; that process has the cause."""


def main(folder: JobFolder) -> int:
    """Run this process's share of the job in `folder`: 0 when it finished or stopped as requested, 1 when it failed."""
    hosts = Hosts.read(folder.resource_config)
    stop_signal = StopSignal(grace_s=GRACE_S if hosts is None else SAGEMAKER_GRACE_S)
    stop_signal.watch_parent()
    try:
        document = JobDocument.read(folder.document)
        is_first_process = "LOCAL_RANK" not in os.environ
        if document.deadline_s is not None:
            stop_signal.grace_s = max(stop_signal.grace_s, document.max_seconds - document.deadline_s)
            begin, end = partial(folder.write_failure, FailureKind.ERROR), partial(_end_all, folder)
            if is_first_process:
                watchdog.stop_at(document.deadline_s, stop_signal.grace_s, begin, end)
        if is_first_process and _run_on_all_devices(document, hosts, folder, stop_signal.grace_s):
            pass
        elif document.spec.entry_script is not None:
            from paretune.training.script import run_script

            run_script(document, folder)  # SIGTERM ends it, unless it handles it
        else:
            stop_signal.stop_at_next_step()
            from paretune.training.loop import train

            if not train(document, folder, stop_signal):
                folder.stopped.touch()
        # It has failed if it stopped for a reason in the failure file, such as its deadline.
        return int(is_first_process and folder.stopped.exists() and folder.failure.exists())
    except Exception as error:
        traceback.print_exc()
        kind, sentence = classify_failure(error)
        with suppress(OSError):  # a full disk may have no room for the reason, and the exit code tells it
            folder.write_failure(kind, sentence)
        return errno.ENOSPC if kind is FailureKind.DISK_FULL else 1


def _run_on_all_devices(document: JobDocument, hosts: Hosts | None, folder: JobFolder, grace_s: float) -> bool:
    """Prepare this instance, and run the job in one process per device; False if this process is the only one."""
    from paretune.training import device

    if hosts is None or hosts.rank == 0:  # one instance watches for all, because they wait for each other
        watchdog.watch(document.spec.max_silence_minutes * 60, folder.events, partial(_end_all, folder))
    if hosts is not None:
        refuse(device.machine_faults(document.spec))
        os.environ.update(processes.network_environment(hosts, os.environ))
    if processes.world_size(document.spec, hosts) == 1:
        return False
    arguments = processes.torchrun_arguments(document.spec, hosts, folder.root, grace_s=grace_s)
    processes.run_torchrun(arguments, folder.stopped)
    return True


def classify_failure(error: Exception) -> tuple[FailureKind, str]:
    """Kind of the failure, and one sentence for the user."""
    sentence = first_line(error)
    if isinstance(error, BadInput):
        return FailureKind.BAD_INPUT, str(error)
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or sentence).partition(".")[0]
        remedy = "list it in the job's requirements, or set sagemaker.training_image to an image that has it"
        return FailureKind.BAD_INPUT, f"package {package} is missing where the job runs: {remedy}"
    from paretune.training.callback import Diverged
    from paretune.training.device import is_out_of_memory

    if isinstance(error, Diverged):
        return FailureKind.DIVERGED, sentence
    if is_out_of_memory(error):
        return FailureKind.OUT_OF_MEMORY, sentence
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or "No space left on device" in str(error):
        return FailureKind.DISK_FULL, f"the disk is full: {sentence}"
    if _LOST_CONNECTION.search(str(error)):
        return FailureKind.ERROR, f"another process of the job has ended, which is the cause: {sentence}"
    cause = causes(error)[-1]
    is_shown = cause is not error and isinstance(cause, Exception)  # no SystemExit of a script
    reason = f", because of {type(cause).__name__}: {first_line(cause)}" if is_shown else ""
    return FailureKind.ERROR, f"{type(error).__name__}: {sentence}{reason}"


def _end_all(folder: JobFolder, sentence: str = "") -> None:
    """End this process and all its descendants, with the reason if it is new."""
    import psutil

    if sentence:
        folder.write_failure(FailureKind.ERROR, sentence)
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()
    os._exit(1)


def leave(code: int) -> None:
    """Flush the output and end this process without Python's shutdown.

    During shutdown torch 2.13 on CPU aborted in gloo's destructors in 2 of 14 runs, so that a finished job failed.
    """
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve() -> None:
    """Fork a job for each line of standard input, until it is closed."""
    import paretune.training.loop  # noqa: F401

    gc.freeze()  # a collection would copy the pages that the jobs share
    folders: dict[int, Path] = {}
    codes: dict[Path, int] = {}
    while True:
        is_asked = bool(select.select([sys.stdin], [], [], 0.1)[0])
        _note_ends(folders, codes)
        if not is_asked:
            continue
        line = sys.stdin.readline()
        if not line:
            return
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(job)
        folders[pid] = Path(job["folder"])
        print(pid, flush=True)


def _become(job: dict[str, Any]) -> None:
    """Be the process of the job, as if its launcher had started it; never returns."""
    try:
        folder = JobFolder(Path(job["folder"]))
        os.setsid()  # Ctrl-C in the terminal reaches the launcher only
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(folder.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.environ.clear()
        os.environ |= job["environment"] | {"PARETUNE_STARTER": str(os.getppid())}
        leave(main(folder))
    finally:
        os._exit(1)


def _note_ends(folders: dict[int, Path], codes: dict[Path, int]) -> None:
    """Write the exit codes of jobs that have ended; what a full disk does not take is tried again."""
    with suppress(ChildProcessError):
        while (end := os.waitpid(-1, os.WNOHANG))[0]:
            codes[folders.pop(end[0])] = os.waitstatus_to_exitcode(end[1])
    for folder in list(codes):
        with suppress(OSError):
            write_json_once(folder / "exit_code", codes[folder])
            del codes[folder]


if __name__ == "__main__":
    if sys.argv[1:]:
        leave(main(JobFolder(Path(sys.argv[1]))))
    serve()
