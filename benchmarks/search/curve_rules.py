"""Rules that choose which of several trainings goes on, played on learning curves that are recorded.

    halving      asynchronous successive halving by dollars and F1, rungs 1/8, 1/4, 1/2, 1
    asha         asynchronous successive halving by F1 alone, a quarter goes on (Li et al., MLSys 2020)
    chunks       eight trainings side by side, a chunk of an eighth at a time, an upper confidence bound chooses
                 (the rule of RapidFire AI and its bandit, as its documentation describes them)

They are short rules written here after their descriptions, not the libraries of their authors.
"""

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paretune.core.pareto import front
from paretune.studies.results.hypervolume import MARGIN, hypervolume, reference_point
from paretune.studies.search.split import curves
from paretune.studies.search.split.curves import Curve

Rule = Callable[[Sequence["State"], Sequence["State"]], tuple[str, int] | None]
"""(trials that have begun, others) to the key of one and the step to train it to; None if it would stop."""
PARTS = 8
"""Parts of a training after which F1 is measured: its optimiser steps in these plays."""


@dataclass(frozen=True, kw_only=True)
class State:
    """A training after so many of PARTS parts; `values` are its F1 by the share that was done."""

    key: str
    own_job_usd: float
    steps: int
    values: tuple[tuple[float, float], ...]
    point: tuple[float, ...]

    @property
    def is_done(self) -> bool:
        """Whether it is trained to its end."""
        return self.steps == PARTS

    @property
    def curve(self) -> Curve:
        """Its measured curve."""
        return Curve(key=self.key, values=self.values, point=self.point)

    def value_at(self, share: float) -> float | None:
        """The newest F1 up to a share of the training; None before the first."""
        values = [value for at, value in self.values if at <= share + 1e-9]
        return values[-1] if values else None


@dataclass(frozen=True, kw_only=True)
class Training:
    """A recorded training.

    Attributes:
        curve: F1 after each of PARTS parts.
        usd: dollars of its steps.
        extra_usd: dollars for keeping its model when it has ended.
        own_job_usd: dollars of a job of its own, as a search estimates them.
        true_usd: as they are.
        point: settings as numbers, in octaves.
        true_f1: at the end, without chance; None: the last of the curve.
    """

    key: str
    curve: tuple[float, ...]
    usd: float
    extra_usd: float
    own_job_usd: float
    true_usd: float
    point: tuple[float, ...]
    true_f1: float | None = None

    @property
    def costs(self) -> tuple[float, float]:
        """True dollars and F1, both to be minimised."""
        return self.true_usd, -(self.curve[-1] if self.true_f1 is None else self.true_f1)

    def state(self, steps: int = 0) -> State:
        """The curve after so many parts."""
        return State(
            key=self.key,
            own_job_usd=self.own_job_usd,
            steps=steps,
            values=tuple((part / PARTS, self.curve[part - 1]) for part in range(1, steps + 1)),
            point=self.point,
        )


@dataclass
class Play:
    """A rule on recorded trainings: dollars spent, and the share of the true front that finished trainings have.

    Attributes:
        trainings: the first one is the first to be offered, the others in an order drawn from the seed.
        is_recommended: whether the front is that of the forecasts of all trainings, begun or not; both are looked at
            whenever a training ends.
        truth: dollars and F1, negative, of further configurations that the true front may have.
    """

    trainings: Sequence[Training]
    seed: int
    is_recommended: bool = False
    truth: Sequence[tuple[float, float]] = ()
    spent: float = 0.0
    course: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        first, *others = self.trainings
        self._order = [first, *random.Random(self.seed).sample(others, len(others))]
        self._done = dict.fromkeys((training.key for training in self._order), 0)
        self._begun: list[str] = []
        costs = [*self.truth, *(training.costs for training in self._order)]
        best = [cost for cost, is_best in zip(costs, front(costs, [False, False]), strict=True) if is_best]
        spans = [(max(column), max(column) - min(column)) for column in zip(*best, strict=True)]
        self._reference = tuple(worst + MARGIN * (span or abs(worst)) for worst, span in spans)
        self._whole = hypervolume(best, self._reference)

    def run(self, rule: Rule, share: float = 0.9) -> float:
        """Dollars until the finished trainings have a share of the front; infinite if the rule stops before."""
        by_key = {training.key: training for training in self._order}
        while not self.course or self.course[-1][1] < share:
            states = [by_key[key].state(self._done[key]) for key in self._begun]
            others = [training.state() for training in self._order if not self._done[training.key]]
            choice = rule(states, others)
            if choice is None:
                return math.inf
            key, steps = choice
            training = by_key[key]
            if not self._done[key]:
                self._begun.append(key)
            self.spent += training.usd * (steps - self._done[key]) / PARTS
            self._done[key] = steps
            if steps == PARTS:
                self.spent += training.extra_usd
                self.course.append((self.spent, self._share()))
        return self.course[-1][0]

    def _share(self) -> float:
        points = [training.costs for training in self._order if self._done[training.key] == PARTS]
        if self.is_recommended:
            trials = [state for training in self._order if (state := training.state(self._done[training.key])).steps]
            every = [training.state().curve for training in self._order]
            mean, _ = curves.forecast([trial.curve for trial in trials], every, [1.0] * len(every))
            expected = [(training.own_job_usd, float(m)) for training, m in zip(self._order, mean, strict=True)]
            best = front(expected, [False, True])
            points = [training.costs for training, is_best in zip(self._order, best, strict=True) if is_best]
        return hypervolume(points, self._reference) / self._whole


