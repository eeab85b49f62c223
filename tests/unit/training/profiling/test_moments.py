"""Sets of moments, against sets of whole numbers."""

import random

import numpy as np
import pytest

from paretune.training.profiling.trace import Moments, Record


def spans(source: random.Random) -> list[Record]:
    begins = [source.randrange(60) for _ in range(source.randrange(8))]
    return [Record("cpu_op", "aten::mm", begin, begin + source.randrange(12), (1, 1)) for begin in begins]


def whole_numbers(records: list[Record]) -> set[int]:
    return {moment for record in records for moment in range(record.begin, record.end)}


@pytest.mark.parametrize("seed", range(20))
def test_unions_intersections_and_differences_are_as_long_as_those_of_whole_numbers(seed: int) -> None:
    source = random.Random(seed)
    left, right = spans(source), spans(source)
    moments = Moments([*left, *right])
    first, second = moments.of(left), moments.of(iter(right))

    assert moments.length(first) == len(whole_numbers(left))
    assert moments.length(first | second) == len(whole_numbers(left) | whole_numbers(right))
    assert moments.length(first & second) == len(whole_numbers(left) & whole_numbers(right))
    assert moments.length(first & ~second) == len(whole_numbers(left) - whole_numbers(right))
    assert [bool(first[moments.index(record.begin)]) for record in right] == [
        record.begin in whole_numbers(left) for record in right
    ]


def test_a_record_without_duration_covers_nothing() -> None:
    record = Record("cpu_op", "aten::mm", 5, 5, (1, 1))

    assert not np.any(Moments([record]).of([record]))
