"""The front of a study: points with their errors and Pareto ranks, groups that cannot be told apart, hypervolume."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, compress
from typing import Any

import moocore
import numpy as np

from paretune.core import pareto
from paretune.estimating.noise import TELLING_ERRORS, Scatter
from paretune.ledger.trial_entry import TrialStatus
from paretune.specification import metrics
from paretune.studies.definition.objectives import OF_THE_CLUSTER, Constraints, costs, judged_by, violations
from paretune.studies.definition.quality import Quality
from paretune.studies.results.hypervolume import hypervolume_growth, reference_point
from paretune.studies.results.points import Point, merge
from paretune.studies.results.run_noise import RunNoise
from paretune.studies.results.trials import AS_RUN, Trial


@dataclass(frozen=True, kw_only=True)
class Group:
    """Points that cannot be told apart from the one that is recommended among them, the cheapest on the front."""

    recommended: Point
    others: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True)
class StudyFront:
    """All points of a study and what follows from them.

    Attributes:
        trials: of the study, by number.
        points: those with a completed run, by number.
        noises: objective to the scatter of one run.
        forecast: points that were predicted and not run, that no other one and no point of the front beats.
        judged_by: what measures the models; None where seconds and dollars are all that the study is about.
        takes: objective to which value of a run counts, where that is not the last one.
    """

    objectives: Mapping[str, str]
    constraints: Constraints
    trials: tuple[Trial, ...]
    points: tuple[Point, ...]
    noises: Mapping[str, RunNoise]
    forecast: tuple[Trial, ...] = ()
    judged_by: Quality | None = None
    takes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        trials: Sequence[Trial],
        objectives: Mapping[str, str],
        constraints: Constraints,
        *,
        shrinks: bool = False,
        earlier: Mapping[str, Scatter] | None = None,
        predicted: Sequence[Trial] = (),
        quality: Quality | None = None,
        takes: Mapping[str, str] | None = None,
    ) -> "StudyFront":
        """The front of these trials; `shrinks` and `earlier` are those of `points.merge`.

        Of the points that are only `predicted` it keeps the best as its forecast. `quality` is what measures the
        models, by default what is known to do so among the objectives; `takes` is that of the study.

        Ranks come from sorting all feasible points over all objectives by dominance beyond noise, see `ranks`. A point
        that does not meet the constraints has no rank.
        """
        ordered = tuple(sorted(trials, key=lambda trial: trial.number))
        quality = quality or judged_by(objectives, takes=takes)
        points, noises = merge(ordered, objectives, constraints, shrinks=shrinks, earlier=earlier, quality=quality)
        ranked = [point for point in points if point.is_feasible(objectives)]
        rank_of = dict(zip((point.number for point in ranked), ranks(ranked, objectives), strict=True))
        return cls(
            objectives=dict(objectives),
            constraints=constraints,
            trials=ordered,
            points=tuple(replace(point, rank=rank_of.get(point.number)) for point in points),
            noises=noises,
            forecast=_forecast(ranked, predicted, objectives, constraints),
            judged_by=quality,
            takes=dict(takes or {}),
        )

    @cached_property
    def feasible(self) -> list[Point]:
        """Points with a rank: completed, every objective measured, every constraint met."""
        return [point for point in self.points if point.rank is not None]

    @cached_property
    def measured(self) -> list[Point]:
        """Points with every objective measured; jobs that were cut off to measure seconds are not among them."""
        return [point for point in self.points if set(self.objectives) <= point.means.keys()]

    @cached_property
    def best(self) -> list[Point]:
        """Points on the front over all objectives."""
        return [point for point in self.points if point.rank == 0]

    @cached_property
    def searched(self) -> list[str]:
        """Names of all parameters that any trial has varied, in the order of the study."""
        return list(dict.fromkeys(name for trial in self.trials for name in trial.point))

    @property
    def shown(self) -> list[str]:
        """Names of the parameters that a table shows: the searched ones, and the batch as it ran."""
        return list(dict.fromkeys([*self.searched, *AS_RUN]))

    @property
    def quality(self) -> str | None:
        """The objective that measures the model, such as F1 or the user's own metric; None where the study has none."""
        return None if self.judged_by is None else self.judged_by.metric

    @property
    def is_simulated(self) -> bool:
        """Whether any trial is simulated."""
        return any(trial.origin == "simulated" for trial in self.trials)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs of objectives; the one that measures the model comes second in its pair."""
        return list(combinations(sorted(self.objectives, key=self._measures_models), 2))

    def _measures_models(self, name: str) -> bool:
        return name == self.quality or name not in OF_THE_CLUSTER

    @property
    def main_pair(self) -> tuple[str, str] | None:
        """Dollars, or the first objective, and what measures the model, or the next one; None with one objective."""
        names = sorted(self.objectives, key=lambda name: (name == self.quality, name != metrics.COST_USD))
        if len(names) < 2:
            return None
        return names[0], self.quality or names[1]

    @property
    def spent_usd(self) -> float:
        """Dollars that the study has booked: `spent_usd` of the last trial to end, at least the sum over all trials."""
        booked = max((trial.spent_usd for trial in self.trials), default=0.0)
        # Rounding makes one or the other larger by a hair.
        total = sum(trial.cost_usd or 0.0 for trial in self.trials)
        return total if total > booked * (1 + 1e-9) else booked

    def rank(self, trial: Trial) -> int | None:
        """Rank of a trial of the study: that of its point; None without one."""
        point = self.point_of(trial)
        return None if point is None else point.rank

    def point_of(self, trial: Trial) -> Point | None:
        """The point that a completed trial is a run of; None of another."""
        return self._points.get(trial.number)

    @cached_property
    def _points(self) -> dict[int, Point]:
        return {trial.number: point for point in self.points for trial in point.trials}

    def pair_ranks(self, pair: Sequence[str]) -> dict[int, int]:
        """Number of every feasible point to its rank over these objectives only."""
        found = ranks(self.feasible, {name: self.objectives[name] for name in pair})
        return {point.number: rank for point, rank in zip(self.feasible, found, strict=True)}

    def cost_of(self, point: Point) -> tuple[float, ...]:
        """What "cheapest" means, the least first: dollars; without a price, the study's objectives in their order."""
        if self._are_all_priced:
            return (point.usd_per_run or 0.0, *costs(point.means, self.objectives))
        return costs(point.means, dict(sorted(self.objectives.items(), key=lambda item: item[1] != "minimize")))

    @cached_property
    def _are_all_priced(self) -> bool:
        return all(point.usd_per_run is not None for point in self.feasible)

    @cached_property
    def groups(self) -> list[Group]:
        """Points that cannot be told apart, greedily from the cheapest one of the front.

        "Cannot be told apart" is not transitive, so a chain of neighbours could join a cheap point with a dear one.
        Hence every member is compared with the recommended point of its group and with no other: the cheapest point of
        the front that is in no group yet opens the next one, and takes all that differ from it by less than 2 standard
        errors in every objective. A dominated point may be a member: a repeat could put it on the front.
        """
        free = {point.number: point for point in sorted(self.feasible, key=self.cost_of)}
        groups = []
        for leader in [point for point in free.values() if point.rank == 0]:
            if free.pop(leader.number, None) is None:
                continue
            alike = [point for point in free.values() if point.is_like(leader, self.objectives)]
            for point in alike:
                del free[point.number]
            groups.append(Group(recommended=leader, others=tuple(alike)))
        return groups

    @cached_property
    def hypervolume_growth(self) -> list[tuple[float, float]]:
        """Dollars spent and hypervolume then, at the end of the first run of every feasible point; means over repeats.

        Against the reference point of the front: one far beyond it, such as the worst of all points, would make nearly
        every front look whole.
        """
        found = sorted(self.feasible, key=lambda point: (point.found_at_usd, point.number))
        if not found:
            return []
        minimised = [costs(point.means, self.objectives) for point in found]
        volumes = hypervolume_growth(minimised, reference_point(moocore.filter_dominated(np.array(minimised)).tolist()))
        return [(point.found_at_usd, volume) for point, volume in zip(found, volumes, strict=True)]