@dataclass(frozen=True, kw_only=True)
class Halving:
    """Asynchronous successive halving.

    Attributes:
        rungs: parts at which trials are compared.
        eta: one of so many goes on.
        is_by_front: whether dollars count.
    """

    rungs: tuple[int, ...] = (1, 2, 4, 8)
    eta: int = 2
    is_by_front: bool = True

    def __call__(self, trials: Sequence[State], others: Sequence[State]) -> tuple[str, int] | None:
        """The highest rung with somebody to promote, else a new trial, else the best that rests."""
        for rung, following in reversed(list(itertools.pairwise(self.rungs))):
            at = [trial for trial in trials if trial.steps >= rung]
            best = self._ranked(at, rung)[: len(at) // self.eta]
            if waiting := [trial for trial in best if trial.steps == rung]:
                return waiting[0].key, following
        if others:
            return others[0].key, self.rungs[0]
        return _resting(trials)

    def _ranked(self, trials: Sequence[State], rung: int) -> list[State]:
        values = [trial.value_at(rung / PARTS) or 0.0 for trial in trials]
        if self.is_by_front:
            points = [(trial.own_job_usd, value) for trial, value in zip(trials, values, strict=True)]
            return [trials[index] for index in ranked(points)]
        return [trials[index] for index in sorted(range(len(trials)), key=lambda index: -values[index])]


def chunks(trials: Sequence[State], others: Sequence[State]) -> tuple[str, int] | None:
    """A chunk of the one with the highest upper confidence bound among eight; a new one for each that has ended."""
    live = [trial for trial in trials if not trial.is_done]
    if len(live) < 8 and others:
        return others[0].key, 1
    if not live:
        return None
    total = sum(trial.steps for trial in trials)
    best = max(live, key=lambda trial: (trial.value_at(1.0) or 0.0) + 0.1 * math.sqrt(math.log(total) / trial.steps))
    return best.key, best.steps + 1


def _resting(trials: Sequence[State]) -> tuple[str, int] | None:
    """The one of the best layer among those that are not done; None if all are."""
    live = [trial for trial in trials if not trial.is_done]
    if not live:
        return None
    best = ranked([(trial.own_job_usd, trial.value_at(1.0) or 0.0) for trial in live])[0]
    return live[best].key, min(PARTS, 2 * live[best].steps)


def ranked(points: Sequence[tuple[float, float]]) -> list[int]:
    """Numbers of N points of dollars and quality, best first: by the front that each is on without better ones."""
    costs = [(usd, -value) for usd, value in points]
    if not points:
        return []
    reference, remaining, order = reference_point(costs), list(range(len(points))), list[int]()
    while remaining:
        flags = front([points[index] for index in remaining], [False, True])
        layer = [index for index, is_best in zip(remaining, flags, strict=True) if is_best]
        volume = hypervolume([costs[index] for index in layer], reference)
        alone = {i: volume - hypervolume([costs[other] for other in layer if other != i], reference) for i in layer}
        order += sorted(layer, key=lambda index: -alone[index])
        remaining = [index for index in remaining if index not in layer]
    return order


def rules() -> dict[str, Rule]:
    """Name to a new instance of each rule."""
    return {"halving": Halving(), "asha": Halving(rungs=(2, 8), eta=4, is_by_front=False), "chunks": chunks}
