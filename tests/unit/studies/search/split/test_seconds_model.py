"""Seconds of a row from few jobs: what a step consists of is found again."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from paretune.studies.results.quality_model import Key
from paretune.studies.search.split.seconds_model import SecondsModel

LATENCY_S, ROW_S, EXCHANGE_S = 0.04, 0.008, 0.03


def key(batch: int, instances: int = 1, kind: str = "ml.g5.xlarge") -> Key:
    return (kind,), (math.log2(instances), math.log2(batch))


def seconds(batch: int, instances: int = 1, growth: float = 0.0) -> float:
    """Of one row."""
    exchange = EXCHANGE_S * 2 * (instances - 1) / instances * (instances / 2) ** growth
    return (LATENCY_S + ROW_S * batch + exchange) / (batch * instances)


def model(*jobs: tuple[int, int], growth: float = 0.0) -> SecondsModel:
    return SecondsModel([key(*job) for job in jobs], [math.log(seconds(*job, growth)) for job in jobs])


def test_a_small_and_a_large_batch_tell_all_those_between_and_beyond() -> None:
    reference = model((4, 1), (64, 1))
    batches = (2, 8, 16, 32, 128, 256)

    prediction = reference.predict([key(batch) for batch in batches])

    assert np.exp(prediction.mean) == pytest.approx([seconds(batch) for batch in batches], rel=0.08)
    assert max(prediction.deviation) < 0.12


def test_one_batch_leaves_open_what_others_take() -> None:
    prediction = model((4, 1)).predict([key(4), key(64)])

    assert prediction.deviation[0] < 0.06
    assert prediction.deviation[1] > 0.3


def test_two_instances_tell_four_and_eight() -> None:
    prediction = model((4, 1), (64, 1), (16, 2)).predict([key(16, 4), key(16, 8)])

    assert np.exp(prediction.mean) == pytest.approx([seconds(16, 4), seconds(16, 8)], rel=0.1)


@pytest.mark.parametrize("growth", [1.0, 1.7, 2.4])
def test_four_instances_that_are_slower_than_two_are_followed_and_tell_other_batches(growth: float) -> None:
    reference = model((4, 1), (64, 1), (16, 2), (16, 4), growth=growth)
    jobs = [(batch, count) for batch in (4, 8, 32, 64) for count in (2, 4)]

    prediction = reference.predict([key(*job) for job in jobs])

    assert np.exp(prediction.mean) == pytest.approx([seconds(*job, growth) for job in jobs], rel=0.1)
    assert max(prediction.deviation) < 0.2


def test_two_instances_leave_open_whether_four_are_faster_and_eight_more_so() -> None:
    prediction = model((4, 1), (64, 1), (16, 2)).predict([key(16, count) for count in (2, 4, 8)])

    assert prediction.deviation[0] < 0.06 < prediction.deviation[1] < prediction.deviation[2]


def test_more_instances_are_faster_before_any_job_and_nobody_is_sure() -> None:
    first, two = (SecondsModel([], []).predict([key(16, count)]) for count in (1, 2))

    assert two.mean[0] < first.mean[0]
    assert first.deviation[0] > 0.5


def test_another_type_is_thought_to_be_like_those_that_are_known() -> None:
    reference = model((4, 1), (64, 1))

    here, there = reference.predict([key(16)]), reference.predict([key(16, kind="ml.g6.xlarge")])

    assert there.mean == pytest.approx(here.mean, abs=0.2)
    assert there.deviation[0] > 5 * here.deviation[0]


def test_what_is_expected_makes_surer_and_changes_no_mean() -> None:
    before = model((4, 1))
    after = before.condition_on([key(64)])

    assert after.predict([key(64)]).mean == pytest.approx(before.predict([key(64)]).mean, abs=0.02)
    assert after.predict([key(64)]).deviation[0] < before.predict([key(64)]).deviation[0] / 3


def test_seconds_that_no_step_explains_are_followed_where_they_were_measured() -> None:
    jobs = [(4, 1), (8, 1), (16, 1), (32, 1), (64, 1), (128, 1)]
    odd = [math.log(seconds(*job) * (1.25 if job == (16, 1) else 1.0)) for job in jobs]

    prediction = SecondsModel([key(*job) for job in jobs], odd).predict([key(16)])

    assert math.exp(prediction.mean[0]) > 1.1 * seconds(16)


def test_where_measurements_scatter_as_much_is_said_of_what_they_tell() -> None:
    """Eight jobs with a tenth of scatter, thirty times: the truth lies within 80 % intervals about as often as said.

    It did in four of ten before the scatter was learnt.
    """
    jobs = [(4, 1), (4, 1), (8, 1), (16, 1), (32, 1), (64, 1), (16, 2), (64, 2)]
    request = [(8, 1), (32, 1), (64, 1), (32, 2)]
    truth = np.log([seconds(*job) for job in request])
    draw = np.random.default_rng(7)
    inside, width = [], float(student.ppf(0.9, 5))
    for _ in range(30):
        values = [math.log(seconds(*job)) + draw.normal(0, 0.1) for job in jobs]
        prediction = SecondsModel([key(*job) for job in jobs], values).predict([key(*job) for job in request])
        inside.append(np.abs(prediction.mean - truth) < width * prediction.deviation)

    assert 0.65 < np.mean(inside) < 0.9


def test_measurements_that_agree_leave_no_more_doubt_than_before() -> None:
    few, many = model((4, 1), (64, 1)), model((4, 1), (4, 1), (8, 1), (16, 1), (64, 1), (64, 1))

    assert many.predict([key(16)]).deviation[0] <= few.predict([key(16)]).deviation[0] < 0.06
