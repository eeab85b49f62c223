"""How far off are estimates of jobs of which nothing was measured? Against training rates that others have published.

    python benchmarks/estimate_error_cold.py                     # benchmarks/tables/published_throughput.csv
    python benchmarks/estimate_error_cold.py --table rates.csv   # the same columns

Each row is predicted from data sheets alone, without any earlier run, and groups of rows are shown apart: published
rate over predicted rate (more than 1: the estimate is too slow), and how many lie in the stated 80 % interval.

Columns: model, layers, hidden_size, sequence_length, precision, strategy, per_device_batch, accumulation, chip,
instance_type, devices_per_instance, instance_count, published_rate, unit (sequences/s or tokens/s over all devices),
source. Models named mpt-* are decoders with 50,368 tied embeddings, others encoders with 30,522.
"""

import argparse
import csv
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import arguments
import published

from paretune.estimating.architecture import Architecture
from paretune.estimating.estimator import Estimator
from paretune.estimating.evidence import Evidence
from paretune.specification.job import JobSpec

TABLE = Path(__file__).parent / "tables" / "published_throughput.csv"
ROWS = 10_000_000
"""Rows of the job that is predicted: so many that nothing counts but its steps."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A published rate over the predicted one, and the interval of the predicted one relative to it."""

    group: str
    label: str
    ratio: float
    low: float
    high: float

    @property
    def is_inside(self) -> bool:
        """Whether the stated interval holds the published rate."""
        return self.low <= self.ratio <= self.high


def architecture(row: Mapping[str, str]) -> Architecture:
    """Twelve matrices of hidden size squared a layer: attention, and a feed-forward block four times as wide."""
    layers, hidden = int(row["layers"]), int(row["hidden_size"])
    blocks, is_decoder = 12 * layers * hidden**2, row["model"].startswith("mpt")
    vocabulary = 50_368 if is_decoder else 30_522
    return Architecture(
        parameters=blocks + vocabulary * hidden,
        matrices=blocks + (vocabulary * hidden if is_decoder else 0),
        layers=layers,
        hidden_size=hidden,
        vocabulary=vocabulary,
    )


def job(row: Mapping[str, str]) -> JobSpec:
    """The job that a row tells of."""
    is_decoder = row["model"].startswith("mpt")
    return JobSpec(
        model=row["model"],
        dataset="published",
        task="causal-lm" if is_decoder else "classification",
        max_train_samples=ROWS,
        max_eval_samples=1,
        max_seq_length=int(row["sequence_length"]),
        per_device_train_batch_size=int(row["per_device_batch"]),
        gradient_accumulation_steps=int(row["accumulation"]),
        num_train_epochs=1,
        instance_type=row["instance_type"],
        instance_count=int(row["instance_count"]),
        strategy=row["strategy"],
        precision=row["precision"],
    )


def group_of(row: Mapping[str, str]) -> str:
    """Rows that are reported together."""
    if row["model"].startswith("mpt"):
        return f"MPT on {row['chip'].partition('-')[0]}"
    return f"{row['model'].partition('-')[0].upper()} {row['precision']}"


def read(path: Path) -> list[Rate]:
    """Every row of a table, predicted."""
    nothing = Estimator(Evidence())
    return [_rate(nothing, row) for row in csv.DictReader(path.open(encoding="utf-8"))]


def _rate(estimator: Estimator, row: Mapping[str, str]) -> Rate:
    spec = job(row)
    found = estimator.estimate(spec, architecture(row), None)
    if found is None:
        raise SystemExit(f"{row['instance_type']}: no data sheet")
    published = float(row["published_rate"]) / (spec.max_seq_length if row["unit"].startswith("tokens") else 1)
    time = found.time
    return Rate(
        group=group_of(row),
        label=f"{row['model']} {row['precision']} {row['strategy']}, {spec.instance_count} x {spec.instance_type}, "
        f"{row['per_device_batch']} x {row['accumulation']}",
        ratio=published * time.seconds / ROWS,
        low=time.seconds / time.seconds_high,
        high=time.seconds / time.seconds_low,
    )


def show(rates: list[Rate]) -> None:
    """Print each row."""
    print("published rate over the predicted one, and what the stated 80 % interval allows")
    for rate in rates:
        mark = "" if rate.is_inside else "  outside"
        print(f"  {rate.label:58} {rate.ratio:5.2f}  ({rate.low:.2f} to {rate.high:.2f}){mark}")


def by_group(rates: list[Rate]) -> list[list[str]]:
    """A row for each group, and for all."""
    groups = defaultdict(list)
    for rate in rates:
        groups[rate.group].append(rate)
    rows = []
    for name, members in [*groups.items(), ("all", rates)]:
        ratios = [rate.ratio for rate in members]
        inside = f"{sum(rate.is_inside for rate in members)} of {len(members)}"
        width = math.exp(statistics.mean(math.log(rate.high / rate.low) / 2 for rate in members))
        span = f"{min(ratios):.2f} to {max(ratios):.2f}"
        rows.append([name, f"{statistics.median(ratios):.2f}", span, inside, f"x {width:.2f}"])
    return rows


def main() -> None:
    """Print the table that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=TABLE, help="CSV of published rates")
    asked = arguments.parse(parser)
    rates = read(asked.table)
    show(rates)
    header = ["published rate / predicted rate", "median", "range", "in the 80 % interval", "its half-width"]
    made = f"{published.conditions('paretune')}:"
    print(published.block("estimate_error_cold", [made, "", *published.table(header, by_group(rates))]))


if __name__ == "__main__":
    main()
