"""Check whether the quality that a study states is true: bias and coverage on drawn runs whose true quality is known.

    python benchmarks/search_statements.py FOLDER       # three minutes; FOLDER has the files of search/grids.py
    python benchmarks/search_statements.py --small      # seconds

A study here is a table of runs at 24 random points. No search is run. As in `studies/search/next_job.py`, recommended
points are run again until each has three runs that trained, which means that they did not collapse. In a world, the
true quality follows from a formula (`search/worlds.py`). In measured tables it is a mean. FCNet has four runs of
each point: each draw is one of them. TrimTuner gives mean and deviation of three runs: draws are normal around that
mean.

    bias         mean of the stated minus the true quality of recommended points
    ratio        root mean square error of the stated quality of recommended points, divided by that of the plain mean
                 of their runs that trained
    ± holds      share of recommended points whose true quality is within one stated standard error
    80 % holds   the same for the stated 80 % interval
    front        true hypervolume of the stated front, divided by that of the front of plain means of runs that trained;
                 only points whose quality is better than the median of all points count
"""

import argparse
import math
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import arguments
import published
from search import grids, worlds
from search.grids import Grid
from search.tables import Point
from search.worlds import COLLAPSED, RATES, World

from paretune.core.pareto import front
from paretune.specification.declaration import spell
from paretune.studies.definition.file import full_name
from paretune.studies.results.front import StudyFront, hypervolume
from paretune.studies.results.recommendation import recommend
from paretune.studies.results.trials import Trial
from paretune.studies.search.next_job import MOST_REPEATS, RUNS
from paretune.studies.trial_status import TrialStatus

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
_FALLEN = 0.2  # a run has collapsed if its quality is this much below the truth


@dataclass(frozen=True, kw_only=True)
class Checked:
    """One study: the actual and the stated errors of the recommended points, and the score of its front."""

    errors: Sequence[tuple[float, float, float, float]]
    """Error of the stated quality and of the plain mean; stated standard error, and half-width of the 80 % interval."""
    front: float


@dataclass(frozen=True, kw_only=True)
class Job:
    """A point with its dollars and its true quality.

    The quality of a run is one of `runs` or, if there are none, normal around `truth` with the standard deviation
    `deviation`.
    """

    point: Point
    usd: float
    truth: float
    deviation: float
    runs: Sequence[float] = ()


def jobs_of_world(world: World, noise: float) -> list[Job]:
    """Return the jobs of a world. `noise` multiplies the usual noise."""
    jobs = []
    for name, batch, rate in product(_USD, (8, 16, 32, 64, 128), RATES):
        point: Point = {"instance_type": name, "per_device_train_batch_size": batch, "learning_rate": rate}
        usd, truth = _USD[name] * (0.5 + 20 / batch), world.f1(batch, rate, 3.0, 128)
        jobs.append(Job(point=point, usd=usd, truth=truth, deviation=_NOISE * noise))
    return jobs


def jobs_of_grid(name: str, table: Grid) -> list[Job]:
    """Return the jobs of a table of measured training runs."""
    jobs = []
    for point in table.points:
        usd, negative = table.truth(point)
        values = [quality for _, quality in table.runs_at(point)]
        given = {full_name(table.job, axis): value for axis, value in point.items()}
        runs = values if name.startswith("fcnet") else ()
        jobs.append(Job(point=given, usd=usd, truth=-negative, deviation=statistics.stdev(values), runs=runs))
    return jobs


