"""The points of a study: trials that differ only in their seed, merged, with means and standard errors.

The values of a point are more than the means of its own runs. Seconds and dollars are means over all runs on the same
cluster with the same batch, because they do not depend on the learning rate. The quality metric is shrunk towards the
prediction of a model of the whole study: the best of many noisy values is too good (the winner's curse).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from paretune.estimating.noise import Scatter, are_alike
from paretune.ledger.trial_entry import TrialStatus
from paretune.presentation.numbers import with_error
from paretune.specification import metrics
from paretune.studies.definition.objectives import OF_THE_CLUSTER, Constraints
from paretune.studies.definition.quality import F1, Quality
from paretune.studies.results.f1_model import F1Model, Key, NormalPrediction, quality_key, surface
from paretune.studies.results.objective_text import label
from paretune.studies.results.run_noise import RunNoise, pooled_noise
from paretune.studies.results.trials import AS_RUN, Trial, job_of

FEWEST_TO_SHRINK = 6
"""Number of points from which on their quality is shrunk: fewer do not show what it depends on."""
_MOST_TO_SHRINK = 200  # best points that are shrunk; the others keep their means


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A configuration with at least one completed run, merged with its repeats with other seeds.

    Attributes:
        trial: the first of its trials, whose parameters stand for all.
        trials: all of its completed trials.
        means: metric to its estimated mean over seeds; only measured metrics.
        errors: metric to the standard error of that mean.
        margins: metric to half the width of the interval that holds the mean with probability INTERVAL.
        unmet: a sentence for each constraint that the means do not meet.
        rank: 0 on the front, 1 on the front of the other points, and so on; None if a constraint is not met or an
            objective was not measured.
    """

    trial: Trial
    trials: tuple[Trial, ...]
    means: Mapping[str, float]
    errors: Mapping[str, float]
    margins: Mapping[str, float] = field(default_factory=dict)
    unmet: tuple[str, ...] = ()
    rank: int | None = None

    @property
    def number(self) -> int:
        """The number of its first trial, which names the point."""
        return self.trial.number

    @property
    def usd_per_run(self) -> float | None:
        """Mean dollars of one run, or None if the price is unknown."""
        return self.means.get(metrics.COST_USD)

    @property
    def found_at_usd(self) -> float:
        """Dollars that the study had spent when the first of its runs ended."""
        return min(trial.spent_usd for trial in self.trials)

    def mean_of(self, name: str) -> str:
        """A mean with its standard error as text; empty if it was not measured."""
        return with_error(self.means[name], self.errors[name]) if name in self.means else ""

    def setting(self) -> str:
        """The searched parameters and the batch as it ran: learning_rate=5e-05, global_batch_size=128."""
        return self.trial.setting()

    def is_feasible(self, objectives: Iterable[str]) -> bool:
        """Whether every objective was measured and every constraint is met."""
        return not self.unmet and self.means.keys() >= set(objectives)

    def is_like(self, other: "Point", objectives: Iterable[str]) -> bool:
        """Whether the two points are within noise of each other in all of these objectives."""
        return all(
            are_alike(self.means[name], other.means[name], self.errors[name], other.errors[name]) for name in objectives
        )


def merge(
    trials: Sequence[Trial],
    objectives: Iterable[str],
    constraints: Constraints,
    *,
    shrinks: bool = False,
    earlier: Mapping[str, Scatter] | None = None,
    quality: Quality | None = None,
) -> tuple[list[Point], dict[str, RunNoise]]:
    """Points without ranks, in the order of `trials`, and the noise of one run by metric.

    `trials` are sorted by number. Metrics that are no objectives are averaged too. `shrinks` asks for the quality that
    the model of the study predicts, which takes up to a second. `earlier` is the scatter of repeats in earlier studies,
    `quality` the metric that measures models, by default F1.
    """
    merged, noises = each_point(trials, objectives, constraints, earlier=earlier, quality=quality)
    points = list(merged)
    if shrinks:
        qualities = {item.metric: item for item in (F1, quality) if item is not None and item.metric in noises}
        for metric, item in qualities.items():
            points = _shrunk(points, noises[metric], item)
        points = [replace(point, unmet=_unmet(point.means, constraints)) for point in points]
    return points, noises


