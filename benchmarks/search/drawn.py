"""Studies that were never searched: runs at points that are drawn, around a quality that is known.

The truth is a formula (worlds.py) or the mean of measured trainings (grids.py). A study has some points, a run of each,
and then the repeats that paretune would make (`studies.search.next_job.wanted`). `judged` compares its answer with the
truth.

`studies` draws those of a half. Everything about the answer was chosen on the half `first`; the half `second` has
other worlds, one more kind of them, and other tables:

- sources: worlds, as paretune's own training with F1 or as a user's script with a metric of its own; tables
- 6, 8, 12, 16, 24 or 40 points; in 60 % of the studies, half of them near the front, as a search leaves them
- objectives: dollars and quality; in a third of the studies with clusters also seconds
- noise of one run: 0.05, 0.25 or 0.8 of the standard deviation of quality, or that of the table's own runs
- none, 10 or 20 % of the runs collapse (only in worlds); dollars vary by 1.5 or 8 %
"""

import itertools
import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import moocore
import numpy as np

from paretune.core.pareto import front as is_on_front
from paretune.specification.declaration import spell
from paretune.studies.definition.file import full_name
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.front import StudyFront, hypervolume
from paretune.studies.results.trials import Trial
from paretune.studies.search.next_job import MOST_REPEATS, wanted
from paretune.studies.trial_status import TRIES, TrialStatus
from search.grids import Grid, grid
from search.tables import Point
from search.worlds import BATCHES, COLLAPSED, RATES, World

_USD_PER_HOUR = {
    "ml.g4dn.xlarge": 0.736,
    "ml.g5.xlarge": 1.408,
    "ml.g6.xlarge": 1.127,
    "ml.g6e.xlarge": 2.6,
    "ml.g5.12xlarge": 7.09,
    "ml.g6.12xlarge": 5.75,
    "ml.p4d.24xlarge": 25.25,
}
_F1_NOISE = 0.0015  # of the worlds, as in worlds.py
_MOST_JOBS = 600  # of a source; more are sampled
_NEAR = 0.1  # a configuration whose true quality is this share of the spread below the best one is as good
WORLDS = {"first": (range(8), ("plain", "cliff")), "second": (range(400, 406), ("plain", "cliff", "far"))}
TABLES = {
    "first": ("trimtuner-cnn//clusters", "fcnet-parkinsons"),
    "second": ("trimtuner-sizes//clusters", "fcnet-slice", "lynceus-cnn//clusters", "lynceus-multilayer//clusters"),
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """A point with its dollars, seconds and true quality.

    The quality of a run is one of `runs` or, if there are none, normal around `truth` with the standard deviation
    `deviation`.
    """

    point: Point
    usd: float
    truth: float
    deviation: float
    seconds: float = 0.0
    runs: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True)
class Source:
    """Jobs that points are drawn from, the parameters that they share, and the metric of their quality."""

    jobs: Sequence[Job]
    given: Mapping[str, Any]
    metric: str
    is_world: bool
    has_clusters: bool


def of_world(kind: str, seed: int, script: Path | None) -> Source:
    """Return the jobs of a world: trainings of paretune or, with a script that has `--batch` and `--rate`, a user's."""
    world, jobs = World.draw(kind, seed), list[Job]()
    inside = "" if script is None else "training_arguments."
    batch_name, rate_name = (
        (f"{inside}batch", f"{inside}rate") if inside else ("per_device_train_batch_size", "learning_rate")
    )
    for name, count, batch, rate in itertools.product(world.clusters, (1, 2, 4), BATCHES, RATES):
        seconds = world.seconds(name, count, batch, 3.0, 128)
        if seconds is None:
            continue
        point: Point = {"instance_type": name, "instance_count": count, batch_name: batch, rate_name: rate}
        truth = world.f1(batch * count * world.clusters[name].accelerators, rate, 3.0, 128)
        usd = _USD_PER_HOUR[name] * count * seconds / 3600
        jobs.append(Job(point=point, usd=usd, truth=truth, deviation=_F1_NOISE, seconds=seconds))
    given = {} if script is None else {"entry_script": str(script)}
    return Source(jobs=jobs, given=given, metric="acc" if given else "f1", is_world=True, has_clusters=True)


