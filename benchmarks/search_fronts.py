"""Judge the search on families of tables, half of which are left out while the search is developed.

    python benchmarks/search_fronts.py FOLDER                       # the half that may be looked at
    python benchmarks/search_fronts.py FOLDER --half left_out       # once, at the end
    python benchmarks/search_fronts.py --small                      # seconds, with a generated table

FOLDER has the files of benchmarks/search/grids.py. `FAMILIES` divides the families of tables into halves. A family is
one source of measurements, or the worlds of one set of formulas. No choice may be based on the half `left_out`. Each
search is one line of --results; a search that has its line is not run again.

    stops      paretune's sampler, which ends by itself (`stop: auto`)
    never      the same sampler until the budget is spent (`stop: never`)
    study      a whole study of paretune, `stop: auto`, on tables whose prices depend only on the instance type
    plain      benchmarks/search/plain.py
    tpe, gp    benchmarks/search/peers.py
    nehvi      benchmarks/search/nehvi.py; needs BoTorch

Dollars are in median jobs of the table: the median price of its jobs is 1. The oracle is the cheapest set of jobs with
90 % of the front's hypervolume.

A single search says little: chance moves the dollars of most searches by more than a tenth. So each method searches a
table with all --seeds, unless nothing in it is drawn: neither its own choices nor, in tables whose points have several
runs, the results of jobs. Methods are compared by the mean logarithm of the ratio of their dollars to 90 %. A search
that never reaches 90 % counts with the whole budget; how many never do, and how many end badly, is in the other
columns. A table and its parts count as one in every mean. The intervals are those of these means (Student's t, 95 %).
"""

import argparse
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import arguments
import published
from scipy.stats import t as student
from search import grids, other_worlds, peers, plain, product, worlds
from search.scoring import Course, Score, short
from search.tables import Table

RESULTS = Path(__file__).parent / "results"
METHODS = ("stops", "never", "plain", "tpe")
OURS = ("stops", "never", "study")
WHOLE = "study"  # not in METHODS: it cannot replay a table if the price depends on settings of the cluster
WORLDS = "worlds, three kinds"
FAMILIES = {
    "development": {
        "LCBench": tuple(
            f"lcbench-{task}"
            for task in (
                *(3945, 34539, 126026, 146212, 167149, 167161, 167181, 167185, 167200, 168329, 168331, 168868, 168910),
                *(189862, 189866, 189905, 189908),
            )
        ),
        "TrimTuner": (
            *("trimtuner-cnn//clusters", "trimtuner-cnn/2/clusters", "trimtuner-cnn/5/clusters"),
            *("trimtuner-cnn/0/machines", "trimtuner-sizes/11/machines"),
        ),
        "step-law": ("steplaw-moe", "steplaw-dense"),
        "translation": ("nmt-so", "nmt-sw"),
        WORLDS: (
            *("plain/0", "plain/1", "plain/2", "plain/337", "failing/0", "failing/1", "failing/2", "failing/338"),
            *("far/0", "far/1", "far/2", "far/338"),
        ),
    },
    "left_out": {
        "Lynceus": (
            *("lynceus-cnn//clusters", "lynceus-cnn/2/clusters", "lynceus-cnn/0/machines"),
            *("lynceus-multilayer//clusters", "lynceus-multilayer/0/clusters", "lynceus-multilayer/4/machines"),
        ),
        "FCNet": ("fcnet-slice", "fcnet-slice/4", "fcnet-parkinsons", "fcnet-parkinsons/0"),
        "worlds, two other kinds": tuple(
            f"{kind}/{seed}" for kind in ("cliff", "heavy") for seed in (330, 331, 332, 335, 336, 339)
        ),
        "worlds with other formulas": tuple(f"{kind}/{seed}" for kind in other_worlds.KINDS for seed in range(6)),
    },
}
"""The tables of each family, by half. A family is one source of measurements, or worlds with the same formulas."""
DEVELOPMENT, LEFT_OUT = (
    tuple(name for names in FAMILIES[half].values() for name in names) for half in ("development", "left_out")
)
BUDGET, MOST_JOBS, MOST_SLOW = 40.0, 300, 30
SEEDS = (0, 1, 2)
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


def source_of(name: str) -> str:
    """Return the source of a table, which it shares with its parts; each world is a source of its own."""
    source = name.partition("/")[0]
    is_world = source in other_worlds.KINDS or source in worlds.KINDS
    return name if is_world else "trimtuner-cnn" if source == grids.SIZES else source


