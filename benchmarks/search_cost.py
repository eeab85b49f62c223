"""Measure the dollars that a search needs until its front is good, and the front that it has at the end.

    python benchmarks/search_cost.py                    # kept-aside worlds; about 40 minutes on two idle threads
    python benchmarks/search_cost.py --tables cliff,heavy --seeds 3 --methods random,tpe,split
    python benchmarks/search_cost.py --tables plain --development           # worlds that may be looked at
    python benchmarks/search_cost.py --tables "" --outside FOLDER    # training runs of others
    python benchmarks/search_cost.py --limited --methods random,tpe,sampler,split   # with a constraint

Searches run on worlds, which are tables of jobs drawn from a seed (see benchmarks/search/README.md). Every method
searches the same points for dollars and F1, and gets the same results. Nothing is billed and nothing is trained.

After each job, the front of the measured points is scored at their true values, which are means over all seeds of the
table. The score is the front's hypervolume divided by that of the true front. The reference point lies beyond the worst
values of the true front, by a tenth of the front's range. The methods `sampler` and `split` are paretune: `sampler` is
its sampler alone, and `split` a whole study. A study gets the budget as `budget_usd`, and refuses jobs that may exceed
it. Other libraries have no budget, and may exceed it with their last job. Every search is kept in --results; a search
that is already there does not run again.

The other methods are in benchmarks/search: Optuna's samplers in peers.py, a forest that knows prices in forest.py, and
a plain rival in rival.py. With --outside, training runs that others have measured on EC2 are searched, too.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import arguments
import published
from search import forest, measured, peers, product, report, rival, worlds
from search.measured import Measured
from search.report import Searches
from search.scoring import Course, Score
from search.tables import Table

RESULTS = Path(__file__).parent / "results"
SLOW = ("gp",)
METHODS = ("random", "nsga2", "tpe", "gp", "forest", "rival", "sampler", "split")
ON_WORLDS_ONLY = "rival"  # this method makes assumptions about the effects of batch and rate
RANGES = ("learning_rate", "per_device_train_batch_size")
"""Axes that are ranges in the worlds of the kind `continuous`."""
PACKAGES = ("paretune", "optuna", "mlflow", "scikit-learn", "scipy", "numpy")


@dataclass(frozen=True)
class Task:
    """One search of a world.

    `budget` is in median jobs, `slow` limits the jobs of a SLOW method, and `limited` is true with a constraint.
    """

    name: str
    method: str
    seed: int
    budget: float
    slow: int
    limited: bool = False

    @property
    def most(self) -> int:
        """The largest number of jobs that the search may run."""
        return self.slow if self.method in SLOW else 60 + int(6 * self.budget)


def search(task: Task, path: str) -> Course:
    """Run one search. The processes of a pool call this."""
    table, score = _table(path, task.name, task.limited)
    started, most_usd = time.process_time(), task.budget * table.median_usd
    if task.method == "split":
        ended = product.search(table, seed=task.seed, budget_usd=most_usd, most=task.most)
    else:
        ended = peers.drive(_asking(table, task), table, draw=task.seed, most_usd=most_usd, most=task.most)
    return score.course(ended, time.process_time() - started)


def _asking(table: Table, task: Task) -> peers.Asking:
    """Return the object that chooses the jobs of a method."""
    match task.method:
        case "sampler":
            return product.Sampler(table)
        case "rival":
            return rival.Rival(table)
        case "forest":
            return forest.Forest(table, task.seed)
        case _:
            return peers.OptunaAlone(table, task.method, task.seed)


@cache
def _table(path: str, name: str, limited: bool) -> tuple[Any, Score]:
    ranges = RANGES if name == "continuous" else ()
    table: Any = Measured(Path(path)) if name in measured.SOURCES else Table(Path(path), ranges)
    if limited:
        table.limit()
    return table, Score(table)


class Searched:
    """Runs searches, and keeps each as a line of a file. A search that has its line is not run again."""

    def __init__(self, path: Path, pool: ProcessPoolExecutor) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._path, self._pool = path, pool
        self._courses = {json.dumps(task): Course(**course) for task, course in map(json.loads, lines)}

    def courses(self, tasks: Sequence[tuple[Task, Path]]) -> list[Course]:
        """Return the courses of tasks, each given with the file of its table. Runs the searches that are missing."""
        waiting = [(task, path) for task, path in tasks if _line(task) not in self._courses]
        results = self._pool.map(search, [task for task, _ in waiting], [str(path) for _, path in waiting])
        for (task, _), course in zip(waiting, results, strict=True):
            self._courses[_line(task)] = course
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"[{_line(task)}, {json.dumps(asdict(course))}]\n")
        return [self._courses[_line(task)] for task, _ in tasks]


def _line(task: Task) -> str:
    return json.dumps(asdict(task))


def compare(
    name: str, paths: Sequence[tuple[int, Path]], options: argparse.Namespace, searched: Searched
) -> list[Searches]:
    """Run all searches of the worlds, or of the measured table, `name`. Print and return them."""
    seeds = [seed for seed, _ in paths]
    table, _ = _table(str(paths[0][1]), name, options.limited)
    dollars = sorted(usd for usd, _ in table.truths)
    axes = ", ".join(f"{axis} ({len(values)})" for axis, values in table.axes.items())
    print(
        f"\n{name}, {seeds[0]}: {len(table.points)} points, of which {len(table.truths)} "
        f"{'meet its constraint' if options.limited else 'run to their end'}; "
        f"a job costs {dollars[0]:.3g} to {dollars[-1]:.3g} USD, median {table.median_usd:.3g}; searched: {axes}"
    )
    result = []
    for method in options.methods:
        if method == ON_WORLDS_ONLY and name in measured.SOURCES:
            continue
        tasks = [
            (Task(name, method, seed, options.budget, options.slow_jobs, options.limited), path) for seed, path in paths
        ]
        courses = searched.courses(tasks)
        result.append(Searches(method=method, budget=options.budget, courses=courses))
        print(f"  {name} {method}", file=sys.stderr, flush=True)
    print(f"\n{name}; seeds {seeds[0]} to {seeds[-1]}; dollars in median jobs")
    report.show([report.head(options.budget), *map(report.line_of, result)])
    sys.stdout.flush()
    return result


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = ",".join(worlds.KINDS)
    parser.add_argument("--tables", default=every, help=f"kinds of worlds among {every}; empty for none")
    parser.add_argument("--outside", type=Path, help="folder with the files of benchmarks/search/measured.py")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--limited",
        action="store_true",
        help="search with a constraint: in worlds, seconds of at most the median job; in measured runs, an accuracy of"
        f" {measured.ENOUGH}; the forest and the rival do not know it",
    )
    parser.add_argument("--development", action="store_true", help="worlds that are not kept aside")
    parser.add_argument("--budget", type=float, default=40.0, help="dollars of a search, in median jobs of the world")
    parser.add_argument("--slow-jobs", type=int, default=40, help=f"job limit of {', '.join(SLOW)}, which is slow")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS / "search_cost.jsonl", help="where searches are kept")
    few = {"tables": "tiny", "methods": "random,forest,sampler,split", "seeds": 1}
    options = arguments.parse(parser, **few, budget=3.0, slow_jobs=12, processes=1, results=None, development=True)
    options.methods = options.methods.split(",")
    options.tables = list(filter(None, options.tables.split(",")))
    for given, known in ((options.methods, METHODS), (options.tables, worlds.KINDS)):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"unknown {', '.join(unknown)}: there are {', '.join(known)}")
    return options


def main() -> None:
    """Read the arguments, search, print."""
    options = _options()
    print(made := published.conditions(*PACKAGES))
    print("medians over seeds (range); `not in X (n/N)`: half or more of the searches never did, spending X each")
    print("lost/again/all: median jobs that did not complete, that repeated an earlier one, and all")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # the processes that run searches in parallel inherit it
    seeds = worlds.DEVELOPMENT if options.development else worlds.HELD_OUT
    context, settings = multiprocessing.get_context("spawn"), dict[str, list[Searches]]()
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(options.processes, context) as pool:
        searched = Searched(options.results or Path(folder) / "searches.jsonl", pool)
        for name in options.tables:
            paths = [(seed, Path(folder) / f"{name}-{seed}.csv") for seed in seeds[: options.seeds]]
            for seed, path in paths:
                worlds.World.draw(name, seed).write(path)
            settings[name] = compare(name, paths, options, searched)
        outside = dict[str, list[Searches]]()
        for name, source in measured.SOURCES.items() if options.outside else ():
            path = Path(folder) / f"{name}.csv"
            measured.convert(source, options.outside, path)
            outside[name] = compare(name, [(seed, path) for seed in range(options.seeds)], options, searched)
    worlds_are = f"worlds {'development' if options.development else 'kept aside'}."
    limit = "_limited" if options.limited else ""
    if settings:
        head = f"{made}; simulated; {options.seeds} seeds, {worlds_are}"
        print(published.block(f"search_cost{limit}", report.block(head, settings, options.slow_jobs)))
    if outside:
        head = f"{made}; trainings measured by others, replayed; {options.seeds} seeds."
        print(published.block(f"search_outside{limit}", report.block(head, outside, options.slow_jobs)))


if __name__ == "__main__":
    main()
