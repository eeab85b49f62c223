"""Dollars to a good front with one job that searches, beside a job for each trial: simulated, nothing is billed.

    python benchmarks/warm_job.py                 # an hour on a quiet thread
    python benchmarks/warm_job.py --forecasts     # only forecasts on measured curves, seconds
    python benchmarks/warm_job.py --first 0 --seeds 6    # worlds to develop on, of the other six data sets

*Forecasts.* Trainings of benchmarks/tables/learning_curves.csv (search/measure_curves.py): the final F1 of trainings
that have paused, by the product's model of curves and by their last value, and of trainings that have not run, from
earlier runs on the same data, by their settings alone or by the training loss of steps 31 to 40 as well. Constants were
chosen on six data sets, the other four judge.

*Searches.* Worlds of search/worlds.py, whose billed seconds follow public SageMaker jobs of Hugging Face models: 214 s
before the first line, 11 to 17 % of the bill of a median job for uploading its model (read 2026-11-23). Rows are scaled
until the median training takes 5, 15 or 60 minutes. F1 by batch and rate, and its learning curves, are measured ones of
a data set, smoothed; the best of them is at the world's best batch and rate. Both searches are run by the product
itself: a study with a job for each trial, and the same study with `in_job: search`, whose recommended front is looked
at whenever a training or a job has ended, until it has 95 % of the best one. Other rules that choose which training
goes on (search/curve_rules.py) are played without a driver: in one job on the cluster that is cheapest by estimate,
with gradient accumulation. Estimates of seconds are off by 20 % there; other clusters that may be cheapest are measured
by jobs of 40 steps, which are paid, if those cost less than half a median job. Every rung takes 2 % more, and every
trial that ends uploads its model.
"""

import argparse
import csv
import itertools
import json
import math
import random
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import arguments
import numpy as np
import published
from search.curve_rules import PARTS, Play, Rule, Training, rules
from search.scoring import Course, Score
from search.tables import PRICES, Table
from search.worlds import BATCHES, COUNTS, EPOCHS, HELD_OUT, RATES, World

from paretune.pricing.prices import VARIABLE, PriceList
from paretune.studies.search.split import curves
from paretune.studies.search.split.curves import Curve

CURVES = Path(__file__).parent / "tables" / "learning_curves.csv"
JUDGING = ("tweets", "editorials", "election_tweets", "slovene_comments")
"""Data sets that no constant was chosen on."""
BEFORE_S = 214.0
"""Billed seconds before the first line, median of 35 public jobs (153 to 311)."""
UPLOADING = (0.11, 0.17)
"""Share of the bill of a median job that its upload takes."""
PROBE_STEPS = 40
LOSS_WEIGHT = 0.5
"""Octaves of settings that a standard deviation of early losses counts as, chosen on the first six data sets."""
PAUSE = 1.02
OFF, OFF_AFTER = 0.20, 0.03
"""Standard deviations of the logarithm of seconds: of an estimate, and after a job of 40 steps."""
PROBE_S = BEFORE_S + 60.0
USD_PER_HOUR = 1.408
"""ml.g5.xlarge, us-east-1, 2026."""
RULES = ("halving", "asha", "chunks")
AIMS = {5: 0.33, 15: 0.5, 60: 0.9}
"""Minutes of the median training to the ratio of dollars to 90 % that is aimed at."""
SHARES = (0.9, 0.95)
WIDTH = 0.8, 0.8
"""Octaves of batch and rate over which measured F1 is smoothed."""
HARDLY = 0.34
"""F1 of a run that names one class only."""

Price = Callable[[str], float]
"""Instance type to dollars an hour."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A measured training, with F1 after each of PARTS parts."""

    dataset: str
    is_lora: bool
    batch: int
    rate: float
    steps: int
    early_loss: float
    f1: tuple[float, ...]


def measured(path: Path) -> dict[str, list[Measured]]:
    """Data set to its trainings."""
    result = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            training = Measured(
                dataset=row["dataset"],
                is_lora=row["fine_tuning"] == "lora",
                batch=int(row["batch"]),
                rate=float(row["learning_rate"]),
                steps=int(row["steps"]),
                early_loss=float(row["loss_40"]),
                f1=tuple(float(row[f"f1_{part}"]) for part in range(1, PARTS + 1)),
            )
            result[training.dataset].append(training)
    return dict(result)