def seeds_of(table: Any, method: str, seeds: Sequence[int]) -> Sequence[int]:
    """Return the seeds with which a method searches a table; only the first one if nothing is drawn."""
    has_draws = method not in (*OURS, "plain") or not isinstance(table, grids.Grid) or table.has_noise
    return seeds if has_draws else seeds[:1]


def search(table: Any, method: str, seed: int, work: Path, budget: float) -> dict[str, Course]:
    """Run one search, and return its course by method.

    `stops` and `never` share one run of paretune's sampler, because `stops` runs the same jobs until it ends.
    """
    started = time.process_time()
    if method == WHOLE:
        if isinstance(table, grids.Grid):
            table.record(work)
        ended = product.search(table, seed=seed, budget_usd=budget * table.median_usd, most=MOST_JOBS)
        return {method: Score(table).course(ended, time.process_time() - started)}
    asking: peers.Asking
    match method:
        case "stops" | "never":
            asking = product.Sampler(table, stop=False)
        case "plain":
            asking = plain.Plain(table)
        case "nehvi":
            from search import nehvi  # needs BoTorch, which nothing else here does

            asking = nehvi.Nehvi(table, seed=seed)
        case _:
            asking = peers.OptunaAlone(table, method, seed=seed)
    most = MOST_SLOW if method == "gp" else MOST_JOBS
    ended = peers.drive(asking, table, draw=seed, most_usd=budget * table.median_usd, most=most)
    score, took_s = Score(table), time.process_time() - started
    courses = {method: score.course(ended, took_s)}
    if isinstance(asking, product.Sampler):
        courses = {"never": courses[method], "stops": score.course(ended[: asking.ends_after], took_s)}
    return courses


Courses = Mapping[tuple[str, str], Sequence[Course]]
"""Maps table and method to the courses of its searches, one for each seed."""


def log_usd(courses: Sequence[Course], budget: float) -> float:
    """Return the mean logarithm of the dollars to 90 %; a search that never gets there counts with the budget."""
    return statistics.fmean(math.log(min(course.reached(GOOD), budget)) for course in courses)


def by_source(values: Mapping[str, float]) -> list[float]:
    """Return the mean value of the tables of each source, given the values of tables by name."""
    groups: dict[str, list[float]] = {}
    for name, value in values.items():
        groups.setdefault(source_of(name), []).append(value)
    return [statistics.fmean(group) for group in groups.values()]


def ratio(names: Sequence[str], ours: str, theirs: str, courses: Courses, budget: float) -> str:
    """Return the geometric mean ratio of two methods' dollars to 90 %, with its 95 % interval."""
    logs = {n: log_usd(courses[n, ours], budget) - log_usd(courses[n, theirs], budget) for n in names}
    return interval_of(by_source(logs))


def interval_of(logs: Sequence[float]) -> str:
    """Return the exponential of the mean of N logarithms and, from three on, of its 95 % interval."""
    mean = statistics.fmean(logs)
    if len(logs) < 3:
        return f"{math.exp(mean):.2f}"
    half = float(student.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(mean):.2f} ({math.exp(mean - half):.2f} to {math.exp(mean + half):.2f})"


def of_course(courses: Sequence[Course]) -> str:
    """Return the cell of a table and a method: geometric mean dollars to 90 %, share at the end, dollars spent."""
    reached = [course.reached(GOOD) for course in courses]
    to_90 = short(statistics.geometric_mean(reached)) if max(reached) < math.inf else "not"
    end = statistics.fmean(course.share_at(math.inf) for course in courses)
    return f"{to_90} / {end:.3f} / {short(statistics.fmean(course.usd[-1] for course in courses))}"


def oracle(name: str, folder: Path, work: Path) -> float:
    """Return the dollars, in median jobs, of the cheapest set of jobs with the share GOOD of the front."""
    table = table_of(name, folder, work)
    return Score(table).cheapest(GOOD) / float(table.median_usd)


def summary(
    names: Sequence[str], methods: Sequence[str], courses: Courses, best: Mapping[str, float], budget: float
) -> Iterable[tuple[str, ...]]:
    """Yield a row under `_SUMMARY` for each method over all tables."""
    for method in methods:
        logs = {name: log_usd(courses[name, method], budget) for name in names}
        over = {name: log - math.log(best[name]) for name, log in logs.items()}
        each = [course for name in names for course in courses[name, method]]
        ends = [course.share_at(math.inf) for course in each]
        yield (
            method,
            short(math.exp(statistics.fmean(by_source(logs)))),
            f"{math.exp(statistics.fmean(by_source(over))):.0f}",
            f"{sum(course.reached(GOOD) == math.inf for course in each)} of {len(each)}",
            f"{statistics.median(ends):.3f}",
            f"{min(ends):.3f}",
            f"{sum(end < 0.94 for end in ends)} of {len(ends)}",
            short(statistics.fmean(course.usd[-1] for course in each)),
            f"{statistics.median(course.cpu_seconds for course in each):.1f}",
        )


