"""The front of a study: trials that differ only in their seed are merged into configurations, which get Pareto ranks.

For each metric, a configuration has one number: the mean of its runs. Ranks compare these means exactly: every
configuration that is not on the front is beaten by one that is, and the configuration with the best mean is always on
it. The noise of a metric (`noise.py`) says how uncertain a mean is, and changes no rank. The best of many noisy values
is best partly by luck, so configurations of the front are run again with other seeds.

- Seconds and dollars of paretune's own training do not depend on the learning rate, so they are means over all runs on
  the same cluster with the same batch.
- Quality is the mean of the runs that did not collapse. A run that collapsed (for example, is no better than always
  predicting the majority class) only raises the probability of a collapse.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from statistics import fmean, median, stdev

import moocore
import numpy as np

from paretune.core import pareto
from paretune.core.noise import TELLING_ERRORS, Scatter, are_alike
from paretune.presentation.text import time_unit, to_error, with_error
from paretune.specification import metrics
from paretune.studies.definition.objectives import OBJECTIVES, Constraints, Objective, costs, judged_by, violations
from paretune.studies.results.noise import RunNoise, noise_of_cluster, noise_of_quality, noise_of_repeats
from paretune.studies.results.trials import AS_RUN, FOREIGN, Trial, label
from paretune.studies.sampler.process import Axes, Axis, Points
from paretune.studies.sampler.quality import F1_SPREAD, QualityModel, quality_axes, quality_points, quality_settings
from paretune.studies.trial_status import TrialStatus

FEWEST_EQUAL = 2  # number of repeats with exactly the same quality after which training counts as deterministic
_CONSTANT = {metrics.F1: metrics.BASELINE_MAJORITY}
"""Quality metric to the metric that records its value for a model that predicts the majority class for every row."""
_MOST_JUDGED = 120  # only this many of the best configurations are checked for collapses


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """A configuration with all of its completed trials (at least one), which differ only in the seed."""

    trial: Trial  # the first of its trials, which represents the others
    trials: tuple[Trial, ...]  # all of its completed trials; those that collapsed come last
    means: Mapping[str, float]  # measured metric to its estimated mean over seeds
    errors: Mapping[str, float]
    """Metric to the standard error of that mean. Metrics whose error is unknown are absent: the error of seconds and
    dollars is known after two runs of this configuration, although the means include other jobs on the same cluster."""
    counts: Mapping[str, int] = field(default_factory=dict)  # metric to the number of runs behind that mean
    collapses: int = 0  # number of its runs that collapsed; quality is the mean of the other runs, if any
    collapse_probability: float | None = None  # probability that another run collapses; None if not estimated
    unmet: tuple[tuple[str, str], ...] = ()  # metric and end (min or max) of each constraint that the means violate
    rank: int | None = None
    """0 on the front, 1 on the front of the remaining configurations, and so on; None if a constraint is violated or an
    objective was not measured."""
    beaten_by: int | None = None
    """The number of a configuration of the front that beats it; None on the front and without a rank."""

    @property
    def number(self) -> int:
        """The number of its first trial, which identifies the configuration."""
        return self.trial.number

    @property
    def trained(self) -> int:
        """The number of its runs that did not collapse."""
        return len(self.trials) - self.collapses


def merge(
    trials: Sequence[Trial],
    objectives: Iterable[str],
    constraints: Constraints,
    quality: Objective | None = None,
    axes: Mapping[str, Axis] | None = None,
) -> tuple[list[Configuration], dict[str, RunNoise]]:
    """Merge trials into configurations without ranks, and estimate the noise of one run in each metric.

    This takes up to a second. `trials` must be sorted by number. Metrics that are not objectives are also averaged.
    `quality` is the metric that judges models, F1 by default. `axes` are the searched parameters; without them, they
    follow from the trials. Metrics whose noise is unknown are absent from the noises.
    """
    families, judged = _families(trials), quality or OBJECTIVES[metrics.F1]
    judged_runs, collapsed, model = _judged_runs(families, judged), set[int](), None
    if judged_runs:
        model = _model_of(judged_runs, judged, axes)
        collapsed = {trial.number for trial in compress(judged_runs, model.collapsed)}
    recorded = [name for runs in families for trial in runs for name in trial.values]
    # The number of validation rows, if the parameters of all trials agree on it.
    counts = {each.spec.max_eval_samples or (each.spec.max_train_samples or 0) // 9 for each, *_ in families}
    rows, fewest = next(iter(counts)) or None if len(counts) == 1 else None, _fewest_equal(families)
    noises, values_of = dict[str, RunNoise](), [dict[str, list[float]]() for _ in families]
    for name in dict.fromkeys([*objectives, *constraints, metrics.COST_USD, *recorded]):
        # Each group has the values of runs that differ in nothing that affects this metric.
        groups, keys = defaultdict[object, list[float]](list), [_keys_of(runs, name) for runs in families]
        for runs, of_runs in zip(families, keys, strict=True):
            for trial, key in zip(runs, of_runs, strict=True):
                groups[key] += _values([trial], name, without=collapsed if name == judged.metric else ())
        noise, scatter = noise_of_repeats([*groups.values()]), Scatter.of([*groups.values()])
        if name in metrics.OF_THE_CLUSTER:
            noise = noise_of_cluster([*groups.values()])
        elif scatter.degrees >= fewest and not scatter.squares:  # the metric does not depend on the seed
            noise = RunNoise(deviation=0.0, degrees=scatter.degrees)
        elif name == judged.metric and model is not None:
            noise = noise_of_quality([*groups.values()], model.residue, judged, rows)
        if noise is not None:
            noises[name] = noise
        for of_runs, runs, values in zip(keys, families, values_of, strict=True):
            if of_point := _values(runs, name):
                values[name] = [value for key in dict.fromkeys(of_runs) for value in groups[key]] or of_point
    points = []
    for runs, values in zip(families, values_of, strict=True):
        errors = {name: _error_of(name, numbers, noises.get(name), len(runs)) for name, numbers in values.items()}
        points.append(
            Configuration(
                trial=runs[0],
                trials=tuple(runs),
                means={name: fmean(numbers) for name, numbers in values.items()},
                errors={name: error for name, error in errors.items() if error is not None},
                counts={name: len(numbers) for name, numbers in values.items()},
            )
        )
    if model is not None:
        points = _with_collapses(points, judged_runs, model, judged, is_noisy=noises[judged.metric].deviation > 0)
    return [replace(point, unmet=_unmet(point.means, constraints)) for point in points], noises


def _keys_of(runs: Sequence[Trial], name: str) -> list[object]:
    """Return a key for each run of a configuration: runs with equal keys differ in nothing that affects a metric."""
    first, *_ = runs
    if name not in metrics.OF_THE_CLUSTER:
        return [first.number] * len(runs)
    return [(first.seconds_key or first.number, trial.ran_on) for trial in runs]


def value_of(trial: Trial, objective: str) -> float | None:
    """Return the trial's value of an objective, or None. Dollars that are not an objective are the trial's cost."""
    value = trial.values.get(objective)
    return trial.cost_usd if value is None and objective == metrics.COST_USD else value


def _families(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Return the completed trials, grouped by jobs that differ only in the seed."""
    families = defaultdict[object, list[Trial]](list)
    for trial in trials:
        if trial.status is TrialStatus.COMPLETED:
            families[trial.number if trial.given == FOREIGN else trial.spec.spec_hash(but=["seed"])].append(trial)
    return list(families.values())


