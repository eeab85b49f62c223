"""Sets of moments, against sets of whole numbers."""

import random

import pytest

from paretune.training.profiling.trace import Interval, difference, intersection, length, union


def moments(intervals: list[Interval]) -> set[int]:
    return {moment for begin, end in intervals for moment in range(begin, end)}


def test_union_joins_what_overlaps_and_what_touches() -> None:
    assert union([(5, 8), (0, 2)], [(2, 3), (7, 9), (4, 4)]) == [(0, 3), (5, 9)]


def test_union_swallows_what_is_nested() -> None:
    assert union([(0, 10), (2, 3), (9, 10)]) == [(0, 10)]


def test_intersection_is_what_both_hold() -> None:
    assert intersection([(0, 4), (6, 10)], [(2, 7), (9, 12)]) == [(2, 4), (6, 7), (9, 10)]


def test_an_end_is_not_in_an_interval() -> None:
    assert intersection([(0, 4)], [(4, 8)]) == []
    assert difference([(0, 4)], [(4, 8)]) == [(0, 4)]


def test_difference_cuts_at_both_ends_and_in_the_middle() -> None:
    assert difference([(0, 10), (20, 30)], [(0, 1), (4, 5), (9, 22), (29, 40)]) == [(1, 4), (5, 9), (22, 29)]


def test_length_is_the_sum() -> None:
    assert length([(0, 3), (5, 9)]) == 7


@pytest.mark.parametrize("seed", range(20))
def test_random_sets_agree_with_sets_of_numbers(seed: int) -> None:
    source = random.Random(seed)

    def some() -> list[Interval]:
        starts = [source.randrange(60) for _ in range(source.randrange(8))]
        return [(begin, begin + source.randrange(12)) for begin in starts]

    raw, other = some(), some()
    left, right = union(raw), union(other)
    assert moments(left) == moments(raw)
    assert moments(union(raw, other)) == moments(left) | moments(right)
    assert moments(intersection(left, right)) == moments(left) & moments(right)
    assert moments(difference(left, right)) == moments(left) - moments(right)
    for found in (left, intersection(left, right), difference(left, right)):
        assert found == union(found)
        assert length(found) == len(moments(found))
