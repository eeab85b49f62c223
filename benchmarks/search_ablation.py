"""Measure what each part of the search gains, by searching without it.

    python benchmarks/search_ablation.py FOLDER         # an hour on one otherwise idle thread
    python benchmarks/search_ablation.py --small        # seconds, with a generated table

The sampler alone, without the rest of a study, searches the tables that may be looked at (search_fronts.py), until its
budget is spent. Then one part of the search at a time is left out. The *ratio* is that of the dollars to 90 % of the
front without the part and with it, as search_fronts.py computes it, with its 95 % interval. A part that needs failing
jobs, probes or paretune's own training is left out on worlds only, because measured tables have none of these. Each
search is one line of --results; a search that has its line is not run again. Nothing is billed and nothing is trained.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import arguments
import numpy as np
import published
import search_fronts
from search import peers, product
from search.scoring import Course, Score, short

from paretune.studies.sampler import candidates, decision, process, quality, seconds
from paretune.studies.sampler.decision import Decision

RESULTS = Path(__file__).parent / "results"
MEASURED = tuple(
    name
    for family, names in search_fronts.FAMILIES["development"].items()
    for name in names
    if not family.startswith("worlds")
)
WORLDS = search_fronts.FAMILIES["development"][search_fronts.WORLDS]
"""The tables of the half that may be looked at."""
_WHOLE = "nothing"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the search: the attribute values that turn it off, and whether it can act only on worlds."""

    attributes: Mapping[tuple[Any, str], object]
    on_worlds_only: bool = False


def _without(owner: object, *, on_worlds_only: bool = False, **values: object) -> Part:
    return Part(attributes={(owner, name): value for name, value in values.items()}, on_worlds_only=on_worlds_only)


def _as_it_is(values: np.ndarray, least: float) -> np.ndarray:
    return values


_KNOWN_WEIGHTS = dict.fromkeys(quality._BELIEFS, (0.0, 1e-6)) | {"level": quality._BELIEFS["level"]}
WITHOUT: Mapping[str, Part] = {
    _WHOLE: Part(attributes={}),
    "lengths that are learned": _without(process, _LENGTH_SD=0.01),
    "draws of the lengths": _without(process, _FEW=0),
    "a noise that is learned": _without(process, _NOISE_SD=0.01),
    "wider deviations of quality": _without(quality, _DOUBT=1.0),
    "compressing bad runs": _without(quality, _tamed=_as_it_is),
    "the corners of the front": _without(decision, margin_of=lambda count, objectives: 0.1),
    "uncertain dollars": _without(decision, _NODES=np.zeros(3)),
    "what the price tells of seconds": _without(seconds, _PRICE=(0.0, 1e-6)),
    "the model of failures": _without(
        decision, on_worlds_only=True, lost_probability=lambda axes, runs, is_lost, keys: np.zeros(len(keys))
    ),
    "collapses that are not reported": _without(
        quality.QualityModel,
        on_worlds_only=True,
        _find_collapsed=lambda self: np.zeros(len(self.collapsed), dtype=bool),
    ),
    "the probability of success": _without(
        Decision, on_worlds_only=True, _chance=property(lambda self: np.ones(len(self._jobs)))
    ),
    "probes": _without(Decision, on_worlds_only=True, _probe=lambda self: None),
    "the estimate from data sheets": _without(
        candidates.Space, on_worlds_only=True, estimate_of=lambda self, job: None
    ),
    "what batch and rate usually do": _without(quality, on_worlds_only=True, _BELIEFS=_KNOWN_WEIGHTS),
}
"""Names of parts to the attributes that leave them out of the search."""


@contextmanager
def left_out(part: Part) -> Iterator[None]:
    """Leave a part out of all searches in this process, inside the block."""
    before = {(owner, name): vars(owner)[name] for owner, name in part.attributes}
    try:
        for (owner, name), value in part.attributes.items():
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name), value in before.items():
            setattr(owner, name, value)


def search(name: str, seed: int, folder: Path, work: Path, budget: float) -> Course:
    """Search a table until the budget is spent."""
    table, started = search_fronts.table_of(name, folder, work), time.process_time()
    most_usd = budget * table.median_usd
    ended = peers.drive(
        product.Sampler(table, stop=False), table, draw=seed, most_usd=most_usd, most=search_fronts.MOST_JOBS
    )
    return Score(table).course(ended, time.process_time() - started)


