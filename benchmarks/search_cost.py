"""How many dollars does a search need until its front is good, and what does it have at any budget?

    python benchmarks/search_cost.py                            # tables and held-out worlds; hours on two quiet threads
    python benchmarks/search_cost.py --tables saturating,noisy --seeds 3 --methods random,tpe,split
    python benchmarks/search_cost.py --tables plain --development           # worlds that may be looked at
    python benchmarks/search_cost.py --table runs.csv --tables ""           # a table of your own
    python benchmarks/search_cost.py --measure-local benchmarks/results/local_runs.csv    # jobs of this machine, CPU

Searches are run on tables of recorded jobs, see benchmarks/search/README.md: `modelled` and `contrary`, by a formula;
`local`, measured here, what its jobs show drawn anew for each seed; worlds of other structure (benchmarks/search/
worlds.py), a world a seed; and those named with --table. Every method searches the same points and is told the same
answers. Nothing is billed and nothing is trained, but for --measure-local.

A job's dollars count when it ends in virtual time, whatever its end. After each end, the front of what was measured is
scored at the true values of its points, the means over all seeds of the table: its hypervolume as a share of that of
the true front, with a reference point a tenth of the true front's range beyond its worst values. A method that
recommends points it has not run (split) is scored twice: what it has run, and what it recommends, at true values too.

This product is given the budget as `budget_usd` of its study, and searches once for each; it refuses what may not fit.
Other libraries know no budget: they search once, may overspend with the last jobs, and are read off at each budget.

Peers are those of benchmarks/search/peers.py and bayesian.py; those that are not installed are left out (`pip install
".[benchmarks]"`).
"""

import argparse
import csv
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import arguments
import published
from search import bayesian, local, modelled, peers, product, report, statements, worlds
from search.report import Searches, Setting
from search.scoring import OBJECTIVES, Course, Score
from search.tables import Table

from paretune.core.errors import BadInput

