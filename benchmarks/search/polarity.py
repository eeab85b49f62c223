"""The table that rehearses the designs in `studies`: jobs that nobody has run, by a formula.

`python benchmarks/search/polarity.py studies/polarity_rehearsal.csv` writes it. Seconds of a job, billed per instance:

    start-up     240 + 20 x instances
    a step       0.04 + rows of a device / its rows per second + four fifths of the all-reduce of 268 MB
    all-reduce   2 (n - 1) / n / bandwidth, over the links inside an instance and the network between instances
    steps        epochs x training rows / global batch

A row, 512 tokens through the 43 million weights in DistilBERT's layers, takes 0.147 Tflop. A V100 computes 45 % of the
15.7 Tflop/s in fp32 of NVIDIA's data sheet; the other GPUs 40 % of theirs in bf16 (A10G 70, A100 312, H100 989), an L4
a fifth of its 121, for it has 72 W. All strategies take the same seconds: that smddp is faster would be an invention.
F1 is that of `modelled.py`, and 0.01 more with ten times the rows or ten times the training. All is without noise,
which the simulated launcher adds.
"""

import csv
import itertools
import math
import sys
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):  # run as a script
    sys.path.insert(0, str(Path(__file__).parents[1]))

from search.modelled import f1_of


@dataclass(frozen=True)
class Cluster:
    """Instances of one type: GPUs of each, rows per second of one, and bytes per second of its links and network."""

    instance_type: str
    instances: int
    gpus: int
    rows_per_second: float
    links: float
    network: float

    def seconds(self, batch: int, rows_seen: int) -> float:
        """Billed seconds of a job that sees so many rows with this batch on each GPU."""
        ways = ((self.gpus, self.links), (self.instances, self.network))
        per_byte = sum(2 * (size - 1) / size / bandwidth for size, bandwidth in ways)
        step = 0.04 + batch / self.rows_per_second + 0.8 * _GRADIENT_BYTES * per_byte
        return 240 + 20 * self.instances + rows_seen / (batch * self.gpus * self.instances) * step


PUBLISHED = (
    Cluster("ml.p3.2xlarge", 1, 1, 48, 50e9, 1.25e9),
    Cluster("ml.p3.8xlarge", 1, 4, 48, 50e9, 1.25e9),
    Cluster("ml.p3.16xlarge", 1, 8, 48, 50e9, 3.125e9),
    Cluster("ml.p3.16xlarge", 2, 8, 48, 50e9, 3.125e9),
    Cluster("ml.p3.16xlarge", 4, 8, 48, 50e9, 3.125e9),
)
TODAY = (
    Cluster("ml.g5.xlarge", 1, 1, 190, 16e9, 1.25e9),
    Cluster("ml.g6.xlarge", 1, 1, 165, 16e9, 1.25e9),
    Cluster("ml.g5.48xlarge", 2, 8, 190, 16e9, 12.5e9),
    Cluster("ml.g6.48xlarge", 2, 8, 165, 16e9, 12.5e9),
    Cluster("ml.p4d.24xlarge", 2, 8, 850, 200e9, 50e9),
    Cluster("ml.p5.48xlarge", 2, 8, 2690, 300e9, 400e9),
)
ONE_LINE = tuple(Cluster("ml.p4d.24xlarge", instances, 8, 850, 200e9, 50e9) for instances in (1, 2, 4, 8))
BATCHES = (8, 16, 32)
RATES = (2.5e-5, 5e-5, 1e-4, 2e-4)
TRAININGS = ((90_000, 30), (540_000, 5), (900_000, 3))
"""Training rows and epochs."""
ONE_EPOCH = ((540_000, 1),)
_GRADIENT_BYTES = 268e6


def f1(global_batch: int, rate: float, rows: int, epochs: int) -> float:
    """F1 of a job, without noise; f1_of of `modelled` is that of 30 epochs of 90,000 rows."""
    (least, most), _, _ = TRAININGS
    return f1_of(global_batch, rate) + 0.01 * math.log10(rows / least) + 0.01 * math.log10(rows * epochs / least / most)


def write(path: Path) -> None:
    """Write the table as recorded runs."""
    names = ["instance_type", "instance_count", "per_device_train_batch_size", "learning_rate", "model", "dataset"]
    names += ["max_seq_length", "max_train_samples", "num_train_epochs", "train_rows", "billable_seconds", "f1"]
    jobs = [
        *itertools.product(PUBLISHED, BATCHES, RATES, TRAININGS),
        *itertools.product(TODAY, BATCHES, RATES, TRAININGS),
        *itertools.product(ONE_LINE, BATCHES, RATES, ONE_EPOCH),
    ]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for cluster, batch, rate, (rows, epochs) in jobs:
            seconds = cluster.seconds(batch, rows * epochs)
            quality = f1(batch * cluster.gpus * cluster.instances, rate, rows, epochs)
            setting = ["distilbert-base-uncased", "fancyzhx/amazon_polarity", 512, rows, epochs, rows]
            where = [cluster.instance_type, cluster.instances, batch, f"{rate:g}"]
            writer.writerow([*where, *setting, f"{seconds:.1f}", f"{quality:.5f}"])


if __name__ == "__main__":
    write(Path(sys.argv[1]))