def curve_of(key: str, row: Measured, parts: int = PARTS) -> Curve:
    """The first parts of a measured curve."""
    point = (*curves.comparable_point(row.batch, _as_full(row)), 2.0 * row.is_lora)
    return Curve(key=key, values=tuple((part / PARTS, row.f1[part - 1]) for part in range(1, parts + 1)), point=point)


def compare_forecasts(table: dict[str, list[Measured]], names: Iterable[str], draws: int) -> list[list[str]]:
    """A row for each share: errors of the last value and of the forecast, and the share inside 80 % intervals.

    Half of the trainings of a data set have ended, the others have paused.
    """
    rows = []
    for part in (1, 2, 4):
        last, errors, inside = [], [], []
        for name, draw in itertools.product(names, range(draws)):
            items = random.Random(draw).sample(table[name], len(table[name]))
            half = len(items) // 2
            whole = [curve_of(str(number), row) for number, row in enumerate(items[:half])]
            paused = [curve_of(str(number), row, part) for number, row in enumerate(items[half:], half)]
            mean, deviation = curves.forecast([*whole, *paused], paused, [1.0] * len(paused), is_measured=True)
            actual = np.array([row.f1[-1] for row in items[half:]])
            errors += list(mean - actual)
            last += [row.f1[part - 1] - row.f1[-1] for row in items[half:]]
            inside += list(abs(mean - actual) <= 1.2816 * deviation)
        rows.append([f"{part}/{PARTS}", _rms(last), _rms(errors), f"{np.mean(inside):.0%}", str(len(errors))])
    return rows


