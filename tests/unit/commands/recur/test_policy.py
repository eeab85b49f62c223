import math

import numpy as np
import pytest

from paretune.commands.recur.policy import MOST_CHANCE, REST_NIGHTS, Candidate, Observation, Policy
from paretune.studies.definition.quality import F1, KNOWN, Quality

FLOOR = 0.90


def candidate(kind: str, rate: float, usd: float, batch: float = 4.0) -> Candidate:
    """One on an instance type, with a learning rate."""
    numbers = (batch, math.log(rate), math.log(3))
    return Candidate(quality=((), numbers), cost=((kind,), (0.0, batch, 0.0)), log_usd=math.log(usd))


DEFAULT, CHEAPER_CLUSTER = candidate("g5", 4e-5, 1.0), candidate("g6", 4e-5, 0.7)
NEAR, FAR = candidate("g5", 5e-5, 0.9), candidate("g5", 1e-3, 0.1)
ALL = [DEFAULT, CHEAPER_CLUSTER, NEAR, FAR]


def good_nights(count: int, of: Candidate = DEFAULT, usd: float = 1.0) -> list[Observation]:
    """Nights well above the floor."""
    return [Observation(candidate=of, night=at, value=0.93 + 0.001 * (at % 3), usd=usd) for at in range(count)]


def chosen(policy: Policy, seen: list[Observation], night: int, draws: int = 40) -> list[int]:
    """What is chosen with many seeds."""
    knowledge = policy.posterior(seen, night)
    return [knowledge.choose(np.random.default_rng(seed)).index for seed in range(draws)]


def test_the_first_night_runs_the_default() -> None:
    assert set(chosen(Policy(ALL, 0, F1, FLOOR), [], 0)) == {0}


def test_a_point_far_from_all_that_was_run_is_not_tried_however_cheap_it_is() -> None:
    policy = Policy(ALL, 0, F1, FLOOR)
    seen = good_nights(10)

    assert policy.posterior(seen, 10).chances[3] > MOST_CHANCE
    assert 3 not in chosen(policy, seen, 10)


def test_a_cheaper_cluster_is_found_and_kept() -> None:
    policy = Policy(ALL, 0, F1, FLOOR)
    seen = good_nights(6)
    assert chosen(policy, seen, 6).count(1) > 20

    seen += [Observation(candidate=CHEAPER_CLUSTER, night=at, value=0.931, usd=0.65) for at in range(6, 10)]
    choice = policy.choose(seen, 10, np.random.default_rng(0))
    assert choice.index == 1
    assert choice.usd == pytest.approx(0.65, rel=0.05)
    assert choice.default_usd == pytest.approx(1.0, rel=0.05)


def test_a_point_whose_estimate_was_too_low_is_left_after_it_was_tried() -> None:
    policy = Policy(ALL[:2], 0, F1, FLOOR)
    seen = [*good_nights(6), Observation(candidate=CHEAPER_CLUSTER, night=6, value=0.93, usd=1.6)]

    assert set(chosen(policy, seen, 7)) == {0}


def test_after_a_sudden_fall_a_point_is_no_longer_admissible() -> None:
    policy = Policy(ALL, 0, F1, FLOOR)
    seen = good_nights(10, CHEAPER_CLUSTER, 0.7)
    assert policy.posterior(seen, 10).chances[1] < MOST_CHANCE

    seen += [Observation(candidate=CHEAPER_CLUSTER, night=at, value=0.899, usd=0.7) for at in (10, 11)]
    assert policy.posterior(seen, 12).chances[1] > MOST_CHANCE


def test_a_point_whose_job_failed_rests_and_says_nothing_about_quality() -> None:
    policy = Policy(ALL, 0, F1, FLOOR)
    seen = [*good_nights(8), Observation(candidate=CHEAPER_CLUSTER, night=8, value=None, usd=0.1)]
    without = policy.posterior(good_nights(8), 9)

    assert 1 not in chosen(policy, seen, 9)
    assert policy.posterior(seen, 9).chances == pytest.approx(without.chances)
    assert 1 in chosen(policy, seen, 8 + REST_NIGHTS)


