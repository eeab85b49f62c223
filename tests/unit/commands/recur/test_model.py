import numpy as np
import pytest
from scipy.stats import norm

from paretune.commands.recur.model import WANDER_NIGHTS, DriftingProcess, Prior

ONE = Prior(level=2.0, noise=0.5, noises={1.0: 0.0}, walks=(0.2,), shapes={1.0: 0.0}, lengths=(1.0,), kinds_alike=0.5)


def test_one_value_moves_an_expectation_as_the_formula_of_a_normal_pair_says() -> None:
    process = DriftingProcess([(("a",), (0.0,))], [3], [10.0], ONE)
    (wander,) = [0.1**2 * WANDER_NIGHTS]
    alone = 2.0**2 + 0.1**2 * 3 + 1.0**2 + wander
    likeness = 0.5 * np.exp(-0.5)  # another kind, one length away
    across = 2.0**2 + 0.1**2 * 3 + likeness * (1.0**2 + wander * np.exp(-2 / WANDER_NIGHTS))
    later = 2.0**2 + 0.1**2 * 5 + 1.0**2 + wander

    prediction = process.predict([(("b",), (1.0,))], 5)

    # The single value is the median as well, so that nothing is left to move; its variance shows the pair.
    assert prediction.mean[0] == pytest.approx(10.0)
    deviation = np.sqrt(later - across**2 / (alone + 0.5**2))
    assert prediction.deviations[0, 0] == pytest.approx(deviation, rel=1e-6)
    limit = 9.0
    assert prediction.chance_below(limit)[0] == pytest.approx(
        norm.cdf((limit - 10.0) / np.hypot(deviation, 0.5)), rel=1e-6
    )


def test_what_many_nights_show_of_noise_and_drift_is_learnt() -> None:
    usual = Prior(
        level=1.0,
        noise=0.1,
        noises={0.5: 0.0, 1.0: 0.0, 4.0: 0.0},
        walks=(0.0, 0.3),
        shapes={0.1: 0.0},
        lengths=(1.0,),
        kinds_alike=1.0,
    )
    draw = np.random.default_rng(0)
    key, nights = ((), (0.0,)), np.arange(40)
    calm = DriftingProcess([key] * 40, nights, 5 + draw.normal(0, 0.4, 40), usual).predict([key], 40)
    drifting = DriftingProcess([key] * 40, nights, 5 - 0.05 * nights + draw.normal(0, 0.05, 40), usual)

    assert calm.noises @ calm.shares == pytest.approx(0.4, rel=0.05)
    assert drifting.predict([key], 40).mean[0] == pytest.approx(3.0, abs=0.25)  # not 4, the mean of all nights


def test_a_draw_scatters_as_the_prediction_says() -> None:
    process = DriftingProcess([((), (0.0,)), ((), (2.0,))], [1, 2], [1.0, 3.0], ONE)
    keys = [((), (0.5,)), ((), (4.0,))]
    draw = np.random.default_rng(1)

    drawn = np.array([process.draw(keys, 3, draw) for _ in range(2000)])

    prediction = process.predict(keys, 3)
    assert drawn.mean(axis=0) == pytest.approx(prediction.mean, abs=0.15)
    assert drawn.std(axis=0) == pytest.approx(prediction.deviations[0], rel=0.1)


def test_what_one_setting_of_a_group_lacks_is_expected_of_its_other_settings() -> None:
    usual = Prior(
        level=100.0,
        noise=0.5,
        noises={1.0: 0.0},
        walks=(0.0,),
        shapes={0.1: 0.0},
        lengths=(1.0,),
        kinds_alike=1.0,
        shifts={0.0: 0.0, 3.0: 3.0},
    )
    keys, groups = [((), (0.0,))] * 8, ["a"] * 4 + ["b"] * 4
    process = DriftingProcess(keys, range(8), [5.0] * 4 + [0.0] * 4, usual, groups)

    prediction = process.predict([((), (9.0,))] * 2, 8, ["a", "b"])

    assert prediction.mean == pytest.approx([5.0, 0.0], abs=0.3)
