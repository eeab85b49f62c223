"""The Pareto front of a set of points."""

from collections.abc import Sequence


def front(points: Sequence[Sequence[float]], maximise: Sequence[bool]) -> list[bool]:
    """Whether each of N points is on the Pareto front: no point is as good in all values and better in one."""
    costs = [tuple(-value if more else value for value, more in zip(point, maximise, strict=True)) for point in points]
    # In lexicographic order a dominated point comes after a point of the front that dominates it.
    optimal: list[tuple[float, ...]] = []
    for cost in sorted(set(costs)):
        if not any(all(low <= high for low, high in zip(other, cost, strict=True)) for other in optimal):
            optimal.append(cost)
    optimal_costs = set(optimal)
    return [cost in optimal_costs for cost in costs]