def compare_probes(table: dict[str, list[Measured]], names: Iterable[str], draws: int) -> list[list[str]]:
    """A row for earlier runs alone and one with losses: root mean square error, share inside 80 % intervals, count."""
    rows = []
    for basis, weight in (("earlier runs", 0.0), ("earlier runs and the loss after 40 steps", LOSS_WEIGHT)):
        errors, inside = [], []
        for name, draw in itertools.product(names, range(draws)):
            long = [row for row in table[name] if row.steps > PROBE_STEPS]
            spread = statistics.pstdev([row.early_loss for row in long]) or 1.0
            points = [(*curve_of("", row).point, weight * row.early_loss / spread) for row in long]
            ends = [
                Curve(key=str(number), values=((1.0, row.f1[-1]),), point=point)
                for number, (row, point) in enumerate(zip(long, points, strict=True))
            ]
            random.Random(draw).shuffle(ends)
            earlier, others = ends[: len(ends) // 2], ends[len(ends) // 2 :]
            mean, deviation = curves.forecast(earlier, others, [1.0] * len(others), is_measured=True)
            actual = np.array([curve.values[0][1] for curve in others])
            errors += list(mean - actual)
            inside += list(abs(mean - actual) <= 1.2816 * deviation)
        rows.append([basis, _rms(errors), f"{np.mean(inside):.0%}", str(len(errors))])
    return rows


def _rms(errors: Iterable[float]) -> str:
    return f"{math.sqrt(statistics.mean(value**2 for value in errors)):.3f}"


@dataclass(frozen=True, kw_only=True)
class MeasuredWorld(World):
    """A world whose F1 and learning curves are those of trainings of one data set.

    The best of them is at the world's best batch and rate. Between them curves are means, weighted by the distance in
    octaves. Beyond their batches F1 falls as in `World`, and beyond their rates from its cliff on.
    """

    trainings: Sequence[Measured]

    @classmethod
    def of(cls, world: World, trainings: Sequence[Measured]) -> "MeasuredWorld":
        """The world with the F1 of these trainings."""
        return cls(**vars(world), trainings=trainings)

    def f1(self, batch: int, rate: float, epochs: float, tokens: int) -> float:
        """F1 without noise."""
        return float(self.curve(batch, rate)[-1])

    def curve(self, batch: int, rate: float) -> np.ndarray:
        """F1 after each of PARTS parts, of shape (PARTS,), without noise."""
        points, curves_, (best_size, best_rate) = self._measured
        (low_size, low_rate), (high_size, high_rate) = points.min(axis=0), points.max(axis=0)
        size = best_size + math.log2(batch / self.best_batch)
        beyond = size - min(max(size, low_size), high_size)
        octaves = best_rate + math.log2(rate / self.best_rate) - self.power * beyond
        at = size - beyond, min(max(octaves, low_rate), high_rate)
        weights = np.exp(-0.5 * (((points - at) / WIDTH) ** 2).sum(axis=1))
        over = math.log2(rate) - self.cliff - self.cliff_power * math.log2(batch / 64)
        lost = self.batch_fall * abs(beyond) ** 1.3 + 0.4 / (1 + math.exp(-3 * over))
        return np.asarray(np.maximum(weights @ curves_ / weights.sum() - lost, curves_.min()))

    @cached_property
    def _measured(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Octaves of N batches and rates, of shape (N, 2), smooth curves, of shape (N, PARTS), and the best point."""
        points = np.log2([(row.batch, _as_full(row)) for row in self.trainings])
        values = np.array([(row.f1[0], *row.f1, row.f1[-1]) for row in self.trainings])
        smooth = (values[:, :-2] + values[:, 1:-1] + values[:, 2:]) / 3
        return points, smooth, points[smooth[:, -1].argmax()]


def _as_full(row: Measured) -> float:
    """The rate, that of an adapter divided by ten: adapters are usually trained at ten times the rate."""
    return row.rate / 10 if row.is_lora else row.rate


@dataclass(frozen=True, kw_only=True)
class WarmWorld:
    """A world with public phases, and the same trainings in one job.

    Attributes:
        world: rows are scaled to the minutes; uploading is part of its start-up.
        trainings: of the job that searches, one for each global batch size and rate; dollars of one job.
        truth: dollars and F1, negative, of all jobs.
        before_usd: dollars of that job before its first trial, and of the jobs of 40 steps.
    """

    world: MeasuredWorld
    trainings: tuple[Training, ...]
    truth: tuple[tuple[float, float], ...]
    before_usd: float

    @classmethod
    def draw(cls, kind: str, seed: int, minutes: float, rows: Sequence[Measured], price: Price) -> "WarmWorld":
        """The world of a kind and a seed, and what jobs of it show."""
        draw = np.random.default_rng([7, seed, int(minutes)])
        world = MeasuredWorld.of(World.draw(kind, seed), rows)
        world = replace(world, startup_s=BEFORE_S, startup_per_instance_s=10.0)
        took = [s - world.startup(job[1]) for job in _jobs(world) if (s := _seconds(world, *job)) is not None]
        world = replace(world, rows=max(2_000, round(world.rows * 60 * minutes / statistics.median(took))))
        part = draw.uniform(*UPLOADING)
        upload_s = part / (1 - part) * (BEFORE_S + 60 * minutes)
        world = replace(world, startup_s=BEFORE_S + upload_s)
        off = {(name, count): draw.normal(0, OFF) for name in world.clusters for count in COUNTS}
        home = min(world.clusters, key=lambda name: _usd(price, name, 1, _seconds(world, name, 1, 16) or math.inf, off))
        probed = _probed(world, price, off, home)
        off |= {at: draw.normal(0, OFF_AFTER) for at in sorted(probed | {(home, 1)})}
        return cls(
            world=world,
            trainings=tuple(sorted(_trainings(world, home, price, off, upload_s, draw), key=_from_usual)),
            truth=tuple(_truth(world, price)),
            before_usd=price(home) * BEFORE_S / 3600 + sum(_probe_usd(price, at) for at in probed),
        )

    def dollars(self, rule: Rule, seed: int) -> float:
        """Dollars of the job that searches by a rule until what it recommends has 90 % of the front."""
        return self.before_usd + Play(self.trainings, seed, True, self.truth).run(rule)

    def write(self, path: Path) -> None:
        """Write all jobs of the world as recorded runs with curves of PARTS values."""
        self.world.write(path)
        draw = np.random.default_rng([8, self.world.seed, self.world.rows])
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        names = [name for name in rows[0] if not name.startswith("f1_epoch_")]
        curve_names = [f"f1_epoch_{part}" for part in range(1, PARTS + 1)]
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*names, "num_steps", *curve_names], lineterminator="\n")
            writer.writeheader()
            for row in rows:
                values = {name: row[name] for name in names}
                if row["f1"]:
                    batch = int(row["per_device_train_batch_size"]) * int(row["instance_count"])
                    whole = batch * self.world.clusters[row["instance_type"]].accelerators
                    values["num_steps"] = str(max(PARTS, math.ceil(EPOCHS * self.world.rows / whole)))
                    curve = _curve(self.world, whole, float(row["learning_rate"]), float(row["f1"]), draw)
                    values |= zip(curve_names, (f"{min(max(f1, 0.0), 1.0):.5f}" for f1 in curve), strict=True)
                writer.writerow(values)


def _curve(world: MeasuredWorld, whole: int, rate: float, last: float, draw: np.random.Generator) -> tuple[float, ...]:
    """The curve of a training of this global batch size that ends at F1 `last`."""
    shape = world.curve(whole, rate)
    values = shape + last - shape[-1] + draw.normal(0, 0.0015 * world.noise, PARTS)
    return (*map(float, values[:-1]), last)


def _from_usual(training: Training) -> float:
    """The distance from batch 32 at a rate of 5e-5, where searches begin."""
    return sum((a - b) ** 2 for a, b in zip(training.point, curves.comparable_point(32, 5e-5), strict=True))


def _jobs(world: World) -> Iterator[tuple[str, int, int]]:
    return itertools.product(world.clusters, COUNTS, BATCHES)


def _seconds(world: World, name: str, count: int, batch: int) -> float | None:
    return world.seconds(name, count, batch, EPOCHS, 128)


def _usd(price: Price, name: str, count: int, seconds: float, off: Mapping[tuple[str, int], float]) -> float:
    """Dollars of a job as they are estimated."""
    return price(name) * count * seconds * math.exp(off[name, count]) / 3600


def _truth(world: World, price: Price) -> Iterator[tuple[float, float]]:
    for name, count, batch in _jobs(world):
        if (seconds := _seconds(world, name, count, batch)) is not None:
            whole = batch * count * world.clusters[name].accelerators
            for rate in RATES:
                yield price(name) * count * seconds / 3600, -world.f1(whole, rate, EPOCHS, 128)


def _probe_usd(price: Price, at: tuple[str, int]) -> float:
    return price(at[0]) * at[1] * PROBE_S / 3600


def _probed(world: World, price: Price, off: Mapping[tuple[str, int], float], home: str) -> set[tuple[str, int]]:
    """Clusters but the first that may be the cheapest of a global batch size, by up to 1.2 times the estimate."""
    usd: dict[int, dict[tuple[str, int], float]] = defaultdict(dict)
    for name, count, batch in _jobs(world):
        if (seconds := _seconds(world, name, count, batch)) is not None:
            whole = batch * count * world.clusters[name].accelerators
            usd[whole][name, count] = _usd(price, name, count, seconds, off)
    most = 0.5 * statistics.median(min(jobs.values()) for jobs in usd.values())
    near = {at for jobs in usd.values() for at, value in jobs.items() if value <= 1.2 * min(jobs.values())}
    return {at for at in near - {(home, 1)} if _probe_usd(price, at) <= most}


def _trainings(
    world: MeasuredWorld,
    home: str,
    price: Price,
    off: Mapping[tuple[str, int], float],
    upload_s: float,
    draw: np.random.Generator,
) -> Iterator[Training]:
    cheapest: dict[int, tuple[float, float]] = {}
    for name, count, batch in _jobs(world):
        if (seconds := _seconds(world, name, count, batch)) is not None:
            whole = batch * count * world.clusters[name].accelerators
            usd = _usd(price, name, count, seconds, off), price(name) * count * seconds / 3600
            cheapest[whole] = min(cheapest.get(whole, (math.inf, 0.0)), usd)
    cluster = world.clusters[home]
    micro = max(batch for batch in BATCHES if _seconds(world, home, 1, batch) is not None) * cluster.accelerators
    for (whole, (estimated, true)), rate in itertools.product(sorted(cheapest.items()), RATES):
        parts = math.ceil(whole / micro)
        step = parts * cluster.latency_s + whole / cluster.accelerators / cluster.rows_per_second
        seconds = EPOCHS * world.rows / whole * step
        level = world.f1(whole, rate, EPOCHS, 128)
        collapsed = draw.random() < world.collapsing
        last = HARDLY if collapsed else level + draw.normal(0, 0.0015 * world.noise)
        yield Training(
            key=f"{whole} {rate:g}",
            curve=_curve(world, whole, rate, last, draw),
            usd=price(home) * seconds * PAUSE / 3600,
            extra_usd=price(home) * upload_s / 3600,
            own_job_usd=estimated,
            true_usd=true,
            point=curves.comparable_point(whole, rate),
            true_f1=HARDLY if collapsed else level,
        )


def study_dollars(
    warm: WarmWorld, in_job: str, search_seed: int, options: argparse.Namespace
) -> dict[str, float] | None:
    """Dollars of `split` until its recommended front has 90 and 95 % of the best one; None: not run.

    A study that is in the file of results is not run again.
    """
    world = warm.world
    key = [world.kind, world.seed, world.rows, in_job, search_seed]
    stored = options.results.read_text().splitlines() if options.results and options.results.exists() else []
    for line in stored:
        entry: dict[str, Any] = json.loads(line)
        if entry["key"] == key:
            return entry["usd"]  # type: ignore[no-any-return]
    if not options.most:
        return None
    from search import product  # with MLflow, which forecasts do without

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "world.csv"
        warm.write(path)
        table = Table(path, startup_s=BEFORE_S)
        score, most = Score(table, "cost/F1"), max(SHARES)
        limits = {"parallel": 1, "budget_usd": options.budget * table.median_usd, "most": options.most}
        limits["is_enough"] = lambda job: score.share(job.recommended or ()) >= most
        booked, _ = product.search(table, "split", "cost/F1", seed=search_seed, in_job=in_job, **limits)
        course = score.course(booked, 0.0)
    usd = {f"{share:.0%}": _usd_at(course, share) for share in SHARES}
    if options.results:
        with options.results.open("a") as file:
            file.write(json.dumps({"key": key, "usd": usd, "jobs": len(booked), "spent": course.usd[-1]}) + "\n")
    return usd


def _usd_at(course: Course, share: float) -> float:
    at = course.reached("recommended", share)
    return math.inf if at is None else course.usd[at]


def hourly(name: str) -> float:
    """Dollars an hour of an instance type in us-east-1."""
    price = PriceList.read(PRICES).price(name, "us-east-1")
    if price is None:
        raise SystemExit(f"the price of {name} is not known: give it in a CSV ({VARIABLE})")
    return price.usd_per_hour


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A world: by share of the front, dollars of a job for each trial and of one job; of each rule to 90 %.

    `usd` is empty if no study was run.
    """

    minutes: int
    name: str
    usd: Mapping[str, tuple[float, float]]
    played: Sequence[float]

    def ratio(self, share: str) -> float:
        """Dollars of one job over those of a job each: infinite or 0 if only one study gets there, nan if none does."""
        usual, searching = self.usd[share]
        if math.isfinite(searching):
            return searching / usual
        return math.nan if math.isinf(usual) else math.inf

    def row(self) -> list[str]:
        """Its cells in the table of worlds."""
        ratios = [_ratio(self.ratio(share)) for share in self.usd]
        studies = [*map(_dollars, self.usd["90%"]), *ratios] if self.usd else ["not run"] * (2 + len(SHARES))
        return [f"{self.minutes} min, {self.name}", *studies, *map(_dollars, self.played)]


def compare_searches(options: argparse.Namespace, table: dict[str, list[Measured]]) -> Iterator[Comparison]:
    """Both studies and the rules in a world for each length of trainings, kind and seed."""
    names = [name for name in table if (name in JUDGING) == (options.first >= min(HELD_OUT))]
    seeds = range(options.first, options.first + options.seeds)
    worlds = itertools.product(options.minutes, options.kinds.split(","), seeds, range(options.searches))
    for minutes, kind, seed, search_seed in worlds:
        name = names[seed % len(names)]
        warm = WarmWorld.draw(kind, seed, minutes, table[name], hourly)
        usual, searching = (study_dollars(warm, in_job, search_seed, options) for in_job in ("none", "search"))
        usd = {share: (usual[share], searching[share]) for share in usual} if usual and searching else {}
        played = [warm.dollars(rules()[rule], 0) for rule in RULES] if options.plays else [math.nan] * len(RULES)
        item = Comparison(minutes=minutes, name=f"{kind} {seed}, {name}, {search_seed}", usd=usd, played=played)
        print("#", *item.row(), flush=True)
        yield item


def summary(items: Sequence[Comparison]) -> Iterator[list[str]]:
    """A row for each length of trainings and share of the front: how many worlds reach it, and their ratios."""
    for minutes, share in itertools.product(AIMS, SHARES):
        of_length = [item for item in items if item.minutes == minutes and item.usd]
        ratios = [item.ratio(f"{share:.0%}") for item in of_length]
        both = [ratio for ratio in ratios if 0 < ratio < math.inf]
        if not ratios:
            continue
        counts = len(both), ratios.count(math.inf), ratios.count(0.0), sum(map(math.isnan, ratios))
        middle = [f"{function(both):.2f}" if both else "-" for function in (statistics.median, statistics.mean, max)]
        aim = f"{AIMS[minutes]:g}" if share == min(SHARES) else "-"
        yield [f"{minutes} min, {share:.0%}", *map(str, counts), *middle, aim]


def _ratio(ratio: float) -> str:
    words = {math.inf: "only a job each", 0.0: "only one job"}
    return "neither" if math.isnan(ratio) else words.get(ratio, f"{ratio:.2f}")


def _dollars(usd: float) -> str:
    return f"{usd:.2f}" if math.isfinite(usd) else "not played" if math.isnan(usd) else "not reached"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--forecasts", action="store_true", help="only forecasts on measured curves")
    parser.add_argument("--orders", type=int, default=8, help="orders in which trainings come")
    parser.add_argument("--kinds", default="plain,cliff")
    parser.add_argument("--first", type=int, default=118, help="seed of the first world")
    parser.add_argument("--seeds", type=int, default=4, help="worlds of a kind, each with another data set")
    parser.add_argument("--searches", type=int, default=1, help="of a world, on each side, with another seed")
    parser.add_argument("--minutes", type=int, nargs="+", default=[5, 15, 60])
    parser.add_argument("--budget", type=float, default=8.0, help="of a study, in median jobs")
    parser.add_argument("--most", type=int, default=48, help="trials of a study; 0: none is run")
    parser.add_argument(
        "--no-plays", dest="plays", action="store_false", help="leave out the rules of search/curve_rules"
    )
    parser.add_argument("--results", type=Path, help="keep the studies' dollars in this file, and run none twice")
    options = arguments.parse(parser, orders=1, kinds="plain", minutes=[15], seeds=1, searches=1, most=2, budget=3.0)
    table = measured(CURVES)
    count = sum(map(len, table.values()))
    made = published.conditions("paretune", "numpy")
    lines = [f"Final F1 of trainings that have paused, from {count} measured curves, {made}:", ""]
    head = ["paused after", "error of the last value", "error of the forecast", "inside 80 %", "forecasts"]
    lines += published.table(head, compare_forecasts(table, JUDGING, options.orders))
    lines += ["", "F1 of trainings that have not run, on the same data sets:", ""]
    head = ["forecast from", "root mean square error", "inside 80 %", "forecasts"]
    lines += published.table(head, compare_probes(table, JUDGING, options.orders))
    if not options.forecasts:
        lines += [
            "",
            "Simulated, dollars of one job that searches over those of a job each, by share of the front:",
            "",
        ]
        items = list(compare_searches(options, table))
        head = ["trainings, share", "both reach it", "only a job each", "only one job", "neither"]
        lines += published.table([*head, "median", "mean", "worst", "aim"], summary(items))
        lines += ["", "Each world, dollars to 90 % of the front:", ""]
        head = ["trainings, world", "a job each", "one job", *(f"ratio, {share:.0%}" for share in SHARES)]
        lines += published.table([*head, *(f"one job, {name}" for name in RULES)], (item.row() for item in items))
    print(published.block("warm_job", lines))


if __name__ == "__main__":
    main()
