"""Which of the searched parameters an objective depends on: permutation importance of a random forest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FEWEST = 8
"""Completed configurations below which nothing is said."""
_MOST = 300  # configurations a forest is grown on; more of them change the shares by less than the folds do
_FOLDS = 4
_TREES = 40
_SHUFFLES = 5


@dataclass(frozen=True, kw_only=True)
class Importance:
    """How much worse an objective is predicted when one parameter is shuffled.

    Attributes:
        shares: growth of the squared error, as a share of the objective's variance; above 1 where one alone decides.
        explained: share of the variance predicted on unseen configurations (R2); near 0 or below, shares mean nothing.
    """

    shares: Mapping[str, float]
    explained: float


def importance(points: Sequence[Mapping[str, Any]], values: Sequence[float], seed: int = 0) -> Importance | None:
    """Importance of each parameter for one objective; None with fewer than 8 points, or where nothing varies.

    The objective is replaced by its ranks, so that a few dear points do not decide alone. Trees are grown on three
    quarters of the points, and parameters shuffled in the other quarter (Breiman, Machine Learning 45, 2001).
    All points have the same parameters.
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
    """Mean squared errors on unseen points: as they are, and for each parameter shuffled."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.model_selection import KFold

    columns = features.shape[1]
    plain, shuffled = 0.0, np.zeros(columns)
    for train, test in KFold(_FOLDS).split(features):  # in the order of a permutation already
        forest = RandomForestRegressor(_TREES, max_features=max(1, columns // 2), min_samples_leaf=2, random_state=0)
        forest.fit(features[train], target[train])
        copies = np.repeat(features[test][None], 1 + columns * _SHUFFLES, axis=0)
        for copy in range(columns * _SHUFFLES):
            column = copy // _SHUFFLES
            copies[1 + copy, :, column] = random.permutation(copies[1 + copy, :, column])
        # One call for all copies: permutation_importance of scikit-learn makes one for each, and takes 3 times as long.
        told = forest.predict(copies.reshape(-1, columns)).reshape(len(copies), len(test))
        squares = ((told - target[test]) ** 2).sum(axis=1)
        plain += float(squares[0])
        shuffled += squares[1:].reshape(columns, _SHUFFLES).mean(axis=1)
    return plain / len(target), shuffled / len(target)


def _codes(values: Sequence[Any]) -> Any:
    """Numbers as they are (trees see only their order), anything else by its index in alphabetical order."""
    try:
        return np.asarray([float(value) for value in values])
    except (TypeError, ValueError):
        return np.unique([str(value) for value in values], return_inverse=True)[1].astype(float)
