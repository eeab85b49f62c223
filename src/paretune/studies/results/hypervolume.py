"""Hypervolume: how much of the space of objectives a set of points dominates, exactly, as one number to compare fronts.

Everything here is minimised; whoever maximises an objective hands in its negative. `N` points of `M` objectives.
"""

from bisect import bisect_left
from collections.abc import Sequence

Costs = tuple[float, ...]
"""One point: M numbers, each the less the better."""
MARGIN = 0.1
"""Of each objective's range, by which the reference point lies beyond the worst point."""


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Volume between the points and the reference point; a point that is not better in every objective adds nothing.

    Two objectives by a sweep; more by exclusive volumes (WFG: While, Bradstreet and Barone, IEEE Transactions on
    Evolutionary Computation 16(1), 2012), which is exact, and exponential in M at worst: meant for M <= 5.

    Args:
        points: N points of M objectives, minimised.
        reference: M numbers, see `reference_point`.
    """
    shifted = _inside(points, reference)
    return _volume(_non_dominated(shifted))


def growth(points: Sequence[Sequence[float]], reference: Sequence[float]) -> list[float]:
    """Hypervolume of the first, the first two, ... the first N points; as dear as one `hypervolume` of all.

    Args:
        points: N points in the order in which they were found.
        reference: as for `hypervolume`.
    """
    volumes: list[float] = []
    best: list[Costs] = []
    volume = 0.0
    for point in points:
        for new in _inside([point], reference):
            if not any(_covers(old, new) for old in best):
                volume += _exclusive(new, best)
                best = [old for old in best if not _covers(new, old)] + [new]
        volumes.append(volume)
    return volumes


def reference_point(points: Sequence[Sequence[float]]) -> Costs:
    """The worst of each objective plus 10 % of its range, so that the extreme points of a front count too.

    Where all points agree in an objective, 10 % of its size takes the range's place, or 1 where that is 0 too.

    Args:
        points: the feasible completed trials, N >= 1, minimised.
    """
    reference = []
    for column in zip(*points, strict=True):
        worst = max(column)
        span = worst - min(column)
        reference.append(worst + (MARGIN * (span or abs(worst)) or 1.0))
    return tuple(reference)


def _inside(points: Sequence[Sequence[float]], reference: Sequence[float]) -> list[Costs]:
    """The points that are better than the reference everywhere, with the reference moved to the origin."""
    moved = [tuple(value - limit for value, limit in zip(point, reference, strict=True)) for point in points]
    return [point for point in moved if all(value < 0 for value in point)]


def _volume(best: list[Costs]) -> float:
    """Of points that do not dominate each other, against the origin."""
    if not best:
        return 0.0
    if len(best[0]) <= 2:
        return _area(best)
    if len(best[0]) == 3:
        return _solid(best)
    # Worst in the last objective first: what is left of the others then shrinks fastest.
    rest = sorted(best, key=lambda point: point[-1], reverse=True)
    return sum(_exclusive(point, rest[place + 1 :]) for place, point in enumerate(rest))


def _exclusive(point: Costs, others: Sequence[Costs]) -> float:
    """What the point dominates and none of the others does."""
    box = 1.0
    for value in point:
        box *= -value
    # The part of each other's box that lies inside this point's box.
    shared = [tuple(map(max, point, other)) for other in others]
    return box - _volume(_non_dominated(shared))


def _area(best: list[Costs]) -> float:
    """One or two objectives: strips from left to right."""
    if len(best[0]) == 1:
        return max(-point[0] for point in best)
    area, height = 0.0, 0.0
    for x, y in sorted(best):
        area += -x * (height - y)
        height = y
    return area


def _solid(best: list[Costs]) -> float:
    """Three objectives: slices along the third, in each the area of the points that are that good already."""
    volume, area, depth = 0.0, 0.0, 0.0
    xs: list[float] = []  # a staircase: x rises, y falls
    ys: list[float] = []
    for x, y, z in sorted(best, key=lambda point: point[2]):
        volume += area * (z - depth)
        depth = z
        at = bisect_left(xs, x)
        if at and ys[at - 1] <= y:
            continue  # another one is as good in both
        end = at
        while end < len(xs) and ys[end] >= y:
            end += 1
        # New ground: from x rightwards, under the heights of the steps that the point takes over.
        edges = [x, *xs[at:end], xs[end] if end < len(xs) else 0.0]
        heights = [ys[at - 1] if at else 0.0, *ys[at:end]]
        area += sum(
            (right - left) * (height - y)
            for left, right, height in zip(edges, edges[1:], heights, strict=False)  # one edge more than steps
        )
        xs[at:end], ys[at:end] = [x], [y]
    return volume + area * -depth


def _non_dominated(points: Sequence[Costs]) -> list[Costs]:
    best: list[Costs] = []
    for point in sorted(set(points)):
        if not any(_covers(other, point) for other in best):
            best.append(point)
    return best


def _covers(one: Costs, other: Costs) -> bool:
    """At least as good everywhere."""
    return all(mine <= its for mine, its in zip(one, other, strict=True))
