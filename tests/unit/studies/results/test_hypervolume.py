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


def test_two_objectives_are_a_staircase() -> None:
    # strips: (1,3) gives 1 x 1 between y 3 and 4 over 3 wide; (2,2) one more of 2 wide; (3,1) one more of 1 wide
    assert hypervolume([(1, 3), (2, 2), (3, 1)], (4, 4)) == 3 + 2 + 1


def test_three_objectives_by_hand() -> None:
    # boxes of 1 x 2 x 2 and 2 x 1 x 1 that share 1 x 1 x 1
    assert hypervolume([(2, 1, 1), (1, 2, 2)], (3, 3, 3)) == 4 + 2 - 1


def test_one_objective_is_a_length() -> None:
    assert hypervolume([(3.0,), (1.0,)], (4.0,)) == 3


@pytest.mark.parametrize("points", [[], [(4, 0)], [(5, 5)]])
def test_what_is_not_better_than_the_reference_adds_nothing(points: list[tuple[int, int]]) -> None:
    assert hypervolume(points, (4, 4)) == 0


@given(grids)
def test_whole_numbers_are_counted_cell_by_cell(points: list[tuple[int, ...]]) -> None:
    assert hypervolume(points, [4] * len(points[0])) == cells_dominated(points, 4)


@pytest.mark.parametrize("objectives", [2, 3, 4, 5])
def test_a_random_front_agrees_with_monte_carlo(objectives: int) -> None:
    random = np.random.default_rng(objectives)
    points = random.random((30, objectives))
    samples = random.random((100_000, objectives))
    covered = np.zeros(len(samples), dtype=bool)
    for point in points:
        covered |= (samples >= point).all(axis=1)

    assert hypervolume(points.tolist(), [1.0] * objectives) == pytest.approx(covered.mean(), abs=0.008)  # 5 sigma


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