RESULTS = Path(__file__).parent / "results"
LOCAL, REPEATS = RESULTS / "local_runs.csv", RESULTS / "local_repeats.csv"
OPTUNA = {"random": "random", "grid": "grid", "tpe": "tpe", "tpe-failure": "tpe", "gp": "gp", "nsga2": "nsga2"}
SYNE = ("random", "morea", "morea-20", "moasha", "moasha-linear")
PRODUCT = ("joint", "split")
SLOW = ("gp", "botorch-qlognehvi", "ax")
METHODS = ("naive", *OPTUNA, *(f"syne-{name}" for name in SYNE), *SLOW[1:], *PRODUCT)
MORE_METHODS = ("joint-gp", "syne-ehvi", "botorch-qhvkg")  # by name only: slow
RANGES = ("learning_rate", "per_device_train_batch_size")
"""Axes that are ranges in the continuous worlds."""
PACKAGES = ("paretune", "optuna", "syne-tune", "botorch", "ax-platform", "mlflow", "torch", "scipy", "numpy")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One search. `budget` is dollars in median jobs, `slow` the most jobs of the SLOW methods."""

    path: str
    name: str
    method: str
    objectives: str
    parallel: int
    seed: int
    budget: float
    slow: int

    @property
    def most(self) -> int:
        """How many jobs the search may take at most."""
        is_slow = self.method in SLOW or self.method in MORE_METHODS
        return self.slow if is_slow else 60 + int(6 * self.budget)


def search(task: Task) -> Course:
    """One search, in a process of its own pool; dollars in median jobs."""
    table, score = _table(task.path, task.name, task.seed, task.objectives)
    started, remark, most_usd = time.process_time(), "", task.budget * table.median_usd
    if task.method == "naive":
        booked = list(peers.naive(table, task.objectives, task.seed))
    elif task.method.partition("-")[0] in PRODUCT:
        way, _, sampler = task.method.partition("-")
        limits: dict[str, Any] = {"parallel": task.parallel, "budget_usd": most_usd, "most": task.most}
        try:
            booked, remark = product.search(
                table, way, task.objectives, seed=task.seed, sampler=sampler or "tpe", **limits
            )
        except BadInput as error:  # a table of jobs that the product would not make
            booked, remark = [], f"refused: {error.faults[0]}"
    else:
        asking = _asking(table, task)
        limits = {"parallel": task.parallel, "most_usd": most_usd, "most": task.most}
        booked = peers.drive(asking, table, task.objectives, draw=task.seed, **limits)
    result = score.course(booked, time.process_time() - started, remark)
    return replace(result, usd=tuple(usd / table.median_usd for usd in result.usd))


def _asking(table: Table, task: Task) -> peers.Asking:
    """The library behind a method."""
    library, _, name = task.method.partition("-")
    count = len(OBJECTIVES[task.objectives])
    if library == "syne":
        return peers.SyneTune(table, name, task.seed, count)
    if library == "botorch":
        return bayesian.BoTorch(table, name, task.seed, count)
    if library == "ax":
        return bayesian.Ax(table, task.seed, count)
    return peers.OptunaAlone(table, OPTUNA[task.method], task.seed, constraint=name != "failure", objectives=count)


@cache
def _table(path: str, name: str, seed: int, objectives: str) -> tuple[Table, Score]:
    """The table of a seed; what the jobs of the local one show is drawn anew for each."""
    table = Table(Path(path), name, RANGES if name == "continuous" else ())
    if name == "local":
        table.resample(local.scatter(LOCAL, REPEATS), seed)
    return table, Score(table, objectives)


def is_there(method: str) -> str:
    """Why a method cannot be had; empty where it can."""
    library = method.partition("-")[0]
    module = {"syne": "syne_tune", "botorch": "botorch", "ax": "ax"}.get(library)
    if method == "syne-ehvi":
        module = "botorch"
    if module and find_spec(module) is None:
        return f'{module} is not installed (pip install ".[benchmarks]")'
    return ""


def compare(name: str, paths: Sequence[tuple[int, Path]], asked: argparse.Namespace, pool: ProcessPoolExecutor) -> None:
    """All searches of one table, or of the worlds of one kind, printed; a line of the README for each setting."""
    _describe(name, paths[0])
    seeds = [seed for seed, _ in paths]
    for parallel in asked.parallel:
        for objectives in _objectives(name, asked):
            result = []
            for method in (method for method in asked.methods if not is_there(method)):
                result.append(_all_seeds(name, paths, method, objectives, parallel, asked, pool))
                for refusal in {course.remark for course in result[-1].longest if not course.usd}:
                    print(f"  {method} {refusal}")
                location = (name, asked.kept, parallel, objectives, method)
                asked.writer.writerows(report.rows_of(location, seeds, result[-1]))
                print(f"  {name} {parallel} {objectives} {method}", file=sys.stderr, flush=True)
            setting = f"{name}, {objectives}, {parallel} job{'s' if parallel > 1 else ''} at a time"
            print(f"\n{setting}; seeds {seeds[0]} to {seeds[-1]}; dollars in median jobs")
            report.show([report.head(asked.budgets), *(line for item in result for line in report.lines_of(item))])
            asked.settings.append(Setting(name=name, objectives=objectives, parallel=parallel, searches=result))
            asked.summaries.append(report.summary(f"{name}, {objectives}, {parallel}", result, PRODUCT))
            sys.stdout.flush()


def _all_seeds(
    name: str,
    paths: Sequence[tuple[int, Path]],
    method: str,
    objectives: str,
    parallel: int,
    asked: argparse.Namespace,
    pool: ProcessPoolExecutor,
) -> Searches:
    """The searches of one method; the product's once a budget."""
    budgets = asked.budgets if method.partition("-")[0] in PRODUCT else asked.budgets[-1:]
    shared = {"name": name, "method": method, "objectives": objectives, "parallel": parallel, "slow": asked.slow_jobs}
    tasks = [Task(path=str(path), seed=seed, budget=usd, **shared) for usd in budgets for seed, path in paths]
    courses = list(pool.map(search, tasks))
    count = len(paths)
    by_budget = {usd: courses[workspace * count : (workspace + 1) * count] for workspace, usd in enumerate(budgets)}
    return Searches(method=method, budgets=asked.budgets, courses=by_budget)


def _objectives(name: str, asked: argparse.Namespace) -> list[str]:
    """What is searched for on a table: three objectives on those worlds alone."""
    return ["cost/time/F1"] if name == "three" else asked.objectives


def _describe(name: str, first: tuple[int, Path]) -> None:
    """Print what a table holds; of worlds, the first one."""
    seed, path = first
    table, _ = _table(str(path), name, seed, "cost/F1")
    dollars = sorted(truth.cost_usd for truth in table.truths)
    print(
        f"\n{name}{f', world {seed}' if name in worlds.KINDS else ''}: {len(table.points)} points, "
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
    every = ",".join(("modelled", "local", *worlds.KINDS))
    parser.add_argument("--tables", default=every, help=f"of {every},contrary; empty for none")
    parser.add_argument("--table", type=Path, action="append", default=[], help="a further CSV of recorded runs")
    parser.add_argument("--methods", default=",".join(METHODS), help=f"also {', '.join(MORE_METHODS)}")
    parser.add_argument("--objectives", default="cost/F1,time/F1", help="on all tables but `three`")
    parser.add_argument("--parallel", default="1", help="jobs at a time; 1,4: both")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--development", action="store_true", help="worlds that are not kept aside")
    parser.add_argument("--budgets", default="1,2,5,20,80", help="dollars of a search, in median jobs of the table")
    parser.add_argument("--slow-jobs", type=int, default=40, help=f"jobs at most of {', '.join(SLOW)}, which are slow")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS / "search_cost.csv", help="where the CSV goes")
    parser.add_argument("--statements", type=int, default=20, help="studies whose statements are checked; 0: none")
    parser.add_argument("--measure-local", type=Path, help="measure local jobs into this CSV, and do nothing else")
    return parser


