"""Tables of jobs that nobody has run, drawn from a seed: worlds whose structure is unknown to a search.

A world draws its instance types and their speeds, the number of its rows, the time that instances need to exchange
gradients, the settings with the best F1, and how F1 falls away from them. Its kind says what is unusual about it.
Seconds and F1 follow these formulas, with n instances and, for each world, drawn constants:

    a step       latency + per-device batch / rows per second + exchange x 2 (n - 1) / n
    best rate    r x (global batch / 64) ^ power
    F1           best - a x |log2(batch / b)|^1.3 - depth x (1 - exp(-(d / width)^2)) - 0.4 / (1 + exp(-3 over))
                 d = log2(rate / best rate), over = log2(rate / cliff). The cliff, where training begins to diverge,
                 moves by a factor of 2 ^ cliff_power whenever the global batch doubles

    plain        the noise is 0.0015 in F1, and 1.5 % in seconds
    cliff        the cliff falls as the batch grows, while the best rate rises
    failing      15 % of the jobs fail after a part of their time; the same job with another seed may not
    continuous   batch and rate are ranges

Other kinds differ in structure from every model of a search here:

    heavy        noise of F1 has heavy tails (Student's t with 2 degrees of freedom), and 25 % of the jobs fail
    far          the best rate is eight times the usual one, or an eighth of it
    tiny         two types, three batches, two rates, one instance

search_fronts.py and search_statements.py list their own worlds.
"""

import csv
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

KINDS = {
    "plain": 0,
    "cliff": 2,
    "failing": 4,
    "continuous": 6,
    "heavy": 14,
    "far": 15,
    "tiny": 17,
}
"""Maps a kind to a number that its draws start from."""
DEVELOPMENT = range(10)
HELD_OUT = range(330, 340)
REPEATS = (1, 2, 3)
EPOCHS = 3
COLLAPSED = 0.34
"""F1 of a run that predicts only the majority class."""
BATCHES = (4, 8, 16, 32, 64, 128)
RATES = tuple(1e-5 * 2.0**step for step in range(7))
COUNTS = (1, 2, 4)
TYPES = {
    "ml.g4dn.xlarge": (1, 45, 14.5),
    "ml.g5.xlarge": (1, 110, 22.5),
    "ml.g6.xlarge": (1, 100, 22.5),
    "ml.g6e.xlarge": (1, 230, 45.0),
    "ml.g5.12xlarge": (4, 110, 22.5),
    "ml.g6.12xlarge": (4, 100, 22.5),
    "ml.p4d.24xlarge": (8, 320, 38.0),
}
"""Accelerators, rows of 128 tokens per second on one of them (each world draws its own near it), usable gigabytes."""
COLUMNS = (
    *("instance_type", "instance_count", "per_device_train_batch_size", "learning_rate", "seed", "status"),
    *("model", "dataset", "max_seq_length", "max_train_samples", "num_train_epochs", "train_rows"),
    *("billable_seconds", "f1"),
)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """One instance type of a world; `exchange_s` is the time in which two instances exchange their gradients."""

    accelerators: int
    rows_per_second: float
    usable_gb: float
    latency_s: float
    exchange_s: float


