"""How far off are the estimates? Against real SageMaker jobs, and against jobs of this machine.

    python benchmarks/estimate_error.py --published runs.csv --scaling scaling.csv

--published: a table of jobs with the columns model, per_device_train_batch_size, num_train_epochs, instance_type,
instance_count, strategy, dataset_size, billable_seconds; nine tenths of `dataset_size` train, a tenth validates. Each
cluster shape is left out once and predicted from the others (unseen), and every job is predicted from one job of each
shape (probed; all choices of these jobs, or 500 drawn with seed 0). Beside it, from the same jobs: perfect scaling from
the smallest cluster that is known, and Ernest (Venkataraman et al., NSDI 2016): non-negative least squares on 1,
work / n, log n and n devices. A relative error of dollars is that of seconds: the price multiplies both sides.

--scaling: columns instances and minutes, a job on clusters of growing size; each row is predicted from the first.

--small: tables by a formula, made here, in place of those that are not given.

Jobs of this machine: estimate_error_local.py.
"""

import argparse
import csv
import itertools
import random
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import arguments
import numpy as np
from scipy.optimize import nnls

from paretune.estimating.architecture import well_known
from paretune.estimating.timing import Measurement, TimeModel, TimingFeatures
from paretune.estimating.timing_features import describe
from paretune.spec.job import JobSpec

MOST_CHOICES = 500


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


def paretune(known: Sequence[Job], asked: Sequence[Job]) -> list[Predicted]:
    """The product's time model."""
    model = TimeModel([Measurement(setting=job.setting, seconds=job.seconds) for job in known])
    return [
        Predicted(seconds=found.seconds, low=found.seconds_low, high=found.seconds_high)
        for found in model.predict([job.setting for job in asked])
    ]


def ernest(known: Sequence[Job], asked: Sequence[Job]) -> list[Predicted]:
    """Non-negative least squares on 1, work / n, log n, n."""

    def features(jobs: Sequence[Job]) -> np.ndarray:
        n = np.array([job.devices for job in jobs], dtype=float)
        work = np.array([job.work for job in jobs])
        return np.stack([np.ones_like(n), work / n, np.log(n), n], axis=1)

    scale = max(job.work for job in known)
    weights, _ = nnls(features(known) / [1, scale, 1, 1], np.array([job.seconds for job in known]))
    return [Predicted(seconds=float(row @ (weights / [1, scale, 1, 1]))) for row in features(asked)]


def perfect_scaling(known: Sequence[Job], asked: Sequence[Job]) -> list[Predicted]:
    """Seconds per row and device of the smallest known cluster, everywhere."""
    fewest = min(job.devices for job in known)
    per_row = statistics.mean(job.seconds * job.devices / job.work for job in known if job.devices == fewest)
    return [Predicted(seconds=per_row * job.work / job.devices) for job in asked]


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
                devices=spec.devices,
                work=trained * spec.num_train_epochs,
                seconds=float(row["billable_seconds"]),
            )
        )
    return jobs


def error(found: Predicted, job: Job) -> float:
    """Relative, without its sign."""
    return abs(found.seconds / job.seconds - 1)


def covered(found: Predicted, job: Job) -> bool:
    """Whether the interval holds the job."""
    return found.low is not None and found.high is not None and found.low <= job.seconds <= found.high


