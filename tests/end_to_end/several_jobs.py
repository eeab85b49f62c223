"""One process of several jobs, one after another in one process group: `several_jobs.py FOLDER ...`.

Importing torch and transformers takes longer than the tiny trainings do.
"""

import sys
from pathlib import Path

from paretune.spec.container import JobDocument, JobFolder
from paretune.training.__main__ import _leave
from paretune.training.loop import train
from paretune.training.stop_signal import StopSignal

if __name__ == "__main__":
    for root in sys.argv[1:]:
        folder = JobFolder(Path(root))
        assert train(JobDocument.read(folder.document), folder, StopSignal(grace_s=10))
    _leave(0)