def _fewest_equal(families: Iterable[Sequence[Trial]]) -> float:
    """Return how many repeats with the same quality show that training is deterministic.

    That is one for a script without a seed, else two. If repeats differ in any metric of their models, training is not
    deterministic, so return infinity: on few rows, F1 is often the same by chance.
    """
    repeated = [runs for runs in families if len(runs) > 1]
    if any(trial.qualities != runs[0].qualities for runs in repeated for trial in runs):
        return math.inf
    return FEWEST_EQUAL if not repeated or repeated[0][0].takes_seed else 1


def _values(runs: Sequence[Trial], objective: str, without: Collection[int] = ()) -> list[float]:
    values = [value_of(trial, objective) for trial in runs if trial.number not in without]
    return [value for value in values if value is not None]


def _error_of(metric: str, values: Sequence[float], noise: RunNoise | None, runs: int) -> float | None:
    """Return the standard error of the mean of a configuration with this many runs, or None if it is unknown.

    If the seconds or dollars in `values` vary much more than the noise of all runs, for example because another program
    kept the machine busy, the error is based on their own deviation.
    """
    mean, count = fmean(values), len(values)
    if noise is None:
        return None
    if metric in metrics.OF_THE_CLUSTER:
        if min(runs, count) < 2:
            return None
        deviation = stdev(values)
        if deviation > TELLING_ERRORS * noise.of_one_run(mean):
            return noise.widened(deviation / math.sqrt(count))
    return noise.standard_error(mean, count)


