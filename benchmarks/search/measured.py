"""Training runs that others have measured on EC2, as tables to search, made from the authors' files in a given folder.

    Lynceus (ICDCS 2020)     one training per row, which ended at an accuracy of 0.85 or after 600 seconds; N workers
                             and two helpers of the same flavor (EC2 type). No license is stated, so the files are
                             not kept here.
    TrimTuner (MASCOTS 2020) means and deviations of three runs, 60,000 rows; N workers, a parameter server of the same
                             flavor, and a t2.2xlarge. MIT.

Sources: github.com/marialcasimiro/Lynceus-ICDCS (c5f83fc8) and github.com/pedrogbmendes/TrimTuner (a9dec1f1). Each is a
full grid of flavor, cores, learning rate, batch and synchronism. Dollars are those of EC2 at the time. The price of a
job follows from all its machines, so a row bills the seconds of all these machines on one machine of its flavor. Each
flavor gets the name of an instance type that SageMaker has. Each row of TrimTuner becomes three runs with the row's
mean and deviation.
"""

import csv
import hashlib
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput
from paretune.launchers.offers import usual_price
from paretune.launchers.simulated.user_runs import UserRuns
from paretune.pricing import VARIABLE, PriceList
from paretune.specification.declaration import spell
from paretune.specification.job import JobSpec
from search.tables import Costs, Outcome, Point

FLAVORS = {  # vCPU, USD an hour on demand, and the name that it gets here
    "t2.small": (1, 0.023, "ml.m5.large"),
    "t2.medium": (2, 0.0464, "ml.m5.xlarge"),
    "t2.xlarge": (4, 0.1856, "ml.m5.2xlarge"),
    "t2.2xlarge": (8, 0.3712, "ml.m5.4xlarge"),
}
AXES = ("instance_type", "cores", "learning_rate", "batch_size", "synchronism")
ENOUGH = 0.85
"""The accuracy at which Lynceus ends its training runs, and which its authors ask for."""
_SCRIPT = "import argparse\n\nparser = argparse.ArgumentParser()\n" + "".join(
    f'parser.add_argument("--{name}")\n' for name in (*AXES[1:], "seed")
)


@dataclass(frozen=True, kw_only=True)
class Source:
    """One of the authors' files."""

    file: str
    sha256: str  # the first twelve digits
    is_trimtuner: bool = False
    largest: str = "60000"  # rows of TrimTuner's whole data set


SOURCES = {
    "lynceus-cnn": Source(file="lynceus_cnn.csv", sha256="58761d421fb3"),
    "lynceus-multilayer": Source(file="lynceus_multilayer.csv", sha256="6902fc4010a0"),
    "trimtuner-cnn": Source(file="trimtuner_cnn.csv", sha256="07c8b6cd381c", is_trimtuner=True),
}


def convert(source: Source, folder: Path, target: Path) -> None:
    """Write the training runs of a file as a table of recorded runs, and put its prices and the script next to it."""
    path = folder / source.file
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    if digest != source.sha256:
        raise SystemExit(f"{path} has the checksum {digest}, not {source.sha256}: it is a different version")
    with path.open(newline="", encoding="utf-8") as file, target.open("w", newline="", encoding="utf-8") as table:
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow([*AXES, "seed", "billable_seconds", "acc"])
        for row in csv.DictReader(file):
            if not source.is_trimtuner or row["training_set_size"] == source.largest:
                writer.writerows(_runs(row, source))
    prices = [f"{name},us-east-1,{usd},2018-09,EC2 on demand" for _, usd, name in FLAVORS.values()]
    prices_path(target).write_text(
        "\n".join(["instance_type,region,price_usd_per_hour,as_of,source", *prices]) + "\n", encoding="utf-8"
    )
    script_path(target).write_text(_SCRIPT, encoding="utf-8")


def prices_path(table: Path) -> Path:
    """Return the path of the prices of a table."""
    return table.with_suffix(".prices.csv")


def script_path(table: Path) -> Path:
    """Return the path of the script whose arguments are searched."""
    return table.with_suffix(".py")


def _runs(row: dict[str, str], source: Source) -> Iterator[list[object]]:
    cpus, usd, name = FLAVORS[row["vm_flavor"]]
    workers, seconds, acc = int(row["n_workers"]), float(row["training_time"]), float(row["acc"])
    others = 1 + FLAVORS["t2.2xlarge"][1] / usd if source.is_trimtuner else 2
    setting = [name, workers * cpus, row["learning_rate"], row["batch_size"], row["synchronism"]]
    if not source.is_trimtuner:
        yield [*setting, 1, f"{seconds * (workers + others):.3f}", acc]
        return
    for seed, (took, reached) in enumerate(three_runs(row), start=1):
        yield [*setting, seed, f"{took * (workers + others):.3f}", reached]


