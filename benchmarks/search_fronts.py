"""Judge the search on families of tables, half of which are left out while the search is developed.

    python benchmarks/search_fronts.py FOLDER                       # the half that may be looked at
    python benchmarks/search_fronts.py FOLDER --half left_out       # once, at the end
    python benchmarks/search_fronts.py --small                      # seconds, with a generated table

FOLDER has the files of benchmarks/search/grids.py. `FAMILIES` divides the families of tables into halves. A family is
one source of measurements, or the worlds of one set of formulas. No choice may be based on the half `left_out`. Each
search is one line of --results; a search that has its line is not run again.

    stops      paretune's sampler, which ends by itself (`stop: auto`)
    never      the same sampler until the budget is spent (`stop: never`)
    before     the sampler of version 0.6.0 until the budget is spent; only stored searches, made with that version
    study      a whole study of paretune, `stop: auto`, on tables whose prices depend only on the instance type
    plain      benchmarks/search/plain.py
    forest     benchmarks/search/forest.py
    tpe, gp    benchmarks/search/peers.py
    nehvi      benchmarks/search/nehvi.py; needs BoTorch, and searches only tables of measured training runs

Dollars are in median jobs of the table: the median price of its jobs is 1. The oracle is the cheapest set of jobs with
90 % of the front's hypervolume.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import arguments
import published
from scipy.stats import binomtest
from search import forest, grids, other_worlds, peers, plain, product, worlds
from search.scoring import Course, Score, short
from search.tables import Table

RESULTS = Path(__file__).parent / "results"
METHODS = ("stops", "never", "plain", "forest", "tpe", "gp")
WHOLE = "study"  # not in METHODS: it cannot replay a table if the price depends on settings of the cluster
OF_EC2 = ("lynceus-cnn", "lynceus-multilayer", "trimtuner-cnn")
FAMILIES = {
    "development": {
        "LCBench, odd": tuple(
            f"lcbench-{task}" for task in (3945, 126026, 167149, 167181, 167200, 168331, 168910, 189866, 189908)
        ),
        "TrimTuner": (
            *("trimtuner-cnn//clusters", "trimtuner-cnn/2/clusters", "trimtuner-cnn/5/clusters"),
            *("trimtuner-cnn/0/machines", "trimtuner-sizes/11/machines"),
        ),
        "FCNet Parkinsons": ("fcnet-parkinsons", "fcnet-parkinsons/0"),
        "worlds, three kinds": ("plain/0", "plain/337", "failing/1", "failing/338", "far/2", "far/338"),
    },
    "left_out": {
        "LCBench, even": tuple(
            f"lcbench-{task}" for task in (34539, 146212, 167161, 167185, 168329, 168868, 189862, 189905)
        ),
        "Lynceus": (
            *("lynceus-cnn//clusters", "lynceus-cnn/2/clusters", "lynceus-cnn/0/machines"),
            *("lynceus-multilayer//clusters", "lynceus-multilayer/0/clusters", "lynceus-multilayer/4/machines"),
        ),
        "FCNet slice": ("fcnet-slice", "fcnet-slice/4"),
        "worlds, two other kinds": ("cliff/335", "cliff/339", "heavy/336", "heavy/339"),
        "worlds with other formulas": tuple(f"{kind}/{seed}" for kind in other_worlds.KINDS for seed in (0, 1)),
    },
}
"""The tables of each family, by half. A family is one source of measurements, or worlds with the same formulas; only
LCBench, whose tables are different data sets, has tables in both halves."""
DEVELOPMENT, LEFT_OUT = (
    tuple(name for names in FAMILIES[half].values() for name in names) for half in ("development", "left_out")
)
BUDGET, MOST_JOBS, MOST_SLOW = 40.0, 300, 30
"""The budget of a search in median jobs, its maximum number of jobs, and that of `gp`, which is slow."""
GOOD = 0.9
_SMALL = ("tiny/0",)


@cache
def table_of(name: str, folder: Path, work: Path) -> Any:
    """Return the table `name`: a part of measured training runs, or a world, whose name is kind/seed."""
    kind, _, seed = name.partition("/")
    if kind in other_worlds.KINDS:
        return other_worlds.world(kind, int(seed), work)
    if kind not in worlds.KINDS:
        return grids.grid(name, folder, work)
    path = work / f"{kind}-{seed}.csv"
    worlds.World.draw(kind, int(seed)).write(path)
    return Table(path)


def search(name: str, method: str, folder: Path, work: Path, budget: float) -> dict[str, Course]:
    """Run one search, and return its course by method.

    `stops` and `never` share one run of paretune's sampler, because `stops` runs the same jobs until it ends.
    """
    table, started = table_of(name, folder, work), time.process_time()
    if method == WHOLE:
        if isinstance(table, grids.Grid):
            table.record(work)
        ended = product.search(table, seed=0, budget_usd=budget * table.median_usd, most=MOST_JOBS)
        return {method: Score(table).course(ended, time.process_time() - started)}
    asking: peers.Asking
    match method:
        case "stops" | "never":
            asking = product.Sampler(table, stop=False)
        case "plain":
            asking = plain.Plain(table)
        case "forest":
            asking = forest.Forest(table, seed=0)
        case "nehvi":
            from search import nehvi  # needs BoTorch, which nothing else here does

            asking = nehvi.Nehvi(table, seed=0)
        case _:
            asking = peers.OptunaAlone(table, method, seed=0)
    most = MOST_SLOW if method == "gp" else MOST_JOBS
    ended = peers.drive(asking, table, draw=0, most_usd=budget * table.median_usd, most=most)
    score, took_s = Score(table), time.process_time() - started
    courses = {method: score.course(ended, took_s)}
    if isinstance(asking, product.Sampler):
        courses = {"never": courses[method], "stops": score.course(ended[: asking.ends_after], took_s)}
    return courses


def oracle(name: str, folder: Path, work: Path) -> float:
    """Return the dollars, in median jobs, of the cheapest set of jobs with the share GOOD of the front."""
    table = table_of(name, folder, work)
    return Score(table).cheapest(GOOD) / float(table.median_usd)


def rows(names: Sequence[str], methods: Sequence[str], courses: dict[str, Course], best: dict[str, float]) -> Any:
    """Yield a row for each table: its oracle, and by method dollars to 90 %, share at the end, and dollars spent."""
    for name in names:
        cells = [short(best[name])]
        for method in methods:
            course = courses[f"{name} {method}"]
            reached = course.reached(GOOD)
            to_90 = short(reached) if reached < math.inf else "not"
            cells.append(f"{to_90} / {course.share_at(math.inf):.3f} / {short(course.usd[-1] if course.usd else 0.0)}")
        yield name, *cells


def summary(
    names: Sequence[str], methods: Sequence[str], courses: dict[str, Course], best: dict[str, float]
) -> Iterable[tuple[str, ...]]:
    """Yield a row for each method over all tables.

    `dearest` is the method's dollars to 90 % divided by those of the cheapest other rival, at its largest over tables.
    """
    rivals = [method for method in methods if method not in ("stops", "never", WHOLE)]
    for method in methods:
        of = {name: courses[f"{name} {method}"] for name in names}
        to_90 = {name: course.reached(GOOD) for name, course in of.items()}
        ends = [course.share_at(math.inf) for course in of.values()]
        dearest = [
            to_90[name] / lowest
            for name in names
            if (lowest := min((courses[f"{name} {r}"].reached(GOOD) for r in rivals if r != method), default=math.inf))
            < math.inf
        ]
        median = statistics.median_high(to_90.values())
        yield (
            method,
            short(median) if median < math.inf else "not",
            str(sum(value == math.inf for value in to_90.values())),
            f"{statistics.median_high(to_90[name] / best[name] for name in names):.0f}",
            short(max(dearest, default=math.inf)),
            f"{statistics.median(ends):.3f}",
            f"{min(ends):.3f}",
            f"{sum(end < 0.94 for end in ends)} of {len(ends)}",
            short(statistics.median(course.usd[-1] if course.usd else 0.0 for course in of.values())),
            f"{statistics.median(course.cpu_seconds for course in of.values()):.1f}",
        )


def sign_test(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return how many of N dollars are lower and higher by more than a tenth, and how likely that is by chance.

    The probability is that of a two-sided sign test: the same or more uneven counts, if both were equally likely.
    """
    pairs = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
    sooner, later = sum(a < b / 1.1 for a, b in pairs), sum(a > b * 1.1 for a, b in pairs)
    p = binomtest(sooner, sooner + later).pvalue if sooner + later else 1.0
    return f"{sooner} / {later} ({p:.2g})"


