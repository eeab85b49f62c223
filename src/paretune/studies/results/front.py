"""The front of a study: its points with Pareto ranks, and which of them cannot be told apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from statistics import median

import moocore
import numpy as np

from paretune.core import pareto
from paretune.estimating.noise import TELLING_ERRORS
from paretune.presentation.text import to_error, with_error
from paretune.specification import metrics
from paretune.studies.definition.objectives import OBJECTIVES, Constraints, Objective, costs, judged_by, violations
from paretune.studies.results.configurations import Configuration, RunNoise, merge
from paretune.studies.results.trials import AS_RUN, FOREIGN, Trial, label

MARGIN = 0.1  # share of each objective's range, else of its size, by which the reference point lies beyond the front
CREDIBLE_ERRORS = 1.0  # standard errors of a difference above which an advantage may keep a point on the front


@dataclass(frozen=True, kw_only=True)
class StudyFront:
    """All points of a study and what follows from them."""

    objectives: Mapping[str, str]
    constraints: Constraints
    trials: tuple[Trial, ...]  # all trials, by number
    points: tuple[Configuration, ...]  # points with a completed run, by number
    noises: Mapping[str, RunNoise]  # metric to the noise of one run
    predicted: tuple[Trial, ...] = ()  # predicted points that no point, run or predicted, beats
    judged_by: Objective | None = None  # metric of models; None if a study has only seconds and dollars

    @classmethod
    def of(
        cls,
        trials: Sequence[Trial],
        objectives: Mapping[str, str],
        constraints: Constraints,
        *,
        predicted: Sequence[Trial] = (),
        quality: Objective | None = None,
    ) -> "StudyFront":
        """The front of these trials; of the `predicted` points the best stay.

        `quality` is by default the best known quality metric among the objectives.
        """
        ordered = tuple(sorted(trials, key=lambda trial: trial.number))
        quality = quality or judged_by(objectives)
        points, noises = merge(ordered, objectives, constraints, quality)
        ranked = [point for point in points if point.is_feasible(objectives)]
        rank_of = dict(zip((point.number for point in ranked), ranks(ranked, objectives), strict=True))
        return cls(
            objectives=dict(objectives),
            constraints=constraints,
            trials=ordered,
            points=tuple(replace(point, rank=rank_of.get(point.number)) for point in points),
            noises=noises,
            predicted=_unbeaten(ranked, predicted, objectives, constraints),
            judged_by=quality,
        )

    @cached_property
    def feasible(self) -> list[Configuration]:
        """Points with a rank: every objective is measured and every constraint met."""
        return [point for point in self.points if point.rank is not None]

    @cached_property
    def best(self) -> list[Configuration]:
        """Points on the front over all objectives."""
        return [point for point in self.points if point.rank == 0]

    @cached_property
    def shown(self) -> list[str]:
        """The parameters that a table shows: all that any trial has varied, and the batch as it ran."""
        return list(dict.fromkeys([*(name for trial in self.trials for name in trial.point), *AS_RUN]))

    @property
    def quality(self) -> str | None:
        """The objective that measures the model, such as F1 or the user's own metric, or None."""
        return None if self.judged_by is None else self.judged_by.metric

    @property
    def is_foreign(self) -> bool:
        """Whether its trials were run by others than paretune, who knows nothing of their jobs and dollars."""
        return any(trial.given == FOREIGN for trial in self.trials)

    @property
    def is_simulated(self) -> bool:
        """Whether any trial is simulated."""
        return any(trial.origin == "simulated" for trial in self.trials)

    @cached_property
    def main_pair(self) -> tuple[str, str] | None:
        """The pair that shows the trade-off: the objective that spreads most along its front with quality, and quality.

        Dollars come first among equals. Without quality, dollars and the next objective; None with one objective.
        """

        def spread(pair: tuple[str, str]) -> float:
            values = [point.means[pair[0]] for point in self.best_in_pair(pair)]
            return round(max(values) / min(values), 1) if values and min(values) > 0 else 1.0

        names = sorted(self.objectives, key=lambda name: (name == self.quality, name != metrics.COST_USD))
        pairs = [(name, self.quality or names[1]) for name in names[:-1]]
        return max(pairs, key=spread if self.quality else lambda _: 0.0, default=None)

    @property
    def spent_usd(self) -> float:
        """Dollars booked by the study."""
        return sum(trial.cost_usd or 0.0 for trial in self.trials)

    def rank(self, trial: Trial) -> int | None:
        """The rank of a trial's point, or None."""
        point = self.point_of.get(trial.number)
        return None if point is None else point.rank

    @cached_property
    def point_of(self) -> dict[int, Configuration]:
        """The number of each completed trial to its point."""
        return {trial.number: point for point in self.points for trial in point.trials}

    def unit(self, name: str) -> tuple[float, str]:
        """The divisor with which a value is stated, and its unit: all times of a study have the same."""
        unit = OBJECTIVES[name].unit if name in OBJECTIVES else ""
        return self._time_unit if unit == "s" else self._money_unit if unit == "USD" else (1.0, unit)

    @cached_property
    def _money_unit(self) -> tuple[float, str]:
        """Notional dollars of a small job are stated for a thousand of them."""
        usd = [trial.values[metrics.COST_USD] for trial in self.trials if metrics.COST_USD in trial.values]
        return (0.001, "USD per 1,000 jobs") if usd and median(usd) < 0.01 else (1.0, "USD")

    @cached_property
    def _time_unit(self) -> tuple[float, str]:
        seconds = [[trial.values[name] for trial in self.trials if name in trial.values] for name in metrics.TIMES]
        usual = median(next(filter(None, seconds), [1.0]))
        return (3600.0, "h") if usual >= 7200 else (60.0, "min") if usual >= 120 else (1.0, "s")

    def heading(self, name: str) -> str:
        """Name and unit of a quantity, such as job time (h)."""
        unit = self.unit(name)[1]
        return f"{label(name)} ({unit})" if unit else label(name)

    def number(self, name: str, value: float, error: float | None = None) -> str:
        """The value in the unit of its quantity, with its error if given (2.310 ± 0.032), else as one run can know."""
        size = self.unit(name)[0]
        if error is None and name in self.noises:
            return to_error(value / size, self.noises[name].of_one_run(value) / size)
        return with_error(value / size, None if error is None else error / size)

    def text(self, name: str, value: float, error: float | None = None) -> str:
        """`number` with its unit."""
        return f"{self.number(name, value, error)} {self.unit(name)[1]}".strip()

    def figures(self, point: Configuration) -> dict[str, str]:
        """Name to value with standard error and unit: the study's objectives, and what a run of the point costs."""
        names = [name for name in dict.fromkeys([*self.objectives, metrics.COST_USD]) if name in point.means]
        return {label(name): self.text(name, point.means[name], point.errors[name]) for name in names}

    def in_words(self, point: Configuration) -> str:
        """`figures` as one text."""
        return "; ".join(f"{name} {value}" for name, value in self.figures(point).items())

    def best_in_pair(self, pair: Sequence[str]) -> list[Configuration]:
        """Feasible points on the front over these objectives only."""
        pair_ranks = ranks(self.feasible, {name: self.objectives[name] for name in pair})
        return [point for point, rank in zip(self.feasible, pair_ranks, strict=True) if not rank]

    def cost_of(self, point: Configuration) -> tuple[float, ...]:
        """Sort key for "cheapest": dollars; without prices, the study's objectives, minimised ones first."""
        if all(each.usd_per_run is not None for each in self.feasible):
            return (point.usd_per_run or 0.0, *costs(point.means, self.objectives))
        return costs(point.means, dict(sorted(self.objectives.items(), key=lambda item: item[1] != "minimize")))

    @cached_property
    def hypervolume(self) -> float:
        """Volume that the feasible points dominate, up to a point that the first of them fixes; 0 without any.

        That point is ten times its dollars or seconds, and no quality at all: the volume grows with what is found.
        """
        if not self.feasible:
            return 0.0
        first = costs({**self.feasible[0].means, **self.feasible[0].trial.values}, self.objectives)
        far = [9.0 if direction == "minimize" else 1.0 for direction in self.objectives.values()]
        reference = [cost + times * abs(cost) for cost, times in zip(first, far, strict=True)]
        return hypervolume([costs(point.means, self.objectives) for point in self.feasible], reference)


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Exact volume that N >= 0 points of M minimised objectives dominate, up to the reference point."""
    return float(moocore.hypervolume(points, ref=reference)) if len(points) else 0.0


def is_feasible(trial: Trial, objectives: Mapping[str, str], constraints: Constraints) -> bool:
    """Whether every objective is among its values, and every constraint is met."""
    is_met = all(amount <= 0 for amount in violations(trial.values, constraints).values())
    return is_met and set(objectives) <= set(trial.values)


def _unbeaten(
    points: Sequence[Configuration], predicted: Sequence[Trial], objectives: Mapping[str, str], constraints: Constraints
) -> tuple[Trial, ...]:
    """Predicted points that meet the constraints and that no other predicted or completed point beats."""
    feasible = [trial for trial in predicted if is_feasible(trial, objectives, constraints)]
    values = [costs(point.means, objectives) for point in points]
    values += [costs(trial.values, objectives) for trial in feasible]
    is_best = pareto.front(values, [False] * len(objectives))[len(points) :]
    return tuple(sorted(compress(feasible, is_best), key=lambda trial: costs(trial.values, objectives)))


def ranks(points: Sequence[Configuration], objectives: Mapping[str, str]) -> list[int]:
    """Ranks of non-dominated sorting by dominance beyond noise: 0 on the front, 1 on the front of the rest, and so on.

    A point is dominated by one that is at least as good in every objective and better in one. It is also dominated by
    one that is better in an objective by TELLING_ERRORS standard errors of the difference, unless the point is better
    in another objective by CREDIBLE_ERRORS. Otherwise a dollar less by chance would keep a useless model on the front.
    Points with exactly the same means do not dominate each other, whatever the model of the study expects of them.
    """
    if not points:
        return []
    values = np.array([costs(point.expected, objectives) for point in points])
    errors = np.array([[point.errors[name] for name in objectives] for point in points])
    excess = values[None, :] - values[:, None]  # by how much the second is worse than the first
    spread = np.sqrt(errors[None, :] ** 2 + errors[:, None] ** 2)
    dominates = (excess > TELLING_ERRORS * spread).any(axis=2) & (excess >= -CREDIBLE_ERRORS * spread).all(axis=2)
    dominates |= (excess > 0).any(axis=2) & (excess >= 0).all(axis=2)
    means = np.array([costs(point.means, objectives) for point in points])
    dominates &= (means[None, :] != means[:, None]).any(axis=2)
    rank_of, exact = np.full(len(points), -1), moocore.pareto_rank(values)
    for rank in range(len(points)):
        left = rank_of < 0
        free = left & ~dominates[left].any(axis=0)
        if left.any() and not free.any():  # dominance beyond noise can form a circle, exact dominance cannot
            free = left & (exact == exact[left].min())
        rank_of[free] = rank
    return rank_of.tolist()