def cells(names: Sequence[str], without: str, courses: search_fronts.Courses, budget: float) -> list[str]:
    """Return the cells of COLUMNS for the searches of some tables without a part: dollars are in median jobs."""
    each = [course for name in names for course in courses[name, without]]
    logs = search_fronts.by_source({name: search_fronts.log_usd(courses[name, without], budget) for name in names})
    ends = [course.share_at(math.inf) for course in each]
    return [
        short(math.exp(statistics.fmean(logs))),
        f"{sum(course.reached(search_fronts.GOOD) == math.inf for course in each)} of {len(each)}",
        f"{statistics.fmean(ends):.3f}",
        f"{min(ends):.3f}",
        str(sum(end < 0.94 for end in ends)),
        "" if without == _WHOLE else search_fronts.ratio(names, without, _WHOLE, courses, budget),
    ]


COLUMNS = ("to 90 %", "never", "end", "worst", "below .94", "ratio")


def main() -> None:
    """Read the arguments, search, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="folder with the files of search/grids.py")
    parser.add_argument("--measured", default=",".join(MEASURED), help="measured tables, with commas between them")
    parser.add_argument(
        "--worlds", default=",".join(WORLDS), help="worlds, such as plain/0 (kind/seed), with commas between them"
    )
    parser.add_argument("--without", default="|".join(WITHOUT), help="parts, with | between them")
    parser.add_argument(
        "--budget", type=float, default=search_fronts.BUDGET, help="dollars of a search, in median jobs"
    )
    parser.add_argument("--seeds", type=int, default=len(search_fronts.SEEDS), help="searches of a table with noise")
    parser.add_argument(
        "--results", type=Path, default=RESULTS / "search_ablation.jsonl", help="where searches are kept"
    )
    options = arguments.parse(
        parser,
        measured="",
        worlds="tiny/0",
        without=f"{_WHOLE}|probes",
        budget=3.0,
        seeds=1,
        results=Path(tempfile.mkdtemp()) / "few.jsonl",
    )
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    groups = {"measured": options.measured, "worlds": options.worlds}
    tables = {group: list(filter(None, names.split(","))) for group, names in groups.items()}
    options.results.parent.mkdir(parents=True, exist_ok=True)
    lines = options.results.read_text(encoding="utf-8").splitlines() if options.results.exists() else []
    stored = {task: Course(**course) for task, course in map(json.loads, lines)}
    rows, courses = [], dict[tuple[str, str], list[Course]]()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for without in dict.fromkeys([_WHOLE, *options.without.split("|")]):
            part, row = WITHOUT[without], [without]
            for group, names in tables.items():
                if not names:
                    continue
                if group == "measured" and part.on_worlds_only:
                    row += [""] * len(COLUMNS)
                    continue
                for name in names:
                    table = search_fronts.table_of(name, options.folder, work)
                    searched = []
                    for seed in search_fronts.seeds_of(table, "never", range(options.seeds)):
                        if (task := f"{name} | {without} | {seed}") not in stored:
                            with left_out(part):
                                stored[task] = search(name, seed, options.folder, work, options.budget)
                            with options.results.open("a", encoding="utf-8") as file:
                                file.write(json.dumps([task, asdict(stored[task])]) + "\n")
                            print(f"  {task} {stored[task].cpu_seconds:.1f} s", file=sys.stderr, flush=True)
                        searched.append(stored[task])
                    courses[name, without] = searched
                row += cells(names, without, courses, options.budget)
            rows.append(row)
    head = [f"{group}: {name}" for group, names in tables.items() if names for name in COLUMNS]
    counts = " and ".join(f"{len(names)} {group}" for group, names in tables.items() if names)
    made = published.conditions("paretune", "optuna", "scikit-learn", "scipy", "numpy")
    text = f"{made}; the bare sampler with `stop: never`; tables: {counts}; dollars in median jobs."
    print(published.block("search_ablation", [text, "", *published.table(["without", *head], rows)]))


if __name__ == "__main__":
    main()