def main() -> None:
    """Read the arguments, search, print."""
    parser = _parser()
    few = {"tables": "local", "methods": "naive,random,botorch-qlognehvi,ax,split", "objectives": "cost/F1"}
    short = {"parallel": "2", "seeds": 1, "budgets": "4", "slow_jobs": 9, "processes": 1, "statements": 1}
    options = arguments.parse(parser, **few, **short, results=None)
    if options.measure_local:
        local.measure(options.measure_local)
        return
    options.methods, options.objectives = options.methods.split(","), options.objectives.split(",")
    options.parallel = [int(text) for text in options.parallel.split(",")]
    options.budgets = sorted(float(text) for text in options.budgets.split(","))
    options.kept = "development" if options.development else "held out"
    unknown = [name for name in options.methods if name not in (*METHODS, *MORE_METHODS)]
    if unknown:
        parser.error(f"unknown methods {', '.join(unknown)}: there are {', '.join((*METHODS, *MORE_METHODS))}")
    made = published.conditions(*PACKAGES)
    print(made)
    for method, reason in {**{name: is_there(name) for name in options.methods}, **peers.CANNOT}.items():
        if reason:
            print(f"{method}: {reason}")
    print("medians over seeds (range); `not in X (n/N)`: half or more of the searches never did, spending X each")
    print("lost/again/all: median jobs that did not complete, that repeated an earlier one, and all")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # searches run side by side, in processes that are spawned with this
    with tempfile.TemporaryDirectory() as folder:
        if options.small:
            local.measure(Path(folder) / "local.csv", most=1, rows=40)
        search_all(options, Path(folder), options.results or Path(folder) / "search_cost.csv")
    print(
        f"\naims, worlds {options.kept}, {options.seeds} seeds; dollars in median jobs, `not`: half of them never did"
    )
    report.show([report.AIMS_HEAD, *report.aims(options.settings)])
    if options.statements:
        begin = (worlds.DEVELOPMENT if options.development else worlds.HELD_OUT).start
        print(
            f"\nwhat studies state of their recommendation, {options.kept} (search/statements.py says what each means)"
        )
        report.show([statements.HEAD, statements.AIMS, *statements.rows(range(begin, begin + options.statements))])
    print()
    print(published.block("search_cost", _readme(options, made)))


def _readme(asked: argparse.Namespace, made: str) -> list[str]:
    """The block of the README."""
    budgets = " and ".join(f"{budget:g}" for budget in report.shown(asked.budgets))
    head = ("table, objectives, jobs at a time", "random", "best peer (which)", *PRODUCT)
    return [
        f"{made}; {asked.seeds} seeds, worlds {asked.kept}. In each cell, medians: dollars until the jobs that were",
        "run hold 90 % of the true front's hypervolume, in median jobs of the table (`not`: half of the searches never",
        f"did); the shares held for {budgets} median jobs.",
        "",
        *published.table(head, asked.summaries),
    ]


def search_all(asked: argparse.Namespace, folder: Path, results: Path) -> None:
    """Search all tables that were asked for, side by side."""
    results.parent.mkdir(parents=True, exist_ok=True)
    asked.summaries, asked.settings = [], []
    with (
        ProcessPoolExecutor(asked.processes, multiprocessing.get_context("spawn")) as pool,
        results.open("w", newline="", encoding="utf-8") as file,
    ):
        asked.writer = csv.writer(file, lineterminator="\n")
        asked.writer.writerow(report.csv_head(asked.budgets))
        for name, paths in _chosen(asked, folder):
            compare(name, paths, asked, pool)


def _chosen(asked: argparse.Namespace, folder: Path) -> Iterable[tuple[str, list[tuple[int, Path]]]]:
    """Names of tables, and for each seed the file; worlds are drawn here."""
    seeds = range(asked.seeds)
    for name in filter(None, asked.tables.split(",")):
        path = folder / f"{name}.csv"
        if name in worlds.KINDS:
            retained = (worlds.DEVELOPMENT if asked.development else worlds.HELD_OUT)[: asked.seeds]
            paths = [(seed, folder / f"{name}-{seed}.csv") for seed in retained]
            for seed, file in paths:
                worlds.World.draw(name, seed).write(file)
            yield name, paths
        elif name == "local":
            yield name, [(seed, LOCAL) for seed in seeds]
        elif name in {"modelled", "contrary"}:
            modelled.write(path, modelled.CONTRARY if name == "contrary" else None)
            yield name, [(seed, path) for seed in seeds]
        else:
            raise SystemExit(f"--tables must be of modelled, contrary, local, {', '.join(worlds.KINDS)}; got {name}")
    for path in asked.table:
        yield path.stem, [(seed, path) for seed in seeds]


if __name__ == "__main__":
    main()
