"""Check whether what a study states is true: its recommendation, front and intervals, on runs whose truth is known.

    python benchmarks/search_statements.py FOLDER       # ten minutes; FOLDER has the files of search/grids.py
    python benchmarks/search_statements.py --small      # seconds

A study here is a set of runs at points that are drawn (`search/drawn.py`). No search is run. As in
`studies/search/next_job.py`, the recommended configuration is run again. In a world, the true quality follows from a
formula (`search/worlds.py`). In measured tables it is a mean. FCNet has four runs of each point: each draw is one of
them. TrimTuner gives mean and deviation of three runs: draws are normal around that mean.

The first table has the drawn studies of both halves: everything about the answer was chosen on the first one. It shows
all studies, and those of each noise: the standard deviation of one run as a share of that of quality between
configurations.

    regret       true quality that the recommended configuration loses against the best one that was tried, as a share
                 of the distance from the median to the best: mean, 90 % quantile, worst
    dollars      of the recommended configuration, divided by those of the cheapest one that is nearly as good
    front        true hypervolume of the stated front, divided by that of the true front of all that were tried: mean,
                 10 % quantile, worst; only points whose quality is better than the median count
    ± and 80 %   shares of recommended configurations whose true quality is within one stated standard error, and within
                 the stated 80 % interval
    dropped      share of studies that leave the configuration with the best mean off their front
    repeats      their number, and their dollars as a share of those of the search

The second table has 24 random points in each study. Its intervals are those of all configurations on the front, and
`bias` is the mean of their stated minus their true quality.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import arguments
import numpy as np
import published
from search import drawn, grids, worlds
from search.drawn import DrawnStudy, Job, Judged, Source, Terms
from search.tables import Point
from search.worlds import RATES, World

SETTINGS = {
    "normal": ("plain", 0.0, 1.0),
    "noise x 5": ("plain", 0.0, 5.0),
    "10 % collapse": ("plain", 0.1, 1.0),
    "20 % collapse, noise x 5": ("plain", 0.2, 5.0),
    "cliff": ("cliff", 0.0, 1.0),
}
"""Names to the kind of world, the share of runs that collapse, and the noise as a multiple of 0.0015."""
MEASURED = ("trimtuner-cnn//clusters", "trimtuner-sizes//clusters", "fcnet-slice", "fcnet-parkinsons")
"""Names of grids whose points were run several times."""
_USD = {"ml.g5.xlarge": 1.4, "ml.g6e.xlarge": 2.6}
_POINTS, _NOISE = 24, 0.0015


def source_of(world: World, noise: float) -> Source:
    """Return the jobs of a world. `noise` multiplies the usual noise."""
    jobs = []
    for name, batch, rate in product(_USD, (8, 16, 32, 64, 128), RATES):
        point: Point = {"instance_type": name, "per_device_train_batch_size": batch, "learning_rate": rate}
        usd, truth = _USD[name] * (0.5 + 20 / batch), world.f1(batch, rate, 3.0, 128)
        jobs.append(Job(point=point, usd=usd, truth=truth, deviation=_NOISE * noise))
    return Source(jobs=jobs, given={}, metric="f1", is_world=True, has_clusters=True)


def of_worlds(seeds: Sequence[int]) -> list[list[str]]:
    """Return a row of the second table for each of SETTINGS."""
    table = []
    for name, (kind, share, noise) in SETTINGS.items():
        studies = [
            DrawnStudy(
                source_of(World.draw(kind, seed), noise),
                Terms(source=name, seed=seed, count=_POINTS, level=None, collapsing=share),
            ).judged()
            for seed in seeds
        ]
        table.append(_row(name, studies))
    return table


def of_measured(names: Sequence[str], seeds: Sequence[int], folder: Path, work: Path) -> list[list[str]]:
    """Return a row of the second table for each grid of measured training runs."""
    table = []
    for name in names:
        source = drawn.of_grid(name, grids.grid(name, folder, work))
        terms = [Terms(source=name, seed=seed, count=_POINTS, level=None) for seed in seeds]
        table.append(_row(name.partition("/")[0], [DrawnStudy(source, each).judged() for each in terms]))
    return table


def of_halves(count: int, folder: Path | None, work: Path) -> list[list[str]]:
    """Return rows of the first table: for each half, all of `count` studies, and those of each noise."""
    table = []
    for half in ("first", "second"):
        studies = list(drawn.studies(half, count, work=work, folder=folder))
        judged = [(study.terms.level, study.judged()) for study in studies]
        for level in ("all", 0.05, 0.25, 0.8, None):
            some = [each for of, each in judged if level in ("all", of)]
            name = {"all": "", None: ", the tables' own noise"}.get(level, f", noise {level}")  # type: ignore[arg-type]
            if some:
                table.append(_half_row(f"{half} half{name}", some))
    return table


def _half_row(name: str, studies: Sequence[Judged]) -> list[str]:
    def three(values: Sequence[float], share: float, worst: float) -> str:
        return f"{statistics.fmean(values):.3f}, {float(np.quantile(values, share)):.2f}, {worst:.2f}"

    regrets, fronts = [each.regret for each in studies], [each.front for each in studies]
    return [
        name,
        str(len(studies)),
        three(regrets, 0.9, max(regrets)),
        f"{2 ** statistics.fmean(each.log2_usd for each in studies):.2f}",
        three(fronts, 0.1, min(fronts)),
        f"{statistics.fmean(each.in_one for each in studies):.0%}",
        f"{statistics.fmean(each.in_80 for each in studies):.0%}",
        f"{statistics.fmean(each.has_dropped for each in studies):.0%}",
        f"{statistics.fmean(each.repeats for each in studies):.1f}, "
        f"{statistics.fmean(each.spent for each in studies):.2f}",
    ]


def _row(name: str, studies: Sequence[Judged]) -> list[str]:
    errors = [error for study in studies for error in study.errors]
    return [
        name,
        f"{statistics.fmean(error for error, _, _ in errors):+.4f}",
        f"{statistics.fmean(abs(error) <= one for error, one, _ in errors):.0%}",
        f"{statistics.fmean(abs(error) <= margin for error, _, margin in errors):.0%}",
        f"{statistics.fmean(study.regret for study in studies):.3f}",
        f"{statistics.fmean(study.front for study in studies):.3f}",
        f"{min(study.front for study in studies):.3f}",
        str(len(errors)),
    ]


HALF_HEAD = (
    "drawn studies",
    "studies",
    "regret",
    "dollars",
    "front",
    "± holds",
    "80 % holds",
    "dropped",
    "repeats",
)
HALF_AIMS = ("aim for the second half", "", "0.08 at most", "", "", "68 to 82%", "76 to 90%", "0%", "")
AIMS = ("aim", "0", "68 to 82%", "76 to 90%", "0.08 at most", "0.95", "", "")
HEAD = ("statements", "bias", "± holds", "80 % holds", "regret", "front", "worst front", "points")


def main() -> None:
    """Read the arguments, draw the studies, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="folder with the files of search/grids.py")
    parser.add_argument("--studies", type=int, default=40, help="studies per row of the second table")
    parser.add_argument("--drawn", type=int, default=300, help="studies of each half")
    options = arguments.parse(parser, studies=1, drawn=6)
    seeds = range(worlds.HELD_OUT.start, worlds.HELD_OUT.start + options.studies)
    with tempfile.TemporaryDirectory() as work:
        halves = of_halves(options.drawn, options.folder, Path(work))
        rows = of_worlds(seeds)
        if options.folder is not None:
            rows += of_measured(MEASURED, seeds, options.folder, Path(work))
    made = published.conditions("paretune", "scipy", "numpy")
    head = f"{made}; drawn runs, {options.drawn} studies a half, {options.studies} studies a row of the second table."
    tables = [*published.table(HALF_HEAD, [HALF_AIMS, *halves]), "", *published.table(HEAD, [AIMS, *rows])]
    print(published.block("search_statements", [head, "", *tables]))


if __name__ == "__main__":
    main()
