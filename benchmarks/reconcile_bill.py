"""Measure seconds and memory of reading and matching a bill, beside pyarrow reading the same columns.

    python benchmarks/reconcile_bill.py             # a million lines, about a minute on two cores
    python benchmarks/reconcile_bill.py --lines 4000000

The bill is made up (tests/stand_ins/bill.py): 1,000 jobs of paretune with all their lines, and lines of other people
for the rest, a tenth of which are trainings on SageMaker, too; in four Parquet files, or in four CSV files. Each
reading is a process of its own: seconds of wall time without imports, median and range of the repeats, taken in turns;
highest resident memory of the process. What was matched is compared with what the jobs truly cost. MLflow is not part
of it.
"""

import argparse
import json
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import arguments
import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.stand_ins.bill import ARN, MONTH, UNIT, BillMaker, write_file  # noqa: E402

FILES = 4
READERS = ("pyarrow alone", "paretune reconcile")


def others(count: int, schema: pa.Schema, number: int, source: np.random.Generator) -> pa.Table:
    """Lines of other people, with the columns of a file of the bill."""
    cents = source.integers(1, 5_000_000, count) / 1e4
    hours = MONTH.timestamp() * 1000 + source.integers(0, 480, count) * 3_600_000
    is_training = source.random(count) < 0.1
    report: dict[str, Any] = {
        "identity_line_item_id": [f"other{number}-{workspace:09d}" for workspace in range(count)],
        "line_item_line_item_type": ["Usage"] * count,
        "line_item_product_code": np.where(is_training, "AmazonSageMaker", "AmazonEC2"),
        "line_item_usage_type": np.where(is_training, "USE1-Train:ml.g5.xlarge", "BoxUsage:m5.large"),
        "line_item_resource_id": np.where(is_training, f"{ARN}of-others", "i-0123456789abcdef0"),
        "line_item_unblended_cost": cents,
        "line_item_usage_amount": cents / 2,
        "line_item_currency_code": ["USD"] * count,
        "line_item_usage_start_date": pa.array(hours.astype("int64")).cast(pa.timestamp("ms", "UTC")),
        "line_item_usage_end_date": pa.array((hours + 3_600_000).astype("int64")).cast(pa.timestamp("ms", "UTC")),
    }
    columns = [
        pa.array(report[field.name], field.type) if field.name in report else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def make(folder: Path, lines: int, jobs: int) -> None:
    """A bill of so many lines in both formats, and what was recorded of its jobs."""
    bill = BillMaker(1).add_jobs(jobs).bill
    folder.mkdir()
    write_file(bill.rows, folder / "ours.parquet")
    actual = parquet.read_table(folder / "ours.parquet")
    (folder / "ours.parquet").unlink()
    source = np.random.default_rng(1)
    for kind in ("parquet", "csv"):
        (folder / kind).mkdir()
    size = max(0, lines - actual.num_rows) // FILES
    for number in range(FILES):
        name = f"bill-{number + 1:05}"  # as AWS names the parts of a delivery
        table = pa.concat_tables([actual.filter(np.arange(actual.num_rows) % FILES == number)])
        table = pa.concat_tables([table, others(size, actual.schema, number, source)])
        parquet.write_table(table.take(source.permutation(table.num_rows)), folder / "parquet" / f"{name}.parquet")
        flat = table.drop_columns(["resource_tags"])
        csv.write_csv(flat, folder / "csv" / f"{name}.csv")
    truth = {run_id: first.billed for run_id, first in bill.truths.items() if run_id not in bill.silent}
    tagged = {row["resource_tags"].get(name) for row in bill.rows for name in row["resource_tags"]}
    by_arn = {run_id for run_id in truth if run_id not in tagged}  # the CSV files have no tags
    (folder / "truth.pickle").write_bytes(pickle.dumps((bill.recorded, truth, by_arn)))


def peak_mib() -> float:
    """Highest resident memory of this process; the one of getrusage begins with that of its parent."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def measure(reader: str, bill: Path) -> dict[str, float]:
    """Read the files of a folder once; seconds, lines and the peak of resident memory in MiB."""
    from paretune.commands.bill.reading import BillFiles, batches
    from paretune.commands.bill.reconciliation import reconcile

    recorded, truth, by_arn = pickle.loads((bill.parent / "truth.pickle").read_bytes())  # noqa: S301  # our own
    before = peak_mib()
    began = time.perf_counter()
    if reader == READERS[0]:
        lines = sum(batch.num_rows for path in sorted(bill.iterdir()) for batch in batches(path))
    else:
        report = reconcile(BillFiles(bill), recorded)
        lines = sum(total.lines for total in report.totals.values())
    seconds = time.perf_counter() - began
    peak = peak_mib()
    if reader == READERS[1]:
        billed = {item.run_id: item.billed_usd for item in report.bills}
        expected = truth if bill.name == "parquet" else {run_id: truth[run_id] for run_id in by_arn}
        wrong = [run_id for run_id, units in expected.items() if billed[run_id] != Decimal(units) / UNIT]
        if wrong:
            sys.exit(f"{len(wrong)} of {len(expected)} jobs were not matched to the cent, such as {wrong[0]}")
    return {"seconds": seconds, "lines": lines, "peak_mib": peak, "imported_mib": before}


def repeated(folder: Path, repeats: int) -> None:
    """Every reader in turns, on both formats; prints a row each."""
    print(
        f"{'format':8} {'reader':20} {'seconds (range)':22} {'lines/s':>10} {'peak MiB':>9} {'of imports':>11}  ratio"
    )
    for kind in ("parquet", "csv"):
        result: dict[str, list[dict[str, float]]] = {name: [] for name in READERS}
        for _ in range(repeats):
            for name in READERS:
                words = [sys.executable, __file__, "--measure", name, "--bill", str(folder / kind)]
                report = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
                result[name].append(json.loads(report))
        alone = statistics.median(element["seconds"] for element in result[READERS[0]])
        for name, runs in result.items():
            times = sorted(item["seconds"] for item in runs)
            middle = statistics.median(times)
            peak, imported = (max(entry[key] for entry in runs) for key in ("peak_mib", "imported_mib"))
            spread = f"{middle:.2f} ({times[0]:.2f} to {times[-1]:.2f})"
            rate = runs[0]["lines"] / middle
            print(f"{kind:8} {name:20} {spread:22} {rate:10,.0f} {peak:9.0f} {imported:11.0f}  {middle / alone:.1f}")


def main() -> None:
    """Make the bill, read it, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--bill", type=Path, help=argparse.SUPPRESS)
    options = arguments.parse(parser, lines=20_000, jobs=100, repeats=1)
    if options.measure:
        print(json.dumps(measure(options.measure, options.bill)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "bill"
        make(folder, options.lines, options.jobs)
        print(f"{options.lines:,} lines, {options.jobs:,} jobs of paretune, pyarrow {pa.__version__}, made up, seed 1")
        repeated(folder, options.repeats)


if __name__ == "__main__":
    main()
