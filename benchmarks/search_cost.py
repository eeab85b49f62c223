"""How many dollars and jobs does a search need until its front is good?

    python benchmarks/search_cost.py                            # everything; under 20 minutes on two threads
    python benchmarks/search_cost.py --seeds 3 --methods random,tpe,joint --tables modelled
    python benchmarks/search_cost.py --table runs.csv --tables ""           # a table of your own
    python benchmarks/search_cost.py --measure-local benchmarks/results/local_runs.csv    # jobs of this machine, CPU

Searches are run on tables of recorded jobs: `modelled` (945 jobs by a formula, benchmarks/search/modelled.py), `local`
(benchmarks/results/local_runs.csv, measured here), and those named with --table; `contrary`, by name only, is the
modelled one with an F1 that depends on the instance type too. Every method searches the same points,
for two pairs of objectives, with one and with four jobs at a time, and is told the same answers. Nothing is billed and
nothing is trained, but for --measure-local.

A job's dollars count when it ends in virtual time, whatever its end. After each end, the front of what was measured is
scored at the true values of its points, the means over all seeds of the table: its hypervolume as a share of that of
the true front, with a reference point a tenth of the true front's range beyond its worst values. A method that
recommends points it has not run (split) is scored twice: what it has run, and what it recommends, at true values too.

Peers are those of benchmarks/search/peers.py. Syne Tune is left out where it is not installed (`pip install
".[benchmarks]"`).
"""

import argparse
import csv
import datetime
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import arguments
from search import local, modelled, peers, product
from search.scoring import PAIRS, SHARES, Course, Score, middle, short
from search.tables import Table

from paretune.core.errors import BadInput

RESULTS = Path(__file__).parent / "results"
LOCAL = RESULTS / "local_runs.csv"
OPTUNA = {"random": "random", "grid": "grid", "tpe": "tpe", "tpe-failure": "tpe", "gp": "gp", "nsga2": "nsga2"}
SYNE = ("random", "morea", "morea-20", "moasha", "moasha-linear")
METHODS = ("naive", *OPTUNA, *(f"syne-{name}" for name in SYNE), "joint", "split")
MORE_METHODS = ("joint-gp", "syne-ehvi")  # by name only: slow
FIXED = (2, 5, 10, 20, 40)
"""Dollars at which hypervolume is shown, in median jobs."""
Task = tuple[str, str, str, str, int, int, int, int]
"""Path and name of the table, method, pair, jobs at a time, seed, dollars in median jobs, most jobs of slow ones."""


def search(task: Task) -> Course:
    """One search, in a process of its own pool."""
    path, name, method, pair, parallel, seed, worth, slow = task
    table, score = _table(path, name, pair)
    most_usd = worth * table.median_usd
    most = slow if method in {"gp", "joint-gp", "syne-ehvi"} else 6 * worth
    begun, remark = time.process_time(), ""
    if method == "naive":
        booked = list(peers.naive(table, pair, seed))
    elif method in {"joint", "split", "joint-gp"}:
        way, _, sampler = method.partition("-")
        try:
            booked, remark = product.search(
                table, way, pair, seed=seed, parallel=parallel, most_usd=most_usd, most=most, sampler=sampler or "tpe"
            )
        except BadInput as error:  # a table of jobs that the product would not make
            booked, remark = [], f"refused: {error.faults[0]}"
    else:
        asking: peers.Asking = (
            peers.SyneTune(table, method.removeprefix("syne-"), seed)
            if method.startswith("syne-")
            else peers.OptunaAlone(table, OPTUNA[method], seed, constraint=method != "tpe-failure")
        )
        booked = peers.drive(asking, table, pair, draw=seed, parallel=parallel, most_usd=most_usd, most=most)
    return score.course(booked, time.process_time() - begun, remark)


@cache
def _table(path: str, name: str, pair: str) -> tuple[Table, Score]:
    table = _read(path, name)
    return table, Score(table, pair)


@cache
def _read(path: str, name: str) -> Table:
    return Table(Path(path), name)


def is_there(method: str) -> str:
    """Why a method cannot be had; empty where it can."""
    if method in {"split", "joint", "joint-gp"} and not product.is_there(method.partition("-")[0]):
        return "not there yet"
    if method.startswith("syne-") and find_spec("syne_tune") is None:
        return 'Syne Tune is not installed (pip install ".[benchmarks]")'
    if method == "syne-ehvi" and find_spec("botorch") is None:
        return "needs BoTorch (pip install botorch)"
    return ""


