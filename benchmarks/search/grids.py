"""Grids of training runs that others have measured, whole and in parts, as tables to search.

A grid may have holes: points that nobody measured. A job there cannot be run, and costs nothing.

A part of a table from EC2 has three of its four machine types, in another order, and two thirds of its numbers of
cores. A part of FCNet has two thirds of the values of each setting except the learning rate. A deterministic search
finds the same thing on one table with every seed, but finds something else on each part.

    lynceus-cnn, lynceus-multilayer, trimtuner-cnn     see measured.py
    trimtuner-sizes                                    all five sizes of TrimTuner's training set, searched as a further
                                                       setting: small ones are cheap and worse
    fcnet-slice, fcnet-parkinsons                      FCNet (arXiv 1905.04970): networks of two layers on one machine,
                                                       four seeds; Apache-2.0. Quality is the negative decimal
                                                       logarithm of the validation error. Each second counts as a
                                                       minute, because even a cloud job of seconds has a worst case of
                                                       minutes: the price of 40 jobs of seconds would be too small a
                                                       budget for a study
    lcbench-TASK                                       LCBench (Zimmer, Lindauer, Hutter 2021): networks of one to four
                                                       layers on one machine, 52 epochs, on the data set OpenML TASK.
                                                       Seconds and accuracy are those of a surrogate that was fitted to
                                                       2,000 measured trainings (slds-lmu/yahpo_data), without noise;
                                                       Apache-2.0
    steplaw-moe, steplaw-dense                         language models that were trained from scratch (step-law/steplaw
                                                       32a8f4c, arXiv 2503.04715): shapes, tokens, batch, learning rate;
                                                       quality is the negative smoothed loss. No license is stated, so
                                                       the files are not kept here. Seconds of `moe` are the steps times
                                                       the measured seconds of a step; those of `dense` are 6 x
                                                       parameters x tokens / `_FLOPS`. `dense` has the values that most
                                                       of its models share
    nmt-so, nmt-sw                                     translation models that were trained from scratch (NMTHPO, TACL
                                                       2020; Este1le/hpo_nmt 7bd0a40): BLEU; MIT. Their seconds were not
                                                       published and count as updates x parameters / `_UPDATES`

Searches see clusters of EC2 in two ways. `clusters`: the search knows the price per second of all machines of a job.
`machines`: it knows the price of one machine of the type, and a job bills the seconds of all of its machines.
"""

import csv
import itertools
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from paretune.launchers.simulated.recorded_runs import COMPLETED
from paretune.launchers.simulated.user_runs import UserRuns
from paretune.pricing import VARIABLE
from paretune.specification.declaration import spell
from paretune.specification.job import JobSpec, share_of
from search.measured import AXES, FLAVORS, SOURCES, prices_path, three_runs
from search.tables import Costs, Outcome, Point

FCNET = {"fcnet-slice": "search_fcnet_slice.csv", "fcnet-parkinsons": "search_fcnet_parkinsons.csv"}
FCNET_AXES = ("batch_size", "learning_rate", "n_units_1", "n_units_2")
LCBENCH, LCBENCH_AXES = "lcbench-", ("batch_size", "learning_rate", "num_layers", "max_units")
SIZES, SIZE = "trimtuner-sizes", "rows"
MOE_AXES = ("parameters", "tokens", "batch_size", "learning_rate")
DENSE_AXES = ("parameters", "tokens_per_parameter", "batch_size", "learning_rate")
NMT_AXES = ("bpe", "layers", "embed", "ffn", "heads", "learning_rate")
_SHARED_BATCHES, _SHARED_RATES = (32, 64, 128, 192, 256, 512, 1024), (0.0004, 0.016)
"""Batches, and the range of learning rates, that most of the models of steplaw-dense were trained with."""
_MOST_TOKENS = 100  # per parameter; each model was trained with about 19, 53 and 93, and some with more
_FLOPS, _UPDATES = 4e14, 1e9
"""Floating-point operations, and updates of one parameter, that count as a second: jobs take hours, as trainings do."""
_MACHINE = "ml.m5.large"
_FCNET_USD_PER_HOUR, _FCNET_TIMES = 0.096, 60.0
_NAMES = {name: (cpus, usd) for cpus, usd, name in FLAVORS.values()}
Run = tuple[float, float]
"""Seconds and quality of one training."""


