"""One process of a job: `python -m paretune.training FOLDER`.

A launcher starts it once per instance. In a job of several processes it runs torchrun, which starts it once per process
(see rendezvous.py).
"""

import errno
import gc
import os
import re
import sys
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path

from paretune.core import watchdog
from paretune.core.errors import BadInput, first_line, refuse
from paretune.specification.container import FailureKind, Hosts, JobDocument, JobFolder
from paretune.training.stop_signal import GRACE_S, SAGEMAKER_GRACE_S, StopSignal

_LOST_CONNECTION = re.compile(
    "connection closed by peer|connection reset by peer|broken pipe|remote process exited|socket closed", re.IGNORECASE
)
"""Parts of gloo's and NCCL's messages when another process has ended; that one has the cause."""


def main(folder: JobFolder) -> int:
    """Run this process's share of the job in `folder`: 0 when it finished or stopped as requested, 1 when it failed."""
    hosts = Hosts.read(folder.resource_config)
    stop_signal = StopSignal(grace_s=GRACE_S if hosts is None else SAGEMAKER_GRACE_S)
    stop_signal.watch_parent()
    try:
        document = JobDocument.read(folder.document)
        if hosts is not None:
            document = document.on(hosts.instance_type)
        _skip_quantisation(document)
        if "LOCAL_RANK" not in os.environ:
            from paretune.training import device, rendezvous

            if hosts is None or hosts.rank == 0:  # the first instance tells for all: they wait for each other
                watchdog.watch(document.spec.max_silence_minutes * 60, folder.events, partial(_end_hang, folder))
            if hosts is not None:
                refuse(device.machine_faults(document.spec))
                os.environ.update(rendezvous.network_environment(hosts, os.environ))
            if rendezvous.world_size(document.spec, hosts) > 1:
                grace_s = stop_signal.grace_s
                arguments = rendezvous.torchrun_arguments(document.spec, hosts, folder.root, grace_s=grace_s)
                rendezvous.run_torchrun(arguments, folder.stopped)
                return 0
        if document.spec.entry_script is not None:
            from paretune.training.script import run_script

            run_script(document, folder)  # SIGTERM ends it, unless it handles it
        else:
            stop_signal.stop_at_next_step()
            from paretune.training.loop import train, train_members

            if document.members:
                finished = train_members(document, folder, stop_signal, _classify)
            else:
                finished = train(document, folder, stop_signal)
            if not finished:
                folder.stopped.touch()
        return 0
    except Exception as error:
        kind, sentence = _classify(error)
        if kind is not FailureKind.DISK_FULL:  # where it was noticed says nothing
            traceback.print_exc()
        try:
            folder.write_failure(kind, sentence)
        except OSError:
            if kind is not FailureKind.DISK_FULL:
                raise
            return errno.ENOSPC  # there is no room for the reason either
        return 1


def _skip_quantisation(document: JobDocument) -> None:
    """Have peft and transformers take bitsandbytes for not installed where nothing of the job is quantised.

    They import it wherever it is, and it imports PyTorch's compiler: 1.2 of 8.3 CPU seconds of a start (2026-11-22).
    """
    spec = document.spec
    if spec.fine_tuning != "qlora" and not spec.runs_own_training and "optim" not in spec.training_arguments:
        sys.modules.setdefault("bitsandbytes", None)  # type: ignore[arg-type]  # as the import system documents it


def _classify(error: Exception) -> tuple[FailureKind, str]:
    sentence = first_line(error)
    if isinstance(error, BadInput):
        return FailureKind.BAD_INPUT, str(error)
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or sentence).partition(".")[0]
        remedy = "list it in the job's requirements, or set image_uri to an image that has it"
        return FailureKind.BAD_INPUT, f"package {package} is missing where the job runs: {remedy}"
    from paretune.training.device import is_out_of_memory
    from paretune.training.trainer import Diverged

    if isinstance(error, Diverged):
        return FailureKind.DIVERGED, sentence
    if is_out_of_memory(error):
        return FailureKind.OUT_OF_MEMORY, sentence
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or "No space left on device" in str(error):
        return FailureKind.DISK_FULL, f"the disk is full: {sentence}"
    if _LOST_CONNECTION.search(str(error)):
        return FailureKind.ERROR, f"another process of the job has ended, which is the cause: {sentence}"
    return FailureKind.ERROR, f"{type(error).__name__}: {sentence}"


def _end_hang(folder: JobFolder, sentence: str) -> None:
    """End this process and all that it has started, with the reason."""
    import psutil

    folder.write_failure(FailureKind.ERROR, sentence)
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()
    os._exit(1)


def _leave(code: int) -> None:
    """Flush the output and end this process without Python's shutdown.

    In it torch 2.13 on CPU aborted in gloo's destructors in 2 of 14 runs, so that a finished job failed.
    """
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _leave(main(JobFolder(Path(sys.argv[1]))))