def lines_of(method: str, courses: Sequence[Course], fixed: Sequence[float]) -> Iterable[tuple[str, ...]]:
    """One line for the front that has run, and one for the recommended front where that is another one."""
    for kind in ("run", "recommended"):
        if kind == "recommended" and all(course.run == course.recommended for course in courses):
            return
        spent = [course.usd[-1] if course.usd else 0.0 for course in courses]
        reached = {share: [course.reached(kind, share) for course in courses] for share in SHARES}
        usd = [
            middle([None if at is None else c.usd[at] for at, c in zip(reached[share], courses, strict=True)], spent)
            for share in SHARES
        ]
        jobs = [len(course.usd) for course in courses]
        middle_jobs = middle([None if at is None else at + 1 for at in reached[0.9]], jobs)
        kept = [course.kept(kind, 0.9) for course in courses]
        middle_kept = middle([None if at is None else c.usd[at] for at, c in zip(kept, courses, strict=True)], spent)
        shares = [f"{statistics.median(c.share_at(kind, limit) for c in courses):.2f}" for limit in fixed]
        full = statistics.median(c.statuses.count("OutOfMemory") for c in courses)
        again = statistics.median(c.again for c in courses)
        label = method if kind == "run" else f"{method}, recommended"
        cpu = statistics.median(c.cpu_seconds for c in courses)
        yield label, *usd, middle_kept, middle_jobs, *shares, f"{full:g}/{again:g}/{len(courses[0].usd)}", f"{cpu:.1f}"


def rows_of(where: Sequence[object], seed: int, course: Course, fixed: Sequence[float]) -> Iterable[list[object]]:
    """The lines of one search in the CSV file, one a front."""
    for kind in ("run", "recommended"):
        reached = [course.reached(kind, share) for share in SHARES]
        kept = [course.kept(kind, share) for share in SHARES]
        dollars = ["" if at is None else round(course.usd[at], 6) for at in (*reached, *kept)]
        jobs = ["" if at is None else at + 1 for at in reached]
        yield [
            *(*where, seed, kind, len(course.usd), round(course.usd[-1], 6) if course.usd else 0.0, *dollars, *jobs),
            *(round(course.share_at(kind, limit), 4) for limit in fixed),
            *(course.statuses.count("OutOfMemory"), course.statuses.count("Stopped"), course.again),
            *(round(course.cpu_seconds, 2), course.remark),
        ]


HEADER = [
    *("table", "jobs_at_a_time", "pair", "method", "seed", "front", "jobs", "usd"),
    *(f"usd_to_{share:.0%}" for share in SHARES),
    *(f"usd_to_keep_{share:.0%}" for share in SHARES),
    *(f"jobs_to_{share:.0%}" for share in SHARES),
    *(f"share_at_{worth}_jobs_usd" for worth in FIXED),
    *("out_of_memory", "stopped", "paid_again", "cpu_seconds", "ended_because"),
]


