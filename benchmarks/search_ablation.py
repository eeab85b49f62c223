"""What each mechanism of the search is worth: the same searches without it.

    python benchmarks/search_ablation.py --outside FOLDER         # an hour on two quiet threads

The bare sampler searches the development worlds and the trainings that others measured (see search_cost.py), without
one mechanism at a time. Nothing is billed and nothing is trained.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import arguments
import numpy as np
import published
import search_cost
from search import measured, worlds
from search.scoring import Course, short

from paretune.studies.sampler import candidates, decision, quality
from paretune.studies.sampler.decision import Decision
from paretune.studies.sampler.quality import QualityModel

BUDGET = 40.0  # median jobs


def _constants(module: Any, **values: object) -> Callable[[], None]:
    return lambda: vars(module).update(values)


def _instead(owner: type, name: str, value: object) -> Callable[[], None]:
    return lambda: setattr(owner, name, value)


def _none_lost(model: QualityModel) -> np.ndarray:
    return np.zeros(len(model.collapsed), dtype=bool)


WITHOUT: Mapping[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "probes first": _instead(Decision, "_probe", lambda self: None),
    "instances counted by type": _instead(Decision, "_is_few", property(lambda self: np.ones(len(self._jobs), bool))),
    "what one run can tell": _constants(decision, _moved_by_a_run=lambda deviation, noise: np.asarray(deviation)),
    "no job that will likely collapse": _constants(decision, LIKELY=0.0),
    "a front that may grow in dollars": _constants(decision, REACH=1.0),
    "an end when the front is worth less": _constants(decision, FRONT_JOBS=1e12),
    "a second try of failed jobs": _constants(decision, MOST_TRIES=1),
    "an effect of the type": _constants(quality, _TYPES=(0.0,)),
    "ridges that are learnt": _constants(quality, _RIDGES=(0.5,)),
    "bends that are learnt": _constants(quality, _BENDS=(0.5,)),
    "a noise that is learnt": _constants(quality, _NOISES=(1.0,), _NOISES_OF_ANY=(0.4,)),
    "collapses apart from the surface": _instead(QualityModel, "_find_collapsed", _none_lost),
    "failures as signs of collapses": _constants(quality, _FAILED=0.0),
    "what batch and rate usually do": _constants(quality, _FALL=0.0, _LARGE=0.0, _GAIN=0.0),
    "bends in own dollars": _constants(candidates, _BENDS=(0.01,)),
}
"""Maps a mechanism to a function that removes it from the search, in its own process."""


def _leave_out(mechanism: str) -> None:
    WITHOUT[mechanism]()


def _searches(mechanism: str, paths: Mapping[tuple[str, int], Path], processes: int) -> dict[str, list[Course]]:
    tasks = [search_cost.Task(name, "sampler", seed, BUDGET, 0) for name, seed in paths]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _leave_out, (mechanism,)) as pool:
        courses = list(pool.map(search_cost.search, tasks, map(str, paths.values())))
    found: dict[str, list[Course]] = {}
    for task, course in zip(tasks, courses, strict=True):
        found.setdefault(task.name, []).append(course)
    return found


def _cells(courses: Sequence[Course]) -> list[str]:
    """Return cells over searches: median dollars to 90 %, mean share at the end, mean dollars."""
    to_90 = statistics.median_high(course.reached(0.9) for course in courses)
    end = statistics.mean(course.share_at(BUDGET) for course in courses)
    spent = statistics.mean(course.usd[-1] if course.usd else 0.0 for course in courses)
    return ["not" if to_90 == float("inf") else short(to_90), f"{end:.3f}", short(spent)]


def main() -> None:
    """Read the arguments, search, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outside", type=Path, help="folder with the files of benchmarks/search/measured.py")
    parser.add_argument("--tables", default=",".join(name for name in worlds.KINDS if name != "tiny"))
    parser.add_argument("--without", default=",".join(WITHOUT), help="mechanisms, with commas between them")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    options = arguments.parse(parser, tables="tiny", without="nothing,probes first", seeds=1, processes=1)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    made = published.conditions("paretune", "optuna", "scikit-learn", "scipy", "numpy")
    columns = ["to 90 %", "end", "spent"]
    sources = measured.SOURCES if options.outside else {}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        drawn, others = dict[tuple[str, int], Path](), dict[tuple[str, int], Path]()
        for name in options.tables.split(","):
            for seed in worlds.DEVELOPMENT[: options.seeds]:
                drawn[name, seed] = Path(folder) / f"{name}-{seed}.csv"
                worlds.World.draw(name, seed).write(drawn[name, seed])
        for name, source in sources.items():
            measured.convert(source, options.outside, Path(folder) / f"{name}.csv")
            others |= {(name, seed): Path(folder) / f"{name}.csv" for seed in range(min(options.seeds, 3))}
        for mechanism in options.without.split(","):
            found = _searches(mechanism, drawn | others, options.processes)
            cells = _cells([course for name in options.tables.split(",") for course in found[name]])
            of_measured = _cells([course for name in sources for course in found[name]]) if sources else []
            rows.append((mechanism, *cells, *of_measured))
            print(json.dumps(rows[-1]), flush=True)
    text = (
        f"{made}; the bare sampler; worlds that may be looked at, {options.seeds} seeds; trainings measured by others."
    )
    head = ["without", *columns, *(f"measured: {name}" for name in columns if sources)]
    print(published.block("search_ablation", [text, "", *published.table(head, rows)]))


if __name__ == "__main__":
    main()
