"""Searches by BoTorch, Ax and SMAC over a table.

For BoTorch, a point is numbers from 0 to 1: the rank of a value on an axis of numbers, the logarithm of the value on a
range, a 0 or 1 for each value of any other axis. It chooses among all points of the table (of ranges and large spaces,
among DRAWN points) by qLogNoisyExpectedHypervolumeImprovement, with its defaults: a SingleTaskGP per objective, after
2 (d + 1) random points for d axes. Ax is given axes of numbers as ordered choices, and chooses its own models. SMAC is
its HyperparameterOptimizationFacade (a random forest) with ParEGO, which draws new weights of the objectives for each
job; `eips` divides expected improvement by the logarithm of a job's dollars, with SMAC's own EIPS and its encoder.

BoTorch and SMAC are given the logarithms of dollars and seconds. None of them is told of memory: a job that does not
complete is told with the worst values seen, and to Ax as a failed trial.
"""

import math
import random
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any

from search.peers import Asking
from search.tables import Outcome, Point, Table

DRAWN = 512


class BoTorch(Asking):
    """qLogNEHVI over the points of a table, in one thread."""

    def __init__(self, table: Table, seed: int, objectives: int) -> None:
        import torch

        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self._table, self._objectives = table, objectives
        self._draw = random.Random(seed)
        self._told: list[tuple[Point, tuple[float, ...] | None]] = []
        self._pending: list[Point] = []

    def ask(self) -> tuple[Any, Point] | None:
        """A random point, or the one with the largest acquisition."""
        choices = [self._any() for _ in range(DRAWN)] if self._table.is_interpolated else self._table.points
        started = len(self._told) + len(self._pending)
        reference = [values for _, values in self._told if values is not None]
        if started < 2 * (len(self._table.axes) + 1) or len(reference) < 2:
            point = self._draw.choice(list(choices))
        else:
            point = choices[self._best([self._coordinates(choice) for choice in choices])]
        self._pending.append(point)
        return point, point

    def tell(self, handle: Any, outcome: Outcome, costs: tuple[float, ...] | None) -> None:
        """Costs, or that there are none."""
        self._pending.remove(handle)
        if not outcome.cannot:
            self._told.append((handle, costs))

    def _best(self, choices: list[list[float]]) -> int:
        """The choice with the largest acquisition."""
        import torch
        from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import ModelListGP, SingleTaskGP
        from botorch.optim import optimize_acqf_discrete
        from gpytorch.mlls import SumMarginalLogLikelihood

        history = [values for _, values in self._told if values is not None]
        worst = tuple(map(max, zip(*history, strict=True)))
        at = torch.tensor([self._coordinates(point) for point, _ in self._told], dtype=torch.double)
        reached = -torch.tensor([values or worst for _, values in self._told], dtype=torch.double)
        reached[:, :-1] = -torch.log(-reached[:, :-1])  # dollars and seconds range over decades
        centre, spread = reached.mean(0), reached.std(0).clamp_min(1e-6)
        reached = (reached - centre) / spread
        model = ModelListGP(*(SingleTaskGP(at, reached[:, [workspace]]) for workspace in range(self._objectives)))
        fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
        lows, highs = reached.min(0).values, reached.max(0).values
        reference = lows - 0.1 * (highs - lows)
        pending = [self._coordinates(point) for point in self._pending]
        waiting = torch.tensor(pending, dtype=torch.double) if pending else None
        space = torch.tensor(choices, dtype=torch.double)
        gain = qLogNoisyExpectedHypervolumeImprovement(
            model, ref_point=reference, X_baseline=at, X_pending=waiting, prune_baseline=True
        )
        chosen, _ = optimize_acqf_discrete(gain, q=1, choices=space)
        return int((space - chosen).pow(2).sum(dim=1).argmin())

    def _any(self) -> Point:
        """A random point of a space with ranges."""
        return {
            name: _between(self._draw.random(), values) if name in self._table.ranges else self._draw.choice(values)
            for name, values in self._table.axes.items()
        }

    def _coordinates(self, point: Point) -> list[float]:
        result: list[float] = []
        for name, values in self._table.axes.items():
            if name in self._table.ranges:
                result.append(math.log(point[name] / values[0]) / math.log(values[-1] / values[0]))
            elif self._table.is_ordered(name):
                result.append(values.index(point[name]) / (len(values) - 1))
            else:
                result += [float(point[name] == value) for value in values]
        return result


class Ax(Asking):
    """Ax's client with its own choice of models."""

    def __init__(self, table: Table, seed: int, objectives: int) -> None:
        import logging

        from ax.api.client import Client
        from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        self._table, self._names = table, [f"cost{workspace}" for workspace in range(objectives - 1)] + ["loss"]
        self._client = Client(random_seed=seed)
        parameters: list[Any] = []
        for name, values in table.axes.items():
            kind: Any = "int" if isinstance(values[0], int) else "float"
            if name in table.ranges:
                ends = (float(values[0]), float(values[-1]))
                parameters.append(RangeParameterConfig(name=name, parameter_type=kind, bounds=ends, scaling="log"))
                continue
            ranks = list(range(len(values)))
            ordered = table.is_ordered(name)
            parameters.append(ChoiceParameterConfig(name=name, parameter_type="int", values=ranks, is_ordered=ordered))
        self._client.configure_experiment(parameters=parameters)
        self._client.configure_optimization(objective=", ".join(f"-{name}" for name in self._names))

    def ask(self) -> tuple[Any, Point] | None:
        """The next trial."""
        ((number, result),) = self._client.get_next_trials(max_trials=1).items()
        return number, self._table.chosen(result)

    def tell(self, handle: Any, outcome: Outcome, costs: tuple[float, ...] | None) -> None:
        """Costs, or a failed trial."""
        if costs is None:
            self._client.mark_trial_failed(trial_index=handle)
        else:
            self._client.complete_trial(trial_index=handle, raw_data=dict(zip(self._names, costs, strict=True)))


class Smac(Asking):
    """SMAC's facade for hyperparameters, with ParEGO over the objectives.

    Args:
        table: what is searched.
        seed: of its draws.
        objectives: how many.
        jobs: SMAC's `n_trials`; a quarter of them at most are its initial design.
    """

    def __init__(self, table: Table, seed: int, objectives: int, jobs: int) -> None:
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
        names = [*(f"cost{number}" for number in range(objectives - 1)), "loss"]
        self._folder = tempfile.TemporaryDirectory(prefix="smac-")
        scenario = Scenario(
            space,
            objectives=names,
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

    def tell(self, handle: Any, outcome: Outcome, costs: tuple[float, ...] | None) -> None:
        """Costs, or a crash with the worst ones seen, as soon as there are any."""
        from smac.runhistory import StatusType, TrialValue

        if costs is None:
            self._untold.append((handle, outcome.usd))
        else:
            values = [*map(math.log, costs[:-1]), costs[-1]]
            self._worst = list(map(max, self._worst or values, values))
            self._facade.tell(handle, TrialValue(cost=values, time=outcome.usd), save=False)
        while self._worst and self._untold:
            trial, usd = self._untold.pop()
            crash = TrialValue(cost=list(self._worst), time=usd, status=StatusType.CRASHED)
            self._facade.tell(trial, crash, save=False)


def _never(config: object, seed: int = 0) -> float:
    """SMAC wants a function, which it calls only when it is not asked and told."""
    raise NotImplementedError


def _between(share: float, values: tuple[Any, ...]) -> Any:
    """A value of a range, equal by ratio."""
    value = values[0] * (values[-1] / values[0]) ** share
    return round(value) if isinstance(values[0], int) else value
