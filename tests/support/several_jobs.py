"""Runs several jobs in one process, one after another in one process group: `several_jobs.py FOLDER[@STEP] ...`.

This saves time, because importing torch and transformers takes longer than a tiny training run. A job with a STEP is
stopped after this many steps.
"""

import sys
from itertools import count
from pathlib import Path

from paretune.specification import parallelism
from paretune.specification.container import JobFolder
from paretune.specification.order import Order
from paretune.training import meter
from paretune.training.__main__ import leave
from paretune.training.job import train


def run(root: str, step: str) -> None:
    folder = JobFolder(Path(root))
    steps = count(1)  # a training run checks after each step whether it must stop
    order = Order.read(folder.document)
    finished = train(order, folder, lambda: bool(step) and next(steps) >= int(step))
    if finished == bool(step):
        raise AssertionError(f"{root} finished: {finished}")


if __name__ == "__main__":
    parallelism.PART_TOKENS = 1  # so that a pipeline has more parts than stages
    meter.AGREE_STEPS = 1  # so that a job stops exactly at the requested step
    for argument in sys.argv[1:]:
        run(*argument.partition("@")[::2])
    leave(0)
