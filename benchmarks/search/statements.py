"""Is what a study states about its recommendation true?  Bias and coverage on drawn runs whose truth a formula gives.

A study here is a table of runs at points drawn from a world (`worlds.py`), whose recommended points are run again until
each has three runs that trained, as `studies/search/next_job.py` does. No search runs, because one takes 0.3 s. The
last row draws points of measured trainings with known means and deviations of three runs (TrimTuner, see
`measured.py`): its truth is their mean, and its runs have a normal distribution.

    ratio        root mean square error of the recommended F1, divided by that of the mean of its own runs that trained
    ± holds      share of recommended points whose true F1 is within one stated standard error; aim 60 to 85 %
    80 % holds   the same for the stated interval of 80 %; aim 70 to 92 %
    front        true hypervolume of the stated front, divided by that of the runs that trained; aim 0.95
"""

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from paretune.core.pareto import front
from paretune.specification.declaration import spell
from paretune.studies.definition.file import full_name
from paretune.studies.results.front import StudyFront, hypervolume
from paretune.studies.results.recommendation import recommend
from paretune.studies.results.trial_status import TrialStatus
from paretune.studies.results.trials import Trial
from paretune.studies.search.next_job import MOST_REPEATS, RUNS
from search.measured import AXES, Measured
from search.tables import Point
from search.worlds import COLLAPSED, RATES, World

SETTINGS = {
    "normal": ("plain", 0.0, 1.0),
    "noise x 5": ("plain", 0.0, 5.0),
    "10 % collapse": ("plain", 0.1, 1.0),
    "20 % collapse, noise x 5": ("plain", 0.2, 5.0),
    "cliff": ("cliff", 0.0, 1.0),
}
"""Maps a name to the kind of world, the share of runs that collapse, and the noise as a multiple of 0.0015."""
_USD = {"ml.g5.xlarge": 1.4, "ml.g6e.xlarge": 2.6}
_POINTS, _NOISE = 24, 0.0015
_FALLEN = 0.2  # distance below the truth of a run that has collapsed


@dataclass(frozen=True, kw_only=True)
class Checked:
    """One study: the actual and the stated errors of the recommended points, and the score of its front."""

    errors: Sequence[tuple[float, float, float, float]]  # stated, of the runs' mean, stated standard error, margin
    front: float


@dataclass(frozen=True, kw_only=True)
class Job:
    """A point: its parameters as a trial gives them, dollars, quality without noise, and the deviation of one run."""

    point: Point
    usd: float
    truth: float
    deviation: float


def jobs_of_world(world: World, noise: float) -> list[Job]:
    """Return the jobs of a world with so many times the usual noise."""
    jobs = []
    for name, batch, rate in product(_USD, (8, 16, 32, 64, 128), RATES):
        point: Point = {"instance_type": name, "per_device_train_batch_size": batch, "learning_rate": rate}
        usd, truth = _USD[name] * (0.5 + 20 / batch), world.f1(batch, rate, 3.0, 128)
        jobs.append(Job(point=point, usd=usd, truth=truth, deviation=_NOISE * noise))
    return jobs


def jobs_of_measured(table: Measured) -> list[Job]:
    """Return the trainings that others have measured."""
    jobs = []
    for point in table.points:
        truth, spec = table.truth(point), table.spec(point)
        assert truth is not None
        assert spec is not None
        given = {full_name(table.job, name): point[name] for name in AXES}
        jobs.append(Job(point=given, usd=truth[0], truth=-truth[1], deviation=table.deviation(point)))
    return jobs


class _Study:
    """Draws the runs of one study from some points of `among`; a share of the runs collapses."""

    def __init__(self, among: Sequence[Job], seed: int, share: float, given: Mapping[str, Any], metric: str) -> None:
        self._draw, self._share, self._given, self._metric = random.Random(seed), share, given, metric
        self._jobs = self._draw.sample(among, _POINTS)
        self._goals = {"cost_usd": "minimize", metric: "maximize"}

    def truth(self, number: int) -> float:
        """Return the quality of a point when it trains."""
        return self._jobs[number].truth

    def check(self) -> Checked:
        """Run the points, repeat what is recommended, and compare with the truth."""
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
        quality = COLLAPSED if self._draw.random() < self._share else job.truth
        return Trial(
            number=number,
            run_id=str(number),
            point=job.point,
            given={key: spell(value) for key, value in {**self._given, **job.point}.items()},
            status=TrialStatus.COMPLETED,
            values={"cost_usd": usd, self._metric: quality + self._draw.gauss(0, job.deviation)},
            cost_usd=usd,
            repeats=first,
        )

    def _share_of_front(self, study_front: StudyFront) -> float:
        """Return the true hypervolume of the stated front, divided by that of the best means of runs that trained."""
        measured = []
        for point in study_front.points:
            values = [trial.values[self._metric] for trial in point.trials]
            trained = [value for value in values if value > self.truth(point.number) - _FALLEN] or values
            measured.append((point.means["cost_usd"], -statistics.fmean(trained)))
        best = [
            point for point, is_best in zip(study_front.points, front(measured, [False, False]), strict=True) if is_best
        ]
        true = [(point.means["cost_usd"], -self.truth(point.number)) for point in study_front.points]
        reference = max(usd for usd, _ in true) * 1.05, min(f1 for _, f1 in true) + 0.1
        volumes = [
            hypervolume([(point.means["cost_usd"], -self.truth(point.number)) for point in points], reference)
            for points in (study_front.best, best)
        ]
        return volumes[0] / volumes[1]


def rows(seeds: Sequence[int], measured: Path | None = None) -> list[list[str]]:
    """Return a row of the table for each of SETTINGS and for a table of `Measured`; see the module's docstring."""
    table = []
    for name, (kind, share, noise) in SETTINGS.items():
        worlds = {seed: jobs_of_world(World.draw(kind, seed), noise) for seed in seeds}
        table.append(_row(name, [_Study(worlds[seed], seed, share, {}, "f1").check() for seed in seeds]))
    if measured is not None:
        trained = Measured(measured)
        jobs = jobs_of_measured(trained)
        studies = [_Study(jobs, seed, 0.0, trained.job, trained.metric).check() for seed in seeds]
        table.append(_row(measured.stem, studies))
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
    ]


AIMS = ("aim", "0", "1.10 at most", "60 to 85%", "70 to 92%", "0.95", "")
HEAD = ("statements", "bias", "ratio", "± holds", "80 % holds", "front", "worst front")