def by_family(half: str, methods: Sequence[str], courses: dict[str, Course]) -> Iterable[tuple[str, ...]]:
    """Yield a row for each family: by method, the median dollars to 90 % and the median end."""
    for family, tables in FAMILIES[half].items():
        if names := [name for name in tables if all(f"{name} {method}" in courses for method in methods)]:
            cells = [f"{family} ({len(names)})"]
            for method in methods:
                of = [courses[f"{name} {method}"] for name in names]
                median = statistics.median_high(course.reached(GOOD) for course in of)
                end = statistics.median(course.share_at(math.inf) for course in of)
                cells.append(f"{short(median) if median < math.inf else 'not'} / {end:.3f}")
            yield tuple(cells)


def against(names: Sequence[str], methods: Sequence[str], courses: dict[str, Course]) -> Iterable[tuple[str, ...]]:
    """Yield a row for each rival: on how many tables paretune (`never`) has 90 % of the front sooner, and later."""
    for rival in (method for method in methods if method not in ("stops", "never", WHOLE)):
        each = [[courses[f"{name} {method}"].reached(GOOD) for name in names] for method in ("never", rival)]
        yield rival, sign_test(*each)


_SUMMARY = ("method", "to 90 %", "never", "x oracle", "dearest", "end", "worst end", "below .94", "spent", "CPU s")


