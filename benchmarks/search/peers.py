"""Searches of a table by Optuna's own samplers.

They search the same points as paretune, with their defaults, except that NSGA-II has a population of ten: fifty do not
fit the budget. A sampler gets an axis of numbers as ordered ranks, and any other axis as categories. No sampler
remembers answers: a point that is suggested twice is paid twice (and counted). A job that runs out of memory violates a
constraint (`Trial.set_constraint`). It gets the worst values so far as objectives, because no sampler looks at the
objectives of such a job. A constraint of the table is treated in the same way.
"""

import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any

from paretune.launchers.simulated.recorded_runs import OUT_OF_MEMORY
from search.scoring import EndedJob
from search.tables import Costs, Outcome, Point, Table

_REPEAT = 1000
"""Distance between the draws of a job's repeats; seeds of searches are smaller."""


class Asking(ABC):
    """A search that is asked for points and gets their results."""

    @abstractmethod
    def ask(self) -> tuple[Any, Point] | None:
        """Return a handle and a point, or None when the search has no more."""

    @abstractmethod
    def tell(self, handle: Any, outcome: Outcome, costs: Costs | None) -> None:
        """Record how a job has ended; `costs` is None unless it completed."""


def drive(asking: Asking, table: Table, *, draw: int, most_usd: float, most: int) -> list[EndedJob]:
    """Run a search, one job after the other, until its dollars or jobs are used up.

    A point that runs again gets its next repeat, like a job that is retried.
    """
    ran: Counter[str] = Counter()
    ended: list[EndedJob] = []
    refused, spent = 0, 0.0
    while spent < most_usd and len(ended) < most and refused < 100 and (answer := asking.ask()) is not None:
        handle, point = answer
        outcome = table.outcome(point, draw + _REPEAT * ran[str(point)])
        ran[str(point)] += 1
        costs = None if outcome.f1 is None else (outcome.usd, -outcome.f1)
        asking.tell(handle, outcome, costs)
        if outcome.cannot:  # nothing can be run there, and nothing is paid
            refused += 1
            continue
        at = None if "probe_steps" in point else point
        ended.append(EndedJob(usd=outcome.usd, point=at, costs=costs, status=outcome.status))
        spent, refused = spent + outcome.usd, 0
    return ended


class OptunaAlone(Asking):
    """One of Optuna's samplers, used by ask and tell, in memory."""

    def __init__(self, table: Table, sampler: str, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore")
        samplers: dict[str, Callable[[], Any]] = {
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
            "gp": lambda: optuna.samplers.GPSampler(seed=seed),
            "nsga2": lambda: optuna.samplers.NSGAIISampler(population_size=10, seed=seed),
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
        """Return the sampler's next point."""
        trial = self._study.ask(self._space)
        return trial, self._table.chosen(trial.params)

    def tell(self, handle: Any, outcome: Outcome, costs: Costs | None) -> None:
        """Report the values of a job to Optuna, or the constraint that it violated."""
        import optuna

        if costs is None and outcome.status != OUT_OF_MEMORY:
            self._study.tell(handle, state=optuna.trial.TrialState.FAIL)
            return
        handle.set_constraint("memory", 1.0 if costs is None else 0.0)
        if self._table.constraints:
            handle.set_constraint("limit", self._table.excess(outcome))
        if costs is not None:
            self._worst = tuple(map(max, self._worst, costs))
        self._study.tell(handle, list(costs or self._worst))
