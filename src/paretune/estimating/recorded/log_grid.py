"""Interpolation between the points of a grid with holes, in the logarithms of its axes."""

import itertools
import math
from collections.abc import Collection, Iterator, Sequence

Point = tuple[float, ...]
Corner = tuple[Point, float]
"""A point of the grid and its weight; the weights of a cell's corners sum to 1."""

_REACH = 4
"""How many values of an axis are tried to either side, where nearer ones have no run."""


def logarithms(values: Sequence[float]) -> Point:
    """Natural logarithms, rounded so that equal settings written differently (5e-5, 0.00005) are one point."""
    return tuple(round(math.log(value), 9) for value in values)


def enclosing(points: Collection[Point], at: Point) -> list[Corner] | None:
    """The corners of the smallest cell around `at` that are all in `points`, with the weights of `at` between them.

    The point itself, with weight 1, where it is in `points`; None where no cell is whole. Extrapolates nowhere.

    Args:
        points: points of the grid, axes in logarithms.
        at: where a value is wanted; as many axes.
    """
    if at in points:
        return [(at, 1.0)]
    brackets = [_brackets(sorted({point[axis] for point in points}), value) for axis, value in enumerate(at)]
    cells = sorted(itertools.product(*brackets), key=lambda cell: sum(high - low for low, high in cell))
    for cell in cells:
        corners = list(_corners(cell, at))
        if all(point in points for point, _ in corners):
            return corners
    return None


def ranges(points: Collection[Point]) -> list[tuple[float, float]]:
    """Lowest and highest value of each axis, in logarithms."""
    return [(min(values), max(values)) for values in zip(*points, strict=True)]


def _brackets(values: Sequence[float], at: float) -> list[tuple[float, float]]:
    """Pairs of an axis' values around `at`; the value itself twice where the axis has it."""
    below, above = [value for value in values if value < at], [value for value in values if value > at]
    pairs = list(itertools.product(below[-_REACH:], above[:_REACH]))
    return ([(at, at)] if at in values else []) + pairs


def _corners(cell: Sequence[tuple[float, float]], at: Point) -> Iterator[Corner]:
    ends = []
    for (low, high), value in zip(cell, at, strict=True):
        share = (value - low) / (high - low) if high > low else 0.0
        ends.append([(low, 1 - share), (high, share)] if high > low else [(low, 1.0)])
    for corner in itertools.product(*ends):
        yield tuple(value for value, _ in corner), math.prod(weight for _, weight in corner)
