"""Values and tables in the form in which people read them."""

import pandas as pd
import pytest

from paretune.presentation.page import as_html
from paretune.presentation.text import aligned, dollars, duration, plain, with_error


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5014.75, "1 h 24 m"),
        (3599, "1 h"),
        (390.4, "6 m 30 s"),
        (59.96, "1 m"),
        (12.34, "12.3 s"),
        (0.051, "0.051 s"),
        (0, "0 s"),
        (-90, "-1 m 30 s"),
    ],
)
def test_a_duration_is_shown_in_hours_minutes_and_seconds(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(20.5705, "20.57"), (1204.5, "1,204.50"), (0.01234, "0.0123"), (0, "0.00")]
)
def test_dollars_have_cents_and_small_ones_three_digits(value: float, text: str) -> None:
    assert dollars(value) == text


def test_a_value_without_error_has_no_zeros_at_its_end() -> None:
    assert [with_error(value, 0.0) for value in (0.8, 1.0, 1000.0, 0.91234)] == ["0.8", "1", "1,000", "0.9123"]
    assert (with_error(0.8), with_error(0.8, 0.01)) == ("0.8000", "0.800 ± 0.010")


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_value_that_is_not_finite_is_shown_by_its_name(value: float) -> None:
    assert plain(value, 5) == str(value)


def test_numbers_are_aligned_right() -> None:
    frame = pd.DataFrame({"name": ["a", "bcd"], "n": ["10", "9"]})

    assert aligned(frame) == "name   n\na     10\nbcd    9"


def test_plotly_shows_quotation_marks_and_breaks_lines() -> None:
    # Plotly understands neither &quot; nor a line feed.
    assert as_html('a "b" <c>\nd') == 'a "b" &lt;c&gt;<br>d'