@dataclass(frozen=True, kw_only=True)
class World:
    """The constants of one world; the formulas are in the docstring of this module."""

    kind: str
    seed: int
    clusters: dict[str, Cluster]
    rows: int
    startup_s: float
    startup_per_instance_s: float
    best_f1: float
    best_rate: float
    best_batch: float
    power: float
    batch_fall: float
    depth: float
    width: float
    cliff: float
    cliff_power: float
    failing: float

    @classmethod
    def draw(cls, kind: str, seed: int) -> "World":
        """Return the world of a kind and a seed. The same kind and seed always give the same world."""
        draw = np.random.default_rng([KINDS[kind], seed])
        best_rate = 5e-5 * 2.0 ** draw.uniform(-1, 1.5)
        if kind == "far":
            best_rate *= 8.0 if best_rate < 5e-5 else 0.125
        clusters = _clusters(draw)
        return cls(
            kind=kind,
            seed=seed,
            clusters=clusters,
            rows=int(draw.choice([50_000, 100_000, 200_000, 400_000])),
            startup_s=draw.uniform(150, 300),
            startup_per_instance_s=draw.uniform(5, 30),
            best_f1=draw.uniform(0.82, 0.95),
            best_rate=best_rate,
            best_batch=2.0 ** draw.uniform(4, 6),
            power=draw.uniform(0.0, 1.0),
            batch_fall=draw.uniform(0.001, 0.006),
            depth=draw.uniform(0.02, 0.06),
            width=draw.uniform(1.5, 3.0),
            cliff=math.log2(best_rate) + draw.uniform(2.0, 3.5),
            cliff_power=-draw.uniform(0.3, 0.8) if kind == "cliff" else 0.5,
            failing={"failing": 0.15, "heavy": 0.25}.get(kind, 0.0),
        )

    def f1(self, batch: int, rate: float, epochs: float, tokens: int) -> float:
        """Return F1 without noise, for a global batch size, a learning rate, epochs and tokens per row."""
        size = math.log2(batch / 64)
        off = math.log2(rate / self.best_rate) - self.power * size
        fall = self.batch_fall * math.pow(abs(math.log2(batch / self.best_batch)), 1.3)
        over = math.log2(rate) - self.cliff - self.cliff_power * size
        short = 0.012 * math.pow(EPOCHS - epochs, 1.2) + 0.008 * math.log2(128 / tokens)
        ridge = self.depth * (1 - math.exp(-((off / self.width) ** 2)))
        return max(0.05, self.best_f1 - fall - ridge - short - 0.4 / (1 + math.exp(-3 * over)))

    def seconds(self, name: str, count: int, batch: int, epochs: float, tokens: int) -> float | None:
        """Return billed seconds without noise, or None if the job runs out of memory."""
        cluster = self.clusters[name]
        if 3.0 + 0.16 * batch * tokens / 128 > cluster.usable_gb:
            return None
        exchange = cluster.exchange_s * 2 * (count - 1) / count
        step = cluster.latency_s + batch * tokens / 128 / cluster.rows_per_second + exchange
        steps = epochs * self.rows / (batch * cluster.accelerators * count)
        return self.startup(count) + steps * step

    def startup(self, count: int) -> float:
        """Return the seconds before the first step."""
        return self.startup_s + self.startup_per_instance_s * count

    def write(self, path: Path) -> None:
        """Write all jobs of the world as recorded runs, each with all REPEATS."""
        draw = np.random.default_rng([1, KINDS[self.kind], self.seed])
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(self._row(draw, *job) for job in self._jobs())

    def _jobs(self) -> Iterator[tuple[str, int, int, float, int, float, int]]:
        if self.kind == "tiny":
            types, rates = list(self.clusters)[:2], RATES[1:4:2]
            return itertools.product(types, (1,), BATCHES[1:4], rates, REPEATS, (float(EPOCHS),), (128,))
        return itertools.product(self.clusters, COUNTS, BATCHES, RATES, REPEATS, (float(EPOCHS),), (128,))

    def _row(
        self,
        draw: np.random.Generator,
        name: str,
        count: int,
        batch: int,
        rate: float,
        seed: int,
        epochs: float,
        tokens: int,
    ) -> list[object]:
        setting = ("distilbert-base-uncased", "amazon_polarity", tokens, self.rows, epochs, self.rows)
        job = (name, count, batch, f"{rate:.4g}", seed)
        seconds = self.seconds(name, count, batch, epochs, tokens)
        if seconds is None:
            return [*job, "OutOfMemory", *setting, f"{self.startup(count) + 60:.1f}", ""]
        took = seconds * math.exp(draw.normal(0, 0.015))
        if draw.random() < self.failing:
            failed = self.startup(count) + draw.random() * (took - self.startup(count))
            return [*job, "Failed", *setting, f"{max(failed, 60.0):.1f}", ""]
        whole = batch * count * self.clusters[name].accelerators
        reached = self.f1(whole, rate, epochs, tokens)
        reached += 0.0015 * (draw.standard_t(2) if self.kind == "heavy" else draw.normal())
        return [*job, "Completed", *setting, f"{took:.1f}", f"{min(max(reached, 0.0), 1.0):.5f}"]


def _clusters(draw: np.random.Generator) -> dict[str, Cluster]:
    """Return four instance types, each with its own speed; the first one has a single accelerator."""
    single = [name for name, (accelerators, _, _) in TYPES.items() if accelerators == 1]
    first = str(draw.choice(single))
    others = draw.choice([name for name in TYPES if name != first], size=3, replace=False)
    result = {}
    for name in (first, *map(str, others)):
        accelerators, rows_per_second, usable_gb = TYPES[name]
        exchange = draw.uniform(0.01, 0.12)
        result[name] = Cluster(
            accelerators=accelerators,
            rows_per_second=rows_per_second * math.exp(draw.normal(0, 0.25)),
            usable_gb=usable_gb,
            latency_s=draw.uniform(0.02, 0.08),
            exchange_s=exchange,
        )
    return result
