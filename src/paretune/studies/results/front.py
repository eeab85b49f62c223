"""The front of a study: its configurations with their Pareto ranks.

Ranks compare means exactly: every configuration that is not on the front is beaten by one that is, and the
configuration with the best mean is always on it. How uncertain a mean is changes no rank.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress

import moocore
import numpy as np

from paretune.core import pareto
from paretune.core.noise import are_alike
from paretune.specification import metrics
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.objectives import OBJECTIVES, Constraints, Objective, costs, judged_by
from paretune.studies.definition.space import Range
from paretune.studies.definition.spending import Spending, spending_of
from paretune.studies.results.configurations import Configuration, merge
from paretune.studies.results.noise import RunNoise
from paretune.studies.results.trials import FOREIGN, Trial
from paretune.studies.sampler.process import Axis


@dataclass(frozen=True, kw_only=True)
class StudyFront:
    """The configurations of a study with their ranks."""

    objectives: Mapping[str, str]
    constraints: Constraints
    trials: tuple[Trial, ...]  # all trials, in order of number
    points: tuple[Configuration, ...]  # configurations with a completed run, in order of number
    noises: Mapping[str, RunNoise]  # metric to the noise of one run; absent if unknown
    expected: tuple[Configuration, ...] = ()  # configurations that have not been trained, the most usual first
    judged_by: Objective | None = None  # metric that judges models; None in a study of only seconds and dollars
    is_floor: bool = False  # whether quality appears only in a constraint, so any model that meets it is good enough

    @classmethod
    def of(
        cls,
        trials: Sequence[Trial],
        objectives: Mapping[str, str],
        constraints: Constraints,
        *,
        expected: Sequence[Configuration] = (),
        quality: Objective | None = None,
        is_floor: bool = False,
        axes: Mapping[str, Axis] | None = None,
    ) -> "StudyFront":
        """Return the front of these trials, beside which stand `expected` configurations that have not been trained.

        `quality` defaults to the quality metric among the objectives. `axes` are the searched parameters of the study,
        if it has a search.
        """
        ordered = tuple(sorted(trials, key=lambda trial: trial.number))
        quality = quality or judged_by(objectives)
        points, noises = merge(ordered, objectives, constraints, quality, axes)
        ranked = _ranked(
            [point for point in points if not point.unmet and point.means.keys() >= objectives.keys()],
            objectives,
            None if quality is None else quality.metric,
        )
        of_number = {point.number: point for point in ranked}
        return cls(
            objectives=dict(objectives),
            constraints=constraints,
            trials=ordered,
            points=tuple(of_number.get(point.number, point) for point in points),
            noises=noises,
            expected=tuple(expected),
            judged_by=quality,
            is_floor=is_floor,
        )

    @cached_property
    def feasible(self) -> list[Configuration]:
        """Configurations with a rank: every objective is measured and every constraint is met."""
        return [point for point in self.points if point.rank is not None]

    @cached_property
    def best(self) -> list[Configuration]:
        """Configurations on the front over all objectives."""
        return [point for point in self.points if point.rank == 0]

    @cached_property
    def expected_best(self) -> list[Configuration]:
        """Expected configurations that nothing known is expected to beat, the cheapest first.

        All qualities are compared as they are believed (`believed_of`). Before any training, quality is hardly known,
        so all trade-offs between dollars and time are there, too. Of equal ones, the most usual one is.
        """
        trained, goals = self.feasible, dict(self.objectives)
        if not self.has_trained:
            goals |= dict.fromkeys((metrics.COST_USD, metrics.JOB_SECONDS), "minimize")
        values = dict[tuple[float, ...], Configuration]()
        for point in [*trained, *self.expected]:
            means = {**point.means, **({} if self.quality is None else {self.quality: self.believed_of(point)})}
            if goals.keys() <= means.keys():
                values.setdefault(tuple(costs(means, goals)), point)
        is_best = pareto.front([*values], [False] * len(goals))
        best = [point for point in compress(values.values(), is_best) if point.is_expected]
        return sorted(best, key=lambda point: (point.means[metrics.COST_USD], point.number))

    @property
    def has_trained(self) -> bool:
        """Whether any training has completed."""
        return any(not point.trial.is_probe for point in self.points)

    @property
    def may_expect(self) -> bool:
        """Whether a configuration that was not trained may be recommended: none has completed, and none has failed."""
        return all(trial.is_probe or trial.status.is_retryable for trial in self.trials)

    def believed_of(self, point: Configuration) -> float:
        """Return the quality of a configuration as all runs together suggest it; the study must have a quality.

        That of a trained one is at most one standard error from its own mean.
        """
        name = self.quality or ""
        if point.believed is None or point.is_expected:
            return point.means[name] if point.believed is None else point.believed
        mean, error = point.means[name], point.errors.get(name, 0.0)
        return min(max(point.believed, mean - error), mean + error)

    @property
    def quality(self) -> str | None:
        """The objective that measures the model, such as F1 or the user's own metric, or None."""
        return None if self.judged_by is None else self.judged_by.metric

    @property
    def is_foreign(self) -> bool:
        """Whether another program ran the trials, so that paretune knows nothing about their jobs and dollars."""
        return any(trial.given == FOREIGN for trial in self.trials)

    @property
    def is_simulated(self) -> bool:
        """Whether any trial is simulated."""
        return any(trial.origin == "simulated" for trial in self.trials)

    @cached_property
    def main_pair(self) -> tuple[str, str] | None:
        """The two objectives that show the trade-off best, or None if there is only one objective.

        The second one is quality. The first one is the objective that varies most along its front with quality;
        dollars win a tie. Without quality, the pair is the first two objectives, where dollars count as the first.
        """

        def spread(pair: tuple[str, str]) -> float:
            values = [point.means[pair[0]] for point in self.best_in_pair(pair)]
            return round(max(values) / min(values), 1) if values and min(values) > 0 else 1.0

        names = sorted(self.objectives, key=lambda name: (name == self.quality, name != metrics.COST_USD))
        pairs = [(name, self.quality or names[1]) for name in names[:-1]]
        return max(pairs, key=spread if self.quality else lambda _: 0.0, default=None)

    @cached_property
    def spending(self) -> Spending:
        """What the study spends. Trials of other programs, and of simulations, count in dollars."""
        trials = [*self.trials, *(point.trial for point in self.expected)]
        is_free = bool(trials) and not any(trial.spec.runs_on.is_billed or trial.spec.is_simulated for trial in trials)
        return spending_of(self.objectives, is_billed=self.is_foreign or not is_free)

    def shown_of(self, *, is_expected: bool = False) -> list[str]:
        """Return the metrics that people are shown: the objectives, what a job takes, and its time if expected."""
        times = [metrics.JOB_SECONDS] * is_expected
        return [*dict.fromkeys([*self.objectives, *times, self.spending.metric])]

    @property
    def spent(self) -> float:
        """The dollars or seconds of all trials, see `spending`."""
        return sum(map(self.paid, self.trials))

    def paid(self, trial: Trial) -> float:
        """Return what the job of a trial has taken, in dollars or seconds (see `spending`); 0 if unknown."""
        return (trial.billed_s if self.spending.is_time else trial.cost_usd) or 0.0

    @property
    def spent_usd(self) -> float:
        """The recorded dollars of all trials."""
        return sum(trial.cost_usd or 0.0 for trial in self.trials)

    def rank(self, trial: Trial) -> int | None:
        """Return the rank of a trial's configuration, or None."""
        point = self.point_of.get(trial.number)
        return None if point is None else point.rank

    @cached_property
    def point_of(self) -> dict[int, Configuration]:
        """The configuration of each completed trial, by the trial's number."""
        return {trial.number: point for point in self.points for trial in point.trials}

    def interval(self, point: Configuration, name: str) -> tuple[float, float] | None:
        """Return the ends of the interval (probability `noise.INTERVAL`) around a mean; None if its error is unknown.

        The ends stay within the values that the metric can have.
        """
        if point.is_expected:
            return point.trial.intervals.get(name)
        if name not in point.errors:
            return None
        mean, margin = point.means[name], self.noises[name].margin(point.errors[name])
        metric = OBJECTIVES.get(name) or Objective(metric=name, direction="")
        return max(mean - margin, metric.lowest), min(mean + margin, metric.highest)

    def best_in_quality(self) -> Configuration | None:
        """Return the feasible configuration with the best mean quality, which is on the front; None if there is none.

        If several have the same mean, it is the cheapest of them.
        """
        if self.quality is None or not self.feasible:
            return None
        goal = {self.quality: self.objectives.get(self.quality) or OBJECTIVES[self.quality].direction}
        return min(self.best, key=lambda point: (costs(point.means, goal), self.cost_of(point)))

    def alike(self, point: Configuration) -> list[Configuration]:
        """Return the other feasible configurations whose quality the runs cannot tell from that of `point`.

        Their means differ by at most two standard errors of the difference. This is said of each pair alone: two
        configurations may be distinguishable although neither is from `point`.
        """
        name = self.quality
        if name is None or name not in point.errors:
            return []
        others = [other for other in self.feasible if other.number != point.number and name in other.errors]
        mean, error = point.means[name], point.errors[name]
        return [other for other in others if are_alike(mean, other.means[name], error, other.errors[name])]

    def is_better(self, point: Configuration, other: Configuration, name: str) -> bool:
        """Return whether a mean of `point` is better than that of `other` by more than 2 errors of the difference.

        If the error of a mean is unknown, it is that of one run; if that is unknown too, it is 0.
        """
        first, second = (costs(each.means, {name: self.objectives[name]})[0] for each in (point, other))
        of_one = self.noises.get(name)
        errors = [
            each.errors.get(name, 0.0 if of_one is None else of_one.of_one_run(each.means[name]))
            for each in (point, other)
        ]
        return first < second and not are_alike(first, second, *errors)

    def best_in_pair(self, pair: Sequence[str]) -> list[Configuration]:
        """Return the configurations on the front that no other one beats in these objectives alone."""
        goal = {name: self.objectives[name] for name in pair}
        is_best = pareto.front([costs(point.means, goal) for point in self.best], [False] * len(goal))
        return list(compress(self.best, is_best))

    def cost_of(self, point: Configuration) -> tuple[float, ...]:
        """Return a key that sorts the cheapest first: by dollars, then by the objectives.

        If the dollars of any feasible configuration are unknown, only the objectives count, minimized ones first.
        """
        if all(metrics.COST_USD in each.means for each in [*self.feasible, point]):
            known = {name: way for name, way in self.objectives.items() if name in point.means}
            return (point.means[metrics.COST_USD], *costs(point.means, known))
        return costs(point.means, dict(sorted(self.objectives.items(), key=lambda item: item[1] != "minimize")))

    @cached_property
    def hypervolume(self) -> float:
        """Volume that the feasible configurations dominate, up to a reference point; 0 if there are none.

        The reference point follows from the first trial of the first feasible configuration: ten times that trial's
        value of each minimized objective, and 0 for each maximized one. Unless another configuration
        becomes the first, the point does not move, so the volume grows with every improvement.
        """
        if not self.feasible:
            return 0.0
        first = costs({**self.feasible[0].means, **self.feasible[0].trial.values}, self.objectives)
        far = [9.0 if direction == "minimize" else 1.0 for direction in self.objectives.values()]
        reference = [cost + times * abs(cost) for cost, times in zip(first, far, strict=True)]
        return hypervolume([costs(point.means, self.objectives) for point in self.feasible], reference)


