"""Measure the error of predicted seconds, and the coverage of their intervals, depending on which jobs are known.

    python benchmarks/estimate_error.py                   # local jobs of local_runs.yaml, in results/local_runs.csv
    python benchmarks/estimate_error.py --published runs.csv
    python benchmarks/estimate_error.py --table rates.csv   # training rates by kind, as in estimate_error_cold.py

A cluster shape is an instance type and a number of instances. Each job is predicted in three ways: without any
known job; from the jobs of all other shapes; and from those jobs and one other job of its own shape. Two other methods
predict from the same jobs: perfect scaling from the smallest known cluster, and Ernest (Venkataraman et al., NSDI
2016), which fits a weighted sum of 1, work / n, log n and n, for n devices, by non-negative least squares. The relative
error of dollars equals that of seconds, because both are multiplied by the same price.

--published: a table of jobs with the columns model, per_device_train_batch_size, num_train_epochs, instance_type,
instance_count, strategy, dataset_size, billable_seconds. The benchmark assumes that they ran like the jobs of
aws-samples/amazon-sagemaker-huggingface-benchmark (src/models/train_model.py): with the Trainer of transformers 4.6,
they trained on nine tenths of `dataset_size`, evaluated the last tenth after each epoch and once more at the end, and
then evaluated the test split. They left all checkpoints in the folder of the model, which SageMaker packs. Jobs without
a `strategy` on several GPUs used DataParallel. A second table has the billed time of the jobs with the most rows, and
the hours that `paretune estimate` prints for them, with its command.

--table: published training rates, with the columns of estimate_error_cold.py; may be repeated. Each row is estimated as
`paretune estimate` does, without any earlier job, and a table shows the errors by kind of job. It has two halves: the
sources that constants were chosen on, where the width of each source's intervals is learned from the other sources, and
the sources that were left out. The widths are learned from whole sources, so the share of rates inside their intervals
is also shown with each source of a kind counted once.

--small: if no table is given, a formula makes up published jobs.
"""

import argparse
import itertools
import json
import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import arguments
import numpy as np
import pandas as pd
import published
from scipy.optimize import nnls

import paretune as program
from paretune.commands.estimate.table import printed_time
from paretune.core.shell import command_line
from paretune.estimating import timing
from paretune.estimating.architecture import well_known
from paretune.estimating.counting import Work, describe
from paretune.estimating.phases import Seconds
from paretune.estimating.timing import Measurement, fit
from paretune.estimating.workload import setting_of
from paretune.presentation.text import duration
from paretune.specification.job import JobSpec

LOCAL = Path(__file__).parent / "results" / "local_runs.csv"
TEST_ROWS = 400_000  # test rows of amazon_polarity; each published job evaluates all of them at its end
PROGRAM = "trainer-4.6"  # the Trainer of the published jobs


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """A job that has run: its description for the time model, its cluster shape, and its billable seconds."""

    work: Work
    shape: str
    devices: int
    rows: float
    seconds: float

    @classmethod
    def of(cls, spec: JobSpec, seconds: float) -> "Job":
        """Return the job that `spec` describes. It has a well-known model and `max_train_samples`."""
        built, rows = well_known(spec.model), spec.max_train_samples
        assert built is not None
        assert rows is not None
        setting = setting_of(spec, spec.plan(), built)
        assert setting is not None
        work = describe(setting)
        shape, trained = f"{spec.instance_count} x {spec.instance_type}", rows * spec.num_train_epochs
        return cls(work=work, shape=shape, devices=spec.degrees.data, rows=trained, seconds=seconds)


Method = Callable[[Sequence[Job], Sequence[Job]], list[Seconds]]


def paretune(evidence: Sequence[Job], targets: Sequence[Job]) -> list[Seconds]:
    """Predict with paretune's time model."""
    model = fit([Measurement(work=job.work, seconds=job.seconds) for job in evidence])
    return [*model.predict([job.work for job in targets])]


def ernest(evidence: Sequence[Job], targets: Sequence[Job]) -> list[Seconds]:
    """Predict with non-negative least squares on 1, work / n, log n and n."""

    def features(jobs: Sequence[Job]) -> np.ndarray:
        n = np.array([job.devices for job in jobs], dtype=float)
        work = np.array([job.rows for job in jobs])
        return np.stack([np.ones_like(n), work / n, np.log(n), n], axis=1)

    scale = max(job.rows for job in evidence)
    weights, _ = nnls(features(evidence) / [1, scale, 1, 1], np.array([job.seconds for job in evidence]))
    return [without_interval(float(row @ (weights / [1, scale, 1, 1]))) for row in features(targets)]


def perfect_scaling(evidence: Sequence[Job], targets: Sequence[Job]) -> list[Seconds]:
    """Predict that every cluster needs the seconds per row and device of the smallest known cluster."""
    fewest = min(job.devices for job in evidence)
    per_row = statistics.mean(job.seconds * job.devices / job.rows for job in evidence if job.devices == fewest)
    return [without_interval(per_row * job.rows / job.devices) for job in targets]


