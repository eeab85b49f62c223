import math

import numpy as np
import pytest

from paretune.studies.definition.quality import F1, Quality
from paretune.studies.recurring.policy import MOST_CHANCE, REST_NIGHTS, Candidate, Policy, Seen

FLOOR = 0.90


def candidate(kind: str, rate: float, usd: float, batch: float = 4.0) -> Candidate:
    """One on an instance type, with a learning rate."""
    numbers = (batch, math.log(rate), math.log(3))
    return Candidate(quality=((), numbers), cost=((kind,), (0.0, batch, 0.0)), log_usd=math.log(usd))


DEFAULT, CHEAPER_CLUSTER = candidate("g5", 4e-5, 1.0), candidate("g6", 4e-5, 0.7)
NEAR, FAR = candidate("g5", 5e-5, 0.9), candidate("g5", 1e-3, 0.1)
ALL = [DEFAULT, CHEAPER_CLUSTER, NEAR, FAR]


def good_nights(count: int, of: Candidate = DEFAULT, usd: float = 1.0) -> list[Seen]:
    """Nights well above the floor."""
    return [Seen(candidate=of, night=at, value=0.93 + 0.001 * (at % 3), usd=usd) for at in range(count)]


def chosen(policy: Policy, seen: list[Seen], night: int, draws: int = 40) -> list[int]:
    """What is chosen with many seeds."""
    knowledge = policy.knowledge(seen, night)
    return [knowledge.choice(np.random.default_rng(seed)).at for seed in range(draws)]


def test_the_first_night_runs_the_default() -> None:
    assert set(chosen(Policy(ALL, 0, F1, FLOOR), [], 0)) == {0}


def test_a_point_far_from_all_that_was_run_is_not_tried_however_cheap_it_is() -> None:
    policy = Policy(ALL, 0, F1, FLOOR)
    seen = good_nights(10)

    assert policy.knowledge(seen, 10).chances[3] > MOST_CHANCE
    assert 3 not in chosen(policy, seen, 10)


def test_a_cheaper_cluster_is_found_and_kept() -> None:
    policy = Policy(ALL, 0, F1, FLOOR)
    seen = good_nights(6)
    assert chosen(policy, seen, 6).count(1) > 20

    seen += [Seen(candidate=CHEAPER_CLUSTER, night=at, value=0.931, usd=0.65) for at in range(6, 10)]
    choice = policy.choose(seen, 10, np.random.default_rng(0))
    assert choice.at == 1
    assert choice.usd == pytest.approx(0.65, rel=0.05)
    assert choice.default_usd == pytest.approx(1.0, rel=0.05)


def test_a_point_whose_estimate_was_too_low_is_left_after_it_was_tried() -> None:
    policy = Policy(ALL[:2], 0, F1, FLOOR)
    seen = [*good_nights(6), Seen(candidate=CHEAPER_CLUSTER, night=6, value=0.93, usd=1.6)]

    assert set(chosen(policy, seen, 7)) == {0}


def test_after_a_sudden_fall_a_point_is_no_longer_admissible() -> None:
    policy = Policy(ALL, 0, F1, FLOOR)
    seen = good_nights(10, CHEAPER_CLUSTER, 0.7)
    assert policy.knowledge(seen, 10).chances[1] < MOST_CHANCE

    seen += [Seen(candidate=CHEAPER_CLUSTER, night=at, value=0.899, usd=0.7) for at in (10, 11)]
    assert policy.knowledge(seen, 12).chances[1] > MOST_CHANCE


def test_a_point_whose_job_failed_rests_and_says_nothing_about_quality() -> None:
    policy = Policy(ALL, 0, F1, FLOOR)
    seen = [*good_nights(8), Seen(candidate=CHEAPER_CLUSTER, night=8, value=None, usd=0.1)]
    without = policy.knowledge(good_nights(8), 9)

    assert 1 not in chosen(policy, seen, 9)
    assert policy.knowledge(seen, 9).chances == pytest.approx(without.chances)
    assert 1 in chosen(policy, seen, 8 + REST_NIGHTS)


def test_training_again_takes_the_safest_point_that_has_met_the_floor() -> None:
    risky = candidate("g5", 1.2e-4, 0.5)
    policy = Policy([DEFAULT, risky, FAR], 0, F1, FLOOR)
    seen = [*good_nights(6), Seen(candidate=risky, night=6, value=0.902, usd=0.5)]

    assert policy.knowledge(seen, 6).fallback() == 0
    assert policy.knowledge(seen, 6).fallback({1}) == 1  # the dollars that are left cover nothing else


def test_only_allowed_points_are_chosen() -> None:
    policy = Policy(ALL, 0, F1, FLOOR)
    knowledge = policy.knowledge(good_nights(6), 6)

    assert {knowledge.choice(np.random.default_rng(seed), {0}).at for seed in range(20)} == {0}


def test_a_metric_of_which_less_is_better_has_a_ceiling() -> None:
    rmse = Quality(metric="rmse", direction="minimize", lowest=0.0)
    policy = Policy(ALL, 0, rmse, 2.0)
    low = [Seen(candidate=DEFAULT, night=at, value=1.8, usd=1.0) for at in range(6)]
    high = [Seen(candidate=DEFAULT, night=at, value=2.2, usd=1.0) for at in range(6)]

    assert policy.knowledge(low, 6).chances[0] < MOST_CHANCE < policy.knowledge(high, 6).chances[0]
    assert policy.meets(2.0)
    assert not policy.meets(2.01)
    assert not policy.meets(None)


def test_the_last_training_of_a_night_is_the_default_unless_it_has_missed_tonight() -> None:
    policy = Policy(ALL[:3], 0, F1, FLOOR)
    seen = [*good_nights(6), *good_nights(6, CHEAPER_CLUSTER, 0.6)]
    knowledge = policy.knowledge(seen, 6)

    assert knowledge.retrain({1}, is_last=False) == 1  # as safe as the default, and cheaper
    assert knowledge.retrain({1}, is_last=True) == 0
    assert knowledge.retrain({0, 1}, is_last=True) == 1
    assert knowledge.retrain({1}, is_last=True, allowed={1}) == 1
