"""Searches by others over a table: Optuna's samplers, Syne Tune's evolution, FLAML's cost-frugal search, and SMAC.

All of them search the same points with their libraries' defaults. Axes of numbers are given as ordered ones, by rank;
what is no number as categories. Nobody here remembers answers, for none of these libraries does: what is suggested
twice is paid twice (and counted). What each of them makes of two objectives and of jobs that run out of memory:

    Optuna     a front; memory as a constraint (`Trial.set_constraint`), with the worst values seen so far for
               objectives, as no sampler looks at them
    Syne Tune  a front; memory is `on_trial_error`
    FLAML      one objective: F1. Dollars are its `cost_attr`, and it begins with one instance as its low-cost point,
               so that what it runs grows dearer as F1 improves; memory is an error
    SMAC       its HyperparameterOptimizationFacade (a random forest) with ParEGO, which draws new weights of the
               objectives for each job, over the logarithm of dollars; memory is a crash with the worst values seen
"""

import math
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from paretune.launchers.simulated.recorded_runs import OUT_OF_MEMORY
from search.scoring import Booked
from search.tables import Costs, Outcome, Point, Table

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


def drive(asking: Asking, table: Table, *, draw: int, most_usd: float, most: int) -> list[Booked]:
    """Run a search, one job after the other, until its dollars or jobs are spent.

    A job that is run again is another repeat, as after a failure.
    """
    ran: Counter[str] = Counter()
    booked: list[Booked] = []
    refused, spent = 0, 0.0
    while spent < most_usd and len(booked) < most and refused < 100 and (answer := asking.ask()) is not None:
        handle, point = answer
        outcome = table.outcome(point, draw + _REPEAT * ran[str(point)])
        ran[str(point)] += 1
        costs = None if outcome.f1 is None else (outcome.usd, -outcome.f1)
        asking.tell(handle, outcome, costs)
        if outcome.cannot:  # nothing can be run there, and nothing is paid
            refused += 1
            continue
        at = None if "probe_steps" in point else point
        booked.append(Booked(usd=outcome.usd, point=at, costs=costs, status=outcome.status))
        spent, refused = spent + outcome.usd, 0
    return booked


class OptunaAlone(Asking):
    """One of Optuna's samplers by ask and tell, in memory."""

    def __init__(self, table: Table, sampler: str, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore")
        samplers: dict[str, Callable[[], Any]] = {
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
            "gp": lambda: optuna.samplers.GPSampler(seed=seed),
            "random": lambda: optuna.samplers.RandomSampler(seed=seed),
        }
        self._study = optuna.create_study(directions=["minimize"] * 2, sampler=samplers[sampler]())
        kinds = optuna.distributions
        self._table = table
        self._space = table.domains(
            lambda low, high: (kinds.IntDistribution if isinstance(low, int) else kinds.FloatDistribution)(
                low, high, log=True
            ),
            lambda count: kinds.IntDistribution(0, count - 1),
            lambda count: kinds.CategoricalDistribution(list(range(count))),
        )
        self._worst: tuple[float, ...] = (0.0, 0.0)

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

    def __init__(self, table: Table, seed: int) -> None:
        import logging

        import numpy as np
        from syne_tune.config_space import choice, lograndint, loguniform, randint
        from syne_tune.optimizer.schedulers.multiobjective import MultiObjectiveRegularizedEvolution
        from syne_tune.optimizer.schedulers.single_fidelity_scheduler import SingleFidelityScheduler

        logging.getLogger("syne_tune").setLevel(logging.ERROR)
        np.random.seed(seed)  # its samples of a space come from numpy's own generator
        self._names = names = ["cost", "loss"]
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


class Smac(Asking):
    """SMAC's facade for hyperparameters, with ParEGO over the objectives.

    `jobs` is SMAC's `n_trials`; a quarter of them at most are its initial design.
    """

    def __init__(self, table: Table, seed: int, jobs: int) -> None:
        import logging

        from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer
        from smac import HyperparameterOptimizationFacade as Facade
        from smac import Scenario
        from smac.multi_objective.parego import ParEGO

        warnings.simplefilter("ignore")
        made = table.domains(
            lambda low, high: partial(Integer if isinstance(low, int) else Float, bounds=(low, high), log=True),
            lambda count: partial(Integer, bounds=(0, count - 1)),
            lambda count: partial(Categorical, items=list(range(count))),
        )
        space = ConfigurationSpace(seed=seed)
        space.add([make(name) for name, make in made.items()])
        self._folder = tempfile.TemporaryDirectory(prefix="smac-")
        scenario = Scenario(
            space,
            objectives=["cost", "loss"],
            deterministic=True,  # it would repeat each configuration with other seeds
            n_trials=jobs,
            seed=seed,
            output_directory=Path(self._folder.name),
        )
        parego = ParEGO(scenario)
        self._facade = Facade(
            scenario, _never, multi_objective_algorithm=parego, overwrite=True, logging_level=logging.ERROR
        )
        self._table = table
        self._worst: list[float] = []
        self._untold: list[tuple[Any, float]] = []

    def ask(self) -> tuple[Any, Point] | None:
        """The facade's next trial."""
        trial = self._facade.ask()
        return trial, self._table.chosen(trial.config)

    def tell(self, handle: Any, outcome: Outcome, costs: Costs | None) -> None:
        """Costs, or a crash with the worst ones seen, as soon as there are any."""
        from smac.runhistory import StatusType, TrialValue

        if costs is None:
            self._untold.append((handle, outcome.usd))
        else:
            values = [math.log(costs[0]), costs[1]]
            self._worst = list(map(max, self._worst or values, values))
            self._facade.tell(handle, TrialValue(cost=values, time=outcome.usd), save=False)
        while self._worst and self._untold:
            trial, usd = self._untold.pop()
            crash = TrialValue(cost=list(self._worst), time=usd, status=StatusType.CRASHED)
            self._facade.tell(trial, crash, save=False)


def _never(config: object, seed: int = 0) -> float:
    """SMAC wants a function, which it calls only when it is not asked and told."""
    raise NotImplementedError