def without_interval(seconds: float) -> Seconds:
    """Return a prediction with an interval of width 0."""
    return Seconds(seconds=seconds, seconds_low=seconds, seconds_high=seconds)


METHODS: Mapping[str, Method] = {"paretune": paretune, "Ernest": ernest, "perfect scaling": perfect_scaling}


def typed(row: Mapping[Any, Any], max_seq_length: int) -> dict[str, str]:
    """Return the options of `paretune estimate` for a published job."""
    is_alone = row["instance_type"] == "ml.p3.2xlarge"
    strategy = "smddp" if row.get("strategy") == "smddp" else "dp"
    return {
        "model": row["model"],
        "dataset": "fancyzhx/amazon_polarity",
        "max_train_samples": str(round(0.9 * row["dataset_size"])),
        "num_train_epochs": f"{row['num_train_epochs']:g}",
        "max_seq_length": str(max_seq_length),
        "precision": "fp32",
        "per_device_train_batch_size": str(row["per_device_train_batch_size"]),
        "instance_type": row["instance_type"],
        "instance_count": str(row["instance_count"]),
        **({} if is_alone else {"strategy": strategy}),
        "program": PROGRAM,
        "test_rows": str(TEST_ROWS),
        "training_arguments.eval_strategy": "epoch",
    }


def read_published(table: pd.DataFrame, max_seq_length: int) -> list[Job]:
    """Return the jobs of a published table."""
    rows = table.to_dict("records")
    return [Job.of(JobSpec.read(typed(row, max_seq_length)), float(row["billable_seconds"])) for row in rows]


def read_local() -> list[Job]:
    """Return the completed jobs of LOCAL, which are specified in local_runs.yaml and ran on a machine with bf16."""
    common: dict[str, Any] = {
        "max_train_samples": 800,
        "max_eval_samples": 853,
        "max_seq_length": 64,
        "precision": "bf16",
    }
    names = ("per_device_train_batch_size", "instance_count", "num_train_epochs")
    rows = pd.read_csv(LOCAL).query("status == 'Completed'").to_dict("records")
    return [
        Job.of(JobSpec(**common, **{name: row[name] for name in names}), float(row["billable_seconds"])) for row in rows
    ]


def splits(jobs: Sequence[Job]) -> dict[str, list[tuple[list[Job], list[Job]]]]:
    """Return, for each situation, pairs of known jobs and jobs to predict."""
    shapes = list(dict.fromkeys(job.shape for job in jobs))
    others = {shape: [job for job in jobs if job.shape != shape] for shape in shapes}
    alike = {shape: [job for job in jobs if job.shape == shape] for shape in shapes}
    return {
        "nothing known": [([], list(jobs))],
        "other shapes known": [(others[shape], alike[shape]) for shape in shapes],
        "and one job of the shape": [
            ([*others[shape], reference], [job for job in alike[shape] if job is not reference])
            for shape in shapes
            for reference in alike[shape]
        ],
    }


def situations(name: str, jobs: Sequence[Job]) -> list[list[str]]:
    """Return a row for each situation: the mean error of each method, and the share of jobs inside our intervals."""
    rows = []
    for situation, pairs in splits(jobs).items():
        results = {
            method: [pair for known, targets in pairs for pair in zip(predict(known, targets), targets, strict=True)]
            for method, predict in METHODS.items()
            if pairs[0][0] or method == "paretune"
        }
        errors = {
            method: statistics.mean(abs(prediction.seconds / job.seconds - 1) for prediction, job in result)
            for method, result in results.items()
        }
        ours = results["paretune"]
        inside = sum(prediction.seconds_low <= job.seconds <= prediction.seconds_high for prediction, job in ours)
        width = math.exp(statistics.mean(math.log(item.seconds_high / item.seconds) for item, _ in ours))
        cells = [f"{errors[method]:.1%}" if method in errors else "-" for method in METHODS]
        rows.append([f"{name}: {situation}", *cells, f"{inside / len(ours):.0%} of {len(ours)}", f"x {width:.2f}"])
    return rows


def bills(table: pd.DataFrame, max_seq_length: int) -> list[list[str]]:
    """Return a row for each cluster: the jobs with the most rows, their billed time, and the printed estimate."""
    rows, lines = table[table["dataset_size"] == table["dataset_size"].max()], []
    for _, of_cluster in rows.groupby(["instance_count", "instance_type"]):
        options = typed(of_cluster.iloc[0].to_dict(), max_seq_length)
        ((_, item),) = program.estimate(JobSpec.read(options)).jobs
        billed = duration(of_cluster["billable_seconds"].mean())
        cluster = f"{options['instance_count']} x {options['instance_type']}"
        lines.append([cluster, str(len(of_cluster)), billed, printed_time(item)])
    return lines


