"""Charts of lines, as plotly draws them."""

import pytest

from paretune.presentation.line_chart import LineChart, Point


@pytest.mark.parametrize(
    ("least", "most", "shown"),
    [(34.0, 1100.0, {"50", "100", "200", "500", "1000"}), (70.0, 100.0, None)],
    ids=["more than a power of ten", "less: plotly chooses them"],
)
def test_a_logarithmic_axis_has_as_many_numbers_as_have_room(least: float, most: float, shown: set[str] | None) -> None:
    points = [Point(x=1, y=most, text=""), Point(x=32, y=least, text="")]

    chart = LineChart(title="", x_title="", y_title="", lines={"a": points}, ideals={}, is_log_y=True)

    texts = chart.figure().layout.yaxis.ticktext
    assert (None if texts is None else {*texts}) == shown
