"""Measure the dollars that a search needs until its front is good, and what it has at any budget.

    python benchmarks/search_cost.py                            # held-out worlds; hours on two quiet threads
    python benchmarks/search_cost.py --tables saturating,noisy --seeds 3 --methods random,tpe,split
    python benchmarks/search_cost.py --tables plain --development           # worlds that may be looked at
    python benchmarks/search_cost.py --table runs.csv --tables ""           # a table of your own

Searches are run on tables of recorded jobs, see benchmarks/search/README.md: worlds drawn from a seed
(benchmarks/search/worlds.py); `local`, measured here, what its jobs show drawn anew for each seed; and those named with
--table. Every method searches the same points and is told the same answers. Nothing is billed and nothing is trained.

A job's dollars count when it ends in virtual time, whatever its end. After each end, the front of what was measured is
scored at the true values of its points, the means over all seeds of the table: its hypervolume as a share of that of
the true front, with a reference point a tenth of the true front's range beyond its worst values.
This product is given the budget as `budget_usd` of its study, and searches once for each; it refuses what may not fit.
Other libraries know no budget: they search once, may overspend with the last jobs, and are read off at each budget.
Every search is kept in --results; one that is there already is not run again.

Peers are those of benchmarks/search/peers.py and bayesian.py; those that are not installed are left out (`pip install
".[benchmarks]"`).
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import arguments
import published
from search import bayesian, local, peers, product, report, rival, statements, worlds
from search.report import PRODUCT, Searches, Setting
from search.scoring import OBJECTIVES, Course, Score
from search.tables import Table

from paretune.core.errors import BadInput

RESULTS = Path(__file__).parent / "results"
LOCAL, REPEATS = RESULTS / "local_runs.csv", RESULTS / "local_repeats.csv"
OPTUNA = ("random", "tpe", "gp")
SLOW = ("gp", "botorch-qlognehvi", "ax", "smac-parego")
LIBRARIES = {"syne": "syne_tune", "botorch": "botorch", "ax": "ax", "smac": "smac", "flaml": "flaml"}
"""Prefix of a method's name to the module that it needs."""
METHODS = (
    *OPTUNA,
    "rival",
    "sampler",
    "syne-morea",
    "flaml-blendsearch",
    *SLOW[1:],
    *PRODUCT,
)
RANGES = ("learning_rate", "per_device_train_batch_size")
"""Axes that are ranges in the continuous worlds."""
PACKAGES = (
    *("paretune", "optuna", "syne-tune", "botorch", "ax-platform", "smac", "flaml"),
    *("mlflow", "torch", "scipy", "numpy"),
)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One search. `budget` is dollars in median jobs, `slow` the most jobs of the SLOW methods."""

    name: str
    method: str
    objectives: str
    parallel: int
    seed: int
    budget: float
    slow: int

    @property
    def most(self) -> int:
        """The most jobs that the search may take."""
        return self.slow if self.method in SLOW else 60 + int(6 * self.budget)


def search(task: Task, path: str) -> Course:
    """One search, in a process of its own pool; dollars in median jobs."""
    table, score = _table(path, task.name, task.seed, task.objectives)
    started, remark, most_usd = time.process_time(), "", task.budget * table.median_usd
    limits: dict[str, Any] = {"parallel": task.parallel, "most": task.most}
    if task.method in PRODUCT:
        try:
            booked, remark = product.search(
                table, task.method, task.objectives, seed=task.seed, budget_usd=most_usd, **limits
            )
        except BadInput as error:  # a table of jobs that the product would not make
            booked, remark = [], f"refused: {error.faults[0]}"
    else:
        asking = _asking(table, task)
        booked = peers.drive(asking, table, task.objectives, draw=task.seed, most_usd=most_usd, **limits)
    result = score.course(booked, time.process_time() - started, remark)
    return replace(result, usd=tuple(usd / table.median_usd for usd in result.usd))


def _asking(table: Table, task: Task) -> peers.Asking:
    """The library behind a method."""
    library = task.method.partition("-")[0]
    count = len(OBJECTIVES[task.objectives])
    if library == "sampler":
        return product.Sampler(table, task.objectives)
    if library == "rival":
        return rival.Rival(table, task.objectives)
    if library == "syne":
        return peers.SyneTune(table, task.seed, count)
    if library == "flaml":
        return peers.Flaml(table, task.seed)
    if library == "smac":
        return bayesian.Smac(table, task.seed, count, task.most)
    if library == "botorch":
        return bayesian.BoTorch(table, task.seed, count)
    if library == "ax":
        return bayesian.Ax(table, task.seed, count)
    return peers.OptunaAlone(table, task.method, task.seed, count)


@cache
def _table(path: str, name: str, seed: int, objectives: str) -> tuple[Table, Score]:
    """The table of a seed; what the jobs of the local one show is drawn anew for each."""
    ranges, finer = RANGES if name == "continuous" else (), worlds.LARGE if name == "large" else None
    table = Table(Path(path), name, ranges, finer)
    if name == "local":
        table.resample(local.scatter(LOCAL, REPEATS), seed)
    return table, Score(table, objectives)


def is_there(method: str) -> str:
    """Why a method cannot be had; empty where it can."""
    module = LIBRARIES.get(method.partition("-")[0])
    return f'{module} is not installed (pip install ".[benchmarks]")' if module and find_spec(module) is None else ""


class Searched:
    """Searches that were run, in a file of a line each; a line that is there already is not run again."""

    def __init__(self, path: Path, pool: ProcessPoolExecutor) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._path, self._pool = path, pool
        self._courses = {json.dumps(task): Course(**course) for task, course in map(json.loads, lines)}

    def has(self, tasks: Iterable[tuple[Task, Path]]) -> bool:
        """Whether all these tasks are there."""
        return all(_line(task) in self._courses for task, _ in tasks)

    def courses(self, tasks: Sequence[tuple[Task, Path]]) -> list[Course]:
        """The courses of tasks, each with the file of its table; those that are not there yet are run."""
        waiting = [(task, path) for task, path in tasks if _line(task) not in self._courses]
        results = self._pool.map(search, [task for task, _ in waiting], [str(path) for _, path in waiting])
        for (task, _), course in zip(waiting, results, strict=True):
            self._courses[_line(task)] = course
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"[{_line(task)}, {json.dumps(asdict(course))}]\n")
        return [self._courses[_line(task)] for task, _ in tasks]


def _line(task: Task) -> str:
    return json.dumps(asdict(task))


def compare(name: str, paths: Sequence[tuple[int, Path]], options: argparse.Namespace, searched: Searched) -> None:
    """All searches of one table, or of the worlds of one kind, printed."""
    _describe(name, paths[0])
    seeds = [seed for seed, _ in paths]
    for parallel in options.parallel:
        for objectives in ["cost/time/F1"] if name == "three" else options.objectives:
            result = []
            for method in (method for method in options.methods if not is_there(method)):
                shared = {"name": name, "method": method, "objectives": objectives, "parallel": parallel}
                tasks = {}
                for usd in options.budgets if method in PRODUCT else options.budgets[-1:]:
                    terms = {**shared, "slow": options.slow_jobs, "budget": usd}
                    tasks[usd] = [(Task(seed=seed, **terms), path) for seed, path in paths]
                if options.report_only and not all(map(searched.has, tasks.values())):
                    continue
                courses = {usd: searched.courses(budgeted) for usd, budgeted in tasks.items()}
                result.append(Searches(method=method, budgets=options.budgets, courses=courses))
                for refusal in {course.remark for course in result[-1].longest if not course.usd}:
                    print(f"  {method} {refusal}")
                print(f"  {name} {parallel} {objectives} {method}", file=sys.stderr, flush=True)
            if not result:
                continue
            setting = f"{name}, {objectives}, {parallel} job{'s' if parallel > 1 else ''} at a time"
            print(f"\n{setting}; seeds {seeds[0]} to {seeds[-1]}; dollars in median jobs")
            report.show([report.head(options.budgets), *map(report.line_of, result)])
            options.settings.append(Setting(name=name, objectives=objectives, parallel=parallel, searches=result))
            sys.stdout.flush()


def _describe(name: str, first: tuple[int, Path]) -> None:
    """Print what a table holds; of worlds, the first one."""
    seed, path = first
    table, _ = _table(str(path), name, seed, "cost/F1")
    dollars = sorted(truth.cost_usd for truth in table.truths)
    print(
        f"\n{name}{f', world {seed}' if name in worlds.KINDS else ''}: {len(table.points)} recorded points, "
        f"{table.lost_share:.0%} do not end well; a job costs {dollars[0]:.3g} to {dollars[-1]:.3g} USD, "
        f"median {table.median_usd:.3g}; searched: "
        + ", ".join(f"{axis} ({len(values)})" for axis, values in table.axes.items())
    )
    if name == "local":
        print(f"  what jobs show is drawn anew for each seed: {local.scatter(LOCAL, REPEATS).basis}")
    for axis, values in table.left_out.items():
        print(f"  left out, for no study may search {axis}: rows with {', '.join(values)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = ",".join(("local", *worlds.KINDS))
    parser.add_argument("--tables", default=every, help=f"of {every}; empty for none")
    parser.add_argument("--table", type=Path, action="append", default=[], help="a further CSV of recorded runs")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--objectives", default="cost/F1,time/F1", help="on all tables but `three`")
    parser.add_argument("--parallel", default="1", help="jobs at a time; 1,4: both")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--development", action="store_true", help="worlds that are not kept aside")
    parser.add_argument("--budgets", default="1,5,40", help="dollars of a search, in median jobs of the table")
    parser.add_argument("--slow-jobs", type=int, default=40, help=f"jobs at most of {', '.join(SLOW)}, which are slow")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS / "search_cost.jsonl", help="where searches are kept")
    parser.add_argument("--report-only", action="store_true", help="of the searches that --results holds; none is run")
    parser.add_argument("--statements", type=int, default=20, help="studies whose statements are checked; 0: none")
    return parser


def main() -> None:
    """Read the arguments, search, print."""
    parser = _parser()
    few = {"tables": "local", "methods": "random,flaml-blendsearch,smac-parego,botorch-qlognehvi,split"}
    short = {"objectives": "cost/F1", "seeds": 1, "budgets": "3", "slow_jobs": 12}
    options = arguments.parse(parser, **few, **short, processes=1, statements=1, results=None)
    options.methods, options.objectives = options.methods.split(","), options.objectives.split(",")
    options.parallel = [int(text) for text in options.parallel.split(",")]
    options.budgets = sorted(float(text) for text in options.budgets.split(","))
    options.settings = []
    unknown = [name for name in options.methods if name not in METHODS]
    if unknown:
        parser.error(f"unknown methods {', '.join(unknown)}: there are {', '.join(METHODS)}")
    print(made := published.conditions(*PACKAGES))
    for method in options.methods:
        if reason := is_there(method):
            print(f"{method}: {reason}")
    print("medians over seeds (range); `not in X (n/N)`: half or more of the searches never did, spending X each")
    print("lost/again/all: median jobs that did not complete, that repeated an earlier one, and all")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # searches run side by side, in processes that are spawned with this
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(options.processes, context) as pool:
        searched = Searched(options.results or Path(folder) / "searches.jsonl", pool)
        for name, paths in _chosen(options, Path(folder)):
            compare(name, paths, options, searched)
    worlds_are = "development" if options.development else "kept aside"
    head = f"{made}; simulated; {options.seeds} seeds, worlds {worlds_are}."
    if options.settings:
        print(published.block("search_cost", report.block(head, options.settings, options.slow_jobs)))
    if options.statements:
        begin = (worlds.DEVELOPMENT if options.development else worlds.HELD_OUT).start
        rows = [statements.AIMS, *statements.rows(range(begin, begin + options.statements))]
        head = f"{made}; simulated; {options.statements} studies a row, worlds {worlds_are}."
        print(published.block("search_statements", [head, "", *published.table(statements.HEAD, rows)]))


def _chosen(options: argparse.Namespace, folder: Path) -> Iterable[tuple[str, list[tuple[int, Path]]]]:
    """Names of tables, and for each seed the file; worlds are drawn here."""
    seeds = range(options.seeds)
    for name in filter(None, options.tables.split(",")):
        if name in worlds.KINDS:
            retained = (worlds.DEVELOPMENT if options.development else worlds.HELD_OUT)[: options.seeds]
            paths = [(seed, folder / f"{name}-{seed}.csv") for seed in retained]
            for seed, file in paths:
                worlds.World.draw(name, seed).write(file)
            yield name, paths
        elif name == "local":
            yield name, [(seed, LOCAL) for seed in seeds]
        else:
            raise SystemExit(f"--tables must be of local, {', '.join(worlds.KINDS)}; got {name}")
    for path in options.table:
        yield path.stem, [(seed, path) for seed in seeds]


if __name__ == "__main__":
    main()
