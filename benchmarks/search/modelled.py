"""The table that rehearses the shipped study: 756 jobs that nobody has run, a formula in the shape of real fine-tuning.

`python benchmarks/search/modelled.py studies/rehearsal.csv` writes it.

Seconds of a job, billed per instance:

    start-up     240 + 20 x instances
    a step       latency + per-device batch / rows per second of one accelerator + four fifths of the all-reduce
    all-reduce   134 MB of gradients x 2 (n - 1) / n / bandwidth, inside an instance and between instances
    steps        3 epochs x 400,000 rows / global batch

F1 follows from global batch B and learning rate r alone; the cluster adds noise, and nothing else:

    best rate    5e-5 x sqrt(B / 64); with d = log2(r / best rate)
    F1           0.930 - 0.0022 x log2(B / 32)+^1.4 - 0.003 x log2(32 / B)+ - 0.035 x (1 - exp(-(d / 2.5)^2))
                 - 0.4 / (1 + exp(-3 (d - 3.2)))                             too high a rate diverges
    noise        normal, 0.0015: SageMaker repeats of one job differed by 0.0005 (median) and 0.0052 (largest)

An accelerator holds 3 GB and 0.16 GB a row; what needs more runs out of memory a minute after start-up. Seconds vary by
1.5 % between seeds (1.4 % is the median between repeats of real jobs).
"""

import csv
import hashlib
import itertools
import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path

EPOCHS = 3
ROWS = 400_000
_SEED = 1
COUNTS = (1, 2, 4)
BATCHES = (4, 8, 16, 32, 64, 128, 256)
RATES = (5e-6, 1e-5, 2e-5, 4e-5, 8e-5, 1.6e-4, 3.2e-4, 6.4e-4, 1.28e-3)
_GRADIENT_BYTES = 134e6
_EXPOSED = 0.8
_FIXED_GB, _ROW_GB = 3.0, 0.16
_F1_NOISE, _SECONDS_NOISE = 0.0015, 0.015


@dataclass(frozen=True, kw_only=True)
class _Cluster:
    """One instance type: accelerators, rows per second and usable gigabytes of each, bytes per second in and out."""

    accelerators: int
    rows_per_second: float
    latency_s: float
    usable_gb: float
    inside: float
    network: float


TYPES = {
    "ml.g4dn.xlarge": _Cluster(
        accelerators=1, rows_per_second=45, latency_s=0.045, usable_gb=14.5, inside=1e12, network=2.5e9
    ),
    "ml.g5.xlarge": _Cluster(
        accelerators=1, rows_per_second=110, latency_s=0.04, usable_gb=22.5, inside=1e12, network=1.25e9
    ),
    "ml.g6e.xlarge": _Cluster(
        accelerators=1, rows_per_second=230, latency_s=0.035, usable_gb=45, inside=1e12, network=2.5e9
    ),
    "ml.g5.12xlarge": _Cluster(
        accelerators=4, rows_per_second=110, latency_s=0.04, usable_gb=22.5, inside=10e9, network=5e9
    ),
}


def f1_of(batch: int, rate: float) -> float:
    """F1 without noise, of a global batch size and a learning rate."""
    off = math.log2(rate / (5e-5 * math.sqrt(batch / 64)))
    large, small = max(0.0, math.log2(batch / 32)), max(0.0, math.log2(32 / batch))
    diverged = 0.4 / (1 + math.exp(-3 * (off - 3.2)))
    return (
        0.930 - 0.0022 * math.pow(large, 1.4) - 0.003 * small - 0.035 * (1 - math.exp(-((off / 2.5) ** 2))) - diverged
    )


def seconds_of(kind: str, count: int, batch: int) -> float | None:
    """Billed seconds without noise, of an instance type, instances and a per-device batch; None: out of memory."""
    cluster = TYPES[kind]
    if _FIXED_GB + _ROW_GB * batch > cluster.usable_gb:
        return None
    per_byte = sum(
        2 * (size - 1) / size / bandwidth
        for size, bandwidth in ((cluster.accelerators, cluster.inside), (count, cluster.network))
    )
    step = cluster.latency_s + batch / cluster.rows_per_second + _EXPOSED * _GRADIENT_BYTES * per_byte
    return _startup(count) + EPOCHS * ROWS / (batch * cluster.accelerators * count) * step


def write(path: Path) -> None:
    """Write the table as recorded runs."""
    names = ["instance_type", "instance_count", "per_device_train_batch_size", "learning_rate", "seed", "status"]
    names += ["model", "dataset", "max_seq_length", "max_train_samples", "num_train_epochs", "train_rows"]
    names += ["billable_seconds", "f1"]
    setting = ("distilbert-base-uncased", "amazon_polarity", 128, ROWS, EPOCHS, ROWS)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for job in itertools.product(TYPES, COUNTS, BATCHES, RATES, (_SEED,)):
            kind, count, batch, rate, _ = job
            draw = random.Random(hashlib.sha256(repr(job).encode()).digest())
            seconds = seconds_of(kind, count, batch)
            if seconds is None:
                end = ["OutOfMemory", *setting, f"{_startup(count) + 60:.1f}", ""]
            else:
                whole = batch * count * TYPES[kind].accelerators
                f1 = f1_of(whole, rate) + draw.gauss(0, _F1_NOISE)
                took = seconds * math.exp(draw.gauss(0, _SECONDS_NOISE))
                end = ["Completed", *setting, f"{took:.1f}", f"{f1:.5f}"]
            writer.writerow([*job, *end])


def _startup(count: int) -> float:
    return 240 + 20 * count


if __name__ == "__main__":
    write(Path(sys.argv[1]))
