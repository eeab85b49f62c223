"""Sets of moments as half-open intervals: union, intersection, difference, length.

An interval is (begin, end) in whole nanoseconds and holds begin <= moment < end. A set of moments is a list of
intervals that are sorted, disjoint, not adjacent and not empty; every function gives such a list.
"""

from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def union(*parts: Iterable[Interval]) -> list[Interval]:
    """The moments in any of the intervals, which may come in any order, overlap, or be empty."""
    found: list[Interval] = []
    for begin, end in sorted(interval for part in parts for interval in part):
        if end <= begin:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def intersection(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """The moments in both sets."""
    found, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        begin, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if begin < end:
            found.append((begin, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return found


def difference(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """The moments in `left` that are not in `right`."""
    found, j = [], 0
    for begin, end in left:
        while j < len(right) and right[j][1] <= begin:
            j += 1
        at = j
        while at < len(right) and right[at][0] < end:
            if begin < right[at][0]:
                found.append((begin, right[at][0]))
            begin = max(begin, right[at][1])
            at += 1
        if begin < end:
            found.append((begin, end))
    return found


def length(moments: Iterable[Interval]) -> int:
    """Nanoseconds in a set."""
    return sum(end - begin for begin, end in moments)
