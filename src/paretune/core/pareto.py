"""The Pareto front of a set of points."""

from collections.abc import Sequence


def front(points: Sequence[Sequence[float]], maximise: Sequence[bool]) -> list[bool]:
    """Whether each of N points is on the Pareto front: no point is as good in all values and better in one."""
    from moocore import is_nondominated

    return is_nondominated(points, maximise=maximise, keep_weakly=True).tolist() if len(points) else []
