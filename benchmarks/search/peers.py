"""Searches by others over a table: Optuna's samplers, Syne Tune's schedulers, a grid, chance, and the naive choice.

All of them search the same points with their libraries' defaults. Axes of numbers are given as ordered ones, by rank;
what is no number as categories. Optuna is told of memory as a constraint (`Trial.set_constraint`, with the worst values
seen so far for objectives, as no sampler looks at them), or, for reference, as a plain failure. Syne Tune knows no
constraints: out of memory is `on_trial_error`. Nobody here remembers answers, for none of these libraries does: what is
suggested twice is paid twice (and counted). MOREA begins with 100 random jobs, its default population; `morea-20` is it
with a population of 20.
"""

import heapq
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol

from paretune.estimating.recorded.run_table import COMPLETED, OUT_OF_MEMORY
from search.scoring import OBJECTIVES, Booked
from search.tables import Outcome, Point, Table

Costs = tuple[float, ...]
"""What is minimised: dollars, seconds or both, and the negative of F1."""


_REPEAT = 1000
"""Between the draws of a job's repeats; seeds of searches are smaller."""


class Asking(Protocol):
    """A search that is asked for points and told what came out."""

    def ask(self) -> tuple[Any, Point] | None:
        """A handle and a point; None when it has no more."""

    def goes_on(self, handle: Any, epoch: int, costs: Costs) -> bool:
        """Whether a job goes on after an epoch that is not its last."""

    def tell(self, handle: Any, outcome: Outcome, costs: Costs | None) -> None:
        """How it ended; `costs` is None unless it completed."""


def drive(
    asking: Asking, table: Table, objectives: str, *, draw: int, parallel: int, most_usd: float, most: int
) -> list[Booked]:
    """Run a search until its dollars or jobs are spent; jobs in the order of their ends in virtual time.

    A job that is run again is another repeat, as after a failure.
    """
    ran: Counter[str] = Counter()
    booked: list[Booked] = []
    running: list[tuple[float, int, Callable[[], Booked]]] = []
    now = spent = 0.0
    started = refused = 0
    while True:
        while len(running) < parallel and spent < most_usd and started < most and refused < 100:
            answer = asking.ask()
            if answer is None:
                started = most
                break
            handle, point = answer
            outcome = table.outcome(point, draw + _REPEAT * ran[str(point)])
            ran[str(point)] += 1
            if outcome.cannot:  # nothing can be run there, and nothing is paid
                asking.tell(handle, outcome, None)
                refused += 1
                continue
            started, refused = started + 1, 0
            _schedule(running, asking, handle, point, outcome, objectives, now, started)
        if not running:
            return booked
        now, _, end = heapq.heappop(running)
        result = end()
        if result is not None:
            booked.append(result)
            spent += result.usd


def _paid(outcome: Outcome, objectives: str) -> Costs:
    """Dollars, seconds or both."""
    result = {"cost_usd": outcome.usd, "billable_seconds": outcome.seconds}
    return tuple(result[name] for name in OBJECTIVES[objectives][:-1])


def _schedule(
    running: list[tuple[float, int, Callable[[], Any]]],
    asking: Asking,
    handle: Any,
    point: Point,
    outcome: Outcome,
    objectives: str,
    begin: float,
    number: int,
) -> None:
    """Put the ends of a job's epochs on the calendar, one after the other."""
    epochs = max(1, len(outcome.curve))

    def costs(share: float, f1: float) -> Costs:
        return (*(share * value for value in _paid(outcome, objectives)), -f1)

    def at_epoch(epoch: int) -> Booked | None:
        share = epoch / epochs
        if epoch == epochs:
            f1 = outcome.f1
            done = outcome.status == COMPLETED and f1 is not None
            asking.tell(handle, outcome, costs(1.0, f1) if done and f1 is not None else None)
            measured = (*_paid(outcome, objectives), f1) if done and f1 is not None else None
            return Booked(usd=outcome.usd, point=point, measured=measured, status=outcome.status)
        if asking.goes_on(handle, epoch, costs(share, outcome.curve[epoch - 1])):
            put(epoch + 1)
            return None
        return Booked(usd=outcome.usd * share, point=point, measured=None, status="Stopped")

    def put(epoch: int) -> None:
        heapq.heappush(running, (begin + outcome.seconds * epoch / epochs, number, lambda: at_epoch(epoch)))

    put(1)