def unseen(jobs: Sequence[Job]) -> None:
    """Each shape left out once."""
    shapes = list(dict.fromkeys(job.shape for job in jobs))
    print(f"\nunseen: one shape left out, {len(jobs)} jobs, mean error of predicted seconds (and dollars)")
    print(f"  {'left out':24}" + "".join(f"{name:>18}" for name in METHODS) + "   in the 80 % interval")
    errors: dict[str, list[float]] = {name: [] for name in METHODS}
    inside: list[bool] = []
    for shape in shapes:
        known, asked = [job for job in jobs if job.shape != shape], [job for job in jobs if job.shape == shape]
        line = f"  {shape:24}"
        for name, method in METHODS.items():
            found = method(known, asked)
            off = [error(one, job) for one, job in zip(found, asked, strict=True)]
            errors[name].append(statistics.mean(off))
            line += f"{errors[name][-1]:>18.1%}"
            if name == "paretune":
                own = [covered(one, job) for one, job in zip(found, asked, strict=True)]
                inside += own
        print(f"{line}   {sum(own)} of {len(own)}")
    means = {name: statistics.mean(values) for name, values in errors.items()}
    print(
        f"  {'mean of shapes':24}"
        + "".join(f"{value:>18.1%}" for value in means.values())
        + f"   {np.mean(inside):.0%}"
    )
    print(f"  paretune / Ernest: {means['paretune'] / means['Ernest']:.2f}")


def probed(jobs: Sequence[Job]) -> None:
    """One job of each shape is known; all others are predicted."""
    shapes = list(dict.fromkeys(job.shape for job in jobs))
    choices = list(itertools.product(*([job for job in jobs if job.shape == shape] for shape in shapes)))
    if len(choices) > MOST_CHOICES:
        choices = random.Random(0).sample(choices, MOST_CHOICES)
    print(f"\nprobed: one job of each shape is known, {len(choices)} choices, mean error of the others")
    for name, method in METHODS.items():
        off, inside = [], []
        for known in choices:
            asked = [job for job in jobs if all(job is not one for one in known)]
            found = method(known, asked)
            off += [error(one, job) for one, job in zip(found, asked, strict=True)]
            inside += [covered(one, job) for one, job in zip(found, asked, strict=True)]
        said = f", {np.mean(inside):.0%} in the 80 % interval" if name == "paretune" else ""
        print(f"  {name:18} mean {np.mean(off):.1%}, largest {max(off):.1%}{said}")


def scaling(path: Path) -> None:
    """A job of which only minutes on clusters of growing size are known."""
    rows = [(int(row["instances"]), float(row["minutes"])) for row in csv.DictReader(path.open(encoding="utf-8"))]
    first = min(rows)
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
        flops_per_row=first[1] * 60 * 0.3e12 / 1000,
        evaluated_flops=0,
        updated=0,
        parameters=0,
    )
    print("\nscaling: predicted from the smallest cluster alone; nothing else of the job is known")
    jobs = [
        Job(
            setting=replace(setting, instances=n, steps=1000 * first[0] / n, cluster=f"{n}"),
            shape=f"{n}",
            devices=n,
            work=1.0,
            seconds=minutes * 60,
        )
        for n, minutes in rows
    ]
    for job in jobs[1:]:
        known = [jobs[0]]
        for name, method in METHODS.items():
            (found,) = method(known, [job])
            said = ""
            if found.low is not None and found.high is not None:
                said = f" ({found.low / 60:.0f} to {found.high / 60:.0f})"
            minutes = f"{found.seconds / 60:.0f}{said} minutes"
            off = f"measured {job.seconds / 60:.0f}: {error(found, job):.1%}"
            print(f"  {job.devices} instances: {name:16} {minutes}, {off}")


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
    parser.add_argument("--scaling", type=Path, help="CSV of minutes over instances")
    asked = arguments.parse(parser)
    print(", ".join(f"{name} {version(name)}" for name in ("paretune", "torch", "transformers", "scipy")))
    if asked.small:
        with tempfile.TemporaryDirectory() as folder:
            published, scaled = write_small_tables(Path(folder))
            show(asked.published or published, asked.scaling or scaled, asked.max_seq_length)
    else:
        show(asked.published, asked.scaling, asked.max_seq_length)


def show(published: Path | None, scaled: Path | None, max_seq_length: int) -> None:
    """Print the tables that there are."""
    if published:
        jobs = read_published(published, max_seq_length)
        unseen(jobs)
        probed(jobs)
    if scaled:
        scaling(scaled)


if __name__ == "__main__":
    main()