def _judged_runs(families: Iterable[Sequence[Trial]], quality: Objective) -> list[Trial]:
    """Return the trials of the `_MOST_JUDGED` best configurations that measured the quality, best first."""
    of_points = [[trial for trial in runs if quality.metric in trial.values] for runs in families]
    best_first = sorted(
        filter(None, of_points), key=lambda runs: -max(quality.sign * trial.values[quality.metric] for trial in runs)
    )
    return [trial for runs in best_first[:_MOST_JUDGED] for trial in runs]


def _model_of(runs: Sequence[Trial], quality: Objective, axes: Mapping[str, Axis] | None) -> QualityModel:
    """Return a model of quality that is fitted to these runs and identifies those that collapsed."""
    values = [quality.sign * trial.values[quality.metric] for trial in runs]
    constant = [trial.measured.get(_CONSTANT.get(quality.metric, ""), -math.inf) for trial in runs]
    lost = np.array(values) <= np.array(constant)
    return QualityModel(*model_inputs(runs, axes), values, _spread(runs, quality), collapsed=lost)


def model_inputs(trials: Sequence[Trial], axes: Mapping[str, Axis] | None = None) -> tuple[Axes, Points]:
    """Return what the quality of trials depends on, and the trials as inputs of its model, both as in the search.

    `axes` has the searched parameters. Without them, or if a trial lacks one of them, they follow from the trials.
    """
    if axes is None or not all(axes.keys() <= trial.point.keys() for trial in trials):
        names = dict.fromkeys(name for trial in trials for name in trial.point)
        axes = {name: Axis(list({trial.point.get(name): None for trial in trials})) for name in names}
    points = [{name: trial.point.get(name) for name in axes} for trial in trials]
    of_quality = quality_axes(axes, runs_user_code=any(trial.spec.runs_user_code for trial in trials))
    settings = [quality_settings(trial.spec, trial.plan, each) for trial, each in zip(trials, points, strict=True)]
    return of_quality, quality_points(of_quality, settings)


def _spread(runs: Sequence[Trial], quality: Objective) -> float | None:
    """Return the prior spread of quality between configurations, or None to learn it from the runs."""
    return F1_SPREAD if quality.is_share and not any(trial.spec.runs_user_code for trial in runs) else None


def _with_collapses(
    points: Sequence[Configuration],
    runs: Sequence[Trial],
    model: QualityModel,
    quality: Objective,
    *,
    is_noisy: bool,
) -> list[Configuration]:
    """Return the configurations with their collapses counted, and the probability that another run collapses.

    `model.collapsed` marks the `runs` that collapsed. They come last among the trials of their configuration.
    """
    index_of = {trial.number: index for index, trial in enumerate(runs)}
    judged = [(p, at) for p in points if (at := [index_of[t.number] for t in p.trials if t.number in index_of])]
    of_points = model.runs.at(np.array([at[0] for _, at in judged]))
    may_collapse = is_noisy and (model.collapsed.any() or _spread(runs, quality) is not None)
    chances, changed = model.collapse_probability(of_points), dict[int, Configuration]()
    for (point, at), chance in zip(judged, chances, strict=True):
        lost = [runs[index] for index in at if model.collapsed[index]]
        ordered = (*(trial for trial in point.trials if trial not in lost), *lost)
        probability = round(float(chance), 4) if lost or may_collapse else 0.0
        point = replace(point, trials=ordered, collapses=len(lost), collapse_probability=probability)
        changed[point.number] = point
    return [changed.get(point.number, point) for point in points]