class OptunaAlone:
    """One of Optuna's samplers by ask and tell, in memory."""

    def __init__(self, table: Table, sampler: str, seed: int, *, constraint: bool = True, objectives: int = 2) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore")
        ranks = {name: list(range(len(values))) for name, values in table.axes.items()}
        samplers: dict[str, Callable[[], Any]] = {
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
            "gp": lambda: optuna.samplers.GPSampler(seed=seed),
            "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=seed),
            "random": lambda: optuna.samplers.RandomSampler(seed=seed),
            "grid": lambda: optuna.samplers.GridSampler(ranks, seed=seed),
        }
        self._study = optuna.create_study(directions=["minimize"] * objectives, sampler=samplers[sampler]())
        self._axes = table.axes
        self._ranges = table.ranges
        self._space = {name: _distribution(table, name, ranks[name]) for name in table.axes}
        self._constraint = constraint
        self._worst = (0.0,) * objectives
        self._left = len(table.points) if sampler == "grid" else None

    def ask(self) -> tuple[Any, Point] | None:
        """The sampler's next point."""
        if self._left is not None:
            if not self._left:
                return None
            self._left -= 1
        trial = self._study.ask(self._space)
        chosen = trial.params.items()
        return trial, {name: value if name in self._ranges else self._axes[name][value] for name, value in chosen}

    def goes_on(self, handle: Any, epoch: int, costs: Costs) -> bool:
        """Always: Optuna has no pruning of several objectives."""
        return True

    def tell(self, handle: Any, outcome: Outcome, costs: Costs | None) -> None:
        """Values, or the constraint that was violated."""
        import optuna

        if costs is None and (not self._constraint or outcome.status != OUT_OF_MEMORY):
            self._study.tell(handle, state=optuna.trial.TrialState.FAIL)
            return
        if self._constraint:
            handle.set_constraint("memory", 1.0 if costs is None else 0.0)
        if costs is not None:
            self._worst = tuple(map(max, self._worst, costs))
        with suppress(RuntimeError):  # the grid has no more points and stops its study, which nobody runs
            self._study.tell(handle, list(costs or self._worst))


def _distribution(table: Table, name: str, ranks: list[int]) -> Any:
    """What Optuna is told of an axis: a range in logarithms, ranks in their order, or categories."""
    import optuna

    values = table.axes[name]
    if name in table.ranges:
        is_whole = isinstance(values[0], int)
        kind = optuna.distributions.IntDistribution if is_whole else optuna.distributions.FloatDistribution
        return kind(values[0], values[-1], log=True)
    if table.is_ordered(name):
        return optuna.distributions.IntDistribution(0, len(values) - 1)
    return optuna.distributions.CategoricalDistribution(ranks)


