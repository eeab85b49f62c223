"""Measure what a study saves that borrows from an earlier one, and what a misleading one costs.

    python benchmarks/transfer.py                       # held-out worlds
    python benchmarks/transfer.py --development         # worlds that may be looked at while something is being built
    python benchmarks/transfer.py --kinds plain --seeds 2 --earlier same,inverted

Each world of benchmarks/search/worlds.py is searched by `method: split` twice, with the same budget and seed: cold, in
an MLflow store that holds nothing, and after an earlier study that the store holds. That study has searched

    same         the same world, its jobs drawn anew
    other-data   the same model on other data: another best F1, place, fall and number of rows
    elsewhere    a world that says it is the same, whose best rate and batch are others
    inverted     one whose best settings are the worst ones here
    slower       one with other seconds
    noisy        one whose F1 is mostly chance
    another-seed nothing: the second study is cold, too, with another seed, which shows what chance alone does

Dollars are those of the second study alone, in median jobs of its world. A ratio is that of borrowed over cold, world
by world. Coverage is that of the stated 80 % intervals of points that were predicted and not run, in the end, against
the means of the world. Nothing is billed and nothing is trained.
"""

import argparse
import csv
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import arguments
import published
from search import product, worlds
from search.scoring import OBJECTIVES, Course, Score, short
from search.tables import Table

RESULTS = Path(__file__).parent / "results" / "transfer.csv"
_AGAIN = "another-seed"
EARLIER = (_AGAIN, "same", "other-data", *worlds.MISLEADING)
PACKAGES = ("paretune", "optuna", "mlflow", "scipy", "numpy")
_COLD = "cold"
_END_SHARE = 0.99
"""Share of the front of a cold search at its end; dollars until a search holds as much are those to the end."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A world, and what was searched before it."""

    kind: str
    seed: int
    earlier: str
    objectives: str
    budget: float


@dataclass(frozen=True, kw_only=True)
class Found:
    """A search: its course in median jobs, how many stated intervals held the truth of all, and what it borrowed."""

    course: Course
    held: dict[str, int]
    stated: int
    borrowed: float


def search(pair: Pair) -> Found:
    """The second study of a pair, in a process of its own pool."""
    world = worlds.World.draw(pair.kind, pair.seed)
    with tempfile.TemporaryDirectory() as folder, product.empty_home() as home:
        table = _table(world, Path(folder) / "world.csv")
        most = 60 + int(6 * pair.budget)
        limits = {"n_trials": most, "n_parallel": 1, "method": "split"}
        if pair.earlier not in (_COLD, _AGAIN):
            first = _table(_earlier(world, pair.earlier), Path(folder) / "earlier.csv")
            usd = pair.budget * first.median_usd
            before = product.study(first, pair.objectives, pair.seed + 50, name="earlier", budget_usd=usd, **limits)
            product.run(before, first, home)
        usd, seed = pair.budget * table.median_usd, pair.seed + (500 if pair.earlier == _AGAIN else 0)
        result = product.run(product.study(table, pair.objectives, seed, budget_usd=usd, **limits), table, home)
    course = Score(table, pair.objectives).course(result.booked, 0.0, result.remark)
    course = replace(course, usd=tuple(usd / table.median_usd for usd in course.usd))
    held, stated = _held(result, table, pair.objectives)
    return Found(
        course=course,
        held=held,
        stated=stated,
        borrowed=sum(item.weight or 0.0 for item in result.borrowed),
    )


def _held(searched: product.Searched, table: Table, objectives: str) -> tuple[dict[str, int], int]:
    """Objective to how many stated intervals hold the truth, and how many there are."""
    names, stated = OBJECTIVES[objectives], 0
    held = dict.fromkeys(names, 0)
    for trial in searched.forecast:
        truth = table.truth(trial.point)
        if truth is None:
            continue
        stated += 1
        for name in names:
            low, high = trial.intervals[name]
            held[name] += low <= getattr(truth, name) <= high
    return held, stated


def _earlier(world: worlds.World, name: str) -> worlds.World:
    if name == "same":
        return world.again(11)
    return world.of_other_data(12) if name == "other-data" else world.misleading(name, 13)


def _table(world: worlds.World, path: Path) -> Table:
    world.write(path)
    return Table(
        path, world.kind, ("learning_rate", "per_device_train_batch_size") if world.kind == "continuous" else ()
    )


def usd_to(searched: Found, share: float) -> float:
    """Dollars until what has run holds a share of the true front; infinite: never."""
    at = searched.course.reached("run", share)
    return math.inf if at is None else searched.course.usd[at]


