"""One process of a job: `python -m paretune.training FOLDER`.

Started by a launcher, once per instance. With more than one device it becomes torchrun and starts itself once per
device.
"""

import gc
import os
import sys
import traceback
from pathlib import Path

from paretune.container import FailureKind, JobDocument, JobFolder
from paretune.errors import BadInput
from paretune.training.lifeline import GRACE_S, Lifeline

_NO_SPACE = 28  # errno.ENOSPC


def main(folder: JobFolder) -> int:
    """Run this process's share of the job in `folder`; 0 when it finished or stopped as asked, 1 when it failed."""
    lifeline = Lifeline()
    lifeline.watch_parent()
    try:
        document = JobDocument.read(folder.document)
        if document.plan.devices > 1 and "LOCAL_RANK" not in os.environ:
            return _become_torchrun(document.plan.devices, folder)
        if document.spec.entry_script is not None:
            from paretune.training.script import run_script

            # SIGTERM keeps its meaning, or the one the script gives it: a script of the user's knows no stop request.
            finished = run_script(document, folder)
        else:
            lifeline.stop_at_next_step()
            from paretune.training.loop import train

            finished = train(document, folder, lifeline)
        if not finished:
            folder.stopped.touch()
        return 0
    except Exception as error:
        traceback.print_exc()
        folder.write_failure(*_classify(error))
        return 1


def _become_torchrun(devices: int, folder: JobFolder) -> int:
    from torch.distributed import run

    grace = f"--shutdown-timeout={GRACE_S:.0f}"  # torchrun would kill its workers after 30 seconds
    run.main(["--standalone", f"--nproc-per-node={devices}", grace, "-m", "paretune.training", str(folder.root)])
    return 0


def _classify(error: Exception) -> tuple[FailureKind, str]:
    from paretune.training.device import is_out_of_memory

    sentence = (str(error).strip().splitlines() or [""])[0] or type(error).__name__
    if isinstance(error, BadInput):
        return FailureKind.BAD_INPUT, str(error)
    if is_out_of_memory(error):
        return FailureKind.OUT_OF_MEMORY, sentence
    if (isinstance(error, OSError) and error.errno == _NO_SPACE) or "No space left on device" in str(error):
        return FailureKind.DISK_FULL, f"the disk is full: {sentence}"
    return FailureKind.ERROR, f"{type(error).__name__}: {sentence}"


def _leave(code: int) -> None:
    """End this process at once, everything written.

    Some torch releases abort in gloo's destructors while the interpreter shuts down, which turns a finished job into a
    failed one (torch 2.13 on CPU: 2 of 14 runs).
    """
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _leave(main(JobFolder(Path(sys.argv[1]))))