class Grid:
    """A full grid of measured training runs, with the interface of `search.tables.Table`.

    Args:
        script: a script that declares the axes as arguments.
        axes: maps each searched parameter to its values, in the order in which a search gets them.
        runs: maps the values of a point, in the order of the axes, to its runs.
        usd_per_s: returns the dollars per second of the job at a point.
    """

    metric = "acc"
    ranges: frozenset[str] = frozenset()
    rows = None
    constraints: Mapping[str, Mapping[str, float]] = {}

    def __init__(
        self,
        script: Path,
        axes: Mapping[str, Sequence[Any]],
        runs: Mapping[tuple[Any, ...], Sequence[Run]],
        usd_per_s: Callable[[Mapping[str, Any]], float],
    ) -> None:
        self.axes = {name: tuple(values) for name, values in axes.items()}
        self._runs, self._usd_per_s = runs, usd_per_s
        longest_s = max(seconds for each in runs.values() for seconds, _ in each)
        self.job: dict[str, Any] = {
            "launcher": "simulated",
            "entry_script": str(script),
            "max_runtime_minutes": 2 * longest_s // 60 + 1,
        }
        keys = (key for key in itertools.product(*self.axes.values()) if key in runs)
        self.points = [dict(zip(self.axes, key, strict=True)) for key in keys]
        self.truths = [self.truth(point) for point in self.points]
        self.median_usd = statistics.median(usd for usd, _ in self.truths)

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

    def spec(self, point: Point) -> JobSpec:
        """Return the job at a point."""
        inside = {name: value for name, value in point.items() if name not in ("instance_type", "learning_rate")}
        given = {name: value for name, value in point.items() if name not in inside}
        arguments = {f"training_arguments.{name}": value for name, value in inside.items()}
        return JobSpec.read({name: spell(value) for name, value in {**self.job, **given, **arguments}.items()})

    def usd(self, spec: JobSpec, seconds: float) -> float:
        """Return the dollars of this many billed seconds of a job."""
        return seconds * self._usd_per_s({"instance_type": spec.instance_type, **spec.training_arguments})

    def outcome(self, point: Point, draw: int) -> Outcome:
        """Return how the job at a point ends; `draw` chooses one of its runs."""
        if not (runs := self.runs_at(point)):
            return Outcome(status="Impossible", cannot=True)
        seconds, quality = runs[int(share_of(f"{draw} {spell(dict(point))}") * len(runs))]
        usd = seconds * self._usd_per_s(point)
        return Outcome(status=COMPLETED, seconds=seconds, usd=usd, f1=quality, steps=1)

    def truth(self, point: Point) -> Costs:
        """Return the mean costs of a point."""
        seconds, quality = zip(*self.runs_at(point), strict=True)
        return statistics.fmean(seconds) * self._usd_per_s(point), -statistics.fmean(quality)

    def runs_at(self, point: Point) -> Sequence[Run]:
        """Return the runs of a point; none if it is a hole."""
        return self._runs.get(tuple(point[name] for name in self.axes), ())

    @property
    def has_noise(self) -> bool:
        """Whether a point has several runs, of which a search draws one."""
        return any(len(runs) > 1 for runs in self._runs.values())

    def excess(self, outcome: Outcome) -> float:
        """Return 0, because no job is forbidden."""
        return 0.0

    def record(self, folder: Path) -> None:
        """Write all runs, and the prices of the machines, so that whole studies can replay them.

        Raises ValueError if the price of a job depends on more than its machine type.
        """
        prices: dict[str, float] = {}
        for point, usd_per_s in zip(self.points, self.prices, strict=True):
            name = str(point.get("instance_type", _MACHINE))
            if not math.isclose(prices.setdefault(name, usd_per_s), usd_per_s):
                raise ValueError("a study cannot replay clusters whose price follows from their settings")
        path = folder / f"{id(self)}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            machine = {} if "instance_type" in self.axes else {"instance_type": _MACHINE}
            writer.writerow([*machine, *self.axes, "seed", "billable_seconds", self.metric])
            for key, runs in self._runs.items():
                writer.writerows([*machine.values(), *key, seed, *run] for seed, run in enumerate(runs, start=1))
        rows = [f"{name},us-east-1,{usd_per_s * 3600},2018-09,of the table" for name, usd_per_s in prices.items()]
        header = "instance_type,region,price_usd_per_hour,as_of,source"
        prices_path(path).write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        self.runs, self.environment = UserRuns.read(path), {VARIABLE: str(prices_path(path))}
        self.job |= {"simulation.runs": str(path), **machine}

    @cached_property
    def prices(self) -> list[float]:
        """Dollars per second of each point."""
        return [self._usd_per_s(point) for point in self.points]


