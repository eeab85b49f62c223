"""Measure what each part of the search gains, by searching without it.

    python benchmarks/search_ablation.py FOLDER         # an hour on one otherwise idle thread
    python benchmarks/search_ablation.py --small        # seconds, with a generated table

The sampler alone, without the rest of a study, searches parts of measured trainings and drawn worlds
(search_fronts.py), and ends by itself (`stop: auto`). Then one part of the search at a time is left out. Without its
own model, the search chooses by a plain Gaussian process. A table on which the part cannot act, for example because the
part needs failed jobs and none fails, is not searched again: the figures of the whole search are used. Each search is
one line of --results; a search that has its line is not run again. Nothing is billed and nothing is trained.
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
from search import peers, product, worlds
from search.scoring import Course, Score, short

from paretune.studies.sampler import candidates, decision, quality
from paretune.studies.sampler.decision import Decision
from paretune.studies.sampler.quality import QualityModel

RESULTS = Path(__file__).parent / "results"
MEASURED = (
    *("lynceus-cnn/0/clusters", "lynceus-cnn/2/clusters", "lynceus-cnn/0/machines", "lynceus-cnn//clusters"),
    *("lynceus-multilayer/0/clusters", "trimtuner-cnn/0/clusters", "trimtuner-cnn/2/clusters"),
    *("trimtuner-cnn/5/clusters", "trimtuner-cnn/0/machines"),
    *("lynceus-cnn/11/clusters", "lynceus-cnn/13/clusters", "lynceus-multilayer/12/clusters"),
    *("lynceus-multilayer/11/machines", "trimtuner-cnn/11/clusters", "trimtuner-cnn/13/clusters", "fcnet-slice/11"),
)
WORLDS = (
    *("plain/0", "failing/1", "far/2", "cliff/335", "heavy/336", "plain/337"),
    *("far/338", "failing/338", "cliff/339", "heavy/339", "plain/3", "failing/4", "heavy/7"),
)
"""Some tables (MEASURED) and all worlds of DEVELOPMENT and SEEN in search_fronts.py, and three other worlds."""
_WHOLE = "nothing"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the search: the attribute values that turn it off, and whether it can act only on worlds."""

    attributes: Mapping[tuple[Any, str], object]
    on_worlds_only: bool = False


def _without(owner: object, *, on_worlds_only: bool = False, **values: object) -> Part:
    return Part(attributes={(owner, name): value for name, value in values.items()}, on_worlds_only=on_worlds_only)


def _none_lost(model: QualityModel) -> np.ndarray:
    return np.zeros(len(model.collapsed), dtype=bool)


def _as_it_is(deviation: np.ndarray, noise: float) -> np.ndarray:
    return np.asarray(deviation)


