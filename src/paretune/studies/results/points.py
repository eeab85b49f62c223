"""The points of a study: trials that differ only in their seed, merged, with means and standard errors.

The values of a point are more than the means of its own runs. Seconds and dollars are means over all runs on the same
cluster with the same batch, because they do not depend on the learning rate. Quality is that of the runs that trained:
a run that collapsed to what the majority class gets counts towards the probability of a collapse instead. It is shrunk
towards the prediction of a model of the whole study, for the best of many noisy values is too good (the winner's
curse), but never beyond what the point's own runs have shown.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pvariance

import numpy as np

from paretune.estimating.noise import are_alike
from paretune.presentation.numbers import with_error
from paretune.specification import metrics
from paretune.studies.definition.objectives import F1, OF_THE_CLUSTER, Constraints, Objective
from paretune.studies.results.run_noise import RunNoise, pooled_noise
from paretune.studies.results.trials import Trial, TrialStatus, job_of, label
from paretune.studies.sampler.quality import CATEGORY, F1_SPREAD, RATIO, QualityModel

FEWEST_TO_SHRINK = 6  # number of points from which on their quality is shrunk: fewer do not show what it depends on
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
    margins: Mapping[str, float] = field(default_factory=dict)
    """Metric to half the width of the interval that holds the mean with probability INTERVAL."""
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
    trials: Sequence[Trial],
    objectives: Iterable[str],
    constraints: Constraints,
    *,
    shrinks: bool = False,
    quality: Objective | None = None,
) -> tuple[list[Point], dict[str, RunNoise]]:
    """Points without ranks, in the order of `trials`, and the noise of one run by metric.

    `trials` are sorted by number. Metrics that are no objectives are averaged too. `shrinks` asks for the quality that
    the model of the study predicts, which takes up to a second. `quality` is the metric that measures models, by
    default F1.
    """
    measured = {name for trial in trials for name in trial.values}
    judged = [
        item for item in {item.metric: item for item in (F1, quality) if item}.values() if item.metric in measured
    ]
    found = [_QualityRuns.of(trials, item) for item in judged] if shrinks else []
    runs_of = {item.quality.metric: item for item in found if item is not None}
    collapsed = {name: item.collapsed for name, item in runs_of.items()}
    families = _families(trials)
    recorded = [name for _, runs in families for trial in runs for name in trial.values]
    names = dict.fromkeys([*objectives, *constraints, metrics.COST_USD, *recorded])
    rows = _validation_rows([first for first, _ in families])
    groups: dict[object, list[Trial]] = {}  # runs that take equally long
    for first, runs in families:
        groups.setdefault(first.seconds_key or first.number, []).extend(runs)
    noises: dict[str, RunNoise] = {}
    for name in names:
        left_out = collapsed.get(name, ())
        runs_of_each = groups.values() if name in OF_THE_CLUSTER else [runs for _, runs in families]
        values = [_values([trial for trial in runs if trial.number not in left_out], name) for runs in runs_of_each]
        noises[name] = pooled_noise(name, values, rows, quality)
    shared = {key: _cluster_means(runs, noises) for key, runs in groups.items()}
    points = [
        _point(first, runs, shared[first.seconds_key or first.number], noises, constraints, collapsed)
        for first, runs in families
    ]
    for name, item in runs_of.items():
        points = item.shrunk(points, noises[name])
    if shrinks:
        points = [replace(point, unmet=_unmet(point.means, constraints)) for point in points]
    return points, noises


def value_of(trial: Trial, objective: str) -> float | None:
    """The trial's value of an objective, or None; its dollars are known even if they are no objective."""
    value = trial.values.get(objective)
    return trial.cost_usd if value is None and objective == metrics.COST_USD else value


def _families(trials: Sequence[Trial]) -> list[tuple[Trial, tuple[Trial, ...]]]:
    """First trials with their completed runs and those of their repeats; only those with a completed run."""
    by_number = {trial.number: trial for trial in trials}
    families: dict[int, list[Trial]] = {}
    for trial in trials:
        first = trial.number
        while (before := by_number[first].repeats if first in by_number else None) is not None and before < first:
            first = before
        families.setdefault(first, []).append(trial)
    return [
        (family[0], runs)
        for family in families.values()
        if (runs := tuple(trial for trial in family if trial.status is TrialStatus.COMPLETED))
    ]


def _values(runs: Sequence[Trial], objective: str) -> list[float]:
    return [value for trial in runs if (value := value_of(trial, objective)) is not None]


