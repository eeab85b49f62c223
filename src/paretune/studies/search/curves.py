"""What a job that searches trains next, decided from the learning curves of all its trials.

Successive halving (Jamieson and Talwalkar, AISTATS 2016), asynchronous and with two objectives: trials pause at RUNGS
of their training. At each rung those are compared that have reached it, by dollars of a job of their own and the
quality there; the better half goes on. Pure computation: no clock, no files, no random numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paretune.core.pareto import front as pareto_front
from paretune.studies.results.hypervolume import hypervolume, reference_point

RUNGS = (0.125, 0.25, 0.5, 1.0)
"""Shares of a training after which its trial pauses."""


@dataclass(frozen=True, kw_only=True)
class CurveState:
    """The learning curve of a trial, or of a candidate that has not begun.

    Attributes:
        key: names the trial.
        usd_per_step: dollars that an optimiser step of it costs in the job that searches.
        total_steps: optimiser steps of the whole training.
        own_job_usd: dollars of a job that trains this configuration alone, to its end: its place on a front by cost.
        steps: optimiser steps that are done; 0 for a candidate.
        curve: (share of the training, quality on the validation split), in the order in which they were measured;
            larger values are better.
        is_given_up: whether the trial has ended before its last step and is not continued.
    """

    key: str
    usd_per_step: float
    total_steps: int
    own_job_usd: float
    steps: int = 0
    curve: tuple[tuple[float, float], ...] = ()
    is_given_up: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.steps <= self.total_steps or self.total_steps < 1:
            raise ValueError(f"steps must be 0 to total_steps >= 1, got {self.steps} of {self.total_steps}")

    @property
    def is_done(self) -> bool:
        """Whether the last step is done."""
        return self.steps == self.total_steps

    def steps_at(self, share: float) -> int:
        """The optimiser steps of a share of the training, at least one."""
        return max(1, min(self.total_steps, math.ceil(share * self.total_steps)))

    def value_at(self, share: float) -> float | None:
        """The newest quality measured up to a share of the training; None before the first."""
        values = [value for at, value in self.curve if at <= share + 1e-9]
        return values[-1] if values else None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the job is to train next.

    Attributes:
        entries: keys with the optimiser step to train them to, in the order of training.
        begun: keys among them of candidates that begin.
        given_up: keys of trials that are not continued.
        is_done: whether nothing is worth training any more.
    """

    entries: tuple[tuple[str, int], ...] = ()
    begun: tuple[str, ...] = ()
    given_up: frozenset[str] = frozenset()
    is_done: bool = False


def next_entries(
    trials: Sequence[CurveState],
    candidates: Sequence[CurveState],
    front: Sequence[tuple[float, float]],
    *,
    ahead: int = 4,
) -> Plan:
    """What to train next, best first.

    Args:
        trials: that have begun, in the order in which they did, those given up or done included.
        candidates: that have not, the most promising first.
        front: (own-job dollars, quality) of finished configurations that are not among the trials.
        ahead: entries to plan, so that the job need not wait for the next decision.
    """
    promoted = [(trial, share) for trial in trials if (share := _next_share(trial, trials, front)) is not None]
    promoted.sort(key=lambda item: -item[1])
    entries = [(trial.key, trial.steps_at(share)) for trial, share in promoted][:ahead]
    begun = candidates[: ahead - len(entries)]
    entries += [(trial.key, trial.steps_at(RUNGS[0])) for trial in begun]
    resting = {trial.key for trial in trials if not (trial.is_done or trial.is_given_up)}
    return Plan(
        entries=tuple(entries),
        begun=tuple(trial.key for trial in begun),
        given_up=frozenset() if entries else frozenset(resting),
        is_done=not entries,
    )


def _next_share(trial: CurveState, trials: Sequence[CurveState], front: Sequence[tuple[float, float]]) -> float | None:
    """The rung that a trial is to be trained to; None if it has ended or is not among the better half."""
    if trial.is_done or trial.is_given_up:
        return None
    reached = [share for share in RUNGS if trial.steps >= trial.steps_at(share)]
    if not reached:
        return RUNGS[0]
    level = reached[-1]
    rivals = [other for other in trials if other.steps >= other.steps_at(level) and other.value_at(level) is not None]
    ranked = _ranked([(other.own_job_usd, other.value_at(level) or 0.0) for other in rivals], front)
    worse = {rivals[index].key for index in ranked[max(1, len(rivals) // 2) :]}
    return RUNGS[RUNGS.index(level) + 1] if trial.key not in worse else None


def _ranked(points: Sequence[tuple[float, float]], front: Sequence[tuple[float, float]]) -> list[int]:
    """Numbers of N points, best first: by the front they are on without all better fronts, then by hypervolume."""
    costs = [(usd, -value) for usd, value in (*points, *front)]
    if not points:
        return []
    reference, remaining, order = reference_point(costs), list(range(len(points))), list[int]()
    while remaining:
        flags = pareto_front([points[index] for index in remaining], [False, True])
        layer = [index for index, is_best in zip(remaining, flags, strict=True) if is_best]
        volume = hypervolume([costs[index] for index in layer], reference)
        alone = {i: volume - hypervolume([costs[other] for other in layer if other != i], reference) for i in layer}
        order += sorted(layer, key=lambda index: -alone[index])
        remaining = [index for index in remaining if index not in layer]
    return order