WITHOUT: Mapping[str, Part] = {
    _WHOLE: Part(attributes={}),
    "its own model (the plain process chooses)": _without(Decision, _worthiest=lambda self: None),
    "the second opinion": _without(Decision, _by_opinion=lambda self: None, next_gain=0.0),
    "what one run can tell": _without(decision, _moved_by_a_run=_as_it_is),
    "avoiding jobs that will likely collapse": _without(decision, LIKELY=-1.0),
    "a front that may grow in dollars": _without(decision, REACH=1.0),
    "starting only jobs worth their price": _without(decision, FRONT_JOBS=1e12),
    "an effect of the type": _without(quality, _TYPES=(0.0,)),
    "a noise that is learned": _without(quality, _NOISES=(1.0,), _NOISES_OF_ANY=(0.4,)),
    "collapses apart from the surface": _without(QualityModel, _find_collapsed=_none_lost),
    "bends and scatter in own dollars": _without(candidates, _BENDS=(0.3,), _SCATTERS=(0.1,)),
    "probes first": _without(Decision, on_worlds_only=True, _probe=lambda self: None),
    "instances counted by type": _without(
        Decision, on_worlds_only=True, _is_few=property(lambda self: np.ones(len(self._jobs), bool))
    ),
    "a second try of failed jobs": _without(decision, on_worlds_only=True, MOST_TRIES=1),
    "failures as signs of collapses": _without(quality, on_worlds_only=True, _FAILED=0.0),
    "bends that are learned": _without(quality, on_worlds_only=True, _BENDS=(0.5,)),
    "what batch and rate usually do": _without(quality, on_worlds_only=True, _FALL=0.0, _LARGE=0.0, _GAIN=0.0),
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


def search(name: str, folder: Path, work: Path, budget: float) -> Course:
    """Search a table until the sampler ends by itself."""
    table, started = search_fronts.table_of(name, folder, work), time.process_time()
    most_usd = budget * table.median_usd
    ended = peers.drive(product.Sampler(table), table, draw=0, most_usd=most_usd, most=search_fronts.MOST_JOBS)
    return Score(table).course(ended, time.process_time() - started)


def cells(courses: Sequence[Course]) -> list[str]:
    """Return the cells of COLUMNS for some searches: dollars are in median jobs.

    They are the median dollars to 90 % of the front, the number of searches that never reach it, the mean and the worst
    share of the front at the end, the number of ends below 0.94, and the mean dollars spent.
    """
    to_90 = [course.reached(search_fronts.GOOD) for course in courses]
    ends = [course.share_at(math.inf) for course in courses]
    median = statistics.median_high(to_90)
    return [
        short(median) if median < math.inf else "not",
        str(to_90.count(math.inf)),
        f"{statistics.fmean(ends):.3f}",
        f"{min(ends):.3f}",
        str(sum(end < 0.94 for end in ends)),
        short(statistics.fmean(course.usd[-1] if course.usd else 0.0 for course in courses)),
    ]


COLUMNS = ("to 90 %", "never", "end", "worst", "below .94", "spent")


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
    parser.add_argument(
        "--results", type=Path, default=RESULTS / "search_ablation.jsonl", help="where searches are kept"
    )
    options = arguments.parse(
        parser,
        measured="",
        worlds="tiny/0",
        without=f"{_WHOLE}|probes first",
        budget=3.0,
        results=Path(tempfile.mkdtemp()) / "few.jsonl",
    )
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    groups = {"measured": options.measured, "worlds": options.worlds}
    tables = {group: list(filter(None, names.split(","))) for group, names in groups.items()}
    options.results.parent.mkdir(parents=True, exist_ok=True)
    lines = options.results.read_text(encoding="utf-8").splitlines() if options.results.exists() else []
    courses = {task: Course(**course) for task, course in map(json.loads, lines)}
    rows = []
    with tempfile.TemporaryDirectory() as work:
        for without in options.without.split("|"):
            part, row = WITHOUT[without], [without]
            for names in filter(None, tables.values()):
                searched = []
                for name in names:
                    is_world = name.partition("/")[0] in worlds.KINDS
                    task = f"{name} | {without if is_world or not part.on_worlds_only else _WHOLE}"
                    if task not in courses:
                        with left_out(part):
                            courses[task] = search(name, options.folder, Path(work), options.budget)
                        with options.results.open("a", encoding="utf-8") as file:
                            file.write(json.dumps([task, asdict(courses[task])]) + "\n")
                        print(f"  {task} {courses[task].cpu_seconds:.1f} s", file=sys.stderr, flush=True)
                    searched.append(courses[task])
                row += cells(searched)
            rows.append(row)
    head = [f"{group}: {name}" for group, names in tables.items() if names for name in COLUMNS]
    counts = " and ".join(f"{len(names)} {group}" for group, names in tables.items() if names)
    made = published.conditions("paretune", "optuna", "scikit-learn", "scipy", "numpy")
    text = f"{made}; the bare sampler with `stop: auto`; tables: {counts}; dollars in median jobs."
    print(published.block("search_ablation", [text, "", *published.table(["without", *head], rows)]))


if __name__ == "__main__":
    main()
