"""The Pareto front of a set of points."""

from collections.abc import Sequence


def front(points: Sequence[Sequence[float]], maximize: Sequence[bool]) -> list[bool]:
    """Return whether each of N points is on the front: no other is at least as good in all values and better in one."""
    from moocore import is_nondominated

    return is_nondominated(points, maximise=maximize, keep_weakly=True).tolist() if len(points) else []
