"""Forks jobs of one launcher from a process that has imported their libraries: `python -m paretune.training.warm`.

Each line of standard input is a job as JSON: its folder, and the variables of its process. The answer is its process
id, and its exit code goes to the file `exit_code` in the folder. It ends with its launcher, and its jobs end with it.
"""

import gc
import json
import os
import select
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from paretune.specification.container import JobFolder, write_json_once
from paretune.training.__main__ import leave, main

_PAUSE_S = 0.1


def serve() -> None:
    """Fork a job for each line of standard input, until it is closed."""
    import paretune.training.loop  # noqa: F401

    gc.freeze()  # a collection would copy the pages that the jobs share
    folders: dict[int, Path] = {}
    codes: dict[Path, int] = {}
    while True:
        is_asked = bool(select.select([sys.stdin], [], [], _PAUSE_S)[0])
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
    serve()
