"""A price-aware forest: what somebody who knows prices and scikit-learn would write in sixty lines.

Two random forests learn the logarithm of seconds and the quality from all jobs so far. The next job is the one with the
most expected hypervolume per dollar; the spread over trees is the uncertainty. A search begins with three random jobs.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from paretune.core.pareto import front
from paretune.launchers.simulated.recorded_runs import OUT_OF_MEMORY
from search.improvement import expected_improvement
from search.peers import Asking
from search.tables import Costs, Outcome, Point, Table

_FIRST = 3


class Forest(Asking):
    """Asks for every point at most once; a point that ran out of memory or failed is not tried again."""

    def __init__(self, table: Table, seed: int) -> None:
        self._draw, self._seed = np.random.default_rng(seed), seed
        self._left = [point for point in table.points if table.spec(point) is not None]
        self._usd_per_s = {str(p): table.usd(spec, 1.0) for p in self._left if (spec := table.spec(p)) is not None}
        self._columns = {name: list(values) for name, values in table.axes.items()}
        self._numbers = {name for name in table.axes if table.is_ordered(name)}
        self._results: list[tuple[Point, float, Costs]] = []

    def ask(self) -> tuple[Any, Point] | None:
        """Return a random point at first, then the one with the most gain per dollar."""
        if not self._left:
            return None
        at = int(self._draw.integers(len(self._left))) if len(self._results) < _FIRST else self._best()
        point = self._left.pop(at)
        return point, point

    def tell(self, handle: Any, outcome: Outcome, costs: Costs | None) -> None:
        """Record how a job has ended."""
        if costs is not None:
            self._results.append((handle, outcome.seconds, costs))
        elif outcome.status == OUT_OF_MEMORY:
            batch, name = handle.get("per_device_train_batch_size", 0), handle["instance_type"]
            self._left = [
                p for p in self._left if p["instance_type"] != name or p["per_device_train_batch_size"] < batch
            ]

    def _best(self) -> int:
        keys = self._keys([point for point, _, _ in self._results])
        seconds, _ = self._forest(keys, np.log([s for _, s, _ in self._results]))
        mean, deviation = self._forest(keys, np.array([-costs[1] for _, _, costs in self._results]))
        usd = np.exp(seconds) * [self._usd_per_s[str(point)] for point in self._left]
        ran = np.array([costs for _, _, costs in self._results])
        best = ran[front(ran.tolist(), [False, False])]
        worst, span = ran.max(axis=0), np.ptp(ran, axis=0)
        gains = expected_improvement(usd[:, None], mean, deviation + 1e-9, best, worst + 0.1 * span)
        return int(np.argmax(gains / usd))

    def _forest(self, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the deviation over trees at all points that have not run."""
        model = RandomForestRegressor(50, min_samples_leaf=1, random_state=self._seed).fit(keys, values)
        each = np.array([tree.predict(self._keys(self._left)) for tree in model.estimators_])
        return each.mean(axis=0), each.std(axis=0)

    def _keys(self, points: Sequence[Point]) -> np.ndarray:
        """Return points as numbers: the rank of a number among its values, and a column for each string."""
        columns = []
        for name, values in self._columns.items():
            at = np.array([values.index(point[name]) for point in points])
            columns.append(at[:, None] if name in self._numbers else np.eye(len(values))[at])
        return np.hstack(columns).astype(float)