def grid(name: str, folder: Path, work: Path) -> Grid:
    """Return the grid of a name such as `lynceus-cnn/3/clusters`, `trimtuner-cnn//machines` or `fcnet-slice/1`.

    The number chooses a part; without a number, the grid is the whole table. `work` is a folder for the script that
    declares the axes.
    """
    source, part, encoding = (*name.split("/"), "", "")[:3]
    axes: Sequence[str] = FCNET_AXES if source in FCNET else (*AXES, SIZE) if source == SIZES else AXES
    axes = _FILES[source].axes if source in _FILES else LCBENCH_AXES if source.startswith(LCBENCH) else axes
    script = work / f"{source}.py"
    names = [each for each in axes if each != "instance_type"]
    script.write_text("p.add_argument('--seed')\n" + "".join(f"p.add_argument('--{each}')\n" for each in names))
    if source in FCNET:
        return _fcnet(folder / FCNET[source], script, part)
    if source.startswith(LCBENCH):
        return _of_file(
            _File(f"search_lcbench_{source.removeprefix(LCBENCH)}.csv", LCBENCH_AXES, _lcbench), folder, script
        )
    if source in _FILES:
        return _of_file(_FILES[source], folder, script)
    return _of_ec2(source, folder, script, part, is_by_cluster=encoding == "clusters")


def _part(values: Sequence[Any], draw: random.Random, *, most: int | None = None) -> list[Any]:
    """Return two thirds of the values, or `most` of them, in their order."""
    count = most or math.ceil(len(values) * 2 / 3)
    return sorted(draw.sample(list(values), count), key=list(values).index)


def _of_ec2(source: str, folder: Path, script: Path, part: str, *, is_by_cluster: bool) -> Grid:
    of_file, has_sizes = SOURCES["trimtuner-cnn" if source == SIZES else source], source == SIZES
    runs: dict[tuple[Any, ...], list[Run]] = {}
    machines: dict[tuple[str, int], float] = {}  # machines of a job, counted in machines of its type
    with (folder / of_file.file).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if of_file.is_trimtuner and not has_sizes and row["training_set_size"] != of_file.largest:
                continue
            cpus, usd, name = FLAVORS[row["vm_flavor"]]
            workers = int(row["n_workers"])
            cores = workers * cpus
            machines[name, cores] = workers + (1 + FLAVORS["t2.2xlarge"][1] / usd if of_file.is_trimtuner else 2)
            size = (int(row["training_set_size"]),) if has_sizes else ()
            key = (name, cores, row["learning_rate"], int(row["batch_size"]), row["synchronism"], *size)
            one = [(float(row["training_time"]), float(row["acc"]))]
            runs[key] = three_runs(row) if of_file.is_trimtuner else one
    names = (*AXES, SIZE) if has_sizes else AXES
    axes: dict[str, list[Any]] = {name: sorted({key[i] for key in runs}) for i, name in enumerate(names)}
    axes["learning_rate"] = sorted(float(rate) for rate in axes["learning_rate"])
    runs = {(*key[:2], float(key[2]), *key[3:]): each for key, each in runs.items()}
    axes["instance_type"] = [name for _, _, name in FLAVORS.values()]
    if part:
        draw = random.Random(f"{source}/{part}")
        axes["instance_type"] = draw.sample(axes["instance_type"], 3)
        axes["cores"] = _part(axes["cores"], draw)

    def usd_per_s(point: Mapping[str, Any]) -> float:
        name, count = point["instance_type"], machines[point["instance_type"], int(point["cores"])]
        return _NAMES[name][1] / 3600 * (count if is_by_cluster else 1.0)

    if not is_by_cluster:
        runs = {key: [(s * machines[key[0], key[1]], q) for s, q in each] for key, each in runs.items()}
    kept = {key: runs[key] for key in itertools.product(*axes.values())}
    return Grid(script, axes, kept, usd_per_s)


