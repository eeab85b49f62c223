"""Permutation importance of the searched parameters for an objective, by a random forest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FEWEST = 8
"""Completed configurations that the importance needs at least."""
_MOST = 300  # configurations for a forest; more change the shares by less than the folds do
_FOLDS = 4
_TREES = 40
_SHUFFLES = 5


@dataclass(frozen=True, kw_only=True)
class Importance:
    """The loss of an objective's prediction when one parameter is shuffled.

    Attributes:
        shares: growth of the squared error as a share of the objective's variance; above 1 if one parameter decides.
        explained: R2 on unseen configurations; if it is near 0 or below, the shares mean nothing.
    """

    shares: Mapping[str, float]
    explained: float


def importance(points: Sequence[Mapping[str, Any]], values: Sequence[float], seed: int = 0) -> Importance | None:
    """Importance of each parameter for one objective; None with fewer than 8 points, or if nothing varies.

    The objective is replaced by its ranks, so that a few dear points do not dominate. Trees are grown on three quarters
    of the points, and parameters shuffled in the other quarter (Breiman, Machine Learning 45, 2001). All points must
    have the same parameters.
    """
    names = [name for name in (points[0] if points else {}) if len({str(point.get(name)) for point in points}) > 1]
    if len(points) < FEWEST or not names or len(set(values)) < 2:
        return None
    from scipy.stats import rankdata

    random = np.random.default_rng(seed)
    chosen = random.permutation(len(points))[:_MOST]
    features = np.column_stack([_codes([points[index].get(name) for index in chosen]) for name in names])
    target = rankdata(np.asarray(values, dtype=float)[chosen])
    if target.var() == 0:
        return None
    plain, shuffled = _errors(features, target, random)
    variance = float(target.var())
    shares = {name: max(0.0, float(shuffled[column] - plain) / variance) for column, name in enumerate(names)}
    return Importance(shares=shares, explained=1 - plain / variance)


def _errors(features: Any, target: Any, random: Any) -> tuple[float, Any]:
    """Mean squared errors on unseen points: without shuffling, and with each parameter shuffled."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.model_selection import KFold

    columns = features.shape[1]
    plain, shuffled = 0.0, np.zeros(columns)
    for train, test in KFold(_FOLDS).split(features):  # the rows are permuted already
        forest = RandomForestRegressor(_TREES, max_features=max(1, columns // 2), min_samples_leaf=2, random_state=0)
        forest.fit(features[train], target[train])
        copies = np.repeat(features[test][None], 1 + columns * _SHUFFLES, axis=0)
        for copy in range(columns * _SHUFFLES):
            column = copy // _SHUFFLES
            copies[1 + copy, :, column] = random.permutation(copies[1 + copy, :, column])
        # One call for all copies: scikit-learn's permutation_importance makes one for each and takes 3 times as long.
        predicted = forest.predict(copies.reshape(-1, columns)).reshape(len(copies), len(test))
        squares = ((predicted - target[test]) ** 2).sum(axis=1)
        plain += float(squares[0])
        shuffled += squares[1:].reshape(columns, _SHUFFLES).mean(axis=1)
    return plain / len(target), shuffled / len(target)


def _codes(values: Sequence[Any]) -> Any:
    """Numbers unchanged (trees use only their order), other values by their index in alphabetical order."""
    try:
        return np.asarray([float(value) for value in values])
    except (TypeError, ValueError):
        return np.unique([str(value) for value in values], return_inverse=True)[1].astype(float)
