"""A table of recorded runs computed by a formula, a study with all kinds of failures, and the records of a study."""

import itertools
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from paretune.pricing import Balance
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.trials import Trial
from paretune.studies.search.table import StudyTable

TYPES = ("ml.g5.xlarge", "ml.g6.xlarge")
COUNTS, BATCHES, RATES = (1, 2, 4), (8, 16, 32, 64), (1e-5, 3e-5, 1e-4, 3e-4)

TWO_TRIALS = """name: pasted
job: {launcher: simulated, instance_type: ml.g5.xlarge, max_train_samples: 2000}
search: {per_device_train_batch_size: {choices: [8, 16]}}
objectives: {cost_usd: minimize, job_seconds: minimize}
n_trials: 2
"""
"""A study file with two simulated jobs."""


def records_of(path: Path | str, storage: str) -> tuple[list[Trial], list[Trial], Balance]:
    """Return the running and the ended trials of a study file, and its balance."""
    with closing(StudyTable(StudyFile.read(str(path), {}), storage)) as table:
        return *table.trials(), table.balance()


def write_table(path: Path) -> None:
    """Write runs on a grid. More instances are faster, larger batches have lower F1, and the largest does not fit."""
    header = "instance_type,instance_count,per_device_train_batch_size,learning_rate,num_train_epochs,billable_seconds"
    lines = [f"{header},f1,status"]
    for kind, count, batch, rate in itertools.product(TYPES, COUNTS, BATCHES, RATES):
        seconds = 120 + 1500 / count**0.9 * (8 / batch) ** 0.3
        f1 = 0.9 - 0.0003 * batch * count - 0.01 * abs(rate * 3e4 - 1)
        finished = ",OutOfMemory" if batch == BATCHES[-1] else f"{f1:.4f},Completed"
        lines.append(f"{kind},{count},{batch},{rate},2,{seconds:.1f},{finished}")
    path.write_text("\n".join(lines) + "\n")


def write_study(folder: Path, **changes: Any) -> Path:
    """Write study.yaml and its table. Some of its jobs fail, find no capacity, or run out of memory."""
    write_table(folder / "runs.csv")
    study = {
        "name": "survival",
        "job": {
            "launcher": "simulated",
            "simulation.runs": str(folder / "runs.csv"),
            "num_train_epochs": 2,
            "max_runtime_minutes": 60,
            "simulation": {"failure_rate": 0.1, "capacity_error_rate": 0.1, "f1_noise": 0.002},
        },
        "search": {
            "instance_type": {"choices": list(TYPES)},
            "instance_count": {"choices": list(COUNTS)},
            "per_device_train_batch_size": {"choices": list(BATCHES)},
            "learning_rate": {"low": 1e-5, "high": 3e-4, "log": True},
        },
        "objectives": {"cost_usd": "minimize", "f1": "maximize"},
        "n_parallel": 3,
        "sampler": "random",
        **changes,
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    return path
