"""One process of several jobs, one after another in one process group: `several_jobs.py FOLDER[@STEP] ...`.

Importing torch and transformers takes longer than the tiny trainings do. A job with a STEP is asked to stop before it.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paretune.specification import parallelism
from paretune.specification.container import JobDocument, JobFolder
from paretune.training import meter
from paretune.training.__main__ import leave
from paretune.training.job import train


@dataclass
class Stop:
    """What asks a training to stop, after it has been asked so many times itself: once after each step."""

    left: float

    @property
    def stop_requested(self) -> bool:
        self.left -= 1
        return self.left <= 0


def run(root: str, step: str) -> None:
    folder = JobFolder(Path(root))
    stop: Any = Stop(float(step) if step else float("inf"))
    finished = train(JobDocument.read(folder.document), folder, stop)
    if finished == bool(step):
        raise AssertionError(f"{root} finished: {finished}")


if __name__ == "__main__":
    parallelism.PART_TOKENS = 1  # a pipeline has more parts than stages
    meter.AGREE_STEPS = 1  # a job stops after the step that is asked for
    for argument in sys.argv[1:]:
        run(*argument.partition("@")[::2])
    leave(0)
