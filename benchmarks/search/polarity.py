"""The table that rehearses `studies/polarity_*.yaml`: jobs that nobody has run, by a formula.

`python benchmarks/search/polarity.py studies/polarity_rehearsal.csv` writes it. Seconds of a job, billed per instance:

    start-up     240 + 20 x instances
    a step       0.04 + rows per device / 48 + four fifths of the all-reduce of 268 MB
    all-reduce   2 (n - 1) / n / bandwidth, over 50 GB/s inside an instance and its network between instances
    steps        epochs x training rows / global batch

48 rows a second are 45 % of the 15.7 Tflop/s in fp32 of a V100 (NVIDIA's data sheet), for 512 tokens and the 43 million
weights in DistilBERT's layers. F1 is that of `modelled.py`, and 0.01 more with ten times the rows. Both are without
noise, which the simulated launcher adds.
"""

import csv
import itertools
import math
import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script
    sys.path.insert(0, str(Path(__file__).parents[1]))

from search.modelled import f1_of

CLUSTERS = (
    ("ml.p3.2xlarge", 1, 1, 1.25e9),
    ("ml.p3.8xlarge", 1, 4, 1.25e9),
    ("ml.p3.16xlarge", 1, 8, 3.125e9),
    ("ml.p3.16xlarge", 2, 8, 3.125e9),
    ("ml.p3.16xlarge", 4, 8, 3.125e9),
)
"""Instance type, instances, GPUs of one, and bytes per second of its network."""
BATCHES = (8, 16, 32)
RATES = (2.5e-5, 5e-5, 1e-4, 2e-4)
TRAININGS = ((90_000, 30), (540_000, 5), (900_000, 3))
"""Training rows and epochs."""
_GRADIENT_BYTES, _LINKS = 268e6, 50e9


def seconds_of(instances: int, gpus: int, network: float, batch: int, rows_seen: int) -> float:
    """Billed seconds of a job that sees so many rows with this batch on each GPU."""
    per_byte = sum(2 * (size - 1) / size / bandwidth for size, bandwidth in ((gpus, _LINKS), (instances, network)))
    step = 0.04 + batch / 48 + 0.8 * _GRADIENT_BYTES * per_byte
    return 240 + 20 * instances + rows_seen / (batch * gpus * instances) * step


def write(path: Path) -> None:
    """Write the table as recorded runs."""
    names = ["instance_type", "instance_count", "per_device_train_batch_size", "learning_rate", "model", "dataset"]
    names += ["max_seq_length", "max_train_samples", "num_train_epochs", "train_rows", "billable_seconds", "f1"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for cluster, batch, rate, (rows, epochs) in itertools.product(CLUSTERS, BATCHES, RATES, TRAININGS):
            kind, instances, gpus, network = cluster
            seconds = seconds_of(instances, gpus, network, batch, rows * epochs)
            f1 = f1_of(batch * gpus * instances, rate) + 0.01 * math.log10(rows / TRAININGS[0][0])
            setting = ["distilbert-base-uncased", "fancyzhx/amazon_polarity", 512, rows, epochs, rows]
            writer.writerow([kind, instances, batch, f"{rate:g}", *setting, f"{seconds:.1f}", f"{f1:.5f}"])


if __name__ == "__main__":
    write(Path(sys.argv[1]))
