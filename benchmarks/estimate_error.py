"""Measure the error of predicted seconds and the coverage of their intervals, by how much is known.

    python benchmarks/estimate_error.py                   # local jobs, results/local_runs.csv
    python benchmarks/estimate_error.py --published runs.csv --scaling scaling.csv

Of a table of jobs every one is predicted three times: cold, with no job known; from all jobs of other cluster shapes;
and from these and one job of its own shape. Beside it, from the same jobs: perfect scaling from the smallest cluster
that is known, and Ernest (Venkataraman et al., NSDI 2016): non-negative least squares on 1, work / n, log n and n
devices. A relative error of dollars is that of seconds: the price multiplies both sides.

--published: a table of jobs with the columns model, per_device_train_batch_size, num_train_epochs, instance_type,
instance_count, strategy, dataset_size, billable_seconds; nine tenths of `dataset_size` train, a tenth validates.

--local: a table of local jobs, such as benchmarks/results/local_runs.csv; instance_count is that of processes.

--scaling: columns instances and minutes, the training time of a job on clusters of growing size; each row is predicted
from the first.

--small: tables by a formula, made here, in place of those that are not given.

Without any earlier job, on many kinds of clusters: estimate_error_cold.py. On this machine: estimate_error_local.py.
"""

import argparse
import csv
import itertools
import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import arguments
import numpy as np
import published
from scipy.optimize import nnls

from paretune.estimating.architecture import well_known
from paretune.estimating.features import describe
from paretune.estimating.timing import Measurement, TimeModel, TimingFeatures
from paretune.specification.inputs import BUNDLED_MODEL
from paretune.specification.job import JobSpec

LOCAL = Path(__file__).parent / "results" / "local_runs.csv"
LONG = 1000.0
"""Jobs of a scaling table are taken to be so many times as long: of a training time, start-up is no part."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that has run: what the time model sees of it, its cluster shape, and its billable seconds."""

    setting: TimingFeatures
    shape: str
    devices: int
    work: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """Seconds, and an 80 % interval where the method states one."""

    seconds: float
    low: float | None = None
    high: float | None = None


Method = Callable[[Sequence[Job], Sequence[Job]], list[Predicted]]


def paretune(evidence: Sequence[Job], targets: Sequence[Job]) -> list[Predicted]:
    """The product's time model."""
    model = TimeModel([Measurement(setting=job.setting, seconds=job.seconds) for job in evidence])
    return [
        Predicted(seconds=result.seconds, low=result.seconds_low, high=result.seconds_high)
        for result in model.predict([job.setting for job in targets])
    ]


def ernest(evidence: Sequence[Job], targets: Sequence[Job]) -> list[Predicted]:
    """Non-negative least squares on 1, work / n, log n, n."""

    def features(jobs: Sequence[Job]) -> np.ndarray:
        n = np.array([job.devices for job in jobs], dtype=float)
        work = np.array([job.work for job in jobs])
        return np.stack([np.ones_like(n), work / n, np.log(n), n], axis=1)

    scale = max(job.work for job in evidence)
    weights, _ = nnls(features(evidence) / [1, scale, 1, 1], np.array([job.seconds for job in evidence]))
    return [Predicted(seconds=float(row @ (weights / [1, scale, 1, 1]))) for row in features(targets)]


def perfect_scaling(evidence: Sequence[Job], targets: Sequence[Job]) -> list[Predicted]:
    """Seconds per row and device of the smallest known cluster, everywhere."""
    fewest = min(job.devices for job in evidence)
    per_row = statistics.mean(job.seconds * job.devices / job.work for job in evidence if job.devices == fewest)
    return [Predicted(seconds=per_row * job.work / job.devices) for job in targets]


METHODS: Mapping[str, Method] = {"paretune": paretune, "Ernest": ernest, "perfect scaling": perfect_scaling}


