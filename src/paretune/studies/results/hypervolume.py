"""Hypervolume: the volume that a front dominates, one number to compare fronts by; and what a job may add to it."""

import itertools
import math
from collections.abc import Sequence

import moocore
import numpy as np

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
MARGIN = 0.1  # share of each objective's range by which the reference point lies beyond the worst point


def reference_point(points: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The worst value of each objective plus 10 % of its range, so that the extreme points of a front count too.

    If all points agree in an objective, 10 % of its size is added instead, or 1 if it is 0.

    Args:
        points: N >= 1 points of M objectives, minimised.
    """
    ends = [(max(column), min(column)) for column in zip(*points, strict=True)]
    return tuple(worst + (MARGIN * (worst - best or abs(worst)) or 1.0) for worst, best in ends)


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Exact volume that N >= 0 points of M minimised objectives dominate, up to the reference point."""
    return float(moocore.hypervolume(points, ref=reference)) if len(points) else 0.0


def hypervolume_improvement(points: np.ndarray, front: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Hypervolume that each of N points, shape (N, M), adds to K others, shape (K, M).

    All objectives are minimised. Points beyond the reference point add nothing. The volume is cut into slabs along the
    last objective, between which the others are compared in one objective less.
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
    """What each of N jobs alone is expected to add to a front: costs of shape (N, M - 1), quality normal."""
    gains = np.zeros(len(mean))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        points = np.column_stack([costs, -(mean + node * deviation)])
        gains += weight * hypervolume_improvement(points, front, reference)
    return np.asarray(gains / _WEIGHTS.sum())