class _Study:
    """Draws the runs of one study at random points of `among`. The share `share` of the runs collapses."""

    def __init__(self, among: Sequence[Job], seed: int, share: float, given: Mapping[str, Any], metric: str) -> None:
        self._draw, self._share, self._given, self._metric = random.Random(seed), share, given, metric
        self._jobs = self._draw.sample(among, _POINTS)
        self._goals = {"cost_usd": "minimize", metric: "maximize"}

    def truth(self, number: int) -> float:
        """Return the true quality of a point, which its runs have on average if they do not collapse."""
        return self._jobs[number].truth

    def check(self) -> Checked:
        """Run the points, repeat the recommended ones, and compare the statements with the truth."""
        trials = [self._run(number, number) for number in range(_POINTS)]
        while True:
            study_front = StudyFront.of(trials, self._goals, {})
            points = [pick.point for pick in recommend(study_front)]
            lacking = [point.number for point in points if point.trained < RUNS and len(point.trials) <= RUNS]
            if not lacking or len(trials) >= _POINTS + MOST_REPEATS:
                break
            trials.append(self._run(len(trials), lacking[0], lacking[0]))
        errors = []
        for point in points:
            truth, values = self.truth(point.number), [trial.values[self._metric] for trial in point.trials]
            mean = statistics.fmean([value for value in values if value > truth - _FALLEN] or values)
            error = point.errors[self._metric]
            errors.append(
                (point.means[self._metric] - truth, mean - truth, error, study_front.noises[self._metric].margin(error))
            )
        return Checked(errors=errors, front=self._share_of_front(study_front))

    def _run(self, number: int, of: int, first: int | None = None) -> Trial:
        job = self._jobs[of]
        usd = job.usd * math.exp(self._draw.gauss(0, 0.015))
        has_collapsed = self._draw.random() < self._share
        if job.runs:
            quality = self._draw.choice(job.runs)
        else:
            quality = (COLLAPSED if has_collapsed else job.truth) + self._draw.gauss(0, job.deviation)
        return Trial(
            number=number,
            run_id=str(number),
            point=job.point,
            given={key: spell(value) for key, value in {**self._given, **job.point}.items()},
            status=TrialStatus.COMPLETED,
            values={"cost_usd": usd, self._metric: quality},
            cost_usd=usd,
            repeats=first,
        )

    def _share_of_front(self, study_front: StudyFront) -> float:
        """Return the true hypervolume of the stated front, divided by that of the front of plain means."""
        measured = []
        for point in study_front.points:
            values = [trial.values[self._metric] for trial in point.trials]
            trained = [value for value in values if value > self.truth(point.number) - _FALLEN] or values
            measured.append((point.means["cost_usd"], -statistics.fmean(trained)))
        best = [
            point for point, is_best in zip(study_front.points, front(measured, [False, False]), strict=True) if is_best
        ]
        true = [(point.means["cost_usd"], -self.truth(point.number)) for point in study_front.points]
        reference = max(usd for usd, _ in true) * 1.05, statistics.median(quality for _, quality in true)
        volumes = [
            hypervolume([(point.means["cost_usd"], -self.truth(point.number)) for point in points], reference)
            for points in (study_front.best, best)
        ]
        return volumes[0] / volumes[1]


def of_worlds(seeds: Sequence[int]) -> list[list[str]]:
    """Return a row of the table for each of SETTINGS."""
    table = []
    for name, (kind, share, noise) in SETTINGS.items():
        studies = [
            _Study(jobs_of_world(World.draw(kind, seed), noise), seed, share, {}, "f1").check() for seed in seeds
        ]
        table.append(_row(name, studies))
    return table


def of_measured(names: Sequence[str], seeds: Sequence[int], folder: Path, work: Path) -> list[list[str]]:
    """Return a row of the table for each grid of measured training runs."""
    table = []
    for name in names:
        grid = grids.grid(name, folder, work)
        jobs = jobs_of_grid(name, grid)
        studies = [_Study(jobs, seed, 0.0, grid.job, grid.metric).check() for seed in seeds]
        table.append(_row(name.partition("/")[0], studies))
    return table


def _row(name: str, studies: Sequence[Checked]) -> list[str]:
    errors = [error for study in studies for error in study.errors]
    stated, plain = (math.sqrt(statistics.fmean(error[column] ** 2 for error in errors)) for column in (0, 1))
    return [
        name,
        f"{statistics.fmean(error[0] for error in errors):+.4f}",
        f"{stated / plain:.2f}",
        f"{statistics.fmean(abs(error[0]) <= error[2] for error in errors):.0%}",
        f"{statistics.fmean(abs(error[0]) <= error[3] for error in errors):.0%}",
        f"{statistics.fmean(study.front for study in studies):.3f}",
        f"{min(study.front for study in studies):.3f}",
        str(len(errors)),
    ]


AIMS = ("aim", "0", "1.10 at most", "60 to 80%", "75 to 88%", "0.95", "")
HEAD = ("statements", "bias", "ratio", "± holds", "80 % holds", "front", "worst front", "points")


def main() -> None:
    """Read the arguments, draw the studies, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="folder with the files of search/grids.py")
    parser.add_argument("--studies", type=int, default=40, help="studies per row")
    options = arguments.parse(parser, studies=1)
    seeds = range(worlds.HELD_OUT.start, worlds.HELD_OUT.start + options.studies)
    with tempfile.TemporaryDirectory() as work:
        rows = of_worlds(seeds)
        if options.folder is not None:
            rows += of_measured(MEASURED, seeds, options.folder, Path(work))
    made = published.conditions("paretune", "scipy", "numpy")
    head = f"{made}; drawn runs, {options.studies} studies a row."
    print(published.block("search_statements", [head, "", *published.table(HEAD, [(*AIMS, ""), *rows])]))


if __name__ == "__main__":
    main()
