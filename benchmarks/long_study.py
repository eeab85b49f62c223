"""Measure what a long study costs besides its jobs: CPU seconds and memory of its trials, its choices and its page.

    python benchmarks/long_study.py                               # 1,000 trials in SQLite, half an hour
    python benchmarks/long_study.py --storage postgresql://...    # the same in an empty database of PostgreSQL
    python benchmarks/long_study.py --small                       # seconds, with 12 trials

The jobs are simulated and take no time, so all CPU seconds are the study's own: the choice of the next job, MLflow's
store (SQLite), the table of trials in --storage, and the ledger. The study searches the 1,200 jobs of a table that
formulas make, with `stop: never`. `choices` are the CPU seconds of the sampler in a trial. Memory is the highest of the
process so far. The last row is the same study started again after its end: it reads all trials and writes its page.
"""

import argparse
import itertools
import math
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import arguments
import published

from paretune.studies.definition.file import StudyFile
from paretune.studies.run import run_study_file
from paretune.studies.sampler.sampler import SplitSampler

TYPES = {
    "ml.g4dn.xlarge": 1.0,
    "ml.g5.xlarge": 0.5,
    "ml.g6.xlarge": 0.6,
    "ml.g5.2xlarge": 0.45,
    "ml.g5.12xlarge": 0.14,
}
"""Instance types of the table, and seconds of a job as multiples of those on the first type."""
AXES: Mapping[str, list[Any]] = {
    "instance_type": [*TYPES],
    "instance_count": [1, 2],
    "per_device_train_batch_size": [8, 16, 32, 64, 128],
    "learning_rate": [1e-5, 2e-5, 3e-5, 5e-5, 1e-4, 3e-4],
    "num_train_epochs": [1, 2, 3, 4],
}
_CHOOSING = ("next_job", "is_done", "why_done", "since_growth_usd", "beliefs", "expected")
"""The questions of a study to its sampler."""


@dataclass
class Clock:
    """CPU seconds of this process that its sampler has taken, and the state after each trial."""

    choosing_s: float = 0.0

    def timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method of the sampler whose CPU seconds are added to `choosing_s`."""

        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            try:
                return method(*args, **kwargs)
            finally:
                self.choosing_s += time.process_time() - started

        return call

    def now(self) -> tuple[float, float, float]:
        """Return CPU seconds of the process and of its choices so far, and its highest memory in MiB."""
        return time.process_time(), self.choosing_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def write_table(path: Path) -> None:
    """Write a run of each combination of AXES."""
    lines = [",".join([*AXES, "billable_seconds", "f1"])]
    for kind, count, batch, rate, epochs in itertools.product(*AXES.values()):
        seconds = 120 + 1500 * epochs * TYPES[kind] / count**0.85 * (8 / batch) ** 0.3
        off = math.log(rate / 3e-5) - 0.5 * math.log(batch * count / 32)
        f1 = 0.9 - 0.03 * math.exp(-epochs) - 0.005 * off**2
        lines.append(f"{kind},{count},{batch},{rate},{epochs},{seconds:.1f},{f1:.5f}")
    path.write_text("\n".join(lines) + "\n")


def study_of(table: Path, trials: int) -> StudyFile:
    """Return a study of the table with this number of trials."""
    return StudyFile.read(
        {
            "name": "long",
            "job": {
                "launcher": "simulated",
                "simulation": {"runs": str(table), "f1_noise": 0.002, "seconds_noise": 0.01},
                "max_runtime_minutes": 300,
            },
            "search": {name: {"choices": values} for name, values in AXES.items()},
            "objectives": {"cost_usd": "minimize", "f1": "maximize"},
            "n_trials": trials,
            "stop": "never",
        }
    )


def measure(folder: Path, trials: int, storage: str, marks: list[int]) -> list[tuple[str, ...]]:
    """Run the study in a folder, and return a row for the trials up to each of `marks`, and one for a second start."""
    os.environ |= {
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "PARETUNE_HOME": str(folder / "home"),
        "PARETUNE_STORAGE": storage or f"sqlite:///{folder / 'studies.db'}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    write_table(folder / "runs.csv")
    clock = Clock()
    for name in _CHOOSING:
        setattr(SplitSampler, name, clock.timed(getattr(SplitSampler, name)))
    states = [clock.now()]

    def say(text: str) -> None:
        words = text.split()
        if words[:1] == ["trial"] and len(words) > 2 and words[2] != "runs:":
            states.append(clock.now())
            if len(states) % 50 == 0:
                print(f"  {len(states) - 1} trials: {states[-1]}", file=sys.stderr, flush=True)

    study = study_of(folder / "runs.csv", trials)
    result = run_study_file(study, say=say)
    rows: list[tuple[str, ...]] = []
    for first, last in itertools.pairwise([0, *(mark for mark in marks if mark < len(states))]):
        all_s, choosing_s, _ = (b - a for a, b in zip(states[first], states[last], strict=True))
        count, memory = last - first, states[last][2]
        rows.append(
            (f"trials {first + 1} to {last}", f"{all_s / count:.2f}", f"{choosing_s / count:.2f}", f"{memory:.0f}")
        )
    before = clock.now()
    result = run_study_file(study, say=lambda text: None)
    after = clock.now()
    page = next(folder.rglob(f"{result.run_id}/artifacts/pareto.html"), None)
    size = f", a page of {page.stat().st_size / 2**20:.1f} MiB" if page is not None else ""
    rows.append(
        (f"start after the end{size}", f"{after[0] - before[0]:.1f}", f"{after[1] - before[1]:.2f}", f"{after[2]:.0f}")
    )
    return rows


def main() -> None:
    """Read the arguments, run the study, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000, help="number of trials")
    parser.add_argument("--storage", default="", help="address of the database of trials; by default a file of SQLite")
    options = arguments.parse(parser, trials=12)
    marks = [*(mark for mark in (100, 200, 400, 600, 800) if mark < options.trials), options.trials]
    with tempfile.TemporaryDirectory(prefix="paretune-long-") as folder:
        os.chdir(folder)
        rows = measure(Path(folder), options.trials, options.storage, marks)
        os.chdir("/")
    kind = options.storage.partition(":")[0] or "sqlite"
    made = published.conditions("paretune", "optuna", "mlflow", "scipy", "numpy")
    columns = (f"{options.trials} trials, {kind}", "CPU s a trial", "of these, choices", "highest memory, MiB")
    print(published.block(f"long_study_{kind}", [f"{made}.", "", *published.table(columns, rows)]))


if __name__ == "__main__":
    main()
