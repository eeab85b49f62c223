"""Axes: enough ticks whatever the range, and far-off values past a break."""

import itertools
import math
import random

import pytest

from paretune.presentation.scale import FEWEST_TICKS, Scale, legible_texts, scale_of, tick_texts

RANGES = {
    "one decade": [1.0, 2.0, 4.0, 10.0],
    "less than a decade on a logarithmic axis": [9.5, 11.0, 100.0, 195.0],
    "three decades": [0.5, 3.0, 40.0, 500.0],
    "nine decades": [1e-5, 1.0, 1e4],
    "a tiny range": [0.91230, 0.91231, 0.912305],
    "tiny values": [1e-6, 2.5e-6, 3e-6],
    "large values": [12_000_000.0, 17_000_000.0],
    "below and above zero": [-3.0, 0.0, 8.0],
    "one value": [0.9] * 5,
    "values that differ by their rounding": [0.922454464706843, 0.9224544647068429],
    "only zero": [0.0, 0.0],
    "dollars of a small job": [0.000585, 0.00059, 0.0006],
    "large values that differ little": [1_234_567.1, 1_234_567.9],
    "counts": [1.0, 2.0, 4.0],
    "an outlier a hundred times as large": [2.0, 2.1, 2.3, 2.5, 2.6, 3.0, 250.0],
    "outliers at both ends": [0.01, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 300.0],
}
OUTLIER = [2.0, 2.1, 2.3, 2.5, 2.6, 3.0, 250.0]


@pytest.mark.parametrize("values", RANGES.values(), ids=RANGES.keys())
@pytest.mark.parametrize("may_be_log", [True, False])
def test_every_axis_has_at_least_three_ticks_with_different_texts(values: list[float], may_be_log: bool) -> None:
    scale = scale_of(values, may_be_log=may_be_log)
    ticks = scale.ticks()
    unbroken = len(ticks) - len(scale.breaks)

    assert FEWEST_TICKS <= unbroken <= 12
    assert len({text for _, text in ticks}) == len(ticks)
    assert [workspace for workspace, _ in ticks] == sorted(folder for folder, _ in ticks)
    assert all(-1e-9 <= location <= 1 + 1e-9 for location, _ in ticks)


@pytest.mark.parametrize("values", RANGES.values(), ids=RANGES.keys())
@pytest.mark.parametrize("length", [250.0, 390.0, 700.0])
def test_texts_beside_each_other_do_not_touch(values: list[float], length: float) -> None:
    ticks = scale_of(values).ticks()
    shown = [(place, text) for (place, _), text in zip(ticks, legible_texts(ticks, length, 7.2), strict=True) if text]

    ends = [(length * place - 3.6 * len(text), length * place + 3.6 * len(text)) for place, text in shown]
    assert len(shown) >= 2
    assert all(after[0] - before[1] >= 7.2 - 1e-6 for before, after in itertools.pairwise(ends))


@pytest.mark.parametrize("values", RANGES.values(), ids=RANGES.keys())
def test_larger_values_lie_farther_on_and_all_on_the_axis(values: list[float]) -> None:
    scale = scale_of(values)
    places = [scale.at(value) for value in sorted(set(values))]

    assert places == sorted(set(places))
    assert all(0 <= workspace <= 1 for workspace in places)


def test_a_tick_stands_at_the_number_it_names() -> None:
    scale = scale_of([1.0, 2.0, 3.0, 1000.0, 40.0])

    assert scale.is_log
    assert all(math.isclose(scale.at(float(text.replace(",", ""))), workspace) for workspace, text in scale.ticks())


def test_far_off_values_are_past_a_break_and_the_axis_says_so() -> None:
    scale = scale_of(OUTLIER)

    assert (scale.beyond, scale.most, scale.least) == (1, 250.0, None)
    assert scale.at(3.0) - scale.at(2.0) > 0.5
    assert scale.ticks()[-1][1] == "250"
    assert (
        scale.break_note("cost") == "The axis of cost is broken: 1 point lies past the break, up to 250, not to scale."
    )
    assert scale_of(OUTLIER[:-1]).break_note("cost") == ""


def test_what_lies_evenly_over_decades_is_not_far_off() -> None:
    scale = scale_of([10.0 ** (n / 4) for n in range(13)])

    assert scale.is_log
    assert scale.breaks == []


def test_a_few_bad_values_do_not_flatten_a_narrow_front() -> None:
    source = random.Random(1)
    good = [source.uniform(0.90, 0.92) for _ in range(40)]
    bad = [source.uniform(0.1, 0.9) for _ in range(12)]  # too many to be far off by their quartiles
    front = sorted(good)[-5:]
    scale = scale_of([*good, *bad], front, may_be_log=False)

    assert scale.at(max(front)) - scale.at(min(front)) > 5 * (max(front) - min(front)) / (0.92 - 0.1)
    assert scale.beyond <= len([*good, *bad]) / 3


def test_bars_of_what_matters_get_room() -> None:
    without, with_bars = scale_of([1.0, 2.0]), scale_of([1.0, 2.0], [1.0], bar_ends=[0.8, 1.2])

    assert without.low > 0.8 >= with_bars.low
    assert scale_of([1.0, 2.0], [1.0], bar_ends=[-50.0]).low >= 0  # not much room


def test_an_axis_of_values_that_differ_by_less_than_their_errors_shows_the_errors() -> None:
    values = [0.9224543, 0.9224544, 0.9224546]

    scale = scale_of(values, values, bar_ends=[end for value in values for end in (value - 0.004, value + 0.004)])

    assert scale.low < 0.9185
    assert scale.high > 0.9264


def test_values_outside_of_the_axis_lie_at_its_ends() -> None:
    scale = Scale(low=1.0, high=2.0)

    assert (scale.at(-5.0), scale.at(1.5), scale.at(9.0)) == (0.0, 0.5, 1.0)


def test_ticks_read_as_people_write_them() -> None:
    assert tick_texts([2.5, 5.0, 7.5]) == ["2.5", "5.0", "7.5"]
    assert tick_texts([1000.0, 2000.0]) == ["1,000", "2,000"]
    assert tick_texts([0.1, 1.0, 10.0]) == ["0.1", "1", "10"]
    assert tick_texts([0.000588, 0.00059, 0.000592]) == ["0.000588", "0.000590", "0.000592"]
    assert tick_texts([1e-5, 2e-5]) == ["1e-05", "2e-05"]
    assert tick_texts([-0.0, 0.5]) == ["0.0", "0.5"]
