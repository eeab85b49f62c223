"""Interpolation on grids with holes."""

import math

import pytest

from paretune.estimating.recorded.recorded_runs import enclosing, logarithms

GRID = {(float(x), float(y)) for x in range(4) for y in range(3)}


def value(points: set[tuple[float, ...]], at: tuple[float, ...]) -> float:
    """Interpolation of 10 x + y, which a linear rule must give exactly."""
    corners = enclosing(points, at)
    assert corners is not None
    return sum(weight * (10 * point[0] + point[1]) for point, weight in corners)


def test_a_point_of_the_grid_is_itself() -> None:
    assert enclosing(GRID, (1.0, 2.0)) == [((1.0, 2.0), 1.0)]


@pytest.mark.parametrize("at", [(0.5, 0.5), (2.25, 1.0), (3.0, 1.75), (1.9, 0.1)])
def test_between_points_a_linear_function_is_met_exactly(at: tuple[float, float]) -> None:
    assert value(GRID, at) == pytest.approx(10 * at[0] + at[1])


def test_a_hole_is_bridged_by_the_smallest_whole_cell() -> None:
    holed = GRID - {(1.0, 1.0)}

    assert value(holed, (1.0, 1.0)) == pytest.approx(11)
    assert {point for point, _ in enclosing(holed, (1.0, 1.0)) or []} in ({(0, 1), (2, 1)}, {(1, 0), (1, 2)})


def test_along_one_axis_two_points_are_enough() -> None:
    assert value({(0.0, 1.0), (2.0, 1.0)}, (0.5, 1.0)) == pytest.approx(6)


@pytest.mark.parametrize("at", [(-0.1, 0.0), (3.1, 1.0), (1.0, 2.5)])
def test_nothing_is_said_outside(at: tuple[float, float]) -> None:
    assert enclosing(GRID, at) is None


def test_nothing_is_said_where_no_cell_is_whole() -> None:
    assert enclosing({(0.0, 0.0), (1.0, 1.0)}, (0.5, 0.5)) is None


def test_numbers_written_differently_are_one_point() -> None:
    assert logarithms([5e-5, 0.1 + 0.2]) == logarithms([0.00005, 0.3])
    assert logarithms([math.e]) == (1.0,)
