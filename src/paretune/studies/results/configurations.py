"""The configurations of a study: its completed trials, merged if they differ only in the seed, with means and errors.

For each metric, a configuration has one number: the mean of its runs. The noise of a metric (`noise.py`) says how
uncertain a mean is. The best of many noisy values is best partly by luck, so configurations of the front are run again
with other seeds.

- Seconds and dollars of paretune's own training do not depend on the learning rate, so they are means over all runs on
  the same cluster with the same batch.
- Quality is the mean of the runs that did not collapse. A run that collapsed (for example, is no better than always
  predicting the majority class) only raises the probability of a collapse.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from statistics import fmean, stdev

import numpy as np

from paretune.core.noise import TELLING_ERRORS, Scatter
from paretune.specification import metrics
from paretune.studies.definition.objectives import OBJECTIVES, Constraints, Objective, violations
from paretune.studies.results.noise import RunNoise, noise_of_cluster, noise_of_quality, noise_of_repeats
from paretune.studies.results.trials import FOREIGN, Trial
from paretune.studies.sampler.process import Axes, Axis, Points
from paretune.studies.sampler.quality import F1_SPREAD, QualityModel, quality_axes, quality_points, quality_settings
from paretune.studies.trial_status import PROBED, TRAINED, TrialStatus

FEWEST_EQUAL = 2  # number of repeats with exactly the same quality after which training counts as deterministic
_CONSTANT = {metrics.F1: metrics.BASELINE_MAJORITY}
"""Quality metric to the metric that records its value for a model that predicts the majority class for every row."""
_MOST_JUDGED = 120  # only this many of the best configurations are checked for collapses


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """A configuration with all of its completed trials, which differ only in the seed; none if it was not trained."""

    trial: Trial  # the first of its trials, which represents the others
    trials: tuple[Trial, ...]  # all of its completed trials; those that collapsed come last
    means: Mapping[str, float]  # metric to its estimated mean over seeds, or to what is expected without a training
    errors: Mapping[str, float]
    """Metric to the standard error of that mean. Metrics whose error is unknown are absent: the error of seconds and
    dollars is known after two runs of this configuration, although the means include other jobs on the same cluster."""
    evidence: str = TRAINED  # what it is known from: ESTIMATED, PROBED or TRAINED
    believed: float | None = None
    """Quality as all runs together suggest it, those of other configurations too; None if no model of quality exists.
    Without a training of its own, it is a cautious value: lower than expected the less is known. Before any training,
    it is relative to that of the usual settings."""
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

    @property
    def is_expected(self) -> bool:
        """Whether it was not trained, so its means are what is believed of it."""
        return self.evidence != TRAINED


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
                evidence=PROBED if runs[0].is_probe else TRAINED,
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
    """Return the configurations with what is believed of them, their collapses, and the probability of another one.

    `model.collapsed` marks the `runs` that collapsed. They come last among the trials of their configuration.
    """
    index_of = {trial.number: index for index, trial in enumerate(runs)}
    judged = [(p, at) for p in points if (at := [index_of[t.number] for t in p.trials if t.number in index_of])]
    of_points = model.runs.at(np.array([at[0] for _, at in judged]))
    believed, _ = model.predict(of_points)
    may_collapse = is_noisy and (model.collapsed.any() or _spread(runs, quality) is not None)
    chances, changed = model.collapse_probability(of_points), dict[int, Configuration]()
    for (point, at), chance, quality_of in zip(judged, chances, believed, strict=True):
        lost = [runs[index] for index in at if model.collapsed[index]]
        ordered = (*(trial for trial in point.trials if trial not in lost), *lost)
        probability = round(float(chance), 4) if lost or may_collapse else 0.0
        point = replace(point, trials=ordered, collapses=len(lost), collapse_probability=probability)
        if point.trained:  # the model knows nothing of a configuration whose runs have all collapsed
            point = replace(point, believed=quality.sign * float(f"{quality_of:.9g}"))
        changed[point.number] = point
    return [changed.get(point.number, point) for point in points]


def _unmet(means: Mapping[str, float], constraints: Constraints) -> tuple[tuple[str, str], ...]:
    missed = [key.rsplit(" ", 1) for key, amount in violations(means, constraints).items() if amount > 0]
    return tuple((name, end) for name, end in missed)
