"""How uncertain a mean is: before there are repeats, and after they have shown how much runs differ."""

import math

import numpy as np
import pytest

from paretune.studies.definition.objectives import OBJECTIVES, Objective
from paretune.studies.results.noise import INTERVAL, RunNoise, noise_of_quality, noise_of_repeats

OWN = Objective(metric="own", direction="maximize")
RESIDUE = 0.01


def test_the_noise_follows_the_repeats_as_soon_as_there_are_some() -> None:
    random = np.random.default_rng(1)
    for deviation in (0.002, 0.05):  # a fifth, and five times, of what the model's residue suggests
        groups = [random.normal(0.5, deviation, 3).tolist() for _ in range(5)]
        before, after = noise_of_quality([[0.5]], RESIDUE, OWN), noise_of_quality(groups, RESIDUE, OWN)

        assert abs(math.log(after.deviation / deviation)) < 0.6 < abs(math.log(before.deviation / deviation))
        assert after.degrees > before.degrees


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_intervals_hold_their_probability_where_the_noise_is_as_uncertain_as_assumed(runs: int) -> None:
    random, inside, in_one = np.random.default_rng(7), list[bool](), list[bool]()
    for _ in range(1500):
        deviation = RESIDUE * math.exp(0.7 * random.normal())
        groups = [random.normal(mean, deviation, runs).tolist() for mean in (0.7, 0.8, 0.9)]
        noise = noise_of_quality(groups, RESIDUE, OWN)
        error, off = noise.standard_error(0.9, runs), abs(float(np.mean(groups[2])) - 0.9)
        in_one.append(off <= error)
        inside.append(off <= noise.margin(error))
    assert np.mean(inside) == pytest.approx(INTERVAL, abs=0.04)
    assert np.mean(in_one) == pytest.approx(0.68, abs=0.05)


def test_the_noise_of_a_share_is_at_least_the_binomial_error_of_its_rows() -> None:
    f1, groups = OBJECTIVES["f1"], [[0.9]]

    def noise(rows: int | None) -> float:
        return noise_of_quality(groups, 0.004, f1, validation_rows=rows).deviation

    assert noise(20_000) == noise(None)  # its binomial error is 0.0021
    assert noise(100) / noise(None) == pytest.approx(0.03 / 0.004, rel=0.01)


def test_a_metric_that_judges_no_model_has_a_noise_only_after_repeats() -> None:
    assert noise_of_repeats([[0.5], [0.7]]) is None
    assert noise_of_repeats([[0.5, 0.7], [0.7]]) == RunNoise(deviation=pytest.approx(0.02**0.5), degrees=2.0)