def trials_on_front(
    trials: Iterable[Trial], objectives: Mapping[str, str], constraints: Constraints | None = None
) -> list[Trial]:
    """Completed first trials that meet the constraints and no other one beats as measured, the cheapest first."""
    found = [
        trial
        for trial in trials
        if trial.status is TrialStatus.COMPLETED
        and trial.repeats is None
        and set(objectives) <= set(trial.values)
        and all(amount <= 0 for amount in violations(trial.values, constraints or {}).values())
    ]
    marks = pareto.front([costs(trial.values, objectives) for trial in found], [False] * len(objectives))
    return sorted(compress(found, marks), key=lambda trial: trial.cost_usd or 0.0)


def _forecast(
    points: Sequence[Point], predicted: Sequence[Trial], objectives: Mapping[str, str], constraints: Constraints
) -> tuple[Trial, ...]:
    """Predicted points that meet the constraints and that neither each other nor a point that has run beats."""

    def is_able(trial: Trial) -> bool:
        found = [(trial.values.get(name, math.nan), limits) for name, limits in constraints.items()]
        meets = [limits.get("min", -math.inf) <= value <= limits.get("max", math.inf) for value, limits in found]
        return set(objectives) <= set(trial.values) and all(meets)

    able = list(filter(is_able, predicted))
    values = [costs(point.means, objectives) for point in points] + [costs(one.values, objectives) for one in able]
    kept = pareto.front(values, [False] * len(objectives))[len(points) :]
    best = [trial for trial, keep in zip(able, kept, strict=True) if keep]
    return tuple(sorted(best, key=lambda trial: costs(trial.values, objectives)))