def lines(earlier: str, pairs: Sequence[tuple[Found, Found]], objectives: str) -> list[str]:
    """A line of the table: cold and borrowed dollars, their ratios, and coverage."""
    cells = [earlier]
    ends = [_END_SHARE * cold.course.run[-1] for cold, _ in pairs]
    for shares in ([0.9] * len(pairs), ends):
        usd = [(usd_to(cold, share), usd_to(warm, share)) for (cold, warm), share in zip(pairs, shares, strict=True)]
        cells += [f"{short(_middle([first for first, _ in usd]))} -> {short(_middle([other for _, other in usd]))}"]
        ratios = [other / entry for entry, other in usd if math.isfinite(entry)]
        cells += [_spread(ratios)]
    spent = [(cold.course.usd[-1], warm.course.usd[-1]) for cold, warm in pairs]
    cells += [f"{short(_middle([single for single, _ in spent]))} -> {short(_middle([other for _, other in spent]))}"]
    last = [(cold.course.run[-1], warm.course.run[-1]) for cold, warm in pairs]
    cells += [f"{_middle([element for element, _ in last]):.3f} -> {_middle([other for _, other in last]):.3f}"]
    cells += [f"{_middle([warm.borrowed for _, warm in pairs]):.2f}"]
    for side in (0, 1):
        stated = sum(pair[side].stated for pair in pairs)
        held = [sum(pair[side].held[name] for pair in pairs) for name in OBJECTIVES[objectives]]
        shares_held = "/".join(f"{item / stated:.2f}" for item in held) if stated else "none"
        cells.append(f"{shares_held} of {stated}")
    return cells


def _middle(values: Sequence[float]) -> float:
    return statistics.median_high(values) if values else math.nan


def _spread(ratios: Sequence[float]) -> str:
    """Geometric mean of the finite ones, and the range."""
    finite = [ratio for ratio in ratios if math.isfinite(ratio)]
    if not finite:
        return "-"
    mean = statistics.geometric_mean(finite)
    never = len(ratios) - len(finite)
    return f"{mean:.2f} ({min(finite):.2f}..{max(finite):.2f})" + (f", {never} never" if never else "")


HEAD = (
    *("earlier study", "to 90 %", "ratio", "to the end", "ratio", "spent", "held in the end", "weight"),
    *("held by intervals, cold", "held by intervals, borrowed"),
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="plain,noisy,cliff,saturating,failing", help=f"of {','.join(worlds.KINDS)}")
    parser.add_argument("--earlier", default=",".join(EARLIER), help="what was searched before")
    parser.add_argument("--objectives", default="cost/F1,time/F1")
    parser.add_argument("--seeds", type=int, default=5, help="worlds of each kind")
    parser.add_argument("--budget", type=float, default=80.0, help="dollars of each study, in median jobs")
    parser.add_argument("--development", action="store_true", help="worlds that are not kept aside")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the CSV goes")
    return parser


def main() -> None:
    """Read the arguments, search, print."""
    few = {"kinds": "plain", "earlier": "same", "objectives": "cost/F1", "seeds": 1, "budget": 1.5, "processes": 1}
    options = arguments.parse(_parser(), **few, results=None)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    made = published.conditions(*PACKAGES)
    seeds = (worlds.DEVELOPMENT if options.development else worlds.HELD_OUT)[: options.seeds]
    kinds, before = options.kinds.split(","), options.earlier.split(",")
    print(made)
    rows: list[list[str]] = []
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool, tempfile.TemporaryDirectory() as folder:
        results = options.results or Path(folder) / "transfer.csv"
        results.parent.mkdir(parents=True, exist_ok=True)
        with results.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(
                ["earlier", "objectives", "kind", "seed", "usd_to_90%", "usd", "share", "held", "stated", "weight"]
            )
            for objectives in options.objectives.split(","):
                shared = {"objectives": objectives, "budget": options.budget}
                places = [(kind, seed) for kind in kinds for seed in seeds]
                names = [_COLD, *before]
                tasks = [Pair(kind=kind, seed=seed, earlier=name, **shared) for name in names for kind, seed in places]
                result = []
                for task, first in zip(tasks, pool.map(search, tasks), strict=True):
                    result.append(first)
                    writer.writerow(_row(task, first))
                    file.flush()
                cold = result[: len(places)]
                for workspace, name in enumerate(before, start=1):
                    warm = result[workspace * len(places) : (workspace + 1) * len(places)]
                    rows.append(lines(f"{name}, {objectives}", list(zip(cold, warm, strict=True)), objectives))
                    print(f"  {rows[-1]}", file=sys.stderr, flush=True)
    retained = "development" if options.development else "held out"
    head = (
        f"{made}; {', '.join(kinds)}: {len(seeds)} worlds of each, {retained}; medians, dollars in median jobs, one job"
    )
    print(published.block("transfer", [head, "at a time.", "", *published.table(HEAD, rows)]))


def _row(task: Pair, searched: Found) -> list[object]:
    usd = usd_to(searched, 0.9)
    held = "/".join(f"{name} {count}" for name, count in searched.held.items())
    last = searched.course.usd[-1] if searched.course.usd else 0.0
    location = [task.earlier, task.objectives, task.kind, task.seed]
    share = round(searched.course.run[-1], 4) if searched.course.run else 0.0
    usd_text = round(usd, 3) if math.isfinite(usd) else ""
    return [*location, usd_text, round(last, 3), share, held, searched.stated, round(searched.borrowed, 3)]


if __name__ == "__main__":
    main()
