"""Which points no other one beats."""

from collections.abc import Sequence


def front(points: Sequence[Sequence[float]], maximise: Sequence[bool]) -> list[bool]:
    """For each of N points whether it is on the Pareto front: no other is at least as good in all and better in one.

    Equal points are on the front together.

    Args:
        points: N points of M objectives, finite numbers.
        maximise: for each of the M objectives whether more is better; else less is.
    """
    costs = [tuple(-value if more else value for value, more in zip(point, maximise, strict=True)) for point in points]
    # In lexicographic order a point can only be dominated by one before it, and then by one of the front so far.
    best: list[tuple[float, ...]] = []
    for cost in sorted(set(costs)):
        if not any(all(mine <= its for mine, its in zip(other, cost, strict=True)) for other in best):
            best.append(cost)
    kept = set(best)
    return [cost in kept for cost in costs]