CREDIBLE_ERRORS = 1.0
"""Standard errors of a difference from which on an advantage may keep a point on the front."""
_BLOCK = 32
"""Points that are compared with all others at a time: their differences stay in the processor's cache, and 5,000 points
at once would take 1.5 GB."""


def ranks(points: Sequence[Point], objectives: Mapping[str, str]) -> list[int]:
    """Non-dominated sorting, 0 on the front, 1 on the front of the rest, and so on; by dominance beyond noise.

    A point is dominated by one that is at least as good in every objective and better in one; and also by one that is
    better in an objective by TELLING_ERRORS standard errors of the difference, unless the point is itself better in
    another one by CREDIBLE_ERRORS. Else a dollar less by chance would keep a model on the front that learnt nothing.
    """
    if not points:
        return []
    values = np.array([costs(point.means, objectives) for point in points])
    errors = np.array([[point.errors[name] for name in objectives] for point in points])
    # A bit for each pair of points: a byte for each would be 100 MB of 10,000 points.
    over = np.vstack([np.packbits(_dominance(values, errors, rows), axis=1) for rows in _blocks(len(points))])
    found = np.full(len(points), -1)
    exact = moocore.pareto_rank(values)
    beaten_by = _dominating(over, len(points))  # points without a rank yet that dominate each
    rank = 0
    while (left := found < 0).any():
        free = left & (beaten_by == 0)
        if not free.any():  # beyond noise each is beaten by another one: dominance alone knows no such circle
            free = left & (exact == exact[left].min())
        found[free] = rank
        beaten_by -= _dominating(over[free], len(points))
        rank += 1
    return [int(one) for one in found]


def _dominating(over: Any, count: int) -> Any:
    """How many of these points dominate each of `count` points; `over` has a bit for each pair, points in rows."""
    found = np.zeros(count, int)
    for rows in _blocks(len(over)):
        found += np.unpackbits(over[rows], axis=1, count=count).sum(axis=0, dtype=int)
    return found


def _blocks(count: int) -> list[slice]:
    return [slice(start, start + _BLOCK) for start in range(0, count, _BLOCK)]


def _dominance(values: Any, errors: Any, rows: slice) -> Any:
    """Whether each of the points in `rows` dominates each point, see `ranks`; shape (rows, N).

    `values` are the means, minimised, and `errors` their standard errors, each of shape (N, M objectives).
    """
    shape = (len(values[rows]), len(values))
    tells, is_better = np.zeros(shape, bool), np.zeros(shape, bool)
    is_credible, is_as_good = np.ones(shape, bool), np.ones(shape, bool)
    for value, error in zip(values.T, errors.T, strict=True):
        excess = value[None, :] - value[rows, None]  # by how much the second is worse than the first
        spread = np.sqrt(error[None, :] ** 2 + error[rows, None] ** 2)
        tells |= excess > TELLING_ERRORS * spread
        is_credible &= excess >= -CREDIBLE_ERRORS * spread
        is_better |= excess > 0
        is_as_good &= excess >= 0
    return (tells & is_credible) | (is_better & is_as_good)