def main() -> None:
    """Read the arguments, search, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="folder with the files of search/grids.py")
    parser.add_argument("--half", choices=("development", "left_out"), default="development")
    parser.add_argument("--tables", default="", help="some of the half's tables, with commas between them")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--budget", type=float, default=BUDGET, help="dollars of a search, in median jobs")
    parser.add_argument("--results", type=Path, default=RESULTS / "search_fronts.jsonl", help="where searches are kept")
    options = arguments.parse(
        parser,
        tables=",".join(_SMALL),
        methods="stops,forest",
        budget=3.0,
        results=Path(tempfile.mkdtemp()) / "few.jsonl",
    )
    half = DEVELOPMENT if options.half == "development" else LEFT_OUT
    names = options.tables.split(",") if options.tables else list(half)
    methods = options.methods.split(",")
    if unknown := [name for name in names if name not in (*half, *_SMALL)]:
        parser.error(f"not among the tables of this half: {', '.join(unknown)}")
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    lines = options.results.read_text(encoding="utf-8").splitlines() if options.results.exists() else []
    courses = {task: Course(**course) for task, course in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as work:
        for method in methods:
            for name in names:
                if f"{name} {method}" in courses:
                    continue
                for ran, course in search(name, method, options.folder, Path(work), options.budget).items():
                    task = f"{name} {ran}"
                    courses[task] = course
                    with options.results.open("a", encoding="utf-8") as file:
                        file.write(f"{json.dumps([task, asdict(course)])}\n")
                    end = f"{course.share_at(math.inf):.3f} after {course.usd[-1]:.3g}"
                    print(f"  {task}: {course.reached(GOOD):.3g}, {end}", file=sys.stderr, flush=True)
        best = {name: oracle(name, options.folder, Path(work)) for name in names}
    made = published.conditions("paretune", "optuna", "scikit-learn", "scipy", "numpy")
    head = f"{made}; {options.half.replace('_', ' ')}, {len(names)} tables; the bare sampler; dollars in median jobs."
    body = [head, "", *published.table(_SUMMARY, list(summary(names, methods, courses, best)))]
    if options.half in FAMILIES and not options.tables:
        columns = ("family (tables)", *(f"{method}: to 90 % / end" for method in methods))
        body += ["", *published.table(columns, list(by_family(options.half, methods, courses)))]
    if "never" in methods:
        rows_of_rivals = list(against(names, methods, courses))
        body += ["", *published.table(("rival", "paretune sooner / later (p)"), rows_of_rivals)]
    columns = ("table", "oracle", *(f"{method}: to 90 % / end / spent" for method in methods))
    body += ["", *published.table(columns, list(rows(names, methods, courses, best)))]
    print(published.block(f"search_fronts_{options.half}", body))


if __name__ == "__main__":
    main()
