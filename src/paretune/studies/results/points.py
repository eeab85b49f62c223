"""The points of a study: trials that differ only in their seed, merged, each with what its job reaches.

What is stated of a point is more than the mean of its own runs. Seconds and dollars are those of all runs on the same
cluster with the same batch, for they do not depend on the learning rate. F1, or what else measures the model, is shrunk
towards what a model of the whole study says of the point: the best of many noisy values is too good by itself (the
winner's curse).
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
"""Points from which on their F1, or what else measures the model, is shrunk: fewer do not show what it depends on."""
_MOST_TO_SHRINK = 200  # of the best points; the others keep their means


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A configuration of which at least one run has completed, its repeats with other seeds merged into it.

    Attributes:
        trial: the first of its trials, whose parameters stand for all.
        trials: all of its trials that have completed.
        means: objective to what its job reaches in the mean over seeds, as far as is known; only what was measured.
        errors: objective to the standard error of that mean.
        margins: objective to half of the interval around that mean which holds it with a probability of INTERVAL.
        unmet: the constraints that the means do not meet, a sentence each.
        rank: 0 on the front, 1 on the front of what is left without it, ...; None where a constraint is not met or an
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
        """Of its first trial; names the point."""
        return self.trial.number

    @property
    def usd_per_run(self) -> float | None:
        """What one run costs in the mean; None where the price is unknown."""
        return self.means.get(metrics.COST_USD)

    @property
    def found_at_usd(self) -> float:
        """Dollars that the study had spent when the first of its runs ended."""
        return min(trial.spent_usd for trial in self.trials)

    def mean_of(self, name: str) -> str:
        """A mean with its standard error as text; empty where it was not measured."""
        return with_error(self.means[name], self.errors[name]) if name in self.means else ""

    def setting(self) -> str:
        """The searched parameters and the batch as it ran: learning_rate=5e-05, global_batch_size=128."""
        return self.trial.setting()

    def is_feasible(self, objectives: Iterable[str]) -> bool:
        """Whether every objective was measured and every constraint is met."""
        return not self.unmet and self.means.keys() >= set(objectives)

    def is_like(self, other: "Point", objectives: Iterable[str]) -> bool:
        """Whether the two cannot be told apart in any of these objectives."""
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
    """Points without their ranks, in the order of `trials`, and the scatter of one run by objective.

    The trials come by number. What was measured and is no objective is averaged too. `shrinks` asks for the quality as
    the model of the study sees it, which takes up to a second. `earlier` is the scatter of repeats in earlier studies.
    `quality` is what measures the models, by default F1.
    """
    found, noises = each_point(trials, objectives, constraints, earlier=earlier, quality=quality)
    points = list(found)
    measures = {item.metric: item for item in (F1, quality) if item is not None and item.metric in noises}
    for stated in measures.values() if shrinks else ():
        points = _shrunk(points, noises[stated.metric], stated)
    return [replace(point, unmet=_unmet(point.means, constraints)) for point in points] if shrinks else points, noises


def each_point(
    trials: Sequence[Trial],
    objectives: Iterable[str],
    constraints: Constraints,
    *,
    earlier: Mapping[str, Scatter] | None = None,
    quality: Quality | None = None,
) -> tuple[Iterator[Point], dict[str, RunNoise]]:
    """As `merge`, nothing shrunk, one point after the other, for who needs no list of thousands of them."""
    families = _families(trials)
    measured = [name for _, runs in families for trial in runs for name in trial.values]
    names = dict.fromkeys([*objectives, *constraints, metrics.COST_USD, *measured])
    rows = _validation_rows([first for first, _ in families])
    alike = _of_equal_seconds(families)
    own, together = [runs for _, runs in families], {id(runs): runs for runs in alike.values()}
    noises = {}
    for name in names:
        values = [_values(runs, name) for runs in (together.values() if name in OF_THE_CLUSTER else own)]
        noises[name] = pooled_noise(name, values, rows, (earlier or {}).get(name), quality)
    shared = {key: _of_the_cluster(runs, noises) for key, runs in together.items()}
    of_cluster = {number: shared[id(runs)] for number, runs in alike.items()}
    return (_point(first, runs, of_cluster[first.number], noises, constraints) for first, runs in families), noises


def value_of(trial: Trial, objective: str) -> float | None:
    """What the trial has measured; its dollars are known even where they are no objective."""
    value = trial.values.get(objective)
    return trial.cost_usd if value is None and objective == metrics.COST_USD else value


def _families(trials: Sequence[Trial]) -> list[tuple[Trial, tuple[Trial, ...]]]:
    """First trials with all completed runs of theirs and of their repeats, where there is one."""
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


def _is_same_job(one: Trial, other: Trial) -> bool:
    """Whether two jobs have the same batch: earlier versions repeated a job without its gradient accumulation."""
    return one.plan is None or other.plan is None or all(one.value(name) == other.value(name) for name in AS_RUN)


def _of_equal_seconds(families: Sequence[tuple[Trial, tuple[Trial, ...]]]) -> dict[int, tuple[Trial, ...]]:
    """Number of each first trial to all runs that take equally long, its own included."""
    together: dict[object, list[Trial]] = {}
    keys = {first.number: first.seconds_key or first.number for first, _ in families}
    for first, runs in families:
        together.setdefault(keys[first.number], []).extend(runs)
    found = {key: tuple(runs) for key, runs in together.items()}
    return {number: found[key] for number, key in keys.items()}


def _values(runs: Sequence[Trial], objective: str) -> list[float]:
    return [value for trial in runs if (value := value_of(trial, objective)) is not None]


def _validation_rows(trials: Sequence[Trial]) -> int | None:
    """Rows that all were judged on, where the parameters say it: max_eval_samples, or a ninth of max_train_samples."""
    found = set()
    for trial in trials:
        texts = [trial.parameters.get(name, "").strip() for name in ("max_eval_samples", "max_train_samples")]
        text = texts[0] or texts[1]
        found.add(int(text) // (1 if texts[0] else 9) if text.isdigit() else None)
    return found.pop() or None if len(found) == 1 else None


def _of_the_cluster(runs: Sequence[Trial], names: Iterable[str]) -> dict[str, tuple[float, int]]:
    """Mean and number of values of what follows from the cluster, over all runs that take equally long."""
    values = {name: _values(runs, name) for name in names if name in OF_THE_CLUSTER}
    return {name: (fmean(found), len(found)) for name, found in values.items() if found}


def _point(
    first: Trial,
    runs: tuple[Trial, ...],
    shared: Mapping[str, tuple[float, int]],
    noises: Mapping[str, RunNoise],
    constraints: Constraints,
) -> Point:
    """`shared` is what `_of_the_cluster` says of all runs that take equally long."""
    means, errors, margins = {}, {}, {}
    for name, noise in noises.items():
        if values := _values(runs, name):
            means[name], count = shared.get(name) or (fmean(values), len(values))
            errors[name] = noise.standard_error(means[name], count)
            margins[name] = noise.margin(errors[name])
    unmet = _unmet(means, constraints)
    return Point(trial=first, trials=runs, means=means, errors=errors, margins=margins, unmet=unmet)


def _shrunk(points: Sequence[Point], noise: RunNoise, quality: Quality) -> list[Point]:
    """With the quality as a model of all points has it, their own runs included; as they are where they are too few."""
    name = quality.metric
    told = sorted((point for point in points if name in point.means), key=lambda one: -quality.sign * one.means[name])
    used = [point for point in told[:_MOST_TO_SHRINK] if quality.factors is not None or _quality_key(point.trial)]
    if len(used) < FEWEST_TO_SHRINK:
        return list(points)
    found = _modelled(used, noise, quality) if quality.factors is not None else _along_the_ridge(used, noise, name)
    stated = {
        point.number: (float(mean), noise.widened(float(deviation)))
        for point, mean, deviation in zip(used, found.mean, found.deviation, strict=True)
    }
    return [_with(point, name, *stated[point.number], noise) if point.number in stated else point for point in points]


def _along_the_ridge(points: Sequence[Point], noise: RunNoise, name: str) -> NormalPrediction:
    """What the F1 model has at each point, for paretune's own training."""
    model = F1Model(
        [key for point in points if (key := _quality_key(point.trial)) is not None],
        [point.means[name] for point in points],
        [noise.deviation / len(_values(point.trials, name)) ** 0.5 for point in points],
        noise.degrees,
        [point.trial.parameters.get("instance_type", "") for point in points],
    )
    return model.at_its_values()


