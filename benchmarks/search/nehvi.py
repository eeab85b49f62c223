"""BoTorch's noisy expected hypervolume improvement per expected dollar, on any table.

Two Gaussian processes of BoTorch, with its default priors and a length scale for each parameter, learn the logarithm of
seconds and the quality. The price of a second is known. The next job is the one with the largest qLogNEHVI minus the
logarithm of its expected dollars. A search begins in the middle of the space and with three random cheap jobs. Nothing
else is known: no probes, memory or constraints; jobs that fail are left out of the models and not tried again. It never
stops by itself.
"""

from typing import Any

import numpy as np
import torch
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.multi_objective.objective import GenericMCMultiOutputObjective
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood

from paretune.core.pareto import front
from paretune.studies.sampler.process import Axes, Axis
from search.grids import Grid
from search.peers import Asking
from search.tables import Costs, Outcome, Point

_FIRST, _LEAST, _SAMPLES, _BATCH = 3, 2, 32, 128


class Nehvi(Asking):
    """Asks for every point of a grid at most once."""

    def __init__(self, table: Grid, seed: int) -> None:
        torch.manual_seed(seed)
        axes = Axes({name: Axis(tuple(values)) for name, values in table.axes.items()})
        self._points, self._keys = table.points, torch.tensor(axes.keys(table.points), dtype=torch.double)
        self._log_price = np.log(table.prices)
        keys = self._keys.numpy()
        self._off = np.linalg.norm(keys - np.median(keys, axis=0), axis=1) + self._log_price - self._log_price.min()
        cheap = np.flatnonzero(self._log_price <= np.median(self._log_price))
        drawn = np.random.default_rng(seed).choice(cheap, _FIRST, replace=False)
        self._first = list(dict.fromkeys([int(self._off.argmin()), *drawn.tolist()]))
        self._ran = list[int]()
        self._results = dict[int, tuple[float, float]]()  # of the jobs that completed

    def ask(self) -> tuple[Any, Point] | None:
        """Return one of the first jobs, then the one with the largest gain per dollar."""
        if len(self._ran) == len(self._points):
            return None
        if len(self._ran) < len(self._first):
            index = self._first[len(self._ran)]
        elif len(self._results) < _LEAST:  # too few for a model
            left = np.setdiff1d(np.arange(len(self._points)), self._ran)
            index = int(left[np.argmin(self._off[left])])
        else:
            index = self._best()
        return index, self._points[index]

    def tell(self, handle: Any, outcome: Outcome, costs: Costs | None) -> None:
        """Record that a job has ended and, if it completed, its dollars and quality."""
        self._ran.append(handle)
        if costs is not None:
            self._results[handle] = costs

    def _best(self) -> int:
        paid, completed = np.array([*self._results.values()]), [*self._results]
        ran = self._keys[completed]
        targets = np.log(paid[:, 0]) - self._log_price[completed], -paid[:, 1]
        models = [SingleTaskGP(ran, torch.tensor(each)[:, None]) for each in targets]
        for model in models:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        both = ModelListGP(*models)
        with torch.no_grad():
            posterior = both.posterior(self._keys)
        mean, deviation = posterior.mean.numpy(), posterior.variance.sqrt().numpy()
        usd = np.exp(mean[:, 0] + self._log_price)
        hoped = np.vstack([paid, np.column_stack([usd, -(mean[:, 1] + deviation[:, 1])])])
        hoped = hoped[front(hoped.tolist(), [False, False])]
        reference, span = hoped.max(axis=0) + 0.1 * np.ptp(hoped, axis=0), np.maximum(np.ptp(hoped, axis=0), 1e-12)
        price = torch.tensor(self._log_price)

        def objectives(values: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
            of_keys = price[torch.cdist(inputs["X"], self._keys).argmin(-1)]
            gains = torch.stack([-torch.exp(values[..., 0] + of_keys), values[..., 1]], -1)
            return gains / torch.tensor(span)

        acquisition = qLogNoisyExpectedHypervolumeImprovement(
            model=both,
            ref_point=(-reference / span).tolist(),
            X_baseline=ran,
            sampler=SobolQMCNormalSampler(torch.Size([_SAMPLES]), seed=0),
            objective=GenericMCMultiOutputObjective(objectives),
            prune_baseline=True,
            cache_root=False,
        )
        left = np.setdiff1d(np.arange(len(self._points)), self._ran)
        with torch.no_grad():
            parts = [torch.tensor(left[first : first + _BATCH]) for first in range(0, len(left), _BATCH)]
            gains = [acquisition(self._keys[part][:, None]) for part in parts]
        mean_log_usd = mean[left, 0] + self._log_price[left] + 0.5 * np.minimum(deviation[left, 0], 1.5) ** 2
        return int(left[int(np.argmax(torch.cat(gains).numpy() - mean_log_usd))])