def _validation_rows(trials: Sequence[Trial]) -> int | None:
    """Validation rows of all trials if their parameters say so: max_eval_samples, or a ninth of max_train_samples."""
    rows = set()
    for trial in trials:
        texts = [trial.parameters.get(name, "").strip() for name in ("max_eval_samples", "max_train_samples")]
        text = texts[0] or texts[1]
        rows.add(int(text) // (1 if texts[0] else 9) if text.isdigit() else None)
    return rows.pop() or None if len(rows) == 1 else None


def _cluster_means(runs: Sequence[Trial], names: Iterable[str]) -> dict[str, tuple[float, int]]:
    """Mean and count of each metric that follows from the cluster, over runs that take equally long."""
    values_of = {name: _values(runs, name) for name in names if name in OF_THE_CLUSTER}
    return {name: (fmean(values), len(values)) for name, values in values_of.items() if values}


def _point(
    first: Trial,
    runs: tuple[Trial, ...],
    shared: Mapping[str, tuple[float, int]],
    noises: Mapping[str, RunNoise],
    constraints: Constraints,
    collapsed: Mapping[str, Collection[int]],
) -> Point:
    means, errors, margins = {}, {}, {}
    for name, noise in noises.items():
        if values := _values(_trained(runs, collapsed.get(name, ())), name):
            means[name], count = shared.get(name) or (fmean(values), len(values))
            errors[name] = noise.standard_error(means[name], count)
            margins[name] = noise.margin(errors[name])
    return Point(
        trial=first,
        trials=runs,
        means=means,
        errors=errors,
        margins=margins,
        expected=means,
        measured={name: (mean, errors[name]) for name, mean in means.items()},
        unmet=_unmet(means, constraints),
    )


def _trained(runs: Sequence[Trial], collapsed: Collection[int]) -> Sequence[Trial]:
    """The runs that have not collapsed; all if all have."""
    return [trial for trial in runs if trial.number not in collapsed] or runs


@dataclass(frozen=True, kw_only=True)
class _QualityRuns:
    """The runs that show one quality metric, the best points first, and which of them have collapsed."""

    quality: Objective
    trials: Sequence[Trial]
    keys: np.ndarray  # one row a trial, see `QualityModel`
    values: Sequence[float]  # more is better
    model: QualityModel
    collapsed: frozenset[int]  # numbers of the trials that have

    @classmethod
    def of(cls, trials: Sequence[Trial], quality: Objective) -> "_QualityRuns | None":
        families = [
            (max(quality.sign * value for value in _values(runs, quality.metric)), runs)
            for _, runs in _families(trials)
            if _values(runs, quality.metric)
        ]
        families.sort(key=lambda family: -family[0])
        chosen = [trial for _, runs in families[:_MOST_TO_SHRINK] for trial in runs if quality.metric in trial.values]
        if not chosen:
            return None
        keys, values = _keys(chosen, quality), [quality.sign * trial.values[quality.metric] for trial in chosen]
        bases = [trial.baseline for trial in chosen]
        fell = [base is not None and value <= base for base, value in zip(bases, values, strict=True)]
        model = QualityModel(keys, values, _spread(quality, chosen), collapsed=np.array(fell))
        collapsed = frozenset(trial.number for trial, has in zip(chosen, model.collapsed, strict=True) if has)
        return cls(quality=quality, trials=chosen, keys=keys, values=values, model=model, collapsed=collapsed)

    def shrunk(self, points: Sequence[Point], noise: RunNoise) -> list[Point]:
        """The points with the quality that a model of all of them predicts; if there are few, that of their runs."""
        index_of = {trial.number: index for index, trial in enumerate(self.trials)}
        judged = [point for point in points if self._runs(point)]
        keys = self.keys[[index_of[self._runs(point)[0].number] for point in judged]]
        probabilities = self.model.collapse_probability(keys)
        estimates = self._estimates(judged, keys, noise) if len(judged) >= FEWEST_TO_SHRINK else {}
        by_number = {}
        for point, probability in zip(judged, probabilities, strict=True):
            collapses = sum(trial.number in self.collapsed for trial in point.trials)
            point = replace(point, collapses=collapses, collapse_probability=round(float(probability), 4))
            if point.number in estimates:
                mean, expected, error = estimates[point.number]
                name = self.quality.metric
                point = replace(
                    point,
                    means={**point.means, name: mean},
                    expected={**point.expected, name: expected},
                    errors={**point.errors, name: error},
                    margins={**point.margins, name: noise.margin(error)},
                )
            by_number[point.number] = point
        return [by_number.get(point.number, point) for point in points]

    def _estimates(
        self, points: Sequence[Point], keys: np.ndarray, noise: RunNoise
    ) -> dict[int, tuple[float, float, float]]:
        """Stated quality of each point that has trained, within what its runs have shown; expected one, and error."""
        sign, values_of = self.quality.sign, dict[int, list[float]]()
        fitted: list[tuple[np.ndarray, float, float]] = []
        value_of = {trial.number: value for trial, value in zip(self.trials, self.values, strict=True)}
        for point, key in zip(points, keys, strict=True):
            runs = [trial for trial in self._runs(point) if trial.number not in self.collapsed]
            if not runs:
                continue
            values = values_of[point.number] = [value_of[trial.number] for trial in runs]
            usual = noise.of_one_run(fmean(values))
            squares = _OWN_DEGREES * usual**2 + len(values) * pvariance(values)
            deviation = math.sqrt(squares / (_OWN_DEGREES + len(values) - 1))
            fitted += [(key, value, deviation) for value in values]
        if not fitted or not any(deviation for _, _, deviation in fitted):
            return {}
        rows, values, deviations = zip(*fitted, strict=True)
        spread = _spread(self.quality, self.trials)
        surface = QualityModel(np.array(rows), values, spread, noise=np.array(deviations))
        estimates = {}
        for point, mean, deviation in zip(points, *surface.predict(keys), strict=True):
            if point.number in values_of:
                shown = values_of[point.number]
                stated = min(max(float(mean), min(shown)), max(shown))
                error = noise.widened(math.hypot(float(deviation), stated - float(mean)))
                estimates[point.number] = (sign * stated, sign * float(mean), error)
        return estimates

    def _runs(self, point: Point) -> list[Trial]:
        numbers = {trial.number for trial in self.trials}
        return [trial for trial in point.trials if trial.number in numbers]


def _spread(quality: Objective, trials: Sequence[Trial]) -> float | None:
    """The usual standard deviation of quality between configurations, or None to learn it."""
    return F1_SPREAD if quality.is_share and not any(trial.is_own for trial in trials) else None


def _keys(trials: Sequence[Trial], quality: Objective) -> np.ndarray:
    """What the quality of these trials depends on, as `Space.quality_keys` orders it."""
    types = sorted({trial.parameters.get("instance_type", "") for trial in trials})
    known = np.zeros((len(trials), 4))
    known[:, 0] = [types.index(trial.parameters.get("instance_type", "")) for trial in trials]
    if any(trial.is_own for trial in trials):
        searched = list(dict.fromkeys(factor for trial in trials for factor in trial.point))
        names = quality.factors or [name for name in searched if name not in {"instance_type", "spot"}]
        columns: list[list[object]] = [[trial.value(name) for trial in trials] for name in names]
    else:
        specs = [job_of(trial.parameters) for trial in trials]
        for row, spec in zip(known, specs, strict=True):
            plan = spec.plan()
            row[1:] = math.log2(plan.global_batch_size), math.log(plan.learning_rate), math.log(spec.num_train_epochs)
        kinds = [spec.key_of("quality", but="num_train_epochs") for spec in specs]
        columns = [list(column) for column in zip(*kinds, strict=True)]
    return np.hstack([known, *(_scaled(column) for column in columns if len(set(map(str, column))) > 1)])


def _scaled(values: Sequence[object]) -> np.ndarray:
    """Numbers scaled to 0 to 1, by logarithms over a wide range, shape (N, 1); of texts a column each."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        return CATEGORY * np.array([[str(value) == text for text in sorted(set(map(str, values)))] for value in values])
    column = np.array(numbers, dtype=float)
    if column.min() > 0 and column.max() / column.min() >= RATIO:
        column = np.log(column)
    return np.asarray((column - column.min()) / (column.max() - column.min()))[:, None]


def _unmet(means: Mapping[str, float], constraints: Constraints) -> tuple[str, ...]:
    unmet = []
    for name, limits in constraints.items():
        if name not in means:
            unmet.append(f"{label(name)} was not measured")
            continue
        value = means[name]
        text = f"{label(name)} is {with_error(value)}"
        if "min" in limits and value < limits["min"]:
            unmet.append(f"{text}, below {limits['min']:g}")
        if "max" in limits and value > limits["max"]:
            unmet.append(f"{text}, above {limits['max']:g}")
    return tuple(unmet)
