"""The reference point, and what a point adds to a hypervolume."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paretune.studies.results.front import hypervolume, reference_point
from paretune.studies.sampler.sampler import hypervolume_improvement


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
