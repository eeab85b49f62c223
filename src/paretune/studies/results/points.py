"""The points of a study: trials that differ only in their seed, merged, each with its means and their errors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from paretune.spec import metrics
from paretune.studies.definition.objectives import Constraints
from paretune.studies.results.noise import Noise, are_alike, pooled
from paretune.studies.results.quantities import label, with_error
from paretune.studies.results.trials import Trial, TrialStatus


@dataclass(frozen=True, kw_only=True)
class Point:
    """A configuration of which at least one run has completed, its repeats with other seeds merged into it.

    Attributes:
        trial: the first of its trials, whose parameters stand for all.
        trials: all of its trials that have completed.
        means: objective to the mean over these runs; only what was measured.
        errors: objective to the standard error of that mean.
        unmet: the constraints that the means do not meet, a sentence each.
        rank: 0 on the front, 1 on the front of what is left without it, ...; None where a constraint is not met or an
            objective was not measured.
    """

    trial: Trial
    trials: tuple[Trial, ...]
    means: Mapping[str, float]
    errors: Mapping[str, float]
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
        """The searched parameters, floats to four digits: instance_type=ml.g5.xlarge, learning_rate=5e-05."""
        return ", ".join(f"{name}={self.trial.shown(name)}" for name in self.trial.point)

    def is_like(self, other: "Point", objectives: Iterable[str]) -> bool:
        """Whether the two cannot be told apart in any of these objectives."""
        return all(
            are_alike(self.means[name], other.means[name], self.errors[name], other.errors[name]) for name in objectives
        )


def merge(
    trials: Sequence[Trial], objectives: Iterable[str], constraints: Constraints
) -> tuple[list[Point], dict[str, Noise]]:
    """Points without their ranks, in the order of `trials`, and the scatter of one run by objective.

    The trials come by number. What was measured and is no objective is averaged too.
    """
    families = _families(trials)
    measured = [name for _, runs in families for trial in runs for name in trial.values]
    names = dict.fromkeys([*objectives, *constraints, metrics.COST_USD, *measured])
    rows = _validation_rows([first for first, _ in families])
    noises = {name: pooled(name, [_values(runs, name) for _, runs in families], rows) for name in names}
    return [_point(first, runs, noises, constraints) for first, runs in families], noises


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
        families.setdefault(first, []).append(trial)
    return [
        (family[0], runs)
        for family in families.values()
        if (runs := tuple(trial for trial in family if trial.status is TrialStatus.COMPLETED))
    ]


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


def _point(first: Trial, runs: tuple[Trial, ...], noises: Mapping[str, Noise], constraints: Constraints) -> Point:
    means, errors = {}, {}
    for name, noise in noises.items():
        if values := _values(runs, name):
            means[name] = fmean(values)
            errors[name] = noise.standard_error(means[name], len(values))
    unmet = []
    for name, limits in constraints.items():
        if name not in means:
            unmet.append(f"{label(name)} was not measured")
            continue
        said = f"{label(name)} is {with_error(means[name])}"
        if "min" in limits and means[name] < limits["min"]:
            unmet.append(f"{said}, below {limits['min']:g}")
        if "max" in limits and means[name] > limits["max"]:
            unmet.append(f"{said}, above {limits['max']:g}")
    return Point(trial=first, trials=runs, means=means, errors=errors, unmet=tuple(unmet))