def front_of(file: StudyFile, trials: Sequence[Trial], *, expected: Sequence[Configuration] = ()) -> StudyFront:
    """Return the front of a study's trials, judged as its file says, with what is expected of other configurations."""
    axes = None
    if file.design is None:
        axes = {
            name: Axis(values=entry.corners, is_log=isinstance(entry, Range) and entry.log)
            for name, entry in file.search.items()
        }
    return StudyFront.of(
        trials,
        file.goals,
        file.constraints,
        expected=expected,
        quality=file.judged_by,
        is_floor=file.goals != file.objectives,
        axes=axes,
    )


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Return the exact volume that N points in M minimized objectives dominate, up to the reference; 0 if N is 0."""
    return float(moocore.hypervolume(points, ref=reference)) if len(points) else 0.0


def _ranked(points: Sequence[Configuration], objectives: Mapping[str, str], quality: str | None) -> list[Configuration]:
    """Return the configurations with their Pareto ranks, by their means, and with what beats them.

    A configuration is beaten by another that is at least as good in every objective and better in one. Configurations
    with the same means do not beat each other. Of several on the front that beat one, the one with the best quality is
    named.
    """
    if not points:
        return []
    values = np.array([costs(point.means, objectives) for point in points])
    ranks, names = moocore.pareto_rank(values), [*objectives]
    first = names.index(quality) if quality is not None and quality in names else 0
    ranked = []
    for point, value, rank in zip(points, values, ranks, strict=True):
        better = np.flatnonzero((ranks == 0) & (values <= value).all(axis=1)) if rank else ()
        best = min(((values[index, first], points[int(index)].number) for index in better), default=None)
        ranked.append(replace(point, rank=int(rank), beaten_by=None if best is None else best[1]))
    return ranked
