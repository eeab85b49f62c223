"""The front of a study: points with their errors and Pareto ranks, groups that cannot be told apart, hypervolume."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import moocore
import numpy as np

from paretune.studies.definition.objectives import QUALITIES, Constraints, costs
from paretune.studies.results.noise import Noise
from paretune.studies.results.points import Point, merge
from paretune.studies.results.trials import Trial


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
    """

    objectives: Mapping[str, str]
    constraints: Constraints
    trials: tuple[Trial, ...]
    points: tuple[Point, ...]
    noises: Mapping[str, Noise]

    @classmethod
    def of(cls, trials: Sequence[Trial], objectives: Mapping[str, str], constraints: Constraints) -> "StudyFront":
        """The front of these trials.

        Ranks come from non-dominated sorting of the means of all feasible points, over all objectives. A point that
        does not meet the constraints has no rank.
        """
        ordered = tuple(sorted(trials, key=lambda trial: trial.number))
        points, noises = merge(ordered, objectives, constraints)
        ranked = [point for point in points if not point.unmet and set(objectives) <= set(point.means)]
        ranks = _ranks_of([costs(point.means, objectives) for point in ranked])
        rank_of = {point.number: rank for point, rank in zip(ranked, ranks, strict=True)}
        return cls(
            objectives=dict(objectives),
            constraints=constraints,
            trials=ordered,
            points=tuple(replace(point, rank=rank_of.get(point.number)) for point in points),
            noises=noises,
        )

    @cached_property
    def feasible(self) -> list[Point]:
        """Points with a rank: completed, every objective measured, every constraint met."""
        return [point for point in self.points if point.rank is not None]

    @cached_property
    def best(self) -> list[Point]:
        """Points on the front over all objectives."""
        return [point for point in self.points if point.rank == 0]

    @cached_property
    def searched(self) -> list[str]:
        """Names of all parameters that any trial has varied, in the order of the study."""
        return list(dict.fromkeys(name for trial in self.trials for name in trial.point))

    @property
    def quality(self) -> str | None:
        """The objective that measures the model: F1, perplexity or evaluation loss; None where the study has none."""
        return next((name for name in QUALITIES if name in self.objectives), None)

    @property
    def is_simulated(self) -> bool:
        """Whether any trial is simulated."""
        return any(trial.origin == "simulated" for trial in self.trials)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs of objectives; the one that measures the model comes second in its pair."""
        return list(combinations(sorted(self.objectives, key=lambda name: name in QUALITIES), 2))

    @property
    def spent_usd(self) -> float:
        """Dollars that the study has booked: `spent_usd` of the last trial to end, at least the sum over all trials."""
        booked = max((trial.spent_usd for trial in self.trials), default=0.0)
        # Rounding makes one or the other larger by a hair.
        total = sum(trial.cost_usd or 0.0 for trial in self.trials)
        return total if total > booked * (1 + 1e-9) else booked

    def rank(self, trial: Trial) -> int | None:
        """Rank of a trial of the study: that of its point; None without one."""
        return self._ranks.get(trial.number)

    @cached_property
    def _ranks(self) -> dict[int, int | None]:
        return {trial.number: point.rank for point in self.points for trial in point.trials}

    def pair_ranks(self, pair: Sequence[str]) -> dict[int, int]:
        """Number of every feasible point to its rank over these objectives only."""
        goals = {name: self.objectives[name] for name in pair}
        ranks = _ranks_of([costs(point.means, goals) for point in self.feasible])
        return {point.number: rank for point, rank in zip(self.feasible, ranks, strict=True)}

    def cost_of(self, point: Point) -> tuple[float, ...]:
        """What "cheapest" means, the least first: dollars; without a price, the study's objectives in their order."""
        if all(other.usd_per_run is not None for other in self.feasible):
            return (point.usd_per_run or 0.0, *costs(point.means, self.objectives))
        return costs(point.means, dict(sorted(self.objectives.items(), key=lambda item: item[1] != "minimize")))

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
        volumes = growth(minimised, reference_point(moocore.filter_dominated(np.array(minimised)).tolist()))
        return [(point.found_at_usd, volume) for point, volume in zip(found, volumes, strict=True)]


def _ranks_of(points: Sequence[tuple[float, ...]]) -> list[int]:
    """Non-dominated sorting of what is minimised: 0 on the front, 1 on the front of the rest, and so on."""
    return [int(rank) for rank in moocore.pareto_rank(points)] if points else []


MARGIN = 0.1
"""Of each objective's range, by which the reference point lies beyond the worst point."""


def reference_point(points: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The worst of each objective plus 10 % of its range, so that the extreme points of a front count too.

    Where all points agree in an objective, 10 % of its size takes the range's place, or 1 where that is 0 too.

    Args:
        points: N >= 1 points of M objectives, minimised.
    """
    ends = [(max(column), min(column)) for column in zip(*points, strict=True)]
    return tuple(worst + (MARGIN * (worst - best or abs(worst)) or 1.0) for worst, best in ends)


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Volume that N >= 0 points of M objectives, minimised, dominate up to the reference point; exact.

    A point that is not better than the reference in every objective adds nothing.
    """
    return float(moocore.hypervolume(points, ref=reference)) if len(points) else 0.0


def growth(points: Sequence[Sequence[float]], reference: Sequence[float]) -> list[float]:
    """Hypervolume of the first, the first two, ... the first N points."""
    volumes: list[float] = []
    best = np.empty((0, len(reference)))
    for point in points:
        best = moocore.filter_dominated(np.vstack([best, point]))
        volumes.append(hypervolume(best.tolist(), reference))
    return volumes