def show(lines: Sequence[Sequence[str]]) -> None:
    """Print a table, the first column to the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        print("  " + "  ".join(cells))


def compare(table: Table, asked: argparse.Namespace, pool: ProcessPoolExecutor, writer: "csv.Writer") -> None:
    """All searches of one table, printed pair by pair."""
    fixed = [worth * table.median_usd for worth in FIXED]
    dollars = sorted(truth.cost_usd for truth in table.truths)
    print(
        f"\n{table.name}: {len(table.points)} points, {table.out_of_memory_share:.0%} do not end well (out of memory); "
        f"a job costs {dollars[0]:.3g} to {dollars[-1]:.3g} USD, median {table.median_usd:.3g}; searched: "
        + ", ".join(f"{name} ({len(values)})" for name, values in table.axes.items())
    )
    for name, values in table.left_out.items():
        print(f"  left out, for no study may search {name}: rows with {', '.join(values)}")
    for pair in asked.pairs:
        print(f"  {pair}: {Score(table, pair).on_front} points on the true front")
    methods = [method for method in asked.methods if not is_there(method)]
    for parallel in asked.parallel:
        for pair in asked.pairs:
            shown: list[tuple[str, ...]] = []
            for method in methods:
                tasks = [
                    (str(table.path), table.name, method, pair, parallel, seed, asked.worth, asked.slow_jobs)
                    for seed in range(asked.seeds)
                ]
                courses = list(pool.map(search, tasks))
                for refusal in {course.remark for course in courses if not course.usd}:
                    print(f"  {method} {refusal}")
                shown += lines_of(method, courses, fixed)
                for seed, course in enumerate(courses):
                    where = (table.name, parallel, pair, method)
                    writer.writerows(rows_of(where, seed, course, fixed))
                print(
                    f"  {time.process_time():.0f} {table.name} {parallel} {pair} {method}", file=sys.stderr, flush=True
                )
            print(f"\n{table.name}, {pair}, {parallel} job{'s' if parallel > 1 else ''} at a time; {asked.seeds} seeds")
            head = ("", *(f"USD to {share:.0%}" for share in SHARES), "USD to keep 90%", "jobs to 90%")
            show([(*head, *(f"at {short(usd)}" for usd in fixed), "full/again/all", "CPU s"), *shown])
            sys.stdout.flush()


def main() -> None:
    """Read the arguments, search, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="modelled,local", help="of modelled, local, contrary; empty for none")
    parser.add_argument("--table", type=Path, action="append", default=[], help="a further CSV of recorded runs")
    parser.add_argument("--methods", default=",".join(METHODS), help=f"also {', '.join(MORE_METHODS)}")
    parser.add_argument("--pairs", default=",".join(PAIRS))
    parser.add_argument("--parallel", default="1,4", help="jobs at a time")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--worth", type=int, default=80, help="dollars a search may spend, in median jobs of the table")
    parser.add_argument("--slow-jobs", type=int, default=40, help="jobs at most of the GP samplers, which are slow")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS / "search_cost.csv", help="where the CSV goes")
    parser.add_argument("--measure-local", type=Path, help="measure local jobs into this CSV, and do nothing else")
    few = {"tables": "local", "methods": "naive,random,joint,split", "pairs": next(iter(PAIRS)), "parallel": "2"}
    asked = arguments.parse(parser, **few, seeds=1, worth=8, results=None)
    if asked.measure_local:
        local.measure(asked.measure_local)
        return
    asked.methods, asked.pairs = asked.methods.split(","), asked.pairs.split(",")
    asked.parallel = [int(text) for text in asked.parallel.split(",")]
    unknown = [name for name in asked.methods if name not in (*METHODS, *MORE_METHODS)]
    if unknown:
        parser.error(f"unknown methods {', '.join(unknown)}: there are {', '.join((*METHODS, *MORE_METHODS))}")
    names = ("paretune", "optuna", "syne-tune", "mlflow", "torch", "scipy", "numpy")
    print(f"{datetime.date.today()}, Python {platform.python_version()}, {os.cpu_count()} logical cores; ", end="")
    print(", ".join(map(_version, names)))
    for method in asked.methods:
        if is_there(method):
            print(f"{method}: {is_there(method)}")
    for name, reason in peers.CANNOT.items():
        print(f"{name}: {reason}")
    print(
        "USD to: medians over seeds (range); `not in X (n/N)`: half or more of the searches never did, spending X each"
    )
    print("full/again/all: median jobs out of memory, jobs that repeated an earlier one, jobs of the first search")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # searches run side by side, in processes that are spawned with this
    with tempfile.TemporaryDirectory() as folder:
        if asked.small:
            local.measure(Path(folder) / "local.csv", most=1, rows=40)
        results = asked.results or Path(folder) / "search_cost.csv"
        results.parent.mkdir(parents=True, exist_ok=True)
        search_all(asked, Path(folder), results)


def search_all(asked: argparse.Namespace, folder: Path, results: Path) -> None:
    """Search all tables that were asked for, side by side."""
    with (
        ProcessPoolExecutor(asked.processes, multiprocessing.get_context("spawn")) as pool,
        results.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        for path, name in _chosen(asked, folder):
            compare(_read(str(path), name), asked, pool, writer)


def _chosen(asked: argparse.Namespace, folder: Path) -> Iterable[tuple[Path, str]]:
    for name in filter(None, asked.tables.split(",")):
        if name == "modelled":
            modelled.write(folder / "modelled.csv")
            yield folder / "modelled.csv", name
        elif name == "contrary":
            modelled.write(folder / "contrary.csv", modelled.CONTRARY)
            yield folder / "contrary.csv", name
        elif LOCAL.exists():
            yield LOCAL, name
        else:
            print(f"\n{name}: {LOCAL.name} is not there yet (--measure-local)")
    for path in asked.table:
        yield path, path.stem


def _version(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} not installed"


if __name__ == "__main__":
    main()
