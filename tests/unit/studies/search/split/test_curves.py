"""Forecasts of the final quality of trainings from the learning curves of all."""

import math

import numpy as np
import pytest

from paretune.studies.search.split.curves import Curve, forecast

SHARES = (0.125, 0.25, 0.5, 1.0)


def curve(key: str, *, until: float = 0.0, final: float = 0.0, point: tuple[float, ...] = ()) -> Curve:
    """A curve after a share of the training, which rises by 0.1 to its final value, most of it early."""
    values = tuple((share, final - 0.1 * (1 - share) / (1 + 3 * share)) for share in SHARES if share <= until)
    return Curve(key=key, values=values, point=point)


def test_forecasts_learn_what_remains_of_a_curve_from_curves_that_have_ended() -> None:
    ended = [curve(key, until=1.0, final=value) for key, value in {"a": 0.8, "b": 0.75, "c": 0.7, "d": 0.82}.items()]
    paused = curve("e", until=0.5, final=0.78)

    (mean,), (deviation,) = forecast([*ended, paused], [paused], [1.0])

    assert mean == pytest.approx(0.78, abs=0.008)  # its newest value is 0.76
    assert 0.0 < deviation < 0.03


def test_intervals_narrow_along_a_curve() -> None:
    ended = [curve(key, until=1.0, final=value) for key, value in {"a": 0.8, "b": 0.75, "c": 0.7}.items()]
    paused = [curve("e", until=share, final=0.78) for share in (0.125, 0.5, 1.0)]

    deviations = [float(forecast([*ended, trial], [trial], [1.0])[1][0]) for trial in paused]

    assert deviations == sorted(deviations, reverse=True)


def test_a_training_that_diverged_does_not_spoil_the_forecasts_of_others() -> None:
    ended = [curve(key, until=1.0, final=value) for key, value in {"a": 0.8, "b": 0.79, "c": 0.78}.items()]
    paused = curve("e", until=0.5, final=0.79)

    (mean,), _ = forecast([*ended, curve("diverged", until=1.0, final=0.05), paused], [paused], [1.0])

    assert mean == pytest.approx(0.79, abs=0.03)


def test_one_measurement_is_enough_for_a_forecast() -> None:
    trial = curve("a", until=0.125, final=0.8)

    mean, deviation = forecast([trial], [trial, curve("b")], [1.0, 1.0])

    assert np.isfinite(mean).all()
    assert all(math.isfinite(value) and value > 0 for value in deviation)


def test_settings_near_those_that_have_ended_well_are_expected_to_end_well() -> None:
    rates = {"a": 0.0, "b": 2.0, "c": 4.0, "d": 6.0}
    finals = {"a": 0.9, "b": 0.85, "c": 0.7, "d": 0.6}
    ended = [curve(key, until=1.0, final=finals[key], point=(rate,)) for key, rate in rates.items()]

    (near, far), _ = forecast(ended, [curve("near", point=(-1.0,)), curve("far", point=(7.0,))], [1.0, 1.0])

    assert near > far