def each_point(
    trials: Sequence[Trial],
    objectives: Iterable[str],
    constraints: Constraints,
    *,
    earlier: Mapping[str, Scatter] | None = None,
    quality: Quality | None = None,
) -> tuple[Iterator[Point], dict[str, RunNoise]]:
    """The points of `merge` one after the other, not shrunk, without a list of thousands of them."""
    families = _families(trials)
    measured = [name for _, runs in families for trial in runs for name in trial.values]
    names = dict.fromkeys([*objectives, *constraints, metrics.COST_USD, *measured])
    rows = _validation_rows([first for first, _ in families])
    runs_like = _runs_of_equal_seconds(families)
    groups = {id(runs): runs for runs in runs_like.values()}
    noises = {}
    for name in names:
        runs_of_each = groups.values() if name in OF_THE_CLUSTER else [runs for _, runs in families]
        values = [_values(runs, name) for runs in runs_of_each]
        noises[name] = pooled_noise(name, values, rows, (earlier or {}).get(name), quality)
    shared = {key: _cluster_means(runs, noises) for key, runs in groups.items()}
    cluster_means = {number: shared[id(runs)] for number, runs in runs_like.items()}
    return (_point(first, runs, cluster_means[first.number], noises, constraints) for first, runs in families), noises


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
        if first in by_number and not _is_same_job(by_number[first], trial):
            first = trial.number
        families.setdefault(first, []).append(trial)
    return [
        (family[0], runs)
        for family in families.values()
        if (runs := tuple(trial for trial in family if trial.status is TrialStatus.COMPLETED))
    ]


def _is_same_job(trial: Trial, repeat: Trial) -> bool:
    """Whether two jobs have the same batch. Earlier versions repeated a job without its gradient accumulation."""
    if trial.plan is None or repeat.plan is None:
        return True
    return all(trial.value(name) == repeat.value(name) for name in AS_RUN)


def _runs_of_equal_seconds(families: Sequence[tuple[Trial, tuple[Trial, ...]]]) -> dict[int, tuple[Trial, ...]]:
    """Number of each first trial to all runs that take equally long, including its own."""
    groups: dict[object, list[Trial]] = {}
    keys = {first.number: first.seconds_key or first.number for first, _ in families}
    for first, runs in families:
        groups.setdefault(keys[first.number], []).extend(runs)
    tuples = {key: tuple(runs) for key, runs in groups.items()}
    return {number: tuples[key] for number, key in keys.items()}


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
) -> Point:
    means, errors, margins = {}, {}, {}
    for name, noise in noises.items():
        if values := _values(runs, name):
            means[name], count = shared.get(name) or (fmean(values), len(values))
            errors[name] = noise.standard_error(means[name], count)
            margins[name] = noise.margin(errors[name])
    unmet = _unmet(means, constraints)
    return Point(trial=first, trials=runs, means=means, errors=errors, margins=margins, unmet=unmet)


def _shrunk(points: Sequence[Point], noise: RunNoise, quality: Quality) -> list[Point]:
    """The points with the quality that a model of all of them predicts; unchanged if there are too few."""
    name = quality.metric
    measured = [point for point in points if name in point.means]
    best = sorted(measured, key=lambda point: -quality.sign * point.means[name])[:_MOST_TO_SHRINK]
    best = [point for point in best if quality.factors is not None or _quality_key(point.trial)]
    if len(best) < FEWEST_TO_SHRINK:
        return list(points)
    smoothed = _smoothed(best, noise, quality) if quality.factors is not None else _smoothed_f1(best, noise, name)
    predictions = {
        point.number: (float(mean), noise.widened(float(deviation)))
        for point, mean, deviation in zip(best, smoothed.mean, smoothed.deviation, strict=True)
    }
    shrunk = []
    for point in points:
        if point.number in predictions:
            mean, error = predictions[point.number]
            means, errors = {**point.means, name: mean}, {**point.errors, name: error}
            margins = {**point.margins, name: noise.margin(error)}
            point = replace(point, means=means, errors=errors, margins=margins)
        shrunk.append(point)
    return shrunk


def _smoothed_f1(points: Sequence[Point], noise: RunNoise, name: str) -> NormalPrediction:
    """The F1 model's estimates at the points, for paretune's own training."""
    model = F1Model(
        [key for point in points if (key := _quality_key(point.trial)) is not None],
        [point.means[name] for point in points],
        [noise.deviation / len(_values(point.trials, name)) ** 0.5 for point in points],
        noise.degrees,
        [point.trial.parameters.get("instance_type", "") for point in points],
    )
    return model.at_its_values()


def _smoothed(points: Sequence[Point], noise: RunNoise, quality: Quality) -> NormalPrediction:
    """The estimates at the points of a model over the parameters that the quality depends on."""
    name = quality.metric
    searched = list(dict.fromkeys(factor for point in points for factor in point.trial.point))
    factors = quality.factors or searched
    errors = [noise.of_one_run(point.means[name]) / len(_values(point.trials, name)) ** 0.5 for point in points]
    estimates = surface(
        [{factor: point.trial.value(factor) for factor in factors} for point in points],
        [quality.sign * point.means[name] for point in points],
        errors,
        noise.degrees,
    )
    return NormalPrediction(quality.sign * estimates.mean, estimates.deviation)


def _quality_key(trial: Trial) -> Key | None:
    return quality_key(job_of(trial.parameters), trial.plan) if trial.plan is not None else None


def _unmet(means: Mapping[str, float], constraints: Constraints) -> tuple[str, ...]:
    """A sentence for each constraint that the means do not meet."""
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