def three_runs(row: dict[str, str]) -> list[tuple[float, float]]:
    """Return seconds and accuracy of three runs with the mean and deviation that a row of TrimTuner states."""
    seconds, acc = float(row["training_time"]), float(row["acc"])
    of_seconds, of_acc = float(row["standard deviation time"]), float(row["standard deviation accuarcy"])
    return [
        (max(seconds + s * of_seconds, 0.2 * seconds), min(max(acc + a * of_acc, 0.0), 1.0))
        for s, a in ((-1, 0), (0, 1), (1, -1))
    ]


class Measured:
    """A table of measured training runs, with the interface of `search.tables.Table`."""

    metric = "acc"
    ranges: frozenset[str] = frozenset()
    rows = None
    constraints: Mapping[str, Mapping[str, float]] = {}  # set by `limit`
    _least = -math.inf

    def __init__(self, path: Path) -> None:
        self.runs = UserRuns.read(path)
        cells = [row for _, row in self.runs.rows]
        values = {name: sorted({row[name] for row in cells}) for name in AXES}
        self.axes: dict[str, tuple[Any, ...]] = {
            name: tuple(int(v) if name in ("cores", "batch_size") else v for v in column)
            for name, column in values.items()
        }
        self.job: dict[str, Any] = {
            "launcher": "simulated",
            "entry_script": str(script_path(path)),
            "simulation.runs": str(path.resolve()),
            "max_runtime_minutes": 2 * max(row["billable_seconds"] for row in cells) // 60 + 1,
        }
        self.environment = {VARIABLE: str(prices_path(path))}
        self._prices = PriceList.read(self.environment)
        groups: dict[tuple[Any, ...], list[Any]] = {}
        for row in cells:
            groups.setdefault(tuple(row[name] for name in AXES), []).append(row)
        self._means = {
            key: tuple(statistics.fmean(row[name] for row in rows) for name in ("billable_seconds", "acc"))
            for key, rows in groups.items()
        }
        self.points = [dict(zip(AXES, key, strict=True)) for key in self._means]
        self.truths = [truth for point in self.points if (truth := self.truth(point)) is not None]
        self.median_usd = statistics.median(usd for usd, _ in self.truths)

    def limit(self) -> None:
        """Start to count only training runs with an accuracy of at least `ENOUGH`."""
        self._least, self.constraints = ENOUGH, {self.metric: {"min": ENOUGH}}
        self.truths = [truth for point in self.points if (truth := self.truth(point)) is not None]

    def excess(self, outcome: Outcome) -> float:
        """Return by how much a training run violates its constraint; at most 0 if it meets it."""
        return 0.0 if outcome.f1 is None else self._least - outcome.f1

    def domains(
        self, ranged: Callable[[Any, Any], Any], ordered: Callable[[int], Any], category: Callable[[int], Any]
    ) -> dict[str, Any]:
        """Describe each axis to a library by the number of its values."""
        return {name: (ordered if self.is_ordered(name) else category)(len(v)) for name, v in self.axes.items()}

    def chosen(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the point that a library has chosen from `domains`."""
        return {name: values[int(config[name])] for name, values in self.axes.items()}

    def is_ordered(self, axis: str) -> bool:
        """Return whether the values of an axis are numbers."""
        return not isinstance(self.axes[axis][0], str)

    def spec(self, point: Point) -> JobSpec | None:
        """Return the job at a point."""
        inside = {f"training_arguments.{name}": point[name] for name in ("cores", "batch_size", "synchronism")}
        cluster = {name: point[name] for name in ("instance_type", "learning_rate")}
        return JobSpec.read({name: spell(value) for name, value in {**self.job, **cluster, **inside}.items()})

    def outcome(self, point: Point, draw: int) -> Outcome:
        """Return how the job at a point ends; `draw` chooses one of its runs."""
        spec = self.spec(point)
        assert spec is not None
        try:
            answer = self.runs.answer(spec, draw=draw)
        except BadInput:
            return Outcome(status="Impossible", cannot=True)
        seconds = answer.billable_seconds
        quality = answer.measured[self.metric]
        return Outcome(status=answer.status, seconds=seconds, usd=self.usd(spec, seconds), f1=quality, steps=1)

    def truth(self, point: Point) -> Costs | None:
        """Return the mean costs of a point, or None if it violates a constraint."""
        seconds, acc = self._means[tuple(point[name] for name in AXES)]
        if acc < self._least:
            return None
        price = usual_price(JobSpec(instance_type=point["instance_type"]), self._prices, {})
        assert price is not None
        return price.cost_usd(seconds, 1), -acc

    def deviation(self, point: Point) -> float:
        """Return the standard deviation of a single training's accuracy, or 0 if it was measured once."""
        key = tuple(point[name] for name in AXES)
        runs = [row[self.metric] for _, row in self.runs.rows if tuple(row[name] for name in AXES) == key]
        return statistics.stdev(runs) if len(runs) > 1 else 0.0

    def usd(self, spec: JobSpec, seconds: float) -> float:
        """Return the dollars of this many billed seconds."""
        price = usual_price(spec, self._prices, {})
        assert price is not None
        return price.cost_usd(seconds, spec.instance_count)