def _unmet(means: Mapping[str, float], constraints: Constraints) -> tuple[tuple[str, str], ...]:
    missed = [key.rsplit(" ", 1) for key, amount in violations(means, constraints).items() if amount > 0]
    return tuple((name, end) for name, end in missed)


@dataclass(frozen=True, kw_only=True)
class StudyFront:
    """The configurations of a study with their ranks, and their values as pages and tables show them."""

    objectives: Mapping[str, str]
    constraints: Constraints
    trials: tuple[Trial, ...]  # all trials, in order of number
    points: tuple[Configuration, ...]  # configurations with a completed run, in order of number
    noises: Mapping[str, RunNoise]  # metric to the noise of one run; absent if unknown
    predicted: tuple[Trial, ...] = ()  # predicted trials that no configuration and no other predicted trial beats
    judged_by: Objective | None = None  # metric that judges models; None in a study of only seconds and dollars
    is_floor: bool = False  # whether quality appears only in a constraint, so any model that meets it is good enough

    @classmethod
    def of(
        cls,
        trials: Sequence[Trial],
        objectives: Mapping[str, str],
        constraints: Constraints,
        *,
        predicted: Sequence[Trial] = (),
        quality: Objective | None = None,
        is_floor: bool = False,
        axes: Mapping[str, Axis] | None = None,
    ) -> "StudyFront":
        """Return the front of these trials, and the `predicted` trials that nothing beats.

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
            predicted=_unbeaten(ranked, predicted, objectives, constraints),
            judged_by=quality,
            is_floor=is_floor,
        )

    def unmet(self, point: Configuration) -> list[str]:
        """Return a sentence for each constraint that the means of a configuration violate."""
        sentences = []
        for name, end in point.unmet:
            if name not in point.means:
                sentences.append(f"{label(name)} was not measured or is not finite")
                continue
            side, bound = {"min": "below", "max": "above"}[end], self.text(name, self.constraints[name][end], 0.0)
            sentences.append(f"{label(name)} is {self.text(name, point.means[name])}, {side} {bound}")
        return sentences

    def bounds(self, name: str) -> list[str]:
        """Return the bounds that the constraints set for a metric, in words such as "F1 at least 0.9"."""
        words = {"min": "least", "max": "most"}
        ends = self.constraints.get(name, {}).items()
        return [f"{label(name)} at {words[end]} {self.text(name, bound, 0.0)}" for end, bound in ends]

    @cached_property
    def feasible(self) -> list[Configuration]:
        """Configurations with a rank: every objective is measured and every constraint is met."""
        return [point for point in self.points if point.rank is not None]

    @cached_property
    def best(self) -> list[Configuration]:
        """Configurations on the front over all objectives."""
        return [point for point in self.points if point.rank == 0]

    @cached_property
    def shown(self) -> list[str]:
        """The parameters that a table shows: those that any trial varied, and the batch as it ran."""
        as_run = () if self.is_foreign else AS_RUN
        return list(dict.fromkeys([*(name for trial in self.trials for name in trial.point), *as_run]))

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

    def unit(self, name: str) -> tuple[float, str]:
        """Return the divisor and the unit that a metric is shown with. All times of a study share one unit."""
        unit = OBJECTIVES[name].unit if name in OBJECTIVES else ""
        return self._time_unit if unit == "s" else self._money_unit if unit == "USD" else (1.0, unit)

    @cached_property
    def _money_unit(self) -> tuple[float, str]:
        """The divisor and unit of dollars. If jobs usually cost less than a cent, it is dollars per thousand jobs."""
        usd = [trial.values[metrics.COST_USD] for trial in self.trials if metrics.COST_USD in trial.values]
        return (0.001, "USD per 1,000 jobs") if usd and median(usd) < 0.01 else (1.0, "USD")

    @cached_property
    def _time_unit(self) -> tuple[float, str]:
        seconds = [[trial.values[name] for trial in self.trials if name in trial.values] for name in metrics.TIMES]
        return time_unit(median(next(filter(None, seconds), [1.0])))

    def heading(self, name: str) -> str:
        """Return the name and unit of a quantity, such as job time (h)."""
        unit = self.unit(name)[1]
        return f"{label(name)} ({unit})" if unit else label(name)

    def number(self, name: str, value: float, error: float | None = None) -> str:
        """Format a value in its unit: with its error if given (2.310 ± 0.032), else rounded to the noise of one run."""
        size = self.unit(name)[0]
        if error is None and name in self.noises:
            return to_error(value / size, self.noises[name].of_one_run(value) / size)
        return with_error(value / size, None if error is None else error / size)

    def text(self, name: str, value: float, error: float | None = None) -> str:
        """Format a value like `number`, with its unit."""
        return f"{self.number(name, value, error)} {self.unit(name)[1]}".strip()

    def stated(self, point: Configuration, name: str) -> str:
        """Return a configuration's mean with its unit and, if known, its standard error."""
        return self.text(name, point.means[name], point.errors.get(name))

    def figures(self, point: Configuration) -> dict[str, str]:
        """Return the objectives and the cost by name, each as text with its unit and its standard error if known."""
        return {label(name): self.stated(point, name) for name in self._stated_names(point)}

    def in_words(self, point: Configuration) -> str:
        """Return `figures` in one string."""
        return "; ".join(f"{name} {value}" for name, value in self.figures(point).items())

    def interval(self, point: Configuration, name: str) -> tuple[float, float] | None:
        """Return the ends of the interval (probability `noise.INTERVAL`) around a mean; None if its error is unknown.

        The ends stay within the values that the metric can have.
        """
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

    def _stated_names(self, point: Configuration) -> list[str]:
        return [name for name in dict.fromkeys([*self.objectives, metrics.COST_USD]) if name in point.means]

    def best_in_pair(self, pair: Sequence[str]) -> list[Configuration]:
        """Return the configurations on the front that no other one beats in these objectives alone."""
        goal = {name: self.objectives[name] for name in pair}
        is_best = pareto.front([costs(point.means, goal) for point in self.best], [False] * len(goal))
        return list(compress(self.best, is_best))

    def cost_of(self, point: Configuration) -> tuple[float, ...]:
        """Return a key that sorts the cheapest first: by dollars, then by the objectives.

        If the dollars of any feasible configuration are unknown, only the objectives count, minimized ones first.
        """
        if all(metrics.COST_USD in each.means for each in self.feasible):
            return (point.means[metrics.COST_USD], *costs(point.means, self.objectives))
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


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Return the exact volume that N points in M minimized objectives dominate, up to the reference; 0 if N is 0."""
    return float(moocore.hypervolume(points, ref=reference)) if len(points) else 0.0


def is_feasible(trial: Trial, objectives: Mapping[str, str], constraints: Constraints) -> bool:
    """Return whether the trial has a value of every objective and meets every constraint."""
    is_met = all(amount <= 0 for amount in violations(trial.values, constraints).values())
    return is_met and set(objectives) <= set(trial.values)


def _unbeaten(
    points: Sequence[Configuration], predicted: Sequence[Trial], objectives: Mapping[str, str], constraints: Constraints
) -> tuple[Trial, ...]:
    """Return the predicted trials that meet the constraints and that nothing predicted or measured dominates."""
    feasible = [trial for trial in predicted if is_feasible(trial, objectives, constraints)]
    values = [costs(point.means, objectives) for point in points]
    values += [costs(trial.values, objectives) for trial in feasible]
    is_best = pareto.front(values, [False] * len(objectives))[len(points) :]
    return tuple(sorted(compress(feasible, is_best), key=lambda trial: costs(trial.values, objectives)))


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
