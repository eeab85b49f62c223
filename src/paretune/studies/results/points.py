"""The points of a study: trials that differ only in their seed, merged, with means and standard errors.

The values of a point are more than the means of its own runs. Seconds and dollars are means over all runs on the same
cluster with the same batch, because they do not depend on the learning rate. Quality is that of the runs that trained:
a run that collapsed to what the majority class gets counts towards the probability of a collapse instead. It is shrunk
towards the prediction of a model of the whole study, for the best of many noisy values is too good (the winner's
curse), but never beyond what the point's own runs have shown.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress
from statistics import fmean, pvariance
from typing import Any

import numpy as np

from paretune.estimating.noise import are_alike
from paretune.presentation.numbers import with_error
from paretune.specification import metrics
from paretune.studies.definition.objectives import F1, OF_THE_CLUSTER, Constraints, Objective, violations
from paretune.studies.results.run_noise import RunNoise, pooled_noise
from paretune.studies.results.trials import Trial, TrialStatus, label
from paretune.studies.sampler.quality import F1_SPREAD, QualityModel, are_numbers, scaled

FEWEST_TO_SHRINK = 6  # number of points from which on their quality is shrunk: fewer do not show what it depends on
_CONSTANT = {metrics.F1: metrics.BASELINE_MAJORITY}  # what one answer for all rows gets
_MOST_TO_SHRINK = 120  # best points that are shrunk; the others keep their means
_OWN_DEGREES = 4.0
"""Degrees of freedom with which the noise of the study tells that of one point, beside the point's own repeats."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A configuration with at least one completed run, merged with its repeats with other seeds."""

    trial: Trial  # the first of its trials, whose parameters stand for all
    trials: tuple[Trial, ...]  # all of its completed trials
    means: Mapping[str, float]  # metric to its estimated mean over seeds; only measured metrics
    errors: Mapping[str, float]  # metric to the standard error of that mean
    expected: Mapping[str, float] = field(default_factory=dict)
    """Metric to the mean that the model of the study expects, by which points are ranked. It may lie beyond all runs of
    the point, where `means` never lies: a single lucky run must not win."""
    measured: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Metric to the mean of its runs that trained, and its standard error: what verdicts are judged by."""
    collapses: int = 0  # number of its runs that collapsed; its quality is that of the others, if there are any
    collapse_probability: float | None = None  # that a further run of it collapses; None if not estimated
    unmet: tuple[str, ...] = ()  # a sentence for each constraint that the means do not meet
    rank: int | None = None
    """0 on the front, 1 on the front of the other points, and so on; None if a constraint is not met or an objective
    was not measured."""

    @property
    def number(self) -> int:
        """The number of its first trial, which names the point."""
        return self.trial.number

    @property
    def trained(self) -> int:
        """Number of its runs that did not collapse."""
        return len(self.trials) - self.collapses

    @property
    def usd_per_run(self) -> float | None:
        """Mean dollars of one run, or None if the price is unknown."""
        return self.means.get(metrics.COST_USD)

    def is_feasible(self, objectives: Iterable[str]) -> bool:
        """Whether every objective was measured and every constraint is met."""
        return not self.unmet and self.means.keys() >= set(objectives)

    def is_like(self, other: "Point", objectives: Iterable[str]) -> bool:
        """Whether the two points are within noise in all of these objectives, as expected and as measured."""

        def is_within_noise(name: str) -> bool:
            (mean, error), (other_mean, other_error) = self.measured[name], other.measured[name]
            return are_alike(mean, other_mean, error, other_error) and are_alike(
                self.expected[name], other.expected[name], self.errors[name], other.errors[name]
            )

        return all(map(is_within_noise, objectives))


def merge(
    trials: Sequence[Trial], objectives: Iterable[str], constraints: Constraints, quality: Objective | None = None
) -> tuple[list[Point], dict[str, RunNoise]]:
    """Points without ranks, in the order of `trials`, and the noise of one run by metric. It takes up to a second.

    `trials` are sorted by number. Metrics that are no objectives are averaged too. `quality` is the metric that
    measures models, by default F1.
    """
    families, judged = _families(trials), quality or F1
    shown = _QualityRuns(families, judged)
    recorded = [name for _, runs in families for trial in runs for name in trial.values]
    rows = _validation_rows([first for first, _ in families])
    is_sure = all(trial.qualities == first.qualities for _, (first, *rest) in families for trial in rest)
    noises, values_of = dict[str, RunNoise](), [dict[str, list[float]]() for _ in families]
    for name in dict.fromkeys([*objectives, *constraints, metrics.COST_USD, *recorded]):
        alike = [(first.seconds_key if name in OF_THE_CLUSTER else None) or first.number for first, _ in families]
        groups = defaultdict[object, list[float]](list)  # of runs that differ in nothing that matters to this metric
        for key, (_, runs) in zip(alike, families, strict=True):
            groups[key] += _values(runs, name, without=shown.collapsed if name == judged.metric else ())
        noises[name] = pooled_noise(name, list(groups.values()), rows, quality, is_sure)
        for key, (_, runs), values in zip(alike, families, values_of, strict=True):
            if own := _values(runs, name):
                values[name] = groups[key] or own
    points = [point_of(*family, values, noises) for family, values in zip(families, values_of, strict=True)]
    points = shown.shrunk(points, noises[judged.metric]) if shown.trials else points
    return [replace(point, unmet=_unmet(point.means, constraints)) for point in points], noises


def value_of(trial: Trial, objective: str) -> float | None:
    """The trial's value of an objective, or None; its dollars are known even if they are no objective."""
    value = trial.values.get(objective)
    return trial.cost_usd if value is None and objective == metrics.COST_USD else value


