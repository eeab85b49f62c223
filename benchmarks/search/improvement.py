"""The expected increase of a front's hypervolume, by quadrature, for the searches that paretune is compared with."""

import itertools
import math

import numpy as np

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(5)  # of Gauss-Hermite quadrature over quality


def hypervolume_improvement(points: np.ndarray, front: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return the hypervolume that each of N points, shape (N, M), adds to that of a front of K points, shape (K, M).

    All objectives are minimized. Points beyond the reference point add nothing. The volume is cut into slabs along the
    last objective. Within each slab, a recursive call computes the volume in the other objectives.
    """
    if points.shape[1] == 1:
        best = min(float(front.min(initial=math.inf)), float(reference[0]))
        return np.asarray(np.clip(best - points[:, 0], 0.0, None))
    inside = front[(front < reference).all(axis=1)]
    edges = [-math.inf, *np.unique(inside[:, -1]), float(reference[-1])]
    gained = np.zeros(len(points))
    for low, high in itertools.pairwise(edges):
        width = np.clip(high - np.maximum(points[:, -1], low), 0.0, None)
        is_wide = width > 0
        if is_wide.any():
            rivals = inside[inside[:, -1] <= low, :-1]
            gained[is_wide] += width[is_wide] * hypervolume_improvement(points[is_wide, :-1], rivals, reference[:-1])
    return gained


def expected_improvement(
    costs: np.ndarray, mean: np.ndarray, deviation: np.ndarray, front: np.ndarray, reference: np.ndarray
) -> np.ndarray:
    """Return the expected hypervolume improvement of each of N jobs over a front, shape (N,).

    Costs, shape (N, M - 1), are certain; quality is normal with this mean and standard deviation. The expectation is
    computed by Gauss-Hermite quadrature.
    """
    gains = np.zeros(len(mean))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        points = np.column_stack([costs, -(mean + node * deviation)])
        gains += weight * hypervolume_improvement(points, front, reference)
    return np.asarray(gains / _WEIGHTS.sum())
