"""Charts of lines, as matplotlib and plotly draw them."""

import pytest
from matplotlib.figure import Figure

from paretune.presentation.line_chart import LineChart, Point


@pytest.mark.parametrize(
    ("least", "most", "shown"),
    [(34.0, 1100.0, {"50", "100", "200", "500", "1000"}), (70.0, 100.0, {"70", "80", "90", "100"})],
    ids=["more than a power of ten", "less"],
)
def test_a_logarithmic_axis_has_as_many_numbers_as_have_room(least: float, most: float, shown: set[str]) -> None:
    points = [Point(x=1, y=most, text=""), Point(x=32, y=least, text="")]
    axes = Figure().subplots()

    chart = LineChart(title="", x_title="", y_title="", lines={"a": points}, ideals={}, is_log_y=True)
    chart.draw(axes)

    axes.figure.draw_without_rendering()
    low, high = axes.get_ylim()
    ticks = [*axes.yaxis.get_major_ticks(), *axes.yaxis.get_minor_ticks()]
    texts = {tick.label1.get_text() for tick in ticks if low <= tick.get_loc() <= high}
    assert texts - {""} == shown
    on_the_page = chart.figure().layout.yaxis.ticktext
    assert on_the_page is None or {*on_the_page} == shown
    assert (on_the_page is None) == (most < 10 * least)  # plotly chooses them
