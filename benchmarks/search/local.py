"""Measures the local table: short trainings of this machine, over learning rate, batch, processes and epochs."""

import csv
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

from paretune.core.clock import SystemClock
from paretune.estimating.recorded.run_table import RunTable
from paretune.tracking import Tracking
from search.tables import Scatter, residuals

RATES = (1e-4, 2e-4, 4e-4, 8e-4)
BATCHES = (8, 16, 32)
COUNTS = (1, 2)
EPOCHS = (1, 2)
SEEDS = (1, 2, 3)
FIXED = {"max_train_samples": 800, "max_eval_samples": 1000, "max_seq_length": 64}
_COLUMNS = [
    *("instance_type", "instance_count", "per_device_train_batch_size", "learning_rate", "num_train_epochs"),
    *("max_train_samples", "max_seq_length", "seed", "status", "billable_seconds", "f1"),
]
_MEASURED = ("train_seconds", "throughput_samples_per_second", "peak_memory_gib")


def scatter(*paths: Path) -> Scatter:
    """How far single runs lie from the mean of their repeats.

    F1 from all repeats in these tables, the first of which is the one that is searched; seconds from repeats within
    that one, for they were measured while nothing else ran.
    """
    tables = [RunTable.read(path) for path in paths if path.exists()]
    whole = replace(tables[0], rows=tuple(row for table in tables for row in table.rows))
    f1, _ = residuals(whole)
    _, log_seconds = residuals(tables[0])
    seconds = (
        f"seconds by {len(log_seconds)} residuals" if log_seconds else "seconds by what two SageMaker jobs differ by"
    )
    basis = f"F1 by {len(f1)} residuals of repeated runs, of points with a like F1; {seconds}"
    return Scatter(f1=tuple(f1), log_seconds=tuple(log_seconds), basis=basis)


def measure(path: Path, *, most: int | None = None, rows: int | None = None) -> None:
    """Run the jobs in turn and write the table; what is in it already is not run again.

    Args:
        path: the table.
        most: how many points, the first ones; all.
        rows: rows to train and to judge on; those of FIXED.
    """
    fixed = FIXED if rows is None else {**FIXED, "max_train_samples": rows, "max_eval_samples": rows}
    path = path.resolve()
    curve = [f"f1_epoch_{epoch}" for epoch in range(1, max(EPOCHS) + 1)]
    header = [*_COLUMNS, *curve, "train_rows", *_MEASURED]
    points = list(itertools.product(SEEDS, COUNTS, BATCHES, RATES, EPOCHS))
    done = set()
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            done = {tuple(row[name] for name in ("seed", *header[1:5])) for row in csv.DictReader(file)}
    with tempfile.TemporaryDirectory() as folder, chdir(folder), path.open("a", newline="", encoding="utf-8") as file:
        os.environ.pop("MLFLOW_RUN_ID", None)
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
        writer = csv.writer(file, lineterminator="\n")
        if not done:
            writer.writerow(header)
        for seed, count, batch, rate, epochs in points[:most]:
            if tuple(map(str, (seed, count, batch, rate, epochs))) in done:
                continue
            start = time.monotonic()
            result = _run(fixed, seed, count, batch, rate, epochs)
            values = [result.get(f"f1_epoch_{epoch}", "") for epoch in range(1, max(EPOCHS) + 1)]
            writer.writerow(
                [
                    *("local", count, batch, rate, epochs, fixed["max_train_samples"], fixed["max_seq_length"]),
                    *(seed, "Completed", round(result["billable_seconds"], 2), round(result["f1"], 5), *values),
                    *(fixed["max_train_samples"], *(round(result[name], 3) for name in _MEASURED)),
                ]
            )
            file.flush()
            print(
                f"seed {seed}, {count} x batch {batch}, rate {rate:g}, {epochs} epochs: "
                f"{result['billable_seconds']:.1f} s, f1 {result['f1']:.3f} ({time.monotonic() - start:.0f} s in all)",
                flush=True,
            )


def _run(fixed: Mapping[str, int], seed: int, count: int, batch: int, rate: float, epochs: int) -> dict[str, float]:
    """One job's metrics, and F1 after each epoch."""
    changes = {
        **fixed,
        "seed": seed,
        "instance_count": count,
        "per_device_train_batch_size": batch,
        "learning_rate": rate,
        "num_train_epochs": epochs,
    }
    words = [word for name, value in changes.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-c", "from paretune.cli.main import run; run()", "main", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{words}: {ran.stderr[-2000:]}")
    tracking = Tracking({}, SystemClock())
    (newest,) = tracking.runs("tags.`paretune.state` = 'Completed'", newest=1)
    history = tracking._client.get_metric_history(newest.run_id, "eval/f1")
    report = {item.step: item.value for item in history}  # the training tells F1 four times
    values = [report[step] for step in sorted(report)]
    whole = len(values) % epochs == 0 and bool(values)
    curve = [values[len(values) * epoch // epochs - 1] for epoch in range(1, epochs + 1)] if whole else []
    return {**newest.metrics, **{f"f1_epoch_{number}": round(value, 5) for number, value in enumerate(curve, start=1)}}