def by_family(half: str, methods: Sequence[str], courses: Courses, budget: float) -> Iterable[tuple[str, ...]]:
    """Yield a row for each family: by method, geometric mean dollars to 90 %, searches that never do, and mean end."""
    for family, names in FAMILIES[half].items():
        count = len({source_of(name) for name in names})
        cells = [f"{family} ({count})"]
        for method in methods:
            logs = by_source({name: log_usd(courses[name, method], budget) for name in names})
            each = [course for name in names for course in courses[name, method]]
            nevers = sum(course.reached(GOOD) == math.inf for course in each)
            end = statistics.fmean(course.share_at(math.inf) for course in each)
            cells.append(f"{short(math.exp(statistics.fmean(logs)))} / {nevers} of {len(each)} / {end:.3f}")
        yield tuple(cells)


_SUMMARY = ("method", "to 90 %", "x oracle", "never", "end", "worst end", "below .94", "spent", "CPU s")


def main() -> None:
    """Read the arguments, search, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="folder with the files of search/grids.py")
    parser.add_argument("--half", choices=("development", "left_out"), default="development")
    parser.add_argument("--tables", default="", help="some of the half's tables, with commas between them")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--budget", type=float, default=BUDGET, help="dollars of a search, in median jobs")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="searches of a table in which something is drawn")
    parser.add_argument("--results", type=Path, default=RESULTS / "search_fronts.jsonl", help="where searches are kept")
    options = arguments.parse(
        parser,
        tables=",".join(_SMALL),
        methods="stops,plain",
        budget=3.0,
        seeds=1,
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
    stored = {task: Course(**course) for task, course in map(json.loads, lines)}
    courses: dict[tuple[str, str], list[Course]] = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for method, name in itertools.product(methods, names):
            table = table_of(name, options.folder, work)
            seeds = seeds_of(table, method, range(options.seeds))
            for seed in seeds:
                if f"{name} {method} {seed}" in stored:
                    continue
                for ran, course in search(table, method, seed, work, options.budget).items():
                    task = f"{name} {ran} {seed}"
                    stored[task] = course
                    with options.results.open("a", encoding="utf-8") as file:
                        file.write(f"{json.dumps([task, asdict(course)])}\n")
                    end = f"{course.share_at(math.inf):.3f} after {course.usd[-1]:.3g}"
                    print(f"  {task}: {course.reached(GOOD):.3g}, {end}", file=sys.stderr, flush=True)
            courses[name, method] = [stored[f"{name} {method} {seed}"] for seed in seeds]
        best = {name: oracle(name, options.folder, work) for name in names}
    made = published.conditions("paretune", "optuna", "scipy", "numpy")
    count = len({source_of(name) for name in names})
    head = (
        f"{made}; {options.half.replace('_', ' ')}, {count} tables ({len(names)} with their parts); the bare sampler; "
        "dollars in median jobs."
    )
    body = [head, "", *published.table(_SUMMARY, list(summary(names, methods, courses, best, options.budget)))]
    if options.half in FAMILIES and not options.tables:
        columns = ("family (tables)", *(f"{method}: to 90 % / never / end" for method in methods))
        body += ["", *published.table(columns, list(by_family(options.half, methods, courses, options.budget)))]
    if "never" in methods and (rivals := [method for method in methods if method not in OURS]):
        families = {} if options.tables else FAMILIES[options.half]
        lines = [
            (rival, *(ratio(of, "never", rival, courses, options.budget) for of in (names, *families.values())))
            for rival in rivals
        ]
        body += ["", *published.table(("dollars of never : rival", "all tables", *families), lines)]
    columns = ("table", "oracle", *(f"{method}: to 90 % / end / spent" for method in methods))
    rows = [(name, short(best[name]), *(of_course(courses[name, method]) for method in methods)) for name in names]
    body += ["", *published.table(columns, rows)]
    print(published.block(f"search_fronts_{options.half}", body))


if __name__ == "__main__":
    main()