def of_grid(name: str, table: Grid) -> Source:
    """Return the jobs of a table of measured training runs."""
    jobs, is_fcnet = list[Job](), name.startswith("fcnet")
    for point in table.points:
        runs = table.runs_at(point)
        if not runs:
            continue
        usd, negative = table.truth(point)
        values = [quality for _, quality in runs]
        jobs.append(
            Job(
                point={full_name(table.job, axis): value for axis, value in point.items()},
                usd=usd,
                truth=-negative,
                deviation=statistics.stdev(values) if len(values) > 1 else 0.0,
                seconds=statistics.fmean(seconds for seconds, _ in runs),
                runs=values if is_fcnet else (),
            )
        )
    return Source(jobs=jobs, given=table.job, metric=table.metric, is_world=False, has_clusters=not is_fcnet)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Describes a drawn study.

    Attributes:
        source: `WAY:KIND:SEED` of a world, where the way is f1 or own, or the name of a table.
        seed: seed of its draws.
        count: number of its points.
        level: noise of one run in standard deviations of quality; None for that of the source itself.
        with_seconds: whether seconds are an objective.
        collapsing: share of the runs that collapse.
        near_front: whether half of the points are near the front.
        usd_noise: relative standard deviation of dollars.
    """

    source: str
    seed: int
    count: int
    level: float | None
    with_seconds: bool = False
    collapsing: float = 0.0
    near_front: bool = False
    usd_noise: float = 0.015


def terms(half: str, count: int, *, with_tables: bool) -> Iterator[Terms]:
    """Yield the terms of this many studies of a half; `with_tables` says whether tables are among their sources."""
    draw, (seeds, kinds) = random.Random(half), WORLDS[half]
    worlds = [f"{way}:{kind}:{seed}" for way in ("f1", "own") for kind in kinds for seed in seeds]
    sources = [*worlds, *[name for name in TABLES[half] for _ in range(8)] * with_tables]
    for seed in range(count):
        source = draw.choice(sources)
        is_world, is_fcnet, is_single = ":" in source, source.startswith("fcnet"), source.startswith("lynceus")
        size, level = draw.choice((6, 8, 12, 16, 24, 40)), draw.choice((0.05, 0.25, 0.8))
        has_own_noise, third, collapsing = draw.random() < 0.5, draw.random() < 0.33, draw.choice((0, 0, 0, 0.1, 0.2))
        yield Terms(
            source=source,
            seed=seed,
            count=size,
            level=None if has_own_noise and not is_world and not is_single else level,
            with_seconds=third and not is_fcnet,
            collapsing=collapsing if is_world else 0.0,
            near_front=draw.random() < 0.6,
            usd_noise=draw.choice((0.015, 0.015, 0.08)),
        )


def studies(half: str, count: int, *, work: Path, folder: Path | None = None) -> Iterator["DrawnStudy"]:
    """Yield this many studies of a half. The same arguments always give the same studies.

    `work` is a folder for scripts. With `folder`, which has the files of grids.py, tables are among the sources.
    """
    script, sources = work / "drawn.py", dict[str, Source]()
    script.write_text("".join(f"p.add_argument('--{name}')\n" for name in ("batch", "rate", "seed")))
    for each in terms(half, count, with_tables=folder is not None):
        if each.source not in sources:
            way, _, world = each.source.partition(":")
            if world:
                kind, seed = world.split(":")
                sources[each.source] = of_world(kind, int(seed), script if way == "own" else None)
            else:
                assert folder is not None
                sources[each.source] = of_grid(each.source, grid(each.source, folder, work))
        yield DrawnStudy(sources[each.source], each)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The answer of a study, compared with the truth. Qualities are in spreads: from the median to the best true one.

    Attributes:
        regret: true quality that the recommended configuration loses against the best one that was tried.
        log2_usd: logarithm of its dollars divided by those of the cheapest configuration that is nearly as good.
        front: true hypervolume of the stated front, divided by that of the true front of all that were tried.
        has_dropped: whether the configuration with the best mean is not on the front.
        has_lied: whether the answer calls a configuration the best although another one has a better mean.
        in_one, in_80: whether the true quality of the recommended configuration is within ± and within its interval.
        errors: for each configuration on the front, stated minus true quality, its stated standard error, and half of
            its interval's width, in the metric's own unit.
        spent: dollars of repeats, divided by those of the search.
        repeats: number of repeats.
    """

    regret: float
    log2_usd: float
    front: float
    has_dropped: bool
    has_lied: bool
    in_one: bool
    in_80: bool
    errors: Sequence[tuple[float, float, float]] = field(repr=False)
    spent: float
    repeats: int


