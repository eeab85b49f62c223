"""Expected hypervolume: what a job may add to a front whose costs are known and whose quality is normal."""

from collections.abc import Mapping

import numpy as np
from moocore import filter_dominated

from paretune.studies.results.hypervolume import hypervolume, hypervolume_improvement

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
_REACH = 3.0
"""Times the least cost of the front, up to which it may grow although no better quality is expected there: a model that
is sure too early never looks."""
Bounds = Mapping[str, Mapping[str, float]]


def front_of(points: np.ndarray) -> np.ndarray:
    """The non-dominated rows of N points, shape (N, M), all objectives minimised."""
    return np.asarray(filter_dominated(points)) if len(points) else points


def reference_of(front: np.ndarray, noise: float) -> tuple[np.ndarray, float]:
    """A point a little beyond the ends of a front, quality in its last column, and the hypervolume up to there."""
    low, high = front.min(axis=0), front.max(axis=0)
    reference = np.maximum(1.05 * high + 0.1 * (high - low), _REACH * low)
    reference[-1] = high[-1] + 0.1 * (high[-1] - low[-1]) + noise
    return reference, max(hypervolume(front.tolist(), reference.tolist()), 1e-12)


def expected_improvement(
    costs: np.ndarray, mean: np.ndarray, deviation: np.ndarray, front: np.ndarray, reference: np.ndarray
) -> np.ndarray:
    """What each of N jobs alone is expected to add to a front: costs of shape (N, M - 1), quality normal."""
    gains = np.zeros(len(mean))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        points = np.column_stack([costs, -(mean + node * deviation)])
        gains += weight * hypervolume_improvement(points, front, reference)
    return np.asarray(gains / _WEIGHTS.sum())