def kinds(tables: Sequence[Path], most: int | None) -> list[str]:
    """Return tables of errors of `paretune estimate` by kind of job, for the two halves of the sources.

    The last table has the factors of the intervals (`timing.CALIBRATION`), from the first half.
    """
    import estimate_error_cold as cold

    rates = cold.read(tables)
    factors = cold.calibration_table(rates)
    if most is not None:
        rates = [
            rate for _, of_source in itertools.groupby(rates, lambda rate: rate.source) for rate in [*of_source][:most]
        ]
    lines = list[str]()
    for half, is_fitted in (("sources that constants were chosen on", True), ("sources left out", False)):
        found: dict[str, list[tuple[str, float, float]]] = {}
        for source in dict.fromkeys(rate.source for rate in rates):
            if source.startswith(cold.FITTED_ON) is not is_fitted:
                continue
            without = {kind: factor for kind, (_, _, factor) in cold.calibration(rates, but=source).items()}
            with mock.patch.dict(timing.CALIBRATION, without if is_fitted else {}):
                for rate in rates:
                    if rate.source == source:
                        kind = rate.work.kind or "GPUs without a data sheet"
                        found.setdefault(kind, []).append((source, *_estimated(rate)))
        if not found:
            continue
        rows = [_of_kinds(kind, {kind: values}) for kind, values in sorted(found.items())]
        rows.append(_of_kinds("all", found))
        inside = ["in the 80 % interval", "each source once"]
        header = [half, "rows", "sources", "median", "error", *inside, "its half-width"]
        lines += [*published.table(header, rows), ""]
    return [*lines, "Factors of the intervals, from the sources that constants were chosen on:", "", *factors]


def _estimated(rate: Any) -> tuple[float, float]:
    """Return the predicted rate over the published one, and the half-width, from the options that a user would type."""
    with tempfile.TemporaryDirectory() as folder:
        config, _ = rate.configuration
        Path(folder, "config.json").write_text(json.dumps(config))
        options = {name: text for name, text in rate.spec.given_text().items() if name != "dataset"}
        ((_, item),) = program.estimate(JobSpec.read(options | {"model": folder})).jobs
    assert item is not None
    return rate.step_seconds / item.time.step_seconds, item.time.seconds_high / item.time.seconds


def _of_kinds(name: str, found: Mapping[str, Sequence[tuple[str, float, float]]]) -> list[str]:
    """Return a row of a table for rates by kind, each with its source, ratio and half-width."""
    values = [value for of_kind in found.values() for value in of_kind]
    of_source: dict[tuple[str, str], list[bool]] = {}
    for kind, of_kind in found.items():
        for source, ratio, width in of_kind:
            of_source.setdefault((kind, source), []).append(1 / width <= ratio <= width)
    inside = statistics.mean(one for some in of_source.values() for one in some)
    by_source = statistics.mean(statistics.mean(some) for some in of_source.values())
    error = statistics.median(abs(math.log(ratio)) for _, ratio, _ in values)
    width = math.exp(statistics.mean(math.log(width) for *_, width in values))
    middle = statistics.median(ratio for _, ratio, _ in values)
    sources = len({source for source, *_ in values})
    cells = [f"{middle:.2f}", f"{math.expm1(error):.0%}", f"{inside:.0%}", f"{by_source:.0%}", f"x {width:.2f}"]
    return [name, str(len(values)), str(sources), *cells]


def small_table() -> pd.DataFrame:
    """Return a table of two jobs on each of three shapes, made up by a formula."""
    rows = [
        {
            "model": "distilbert-base-uncased",
            "per_device_train_batch_size": batch,
            "num_train_epochs": 3,
            "instance_type": "ml.p3.2xlarge",
            "instance_count": instances,
            "dataset_size": 20000,
            "billable_seconds": round(300 + 16000 / instances * (8 / batch) ** 0.2),
        }
        for instances, batch in itertools.product((1, 2, 4), (8, 16))
    ]
    return pd.DataFrame(rows)


def main() -> None:
    """Print the tables that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", type=Path, help="CSV of published jobs")
    parser.add_argument("--max_seq_length", type=int, default=512, help="tokens that its rows were padded to")
    parser.add_argument("--table", type=Path, action="append", help="CSV of published training rates")
    parser.add_argument("--most", type=int, help="maximum number of rates per source; default: all")
    options = arguments.parse(parser, most=1)
    rows = list[list[str]]()
    billed = list[list[str]]()
    if options.published or options.small:
        table = pd.read_csv(options.published) if options.published else small_table()
        rows += situations("published", read_published(table, options.max_seq_length))
        billed = bills(table, options.max_seq_length)
        largest = table[table["dataset_size"] == table["dataset_size"].max()].sort_values("instance_count")
        first = typed(largest.iloc[0].to_dict(), options.max_seq_length)
        print(f"for example, {command_line('estimate', first)}")
    rows += situations("local", read_local())
    made = published.conditions("paretune", "torch", "scipy")
    header = ["mean error of seconds", *METHODS, "in the 80 % interval", "its half-width"]
    print(published.block("estimate_error", [f"{made}:", "", *published.table(header, rows)]))
    if billed:
        header = ["cluster", "jobs", "billed", "`paretune estimate` (80 % interval)"]
        print(published.block("published_bills", published.table(header, billed)))
    if options.table:
        about = f"{made}; *median* is the predicted rate over the published one, *error* the median of the deviations:"
        print(published.block("estimate_kinds", [about, "", *kinds(options.table, options.most)]))


if __name__ == "__main__":
    main()