def read_published(path: Path, max_seq_length: int) -> list[Job]:
    """The jobs of a published table, described as the product describes its own."""
    jobs = []
    for row in csv.DictReader(path.open(encoding="utf-8")):
        built = well_known(row["model"])
        if built is None:
            raise SystemExit(f"{path}: the model {row['model']} is not well known")
        trained = round(0.9 * float(row["dataset_size"]))
        spec = JobSpec(
            model=row["model"],
            dataset=row.get("dataset") or "published",
            max_train_samples=trained,
            max_seq_length=max_seq_length,
            per_device_train_batch_size=int(row["per_device_train_batch_size"]),
            num_train_epochs=float(row["num_train_epochs"]),
            instance_type=row["instance_type"],
            instance_count=int(row["instance_count"]),
            strategy="smddp" if row.get("strategy") == "smddp" else "ddp",
            precision="fp32",
        )
        described = describe(spec, spec.plan(), built)
        assert described is not None  # max_train_samples is given
        jobs.append(
            Job(
                setting=described.time,
                shape=f"{spec.instance_count} x {spec.instance_type}",
                devices=spec.degrees.data,
                work=trained * spec.num_train_epochs,
                seconds=float(row["billable_seconds"]),
            )
        )
    return jobs


def read_local(path: Path) -> list[Job]:
    """The jobs of a table of local ones: of the bundled model, with 1,000 rows of evaluation."""
    built = well_known(BUNDLED_MODEL)
    assert built is not None
    jobs = []
    for row in csv.DictReader(path.open(encoding="utf-8")):
        if row["status"] != "Completed":
            continue
        spec = JobSpec(
            max_train_samples=int(row["max_train_samples"]),
            max_eval_samples=1000,
            max_seq_length=int(row["max_seq_length"]),
            per_device_train_batch_size=int(row["per_device_train_batch_size"]),
            num_train_epochs=float(row["num_train_epochs"]),
            instance_count=int(row["instance_count"]),
        )
        described = describe(spec, spec.plan(), built)
        assert described is not None  # max_train_samples is given
        jobs.append(
            Job(
                setting=described.time,
                shape=f"{spec.instance_count} processes",
                devices=spec.degrees.data,
                work=int(row["train_rows"]) * spec.num_train_epochs,
                seconds=float(row["billable_seconds"]),
            )
        )
    return jobs


def error(prediction: Predicted, job: Job) -> float:
    """Relative, without its sign."""
    return abs(prediction.seconds / job.seconds - 1)


def covered(prediction: Predicted, job: Job) -> bool:
    """Whether the interval holds the job."""
    return (
        prediction.low is not None and prediction.high is not None and prediction.low <= job.seconds <= prediction.high
    )


def splits(jobs: Sequence[Job]) -> dict[str, list[tuple[list[Job], list[Job]]]]:
    """Situation to pairs of jobs that are known and jobs that are asked for."""
    shapes = list(dict.fromkeys(job.shape for job in jobs))
    others = {shape: [job for job in jobs if job.shape != shape] for shape in shapes}
    custom = {shape: [job for job in jobs if job.shape == shape] for shape in shapes}
    return {
        "nothing known": [([], list(jobs))],
        "other shapes known": [(others[shape], custom[shape]) for shape in shapes],
        "and one job of the shape": [
            ([*others[shape], reference], [job for job in custom[shape] if job is not reference])
            for shape in shapes
            for reference in custom[shape]
        ],
    }


def situations(name: str, jobs: Sequence[Job]) -> list[list[str]]:
    """For each situation: mean errors of all methods, and how many jobs the stated intervals hold."""
    rows = []
    for situation, pairs in splits(jobs).items():
        row, inside, message = [f"{name}: {situation}"], "", ""
        for method, predict in METHODS.items():
            if not pairs[0][0] and method != "paretune":
                row.append("-")
                continue
            result = [
                pair for reference, request in pairs for pair in zip(predict(reference, request), request, strict=True)
            ]
            row.append(f"{statistics.mean(error(*pair) for pair in result):.1%}")
            if method == "paretune":
                inside = f"{sum(covered(*pair) for pair in result) / len(result):.0%} of {len(result)}"
                widths = [math.log(first.high / first.seconds) for first, _ in result if first.high is not None]
                message = f"x {math.exp(statistics.mean(widths)):.2f}"
        rows.append([*row, inside, message])
    return rows