class DrawnStudy:
    """One study: a run of each of its points, and the repeats that paretune makes."""

    def __init__(self, source: Source, terms: Terms) -> None:
        self.terms = terms
        self._source = source
        self._draw = random.Random(repr(terms))
        jobs = list(source.jobs)
        if len(jobs) > _MOST_JOBS:
            jobs = self._draw.sample(jobs, _MOST_JOBS)
        self._jobs = self._near_front(jobs) if terms.near_front else self._draw.sample(jobs, terms.count)
        self.truth = np.array([job.truth for job in self._jobs])
        upper = self.truth[self.truth >= np.quantile(self.truth, 0.25)]
        level = None if terms.level is None else terms.level * float(np.std(upper))
        self._deviations = [job.deviation if level is None else level for job in self._jobs]
        self._goals = {
            "cost_usd": "minimize",
            **({"train_seconds": "minimize"} if terms.with_seconds else {}),
            source.metric: "maximize",
        }
        self._trials = list[Trial]()
        for index in range(len(self._jobs)):
            self._run(index)

    def _near_front(self, jobs: Sequence[Job]) -> list[Job]:
        """Return points of which half are in the best 15 % of the ranks."""
        ranks = moocore.pareto_rank(np.array([[job.usd, -job.truth] for job in jobs]))
        good = np.flatnonzero(ranks <= np.quantile(ranks, 0.15)).tolist()
        first = self._draw.sample(good, min(self.terms.count // 2, len(good)))
        rest = self._draw.sample(sorted({*range(len(jobs))} - {*first}), self.terms.count - len(first))
        chosen = [*first, *rest]
        self._draw.shuffle(chosen)
        return [jobs[index] for index in chosen]

    def _run(self, index: int, *, repeats: bool = False) -> None:
        """Draw a run of a point. The number of a point's first trial is its index."""
        job, terms, metric = self._jobs[index], self.terms, self._source.metric
        slower = math.exp(self._draw.gauss(0, terms.usd_noise))
        has_collapsed = self._draw.random() < terms.collapsing
        if job.runs and terms.level is None:
            quality = self._draw.choice(job.runs)
        else:
            quality = job.truth + self._draw.gauss(0, self._deviations[index])
        if has_collapsed:
            lowest = COLLAPSED if metric == "f1" else self.truth.min() - 0.5 * float(np.ptp(self.truth))
            quality = lowest + self._draw.gauss(0, 0.1 * self._deviations[index])
        values = {"cost_usd": job.usd * slower, "train_seconds": job.seconds * slower, metric: float(quality)}
        number = len(self._trials)
        self._trials.append(
            Trial(
                number=number,
                run_id=str(number),
                point=job.point,
                given={key: spell(value) for key, value in {**self._source.given, **job.point}.items()},
                status=TrialStatus.COMPLETED,
                values={name: values[name] for name in self._goals},
                cost_usd=values["cost_usd"],
                repeats=index if repeats else None,
                measured=values,
            )
        )

    def _spent(self) -> float:
        return sum(trial.cost_usd or 0.0 for trial in self._trials)

    def verified(self) -> StudyFront:
        """Repeat what paretune would repeat, for at most the dollars of the search, and return the front."""
        search_usd = self._spent()
        while True:
            front = StudyFront.of(self._trials, self._goals, {})
            repeats_usd = self._spent() - search_usd
            lacking = [
                point.number
                for point, runs in wanted(front)
                if point.trained < runs
                and len(point.trials) < TRIES.repeated
                and repeats_usd + point.means["cost_usd"] <= search_usd
            ]
            if not lacking or len(self._trials) >= len(self._jobs) + MOST_REPEATS:
                return front
            self._run(lacking[0], repeats=True)

    def judged(self) -> Judged:
        """Return how the study's answer, after its repeats, compares with the truth."""
        search_usd, front = self._spent(), self.verified()
        answer, metric, truth = StudyAnswer(name="drawn", front=front), self._source.metric, self.truth
        taken, spread = answer.picks[0].point, max(float(truth.max() - np.median(truth)), 1e-9)
        usd = np.array([job.usd for job in self._jobs])
        best = max(point.means[metric] for point in front.points)
        interval = front.interval(taken, metric)
        assert interval is not None
        error = abs(taken.means[metric] - truth[taken.number])
        low, high = interval
        errors = [
            (
                point.means[metric] - truth[point.number],
                point.errors[metric],
                front.noises[metric].margin(point.errors[metric]),
            )
            for point in front.best
        ]
        return Judged(
            regret=float(truth.max() - truth[taken.number]) / spread,
            log2_usd=math.log2(usd[taken.number] / usd[truth >= truth.max() - _NEAR * spread].min()),
            front=self._share([point.number for point in front.best]),
            has_dropped=all(point.means[metric] < best for point in front.best),
            has_lied=_has_lied(answer, metric, best),
            in_one=error <= taken.errors[metric],
            in_80=bool(low <= truth[taken.number] <= high),
            errors=errors,
            spent=(self._spent() - search_usd) / search_usd,
            repeats=len(self._trials) - len(self._jobs),
        )

    def _share(self, listed: Sequence[int]) -> float:
        """Return the true hypervolume of the listed points as a share of that of all; better than the median counts."""
        columns = [[job.usd, *([job.seconds] if self.terms.with_seconds else []), -job.truth] for job in self._jobs]
        minimized = np.array(columns)
        reference = [*(1.05 * minimized[:, :-1].max(axis=0)), float(np.median(minimized[:, -1]))]
        reached = hypervolume(minimized[listed].tolist(), reference)
        whole = minimized[is_on_front(minimized.tolist(), [False] * minimized.shape[1])]
        return reached / (hypervolume(whole.tolist(), reference) or math.inf)


def _has_lied(answer: StudyAnswer, metric: str, best: float) -> bool:
    """Return whether an answer calls a configuration the best although another has a better mean quality."""
    text, taken = " ".join(answer.opening()), answer.picks[0].point.means[metric]
    claims = [taken] * ("Nothing else" in text)
    claims += [answer.best.means[metric]] if answer.best is not None else []
    claims += [pick.point.means[metric] for pick in answer.picks for title in pick.roles if "best" in title]
    return any(claim < best for claim in claims)