class SyneTune:
    """One of Syne Tune's multi-objective schedulers, by suggest and on_trial_result."""

    def __init__(self, table: Table, name: str, seed: int, objectives: int = 2) -> None:
        import logging

        import numpy as np
        from syne_tune.optimizer.baselines import EHVI
        from syne_tune.optimizer.schedulers.multiobjective import MultiObjectiveRegularizedEvolution
        from syne_tune.optimizer.schedulers.multiobjective.moasha import MOASHA
        from syne_tune.optimizer.schedulers.multiobjective.multiobjective_priority import LinearScalarizationPriority
        from syne_tune.optimizer.schedulers.searchers.random_searcher import MultiObjectiveRandomSearcher
        from syne_tune.optimizer.schedulers.single_fidelity_scheduler import SingleFidelityScheduler

        logging.getLogger("syne_tune").setLevel(logging.ERROR)
        np.random.seed(seed)  # its samples of a space come from numpy's own generator
        self._names = names = [*(f"cost{workspace}" for workspace in range(objectives - 1)), "loss"]
        space = {axis: _domain(table, axis) for axis in table.axes}
        epochs = max(len(row.curve) for row in table.runs.table.rows) or 1
        scalarised = LinearScalarizationPriority()

        def evolution(**more: Any) -> Any:
            searcher = MultiObjectiveRegularizedEvolution(space, random_seed=seed, **more)
            return SingleFidelityScheduler(space, names, searcher=searcher, random_seed=seed)

        def halving(**more: Any) -> Any:
            return MOASHA(space, names, time_attr="epoch", max_t=epochs, random_seed=seed, **more)

        made: dict[str, Callable[[], Any]] = {
            "random": lambda: SingleFidelityScheduler(
                space, names, searcher=MultiObjectiveRandomSearcher(space, random_seed=seed), random_seed=seed
            ),
            "morea": evolution,
            "morea-20": lambda: evolution(population_size=20, sample_size=5),
            "moasha": halving,
            "moasha-linear": lambda: halving(multiobjective_priority=scalarised),
            "ehvi": lambda: EHVI(space, names, random_seed=seed),
        }
        self._scheduler = made[name]()
        self._axes, self._ranges, self._epochs, self._begun = table.axes, table.ranges, epochs, 0

    def ask(self) -> tuple[Any, Point] | None:
        """The scheduler's next configuration."""
        from syne_tune.backend.trial_status import Trial

        suggestion = self._scheduler.suggest()
        if suggestion is None:
            return None
        trial = Trial(trial_id=self._begun, config=suggestion.config, creation_time=datetime(2026, 1, 1))
        self._begun += 1
        self._scheduler.on_trial_add(trial)
        result = suggestion.config
        return trial, {
            name: result[name] if name in self._ranges else values[int(result[name])]
            for name, values in self._axes.items()
        }

    def goes_on(self, handle: Any, epoch: int, costs: Costs) -> bool:
        """What the scheduler decides at a rung; dollars or seconds are those until then."""
        decision = self._scheduler.on_trial_result(handle, self._result(costs, epoch))
        if decision != "CONTINUE":
            self._scheduler.on_trial_remove(handle)
        return bool(decision == "CONTINUE")

    def tell(self, handle: Any, outcome: Outcome, costs: Costs | None) -> None:
        """The last result, or the error."""
        if costs is None:
            self._scheduler.on_trial_error(handle)
            return
        result = self._result(costs, self._epochs)
        self._scheduler.on_trial_result(handle, result)
        self._scheduler.on_trial_complete(handle, result)

    def _result(self, costs: Costs, epoch: int) -> dict[str, float]:
        return {**dict(zip(self._names, costs, strict=True)), "epoch": epoch}


def _domain(table: Table, name: str) -> Any:
    """What Syne Tune is told of an axis."""
    from syne_tune.config_space import choice, lograndint, loguniform, randint

    values = table.axes[name]
    if name in table.ranges:
        return (lograndint if isinstance(values[0], int) else loguniform)(values[0], values[-1])
    return randint(0, len(values) - 1) if table.is_ordered(name) else choice(list(range(len(values))))


CANNOT = {
    "syne-nsga2": "Syne Tune 0.16.0 has no NSGA-II searcher any more (0.13 had one)",
    "syne-linear-scalarized": "Syne Tune 0.16.0 has no LinearScalarizedScheduler any more; its linear scalarisation is "
    "left as a priority, here that of syne-moasha-linear",
    "syne-multi-surrogate": "its module imports a module that Syne Tune 0.16.0 does not have (random_scalarization)",
}
"""Searchers that were asked about and cannot be driven, and why."""


def naive(table: Table, objectives: str, draw: int) -> Sequence[Booked]:
    """One job, without a search."""
    point = table.naive()
    outcome = table.outcome(point, draw)
    measured = None if outcome.f1 is None else (*_paid(outcome, objectives), outcome.f1)
    return [Booked(usd=outcome.usd, point=point, measured=measured, status=outcome.status)]


__all__ = ["CANNOT", "OptunaAlone", "SyneTune", "drive", "naive"]