def scaling(path: Path) -> list[list[str]]:
    """A job of which only the training time on clusters of growing size is known; a row for each but the smallest."""
    measured = [(int(row["instances"]), float(row["minutes"])) for row in csv.DictReader(path.open(encoding="utf-8"))]
    first = min(measured)
    setting = TimingFeatures(
        chip="unknown",
        model="unknown",
        cluster="unknown",
        instances=first[0],
        devices=1,
        peak_flops=1e12,
        memory_bytes_per_s=1e12,
        network_bytes_per_s=1e10,
        link_bytes_per_s=1e10,
        rows=1,
        accumulation=1,
        steps=1000,
        flops_per_row=first[1] * 60 * LONG * 0.5e12 / 1000,
        evaluated_flops=0,
        updated=0,
        parameters=0,
    )
    jobs = [
        Job(
            setting=replace(setting, instances=n, steps=1000 * first[0] / n, cluster=f"{n}"),
            shape=f"{n}",
            devices=n,
            work=1.0,
            seconds=minutes * 60 * LONG,
        )
        for n, minutes in measured
    ]
    rows = []
    for job in jobs[1:]:
        predicted = {name: method([jobs[0]], [job])[0] for name, method in METHODS.items()}
        custom = predicted["paretune"]
        assert custom.low is not None
        assert custom.high is not None
        unit = 60 * LONG
        message = f"{custom.low / unit:.1f} to {custom.high / unit:.1f} minutes, measured {job.seconds / unit:.1f}"
        errors = [f"{result.seconds / unit:.1f} min, {error(result, job):.1%}" for result in predicted.values()]
        rows.append(
            [
                f"{job.devices} instances, from {jobs[0].devices}",
                *errors,
                message,
                f"x {custom.high / custom.seconds:.2f}",
            ]
        )
    return rows


def write_small_tables(folder: Path) -> tuple[Path, Path]:
    """Two jobs on each of three shapes, and a job on one to four instances, by a formula; (published, scaling)."""
    published, scaled = folder / "published.csv", folder / "scaling.csv"
    columns = "model,per_device_train_batch_size,num_train_epochs,instance_type,instance_count,dataset_size"
    lines = [f"{columns},billable_seconds"]
    for instances, batch in itertools.product((1, 2, 4), (8, 16)):
        seconds = 300 + 16000 / instances * (8 / batch) ** 0.2
        lines.append(f"distilbert-base-uncased,{batch},3,ml.p3.2xlarge,{instances},20000,{seconds:.0f}")
    published.write_text("\n".join(lines) + "\n")
    scaled.write_text("instances,minutes\n1,100\n2,55\n4,30\n")
    return published, scaled


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", type=Path, help="CSV of published jobs")
    parser.add_argument("--max_seq_length", type=int, default=512, help="tokens that its rows were padded to")
    parser.add_argument("--local", type=Path, default=LOCAL, help="CSV of local jobs")
    parser.add_argument("--scaling", type=Path, help="CSV of minutes over instances")
    options = arguments.parse(parser)
    with tempfile.TemporaryDirectory() as folder:
        small, small_scaling = write_small_tables(Path(folder)) if options.small else (None, None)
        rows = []
        if path := options.published or small:
            rows += situations("published", read_published(path, options.max_seq_length))
        rows += situations("local", read_local(options.local))
        if path := options.scaling or small_scaling:
            rows += scaling(path)
    made = published.conditions("paretune", "torch", "scipy")
    header = ["mean error of seconds", *METHODS, "in the 80 % interval", "its half-width"]
    print(published.block("estimate_error", [f"{made}:", "", *published.table(header, rows)]))


if __name__ == "__main__":
    main()