def _modelled(points: Sequence[Point], noise: RunNoise, quality: Quality) -> NormalPrediction:
    """What a model over the parameters that the quality depends on has at each point."""
    name = quality.metric
    searched = list(dict.fromkeys(factor for point in points for factor in point.trial.point))
    factors = quality.factors or searched
    errors = [noise.of_one_run(point.means[name]) / len(_values(point.trials, name)) ** 0.5 for point in points]
    found = surface(
        [{factor: point.trial.value(factor) for factor in factors} for point in points],
        [quality.sign * point.means[name] for point in points],
        errors,
        noise.degrees,
    )
    return NormalPrediction(quality.sign * found.mean, found.deviation)


def _with(point: Point, name: str, mean: float, error: float, noise: RunNoise) -> Point:
    return replace(
        point,
        means={**point.means, name: mean},
        errors={**point.errors, name: error},
        margins={**point.margins, name: noise.margin(error)},
    )


def _quality_key(trial: Trial) -> Key | None:
    """What its F1 depends on; None where its parameters make no job."""
    return quality_key(job_of(trial.parameters), trial.plan) if trial.plan is not None else None


def _unmet(means: Mapping[str, float], constraints: Constraints) -> tuple[str, ...]:
    """The constraints that the means do not meet, a sentence each."""
    unmet = []
    for name, limits in constraints.items():
        if name not in means:
            unmet.append(f"{label(name)} was not measured")
            continue
        value = means[name]
        said = f"{label(name)} is {with_error(value)}"
        if "min" in limits and value < limits["min"]:
            unmet.append(f"{said}, below {limits['min']:g}")
        if "max" in limits and value > limits["max"]:
            unmet.append(f"{said}, above {limits['max']:g}")
    return tuple(unmet)
