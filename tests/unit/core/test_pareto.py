"""Which points are on the front."""

from hypothesis import given
from hypothesis import strategies as st

from paretune.core.pareto import front

values = st.integers(-3, 3)  # few, so that ties and repeats are frequent
tables = st.integers(1, 3).flatmap(
    lambda objectives: st.tuples(
        st.lists(st.lists(values, min_size=objectives, max_size=objectives), max_size=12),
        st.lists(st.booleans(), min_size=objectives, max_size=objectives),
    )
)


def beats(item: list[int], other: list[int], maximise: list[bool]) -> bool:
    """As good in all objectives and better in one: the definition, spelled out."""
    gains = [(mine - its) * (1 if more else -1) for mine, its, more in zip(item, other, maximise, strict=True)]
    return all(gain >= 0 for gain in gains) and any(gain > 0 for gain in gains)


@given(table=tables)
def test_the_front_is_what_no_other_point_beats(table: tuple[list[list[int]], list[bool]]) -> None:
    points, maximise = table

    assert front(points, maximise) == [not any(beats(other, point, maximise) for other in points) for point in points]
