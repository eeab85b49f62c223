"""A plain rival for measured runs: Gaussian processes for log dollars and for quality, and gain per dollar.

It expects dollars to grow with the square root of a job's price per second. It begins in the middle of the space. Then
it always runs the job with the most expected hypervolume per expected dollar, both of which are uncertain. It never
stops by itself.
"""

import math
from typing import Any

import numpy as np

from paretune.core.pareto import front
from paretune.studies.sampler.decision import expected_improvement
from paretune.studies.sampler.opinion import PlainModel
from paretune.studies.sampler.quality import are_numbers, scaled
from search.grids import Grid
from search.peers import Asking
from search.tables import Costs, Outcome, Point

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(3)


class Plain(Asking):
    """The rival on a grid; it asks for every point at most once."""

    def __init__(self, table: Grid) -> None:
        columns = []
        for name, values in table.axes.items():
            column = scaled([point[name] for point in table.points], values)
            columns.append(column if are_numbers(values) else column / column.max() / math.sqrt(2.0))
        self._keys = np.hstack(columns)
        self._axes = np.repeat(range(len(columns)), [column.shape[1] for column in columns])
        price = np.log(table.prices)
        self._usual = 0.5 * (price - np.median(price))
        self._points, self._ran = table.points, list[int]()
        self._results = list[tuple[float, float]]()

    def ask(self) -> tuple[Any, Point] | None:
        """Return first the job in the middle, on the cheapest cluster, then the one with the most gain per dollar."""
        if len(self._ran) == len(self._points):
            return None
        off = np.abs(self._keys - np.median(self._keys, axis=0)).sum(axis=1)
        index = self._best() if self._results else int(np.argmin(off + self._usual / max(np.ptp(self._usual), 1e-9)))
        return index, self._points[index]

    def tell(self, handle: Any, outcome: Outcome, costs: Costs | None) -> None:
        """Record what a job has cost, and its quality."""
        self._ran.append(handle)
        self._results.append(costs or (outcome.usd, math.inf))

    def _best(self) -> int:
        paid = np.array(self._results)
        ran = self._keys[self._ran]
        log_usd, usd_sd = self._predict(ran, np.log(paid[:, 0]) - self._usual[self._ran])
        log_usd = log_usd + self._usual
        mean, deviation = self._predict(ran, -paid[:, 1])
        usd = np.exp(log_usd)
        hoped = np.vstack([paid, np.column_stack([usd, -(mean + deviation)])])
        hoped = hoped[front(hoped.tolist(), [False, False])]
        reference = hoped.max(axis=0) + 0.1 * np.ptp(hoped, axis=0)
        best = paid[front(paid.tolist(), [False, False])]
        gains = sum(
            weight * expected_improvement((usd * np.exp(node * usd_sd))[:, None], mean, deviation, best, reference)
            for node, weight in zip(_NODES, _WEIGHTS, strict=True)
        )
        worth = gains / (usd * np.exp(0.5 * np.minimum(usd_sd, 1.5) ** 2))
        worth[self._ran] = -1.0
        return int(np.argmax(worth))

    def _predict(self, ran: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return PlainModel(ran, self._axes, values).predict(self._keys)
