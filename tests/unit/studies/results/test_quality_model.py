"""The model of quality: what a study knows of F1 between and beyond what it has measured."""

import math

import numpy as np
import pytest

from paretune.estimating.noise import F1_NOISE
from paretune.studies.results.quality_model import F1_PRIOR, Key, QualityModel

KEYS: list[Key] = [(("a",), (4.0, -9.0, 0.0)), (("a",), (6.0, -8.0, 0.0)), (("a",), (9.0, -10.0, 0.0))]
VALUES = [0.80, 0.90, 0.82]


def model_of(keys: list[Key], values: list[float]) -> QualityModel:
    return QualityModel(keys, values, F1_PRIOR)


def test_what_was_measured_is_known_and_what_is_far_away_is_not() -> None:
    found = model_of(KEYS, VALUES).predict([KEYS[1], (("a",), (30.0, 5.0, 3.0))])

    assert found.mean[0] == pytest.approx(0.90, abs=2 * F1_NOISE)
    assert found.deviation[0] < 3 * F1_NOISE < found.deviation[1]


def test_another_kind_is_alike_but_not_the_same() -> None:
    same, other = model_of(KEYS, VALUES).predict([(("a",), KEYS[0][1]), (("b",), KEYS[0][1])]).deviation

    assert same < other


def ridge(power: float, batch: float, rate: float) -> float:
    """F1 whose best rate is 5e-5 at batch 64, and follows that power of the batch."""
    off = math.log(rate / (5e-5 * (batch / 64) ** power))
    return 0.9 - 0.03 * (1 - math.exp(-(off**2) / 4))


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_best_rate_of_a_batch_never_tried_follows_from_those_that_were(power: float) -> None:
    rates = [1e-6 * 2**number for number in range(14)]
    tried = [(2.0**exponent, rate) for exponent in (4, 6, 8) for rate in rates[1::2]]
    keys: list[Key] = [(("a",), (math.log2(batch), math.log(rate), 0.0)) for batch, rate in tried]
    model = model_of(keys, [ridge(power, batch, rate) for batch, rate in tried])

    asked: list[Key] = [(("a",), (10.0, math.log(rate), 0.0)) for rate in rates]
    best = rates[int(np.argmax(model.predict(asked).mean))]

    assert abs(math.log2(best / (5e-5 * 16**power))) <= 1


@pytest.mark.parametrize("power", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_where_the_values_fit_several_powers_none_of_them_is_sure(power: float) -> None:
    tried = [(2.0**exponent, 5e-5 * 2 ** (0.5 * (exponent - 6))) for exponent in range(3, 10)]  # along the root
    tried += [(64.0, 1e-5), (64.0, 2.5e-4)]
    keys: list[Key] = [(("a",), (math.log2(batch), math.log(rate), 0.0)) for batch, rate in tried]
    model = model_of(keys, [ridge(power, batch, rate) for batch, rate in tried])

    best: list[Key] = [
        (("a",), (math.log2(batch), math.log(5e-5 * (batch / 64) ** power), 0.0)) for batch in (8, 16, 256, 512)
    ]
    found = model.predict(best)

    assert np.all(np.abs(found.mean - 0.9) < 1.3 * found.deviation)


def test_a_rate_that_diverges_does_not_bend_what_is_thought_of_good_ones() -> None:
    keys: list[Key] = [(("a",), (6.0, math.log(rate), 0.0)) for rate in (1e-5, 2e-5, 4e-5, 8e-5, 1.6e-4)]
    good = [ridge(0.5, 64, math.exp(key[1][1])) for key in keys]
    asked: list[Key] = [(("a",), (6.0, math.log(3e-5), 0.0))]

    calm = model_of(keys, good).predict(asked).mean[0]
    diverged: Key = (("a",), (6.0, math.log(1.3e-3), 0.0))

    assert model_of([*keys, diverged], [*good, 0.5]).predict(asked).mean[0] == pytest.approx(calm, abs=F1_NOISE)


def test_what_is_expected_makes_surer_and_changes_no_mean() -> None:
    soon: list[Key] = [(("a",), (5.0, -8.5, 0.0))]
    before = model_of(KEYS, VALUES)
    after = before.condition_on(soon)

    assert after.predict(soon).mean == pytest.approx(before.predict(soon).mean, abs=1e-3)
    assert after.predict(soon).deviation[0] < 0.8 * before.predict(soon).deviation[0]
    assert after.noise == pytest.approx(before.noise)


def test_noise_is_what_the_values_show_where_they_show_another_than_is_usual() -> None:
    keys: list[Key] = [(("a",), (4.0 + number % 4, -9.0, 0.0)) for number in range(24)]
    source = np.random.default_rng(1)
    rough = [0.8 + source.normal(0, 0.015) for _ in keys]
    smooth_values = [0.8 + 0.01 * key[1][0] for key in keys]

    assert model_of(keys, smooth_values).surface.noise < F1_NOISE < model_of(keys, rough).surface.noise