def _fcnet(path: Path, script: Path, part: str) -> Grid:
    runs: dict[tuple[Any, ...], list[Run]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = tuple(float(row[name]) if name == "learning_rate" else int(row[name]) for name in FCNET_AXES)
            of_seeds = ((row[f"runtime_s_{seed}"], row[f"valid_mse_{seed}"]) for seed in range(4))
            runs[key] = [
                (_FCNET_TIMES * float(seconds), -math.log10(float(mse))) for seconds, mse in of_seeds if seconds and mse
            ]
    axes: dict[str, list[Any]] = {name: sorted({key[i] for key in runs}) for i, name in enumerate(FCNET_AXES)}
    if part:
        draw = random.Random(f"{path.name}/{part}")
        axes = {name: v if name == "learning_rate" else _part(v, draw) for name, v in axes.items()}
    kept = {key: runs[key] for key in itertools.product(*axes.values())}
    return Grid(script, axes, kept, lambda point: _FCNET_USD_PER_HOUR / 3600)


_Read = Callable[[Mapping[str, str]], tuple[tuple[Any, ...], Run] | None]
"""Returns the point and the run of a line of a file, or None to leave it out."""


class _File(NamedTuple):
    """A file with a line for each run."""

    name: str
    axes: Sequence[str]
    read: _Read


def _lcbench(row: Mapping[str, str]) -> tuple[tuple[Any, ...], Run]:
    return _values(row, LCBENCH_AXES), (float(row["seconds"]), float(row["accuracy"]))


def _moe(row: Mapping[str, str]) -> tuple[tuple[Any, ...], Run]:
    point = _values({**row, "parameters": row["active_parameters"]}, MOE_AXES)
    return point, (float(row["total_s"]), -float(row["loss"]))


def _dense(row: Mapping[str, str]) -> tuple[tuple[Any, ...], Run] | None:
    tokens, parameters, batch = int(row["tokens"]), int(row["parameters"]), int(row["batch_size"])
    halves = round(2.0 * math.log2(float(row["learning_rate"])))  # rates are powers of the root of 2, rounded
    rate, per_parameter = float(f"{2.0 ** (halves / 2.0):.4g}"), round(tokens / parameters)
    is_shared = batch in _SHARED_BATCHES and _SHARED_RATES[0] < rate < _SHARED_RATES[1]
    if not is_shared or per_parameter > _MOST_TOKENS:
        return None
    return (parameters, per_parameter, batch, rate), (6 * parameters * tokens / _FLOPS, -float(row["loss"]))


def _nmt(row: Mapping[str, str]) -> tuple[tuple[Any, ...], Run]:
    return _values(row, NMT_AXES), (int(row["updates"]) * int(row["parameters"]) / _UPDATES, float(row["bleu"]))


def _values(row: Mapping[str, str], axes: Sequence[str]) -> tuple[Any, ...]:
    return tuple(float(row[name]) if name == "learning_rate" else int(row[name]) for name in axes)


_FILES = {
    "steplaw-moe": _File("search_steplaw_moe.csv", MOE_AXES, _moe),
    "steplaw-dense": _File("search_steplaw_dense.csv", DENSE_AXES, _dense),
    "nmt-so": _File("search_nmt_scratch_so.csv", NMT_AXES, _nmt),
    "nmt-sw": _File("search_nmt_scratch_sw.csv", NMT_AXES, _nmt),
}


def _of_file(of: _File, folder: Path, script: Path) -> Grid:
    with (folder / of.name).open(newline="", encoding="utf-8") as file:
        runs = {run[0]: [run[1]] for row in csv.DictReader(file) if (run := of.read(row)) is not None}
    axes = {name: sorted({key[i] for key in runs}) for i, name in enumerate(of.axes)}
    return Grid(script, axes, runs, lambda point: _FCNET_USD_PER_HOUR / 3600)