def test_training_again_takes_the_safest_point_that_has_met_the_floor() -> None:
    risky = candidate("g5", 1.2e-4, 0.5)
    policy = Policy([DEFAULT, risky, FAR], 0, F1, FLOOR)
    seen = [*good_nights(6), Observation(candidate=risky, night=6, value=0.902, usd=0.5)]

    assert policy.posterior(seen, 6).fallback() == 0
    assert policy.posterior(seen, 6).fallback({1}) == 1  # the dollars that are left cover nothing else


def test_only_allowed_points_are_chosen() -> None:
    policy = Policy(ALL, 0, F1, FLOOR)
    knowledge = policy.posterior(good_nights(6), 6)

    assert {knowledge.choose(np.random.default_rng(seed), {0}).index for seed in range(20)} == {0}


def test_a_metric_of_which_less_is_better_has_a_ceiling() -> None:
    rmse = Quality(metric="rmse", direction="minimize", lowest=0.0)
    policy = Policy(ALL, 0, rmse, 2.0)
    low = [Observation(candidate=DEFAULT, night=at, value=1.8, usd=1.0) for at in range(6)]
    high = [Observation(candidate=DEFAULT, night=at, value=2.2, usd=1.0) for at in range(6)]

    assert policy.posterior(low, 6).chances[0] < MOST_CHANCE < policy.posterior(high, 6).chances[0]
    assert policy.meets(2.0)
    assert not policy.meets(2.01)
    assert not policy.meets(None)


def test_the_last_training_of_a_night_is_the_default_unless_it_has_missed_tonight() -> None:
    policy = Policy(ALL[:3], 0, F1, FLOOR)
    seen = [*good_nights(6), *good_nights(6, CHEAPER_CLUSTER, 0.6)]
    knowledge = policy.posterior(seen, 6)

    assert knowledge.retrain({1}, is_last=False) == 1  # as safe as the default, and cheaper
    assert knowledge.retrain({1}, is_last=True) == 0
    assert knowledge.retrain({0, 1}, is_last=True) == 1
    assert knowledge.retrain({1}, is_last=True, allowed={1}) == 1


def g4dn_nights(count: int, value: float | None, usd: float = 0.7, start: int = 6) -> list[Observation]:
    """Nights on the cheaper cluster, each followed by the default, which meets the floor."""
    return [
        seen
        for at in range(start, start + count)
        for seen in (
            Observation(candidate=CHEAPER_CLUSTER, night=at, value=value, usd=usd),
            Observation(candidate=DEFAULT, night=at, value=0.905, usd=1.0),
        )
    ]


def test_a_cluster_whose_models_are_worse_is_left_after_two_misses() -> None:
    policy = Policy(ALL[:2], 0, F1, FLOOR)
    good = [Observation(candidate=DEFAULT, night=at, value=0.905, usd=1.0) for at in range(6)]
    assert 1 in chosen(policy, good, 6)

    seen = [*good, *g4dn_nights(2, 0.885)]
    knowledge = policy.posterior(seen, 8)
    assert knowledge.chances[1] > 0.5 > knowledge.chances[0]  # though they differ in nothing but the cluster
    assert set(chosen(policy, seen, 8)) == {0}


def test_another_setting_of_a_cluster_whose_models_are_worse_is_not_tried_either() -> None:
    other = candidate("g6", 5e-5, 0.6)
    policy = Policy([*ALL[:2], other], 0, F1, FLOOR)
    good = [Observation(candidate=DEFAULT, night=at, value=0.905, usd=1.0) for at in range(6)]

    assert 2 not in chosen(policy, [*good, *g4dn_nights(2, 0.885)], 8)


