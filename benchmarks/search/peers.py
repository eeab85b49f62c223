"""Searches by others over a table: Optuna's samplers, Syne Tune's evolution, and FLAML's cost-frugal search.

All of them search the same points with their libraries' defaults. Axes of numbers are given as ordered ones, by rank;
what is no number as categories. Nobody here remembers answers, for none of these libraries does: what is suggested
twice is paid twice (and counted). What each of them makes of two objectives and of jobs that run out of memory:

    Optuna     a front; memory as a constraint (`Trial.set_constraint`), with the worst values seen so far for
               objectives, as no sampler looks at them
    Syne Tune  a front; memory is `on_trial_error`
    FLAML      one objective: F1. Dollars, or seconds, are its `cost_attr`, and it begins with one instance as its
               low-cost point, so that what it runs grows dearer as F1 improves; memory is an error
"""

import heapq
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

from paretune.estimating.recorded_runs import OUT_OF_MEMORY
from search.scoring import OBJECTIVES, Booked
from search.tables import Outcome, Point, Table

Costs = tuple[float, ...]
"""What is minimised: dollars, seconds or both, and the negative of F1."""


_REPEAT = 1000
"""Between the draws of a job's repeats; seeds of searches are smaller."""


class Asking(ABC):
    """A search that is asked for points and told what came out."""

    @abstractmethod
    def ask(self) -> tuple[Any, Point] | None:
        """A handle and a point; None when it has no more."""

    @abstractmethod
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
    running: list[tuple[float, int, Any, Point, Outcome]] = []
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
            heapq.heappush(running, (now + outcome.seconds, started, handle, point, outcome))
        if not running:
            return booked
        now, _, handle, point, outcome = heapq.heappop(running)
        figures = {"cost_usd": outcome.usd, "billable_seconds": outcome.seconds, "f1": outcome.f1 or 0.0}
        measured = tuple(figures[name] for name in OBJECTIVES[objectives]) if outcome.f1 is not None else None
        asking.tell(handle, outcome, None if measured is None else (*measured[:-1], -measured[-1]))
        at = None if "probe_steps" in point else point
        booked.append(Booked(usd=outcome.usd, point=at, measured=measured, status=outcome.status))
        spent += outcome.usd


class OptunaAlone(Asking):
    """One of Optuna's samplers by ask and tell, in memory."""

    def __init__(self, table: Table, sampler: str, seed: int, objectives: int = 2) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore")
        samplers: dict[str, Callable[[], Any]] = {
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
            "gp": lambda: optuna.samplers.GPSampler(seed=seed),
            "random": lambda: optuna.samplers.RandomSampler(seed=seed),
        }
        self._study = optuna.create_study(directions=["minimize"] * objectives, sampler=samplers[sampler]())
        kinds = optuna.distributions
        self._table = table
        self._space = table.domains(
            lambda low, high: (kinds.IntDistribution if isinstance(low, int) else kinds.FloatDistribution)(
                low, high, log=True
            ),
            lambda count: kinds.IntDistribution(0, count - 1),
            lambda count: kinds.CategoricalDistribution(list(range(count))),
        )
        self._worst = (0.0,) * objectives

    def ask(self) -> tuple[Any, Point] | None:
        """The sampler's next point."""
        trial = self._study.ask(self._space)
        return trial, self._table.chosen(trial.params)

    def tell(self, handle: Any, outcome: Outcome, costs: Costs | None) -> None:
        """Values, or the constraint that was violated."""
        import optuna

        if costs is None and outcome.status != OUT_OF_MEMORY:
            self._study.tell(handle, state=optuna.trial.TrialState.FAIL)
            return
        handle.set_constraint("memory", 1.0 if costs is None else 0.0)
        if costs is not None:
            self._worst = tuple(map(max, self._worst, costs))
        self._study.tell(handle, list(costs or self._worst))


class SyneTune(Asking):
    """Syne Tune's multi-objective regularised evolution, by suggest and on_trial_result."""

    def __init__(self, table: Table, seed: int, objectives: int = 2) -> None:
        import logging

        import numpy as np
        from syne_tune.config_space import choice, lograndint, loguniform, randint
        from syne_tune.optimizer.schedulers.multiobjective import MultiObjectiveRegularizedEvolution
        from syne_tune.optimizer.schedulers.single_fidelity_scheduler import SingleFidelityScheduler

        logging.getLogger("syne_tune").setLevel(logging.ERROR)
        np.random.seed(seed)  # its samples of a space come from numpy's own generator
        self._names = names = [*(f"cost{workspace}" for workspace in range(objectives - 1)), "loss"]
        space = table.domains(
            lambda low, high: (lograndint if isinstance(low, int) else loguniform)(low, high),
            lambda count: randint(0, count - 1),
            lambda count: choice(list(range(count))),
        )
        searcher = MultiObjectiveRegularizedEvolution(space, random_seed=seed)
        self._scheduler = SingleFidelityScheduler(space, names, searcher=searcher, random_seed=seed)
        self._table, self._begun = table, 0

    def ask(self) -> tuple[Any, Point] | None:
        """The scheduler's next configuration."""
        from syne_tune.backend.trial_status import Trial

        suggestion = self._scheduler.suggest()
        if suggestion is None:
            return None
        trial = Trial(trial_id=self._begun, config=suggestion.config, creation_time=datetime(2026, 1, 1))
        self._begun += 1
        self._scheduler.on_trial_add(trial)
        return trial, self._table.chosen(suggestion.config)

    def tell(self, handle: Any, outcome: Outcome, costs: Costs | None) -> None:
        """The last result, or the error."""
        if costs is None:
            self._scheduler.on_trial_error(handle)
            return
        result = dict(zip(self._names, costs, strict=True))
        self._scheduler.on_trial_result(handle, result)
        self._scheduler.on_trial_complete(handle, result)


class Flaml(Asking):
    """FLAML's BlendSearch, by suggest and on_trial_complete."""

    def __init__(self, table: Table, seed: int) -> None:
        import logging

        import optuna
        from flaml import tune
        from flaml.tune.searcher import blendsearch

        optuna.logging.set_verbosity(optuna.logging.ERROR)  # BlendSearch asks Optuna for its global search
        logging.getLogger("flaml").setLevel(logging.ERROR)
        space = table.domains(
            lambda low, high: (tune.lograndint if isinstance(low, int) else tune.loguniform)(low, high),
            lambda count: tune.randint(0, count),
            lambda count: tune.choice(list(range(count))),
        )
        cheap = {"instance_count": 0} if "instance_count" in table.axes else {}
        terms: dict[str, Any] = {"space": space, "low_cost_partial_config": cheap, "seed": seed, "num_samples": -1}
        self._search = blendsearch.BlendSearch(metric="loss", mode="min", cost_attr="paid", **terms)
        self._table, self._asked = table, 0

    def ask(self) -> tuple[Any, Point] | None:
        """The next configuration; a search that suggests nothing a hundred times is at its end."""
        for _ in range(100):
            self._asked += 1
            config = self._search.suggest(str(self._asked))
            if config is not None:
                return (str(self._asked), config), self._table.chosen(config)
        return None

    def tell(self, handle: Any, outcome: Outcome, costs: Costs | None) -> None:
        """F1 and what was paid for it, or the error."""
        number, config = handle
        result = None if costs is None else {"loss": costs[-1], "paid": costs[0], "config": config}
        self._search.on_trial_complete(number, result, error=costs is None)
