"""Dollars to a good front with one job that searches, beside a job for each trial: simulated, nothing is billed.

    python benchmarks/warm_job.py                 # an hour on a quiet thread
    python benchmarks/warm_job.py --rules         # only what is played on measured curves, seconds

*Rules.* Trainings of benchmarks/tables/learning_curves.csv (search/measure_curves.py), played by the rules of
search/curve_rules.py. Constants were chosen on six data sets, the other four judge. Seconds are modelled: 0.04 s a step
and 100 rows a second (LoRA 133), on ml.g5.xlarge.

*Probes.* F1 of a training that has not run, forecast from earlier runs on the same data, by their settings alone or by
the training loss of steps 31 to 40 as well.

*Jobs.* Worlds of search/worlds.py with seeds from 105, whose billed seconds follow public SageMaker jobs of Hugging
Face models: 214 s before the first line, 11 to 17 % of the bill of a median job for uploading its model (read
2026-11-23). Rows are scaled until the median training takes 5, 15 or 60 minutes. The default is the method `split` of a
study with one job for each trial, run by the product itself. The job that searches is simulated here, by its rule
directly, not by the study's driver: it trains on the cluster that is cheapest by estimate, with gradient accumulation.
Estimates of seconds are off by 20 %; other clusters that may be cheapest are measured by jobs of 40 steps, which are
paid, if those cost less than half a median job. The shapes of curves are those of the judging data sets, smoothed over
three points; how much they gain after the first eighth is the world's. Every rung takes 2 % more for pausing and
evaluation, and every trial that ends uploads its model. Of the job, fronts are looked at when a training ends.
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
from pathlib import Path

import arguments
import numpy as np
import published
from search.curve_rules import PARTS, Play, Rule, Training, rules
from search.scoring import Score
from search.tables import PRICES, Table
from search.worlds import BATCHES, COUNTS, EPOCHS, RATES, World

from paretune.pricing.prices import VARIABLE, PriceList
from paretune.studies.search import curves

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


def trainings(rows: Sequence[Measured], minutes: float = 15.0) -> list[Training]:
    """Measured trainings as those of a search, whose median takes so many minutes."""
    steps = [row.steps * (0.04 + row.batch / (133 if row.is_lora else 100)) for row in rows]
    scale = 60 * minutes / statistics.median(steps)
    upload = statistics.mean(UPLOADING)
    result = []
    for number, (row, seconds) in enumerate(zip(rows, steps, strict=True)):
        usd = scale * seconds * USD_PER_HOUR / 3600
        alone_usd = (usd + BEFORE_S * USD_PER_HOUR / 3600) / (1 - upload)
        point = (*curves.comparable_point(row.batch, _as_full(row)), 2.0 * row.is_lora)
        result.append(
            Training(
                key=str(number),
                curve=row.f1,
                usd=usd,
                extra_usd=0.0,
                own_job_usd=alone_usd,
                true_usd=alone_usd,
                point=point,
            )
        )
    return result


def compare_rules(table: dict[str, list[Measured]], names: Iterable[str], orders: int) -> list[list[str]]:
    """A row for each rule: dollars to 90 % of the front of each data set, over those of halving, and their mean."""
    spent: dict[str, dict[str, float]] = {name: {} for name in rules()}
    for dataset in names:
        items = trainings(table[dataset])
        for name, results in spent.items():
            runs = [Play([*items[seed:], *items[:seed]], seed).run(rules()[name]) for seed in range(orders)]
            results[dataset] = statistics.mean(runs)
    usual = spent["halving"]
    rows = []
    for name, results in spent.items():
        ratios = [results[dataset] / usual[dataset] for dataset in results]
        rows.append([name, *(f"{ratio:.2f}" for ratio in ratios), f"{statistics.geometric_mean(ratios):.2f}"])
    return rows


def compare_probes(table: dict[str, list[Measured]], names: Iterable[str], draws: int) -> list[list[str]]:
    """A row for earlier runs alone and one with losses: root mean square error, share inside 80 % intervals, count."""
    rows = []
    for basis, weight in (("earlier runs", 0.0), ("earlier runs and the loss after 40 steps", LOSS_WEIGHT)):
        errors, inside = [], []
        for name, draw in itertools.product(names, range(draws)):
            long = [row for row in table[name] if row.steps > PROBE_STEPS]
            spread = statistics.pstdev([row.early_loss for row in long]) or 1.0
            states = [
                replace(
                    item.state(PARTS), curve=((1.0, row.f1[-1]),), point=(*item.point, weight * row.early_loss / spread)
                )
                for item, row in zip(trainings(long), long, strict=True)
            ]
            random.Random(draw).shuffle(states)
            earlier, others = states[: len(states) // 2], states[len(states) // 2 :]
            mean, deviation = curves.forecast(earlier, others, [1.0] * len(others), is_measured=True)
            actual = np.array([state.curve[0][1] for state in others])
            errors += list(mean - actual)
            inside += list(abs(mean - actual) <= 1.2816 * deviation)
        error = math.sqrt(statistics.mean(value**2 for value in errors))
        rows.append([basis, f"{error:.3f}", f"{np.mean(inside):.0%}", str(len(errors))])
    return rows


class Shapes:
    """The shapes of measured curves: shares that remain to their last value, by rate and batch in their own grid."""

    def __init__(self, rows: Sequence[Measured]) -> None:
        low = min(min(row.f1) for row in rows)
        best = max(rows, key=lambda row: row.f1[-1])
        learned = [row for row in rows if row.f1[-1] - low > 0.3 * (best.f1[-1] - low)]
        self._items = []
        for row in learned:
            octaves = math.log2(_as_full(row) / _as_full(best))
            ends = (row.f1[0], *row.f1, row.f1[-1])
            smooth = [sum(ends[part : part + 3]) / 3 for part in range(PARTS)]
            remains = [min((smooth[-1] - value) / max(smooth[-1] - smooth[0], 0.02), 1.0) for value in smooth]
            self._items.append((octaves, math.log2(row.batch), remains))

    def remaining(self, octaves: float, batch: float) -> list[float]:
        """Shares that remain after each part, of the measured training with the nearest settings."""
        return min(self._items, key=lambda item: (item[0] - octaves) ** 2 + (item[1] - batch) ** 2)[2]


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

    world: World
    trainings: tuple[Training, ...]
    truth: tuple[tuple[float, float], ...]
    before_usd: float

    @classmethod
    def draw(cls, kind: str, seed: int, minutes: float, shapes: Shapes, price: Price) -> "WarmWorld":
        """The world of a kind and a seed, and what jobs of it show."""
        draw = np.random.default_rng([7, seed, int(minutes)])
        world = replace(World.draw(kind, seed), startup_s=BEFORE_S, startup_per_instance_s=10.0)
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
            trainings=tuple(sorted(_trainings(world, home, price, off, upload_s, shapes, draw), key=_from_usual)),
            truth=tuple(_truth(world, price)),
            before_usd=price(home) * BEFORE_S / 3600 + sum(_probe_usd(price, at) for at in probed),
        )

    def dollars(self, rule: Rule, seed: int, *, is_recommended: bool = True) -> float:
        """Dollars of the job that searches until its finished trainings have 90 % of the front."""
        return self.before_usd + Play(self.trainings, seed, is_recommended, self.truth).run(rule)


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
    world: World,
    home: str,
    price: Price,
    off: Mapping[tuple[str, int], float],
    upload_s: float,
    shapes: Shapes,
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
        octaves = math.log2(rate / world.best_rate) - world.power * math.log2(whole / 64)
        remains = shapes.remaining(octaves, math.log2(whole))
        jitter = draw.normal(0, 0.0015 * world.noise, PARTS)
        gap = 0.02 + 0.03 * max(0.0, math.log2(whole / 16))  # as in `World.write`
        curve = [last - gap * share + noise for share, noise in zip(remains, jitter, strict=True)]
        yield Training(
            key=f"{whole} {rate:g}",
            curve=(*curve[:-1], last),
            usd=price(home) * seconds * PAUSE / 3600,
            extra_usd=price(home) * upload_s / 3600,
            own_job_usd=estimated,
            true_usd=true,
            point=curves.comparable_point(whole, rate),
            true_f1=HARDLY if collapsed else level,
        )


def default_dollars(world: World, options: argparse.Namespace) -> tuple[float, float] | None:
    """Dollars of `split` with a job for each trial until 90 % of the front: recommended, and run; None: not run.

    A study that is in the file of results is not run again.
    """
    key = [world.kind, world.seed, world.rows]
    stored = options.results.read_text().splitlines() if options.results and options.results.exists() else []
    for line in stored:
        entry = json.loads(line)
        if entry["key"][:3] == key:
            return entry["recommended"], entry["run"]
    if not options.most:
        return None
    from search import product  # with MLflow, which rules on curves do without

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "world.csv"
        world.write(path)
        table = Table(path)
        limits = {"parallel": 1, "budget_usd": options.budget * table.median_usd, "most": options.most}
        booked, _ = product.search(table, "split", "cost/F1", seed=0, **limits)
        course = Score(table, "cost/F1").course(booked, 0.0)
    reached = [course.reached(kind, 0.9) for kind in ("recommended", "run")]
    usd = [math.inf if at is None else course.usd[at] for at in reached]
    if options.results:
        entry = {"key": key, "recommended": usd[0], "run": usd[1], "jobs": len(booked), "spent": course.usd[-1]}
        with options.results.open("a") as file:
            file.write(json.dumps(entry) + "\n")
    return usd[0], usd[1]


def hourly(name: str) -> float:
    """Dollars an hour of an instance type in us-east-1."""
    price = PriceList.read(PRICES).price(name, "us-east-1")
    if price is None:
        raise SystemExit(f"the price of {name} is not known: give it in a CSV ({VARIABLE})")
    return price.usd_per_hour


def compare_jobs(options: argparse.Namespace, table: dict[str, list[Measured]]) -> Iterator[list[str]]:
    """A row for each length of trainings and world: dollars of the default and of one job, and their ratio."""
    shapes = [Shapes(table[name]) for name in JUDGING]
    seeds = range(options.first, options.first + options.seeds)
    for minutes, kind, seed in itertools.product(options.minutes, options.kinds.split(","), seeds):
        warm = WarmWorld.draw(kind, seed, minutes, shapes[seed % len(shapes)], hourly)
        usd = [
            statistics.median(warm.dollars(rules()[name], order, is_recommended=recommended) for order in range(3))
            for name, recommended in (("halving", True), ("forecast", True), ("forecast", False))
        ]
        usual = default_dollars(warm.world, options)
        has_ratio = usual is not None and math.isfinite(usual[0] + usd[1])
        ratio = f"{usd[1] / usual[0]:.2f}" if usual is not None and has_ratio else ""
        before = ["not run", "not run"] if usual is None else [_dollars(usual[0]), _dollars(usual[1])]
        row = [f"{minutes} min, {kind} {seed}", *before, *map(_dollars, usd), ratio]
        print("#", *row, flush=True)
        yield row


def _dollars(usd: float) -> str:
    return f"{usd:.2f}" if math.isfinite(usd) else "not reached"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rules", action="store_true", help="only what is played on measured curves")
    parser.add_argument("--orders", type=int, default=8, help="orders in which trainings come")
    parser.add_argument("--kinds", default="plain,cliff,noisy,saturating")
    parser.add_argument("--first", type=int, default=105, help="seed of the first world")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=int, nargs="+", default=[5, 15, 60])
    parser.add_argument("--budget", type=float, default=20.0, help="of the default search, in median jobs")
    parser.add_argument("--most", type=int, default=60, help="jobs of the default search; 0: it is not run")
    parser.add_argument("--results", type=Path, help="keep the default's studies in this file, and run none twice")
    options = arguments.parse(parser, orders=1, kinds="plain", minutes=[15], most=2, budget=3.0)
    table = measured(CURVES)
    count = sum(map(len, table.values()))
    made = published.conditions("paretune", "numpy")
    lines = [f"Played on {count} measured curves, {made}. Dollars to 90 % of the front over those of halving:", ""]
    sizes = [f"{name} ({len(table[name])})" for name in JUDGING]
    lines += published.table(["rule", *sizes, "mean"], compare_rules(table, JUDGING, options.orders))
    lines += ["", "F1 of trainings that have not run, on the same data sets:", ""]
    head = ["forecast from", "root mean square error", "inside 80 %", "forecasts"]
    lines += published.table(head, compare_probes(table, JUDGING, options.orders))
    if not options.rules:
        lines += ["", "Simulated, dollars to 90 % of the front of dollars and F1:", ""]
        head = ["trainings, world", "default, recommended", "default, run", "one job, halving, recommended"]
        head += ["forecast, recommended", "forecast, finished", "forecast over default, recommended"]
        lines += published.table(head, list(compare_jobs(options, table)))
    print(published.block("warm_job", lines))


if __name__ == "__main__":
    main()