def _families(trials: Sequence[Trial]) -> list[tuple[Trial, Sequence[Trial]]]:
    """First trials with their completed runs and those of their repeats; only those with a completed run."""
    families: dict[int | None, list[Trial]] = {}
    for trial in trials:
        families.setdefault(trial.repeats if trial.repeats in families else trial.number, []).append(trial)
    return [
        (family[0], runs)
        for family in families.values()
        if (runs := [trial for trial in family if trial.status is TrialStatus.COMPLETED])
    ]


def _values(runs: Sequence[Trial], objective: str, without: Collection[int] = ()) -> list[float]:
    values = [value_of(trial, objective) for trial in runs if trial.number not in without]
    return [value for value in values if value is not None]


def _validation_rows(trials: Sequence[Trial]) -> int | None:
    """Validation rows of all trials if their parameters say so: max_eval_samples, or a ninth of max_train_samples."""
    rows = {trial.spec.max_eval_samples or (trial.spec.max_train_samples or 0) // 9 for trial in trials}
    return rows.pop() or None if len(rows) == 1 else None


def point_of(
    first: Trial, runs: Sequence[Trial], values_of: Mapping[str, list[float]], noises: Mapping[str, RunNoise]
) -> Point:
    """The point of these runs, by the values of each metric."""
    means = {name: fmean(values) for name, values in values_of.items()}
    errors = {name: noises[name].standard_error(mean, len(values_of[name])) for name, mean in means.items()}
    return Point(
        trial=first,
        trials=tuple(runs),
        means=means,
        errors=errors,
        expected=means,
        measured={name: (mean, errors[name]) for name, mean in means.items()},
    )


class _QualityRuns:
    """The runs that show one quality metric, those of the best points, and the model that tells which collapsed."""

    def __init__(self, families: Sequence[tuple[Trial, Sequence[Trial]]], quality: Objective) -> None:
        self._quality, name = quality, quality.metric
        of_points = [[trial for trial in runs if name in trial.values] for _, runs in families]
        best_first = sorted(
            filter(None, of_points), key=lambda runs: -max(quality.sign * trial.values[name] for trial in runs)
        )
        self.trials = [trial for runs in best_first[:_MOST_TO_SHRINK] for trial in runs]
        self.collapsed: set[int] = set()  # numbers of the trials that have collapsed
        if not self.trials:
            return
        self._keys, self._values = _keys(self.trials), [quality.sign * trial.values[name] for trial in self.trials]
        constant = [trial.measured.get(_CONSTANT.get(name, ""), -math.inf) for trial in self.trials]
        is_own = any(trial.spec.runs_own_training for trial in self.trials)
        self._spread = F1_SPREAD if quality.is_share and not is_own else None  # None to learn it
        collapsed = np.array(self._values) <= np.array(constant)
        self._model = QualityModel(self._keys, self._values, self._spread, collapsed=collapsed)
        self.collapsed = {trial.number for trial in compress(self.trials, self._model.collapsed)}

    def shrunk(self, points: Sequence[Point], noise: RunNoise) -> list[Point]:
        """The points with the quality that a model of all of them predicts, stated within what their runs have shown.

        If there are few, or if runs do not differ by chance, it is that of their runs.
        """
        place = {trial.number: index for index, trial in enumerate(self.trials)}
        judged = [(p, at) for p in points if (at := [place[t.number] for t in p.trials if t.number in place])]
        keys = self._keys[[at[0] for _, at in judged]]
        trained = [[self._values[index] for index in at if not self._model.collapsed[index]] for _, at in judged]
        deviations = []
        for values in filter(None, trained):
            squares = _OWN_DEGREES * noise.of_one_run(fmean(values)) ** 2 + len(values) * pvariance(values)
            deviations += [math.sqrt(squares / (_OWN_DEGREES + len(values) - 1))] * len(values)
        expected = [(0.0, 0.0)] * len(judged)
        if is_shrunk := len(judged) >= FEWEST_TO_SHRINK and any(deviations):
            rows, fitted = np.repeat(keys, list(map(len, trained)), axis=0), list(chain(*trained))
            surface = QualityModel(rows, fitted, self._spread, noise=np.array(deviations))
            expected = list(zip(*surface.predict(keys), strict=True))
        name, sign, changed = self._quality.metric, self._quality.sign, dict[int, Point]()
        chances = self._model.collapse_probability(keys)
        for (point, at), values, (mean, deviation), chance in zip(judged, trained, expected, chances, strict=True):
            collapses = len(at) - len(values)
            chance = float(chance) if collapses or noise.deviation else 0.0
            point = replace(point, collapses=collapses, collapse_probability=round(chance, 4))
            if is_shrunk and values:
                stated = min(max(float(mean), min(values)), max(values))
                point = replace(
                    point,
                    means={**point.means, name: sign * stated},
                    expected={**point.expected, name: sign * float(mean)},
                    errors={**point.errors, name: noise.widened(math.hypot(deviation, stated - mean))},
                )
            changed[point.number] = point
        return [changed.get(point.number, point) for point in points]


def _keys(trials: Sequence[Trial]) -> np.ndarray:
    """What the quality of these trials depends on, as `Space.quality_keys` orders it."""
    types = sorted({trial.spec.instance_type for trial in trials})
    known = np.zeros((len(trials), 4))
    known[:, 0] = [types.index(trial.spec.instance_type) for trial in trials]
    if any(trial.spec.runs_own_training for trial in trials):
        searched = dict.fromkeys(name for trial in trials for name in trial.point)
        names = [name for name in searched if name not in {"instance_type", "spot"}]
        columns: list[list[Any]] = [[trial.value(name) for trial in trials] for name in names]
    else:
        specs = [trial.spec for trial in trials]
        for row, spec in zip(known, specs, strict=True):
            plan = spec.plan()
            row[1:] = math.log2(plan.global_batch_size), math.log(plan.learning_rate), math.log(spec.num_train_epochs)
        kinds = [spec.key_of("quality", but="num_train_epochs") for spec in specs]
        columns = [list(column) for column in zip(*kinds, strict=True)]
    columns = [column if are_numbers(column) else list(map(str, column)) for column in columns]
    return np.hstack([known, *(scaled(column, sorted(set(column))) for column in columns if len(set(column)) > 1)])


def _unmet(means: Mapping[str, float], constraints: Constraints) -> tuple[str, ...]:
    unmet = [f"{label(name)} was not measured" for name in constraints if name not in means]
    words = {"min": "below", "max": "above"}
    for key, amount in violations(means, constraints).items():
        name, end = key.rsplit(" ", 1)
        if amount > 0 and name in means:
            unmet.append(f"{label(name)} is {with_error(means[name])}, {words[end]} {constraints[name][end]:g}")
    return tuple(unmet)