def test_a_default_whose_job_fails_is_left_for_a_point_that_works() -> None:
    policy = Policy(ALL[:3], 0, F1, FLOOR)
    failed = [Observation(candidate=DEFAULT, night=0, value=None, usd=0.1)]

    assert policy.posterior(failed, 0).retrain({0}, is_last=False) == 1
    assert policy.posterior(failed, 0).retrain({0}, is_last=True) == 1
    seen = [*failed, Observation(candidate=CHEAPER_CLUSTER, night=0, value=0.93, usd=0.7)]
    assert 0 not in chosen(policy, seen, 1)


def test_where_every_point_rests_the_default_runs() -> None:
    policy = Policy(ALL[:2], 0, F1, FLOOR)
    failed = [Observation(candidate=item, night=0, value=None, usd=0.1) for item in ALL[:2]]

    assert set(chosen(policy, failed, 1)) == {0}
    assert policy.posterior(failed, 1).fallback() == 0


def test_no_batch_and_no_rate_of_a_cluster_is_tried_any_more_once_its_jobs_keep_failing() -> None:
    broken = [candidate("g4dn", rate, 0.7, batch) for rate in (3e-5, 4e-5, 5e-5) for batch in (3.0, 4.0, 5.0)]
    policy = Policy([DEFAULT, *broken], 0, F1, FLOOR)
    assert set(chosen(policy, good_nights(8), 8)) - {0}

    failed = [Observation(candidate=first, night=8 + at, value=None, usd=0.65) for at, first in enumerate(broken[:5])]
    knowledge = policy.posterior([*good_nights(8), *failed], 13)
    assert min(knowledge.failing[1:]) > 0.4
    assert knowledge.failing[0] < 0.02
    assert chosen(policy, [*good_nights(8), *failed], 13).count(0) > 30


def test_a_default_that_has_always_met_the_floor_is_left_for_no_dearer_point() -> None:
    other = candidate("g5", 4e-5, 1.1, 2.0)
    policy = Policy([DEFAULT, other], 0, F1, FLOOR)
    default = [Observation(candidate=DEFAULT, night=at, value=0.902, usd=1.0) for at in range(5)]
    dearer = [Observation(candidate=other, night=at, value=0.909, usd=1.1) for at in range(5, 20)]

    knowledge = policy.posterior([*default, *dearer], 20)
    assert knowledge.chances[0] > MOST_CHANCE > knowledge.chances[1]
    assert chosen(policy, [*default, *dearer], 20).count(0) > 30


def test_a_cluster_as_safe_as_a_default_that_is_just_under_5_percent_is_tried() -> None:
    policy = Policy(ALL[:2], 0, F1, FLOOR)
    seen = [Observation(candidate=DEFAULT, night=at, value=0.905, usd=1.0) for at in range(6)]

    default, other = policy.posterior(seen, 6).chances
    assert default < MOST_CHANCE < other
    assert chosen(policy, seen, 6).count(1) > 20


@pytest.mark.parametrize("floor", [0.0, 0.3])
def test_the_noise_of_a_metric_of_which_nothing_is_known_is_learnt_before_another_point_runs(floor: float) -> None:
    policy = Policy(ALL, 0, KNOWN["r2"], floor)
    draw = np.random.default_rng(0)
    seen = [
        Observation(candidate=DEFAULT, night=at, value=floor + 0.03 + float(draw.normal(0, 0.03)), usd=1.0)
        for at in range(20)
    ]

    assert policy.noise(seen[:2]) is None
    assert set(chosen(policy, seen[:2], 2)) == {0}
    assert policy.noise(seen) == pytest.approx(0.03, rel=0.5)
    stated = policy.posterior(seen, 20).chances[0]  # one in six lies below
    assert stated == pytest.approx(0.16, abs=0.08)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_value_that_is_no_number_leaves_a_chance_for_every_point(value: float) -> None:
    seen = [*good_nights(4), Observation(candidate=DEFAULT, night=4, value=value, usd=1.0)]
    for quality in (F1, KNOWN["rmse"]):
        knowledge = Policy(ALL, 0, quality, FLOOR).posterior(seen, 5)
        assert np.isfinite(knowledge.chances).all()
        assert np.isfinite(knowledge.missing).all()
