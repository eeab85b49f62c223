"""The time model: sums worked out by hand, and what measurements move."""

import math
from dataclasses import replace
from typing import Any

import pytest

from paretune.estimating.phases import overhead_s
from paretune.estimating.timing import Exchange, Measurement, TimeModel, TimingFeatures, Volume, exchange_of
from paretune.specification.parallelism import ParallelDegrees

ROUND = TimingFeatures(
    chip="chip",
    model="model",
    cluster="cluster",
    instances=1,
    devices=1,
    peak_flops=1e12,
    memory_bytes_per_s=1e11,
    network_bytes_per_s=1e9,
    link_bytes_per_s=1e10,
    rows=10,
    accumulation=2,
    steps=100,
    flops_per_row=3e9,
    kernels=500,
    host="g5",
    evaluated_flops=6e12,
    updated=2.4e9,
    update_kernels=40,
    parameters=1.5e8,
)
# By the medians of the priors: 10 rows x 3e9 / (1e12 x 0.5) = 0.06 s, beside 500 kernels x 20 us = 0.01 s, twice; and
# the update, twice (2.4e9 bytes / (1e11 x 0.75) + 40 x 20 us).
PASS = 0.06
LAUNCHES = 0.01
UPDATE = 2 * (0.032 + 0.0008)


def busy(seconds: float) -> float:
    return (seconds**3 + LAUNCHES**3) ** (1 / 3)


STEP = 2 * busy(PASS) + UPDATE
USUAL = overhead_s("any")  # billed around the steps of a usual job
AROUND = USUAL + 6e12 / (1e12 * 0.5) + 4 * 1.5e8 / 200e6  # start-up, evaluation, upload
SEVERAL = 0.95
ALL_REDUCED = Exchange(step=Volume(link=7 / 8 * 8e8, network=3 / 4 * 8e8))


def test_one_device_is_the_sum_by_hand() -> None:
    (found,) = TimeModel().predict([ROUND])

    assert found.step_seconds == pytest.approx(STEP)
    assert found.startup_seconds == pytest.approx(AROUND)
    assert found.seconds == pytest.approx(AROUND + 100 * STEP)
    assert found.steps == 100


def exposed(exchange: float, hidden_by: float) -> float:
    return exchange**2 / (exchange + hidden_by)


def test_what_a_backward_pass_cannot_hide_of_an_all_reduce_over_the_network_is_added() -> None:
    (found,) = TimeModel().predict([replace(ROUND, instances=4, exchange=ALL_REDUCED, evaluated_flops=0)])

    once = PASS / SEVERAL
    assert found.step_seconds == pytest.approx(
        2 * busy(once)
        + UPDATE
        + exposed(0.75 * 8e8 / (1e9 * 0.5), 2 / 3 * busy(once))  # the network is slower than links
    )


def test_a_network_without_efa_is_slower_and_less_certain() -> None:
    by_efa = replace(ROUND, instances=4, exchange=ALL_REDUCED, evaluated_flops=0, steps=20_000)
    fast, slow = TimeModel().predict([by_efa, replace(by_efa, flow_bytes_per_s=1e9)])

    once = PASS / SEVERAL
    exchanged = exposed(0.75 * 8e8 / (1e9 * 0.35), 2 / 3 * busy(once))
    assert slow.step_seconds == pytest.approx(2 * busy(once) + UPDATE + exchanged)
    assert fast.seconds_high / fast.seconds < 1.9 < 2.1 < slow.seconds_high / slow.seconds


def test_a_flow_is_no_faster_than_the_network_of_a_small_instance() -> None:
    slow = replace(ROUND, instances=2, exchange=ALL_REDUCED, flow_bytes_per_s=4e9, network_bytes_per_s=1e9)
    (found,) = TimeModel().predict([slow])

    once = PASS / SEVERAL
    assert found.step_seconds == pytest.approx(2 * busy(once) + UPDATE + exposed(0.75 * 8e8 / 1e9, 2 / 3 * busy(once)))


def test_a_cluster_that_was_measured_shows_the_network_of_another_only_in_part() -> None:
    two = replace(ROUND, instances=2, exchange=ALL_REDUCED, flow_bytes_per_s=1e9, steps=20_000, cluster="two")
    slow = [Measurement(setting=two, step_seconds=3.0) for _ in range(5)]
    same, other = TimeModel(slow).predict([two, replace(two, cluster="three")])

    assert same.seconds_high / same.seconds < 1.1
    assert other.seconds_high / other.seconds > 1.3


def test_runs_of_others_move_the_own_code_less_than_their_own() -> None:
    others = replace(ROUND, stack="theirs")
    model = TimeModel([Measurement(setting=others, step_seconds=2 * STEP, origin="published")])
    theirs, own = model.predict([others, ROUND])

    assert STEP < own.step_seconds < theirs.step_seconds


def test_what_travels_in_every_micro_batch_hides_behind_that_one_and_counts_as_often() -> None:
    gathered = Exchange(micro_batch=Volume(link=7 / 8 * 8e8))
    (found,) = TimeModel().predict([replace(ROUND, devices=8, exchange=gathered)])

    once = PASS / SEVERAL
    seconds = 7 / 8 * 8e8 / (1e10 * 0.5)
    assert found.step_seconds == pytest.approx(2 * (busy(once) + exposed(seconds, once)) + UPDATE)
    assert found.startup_seconds == pytest.approx(AROUND - 12 + 12 / 8 / SEVERAL)  # eight devices share the evaluation


def test_stages_wait_for_each_other_and_products_for_activations_of_other_devices() -> None:
    sent = Exchange(blocking=Volume(link=1e7))
    (found,) = TimeModel().predict([replace(ROUND, devices=8, exchange=sent, bubble=0.75)])  # 4 stages, 4 micro-batches

    working = busy(PASS / SEVERAL) + 1e7 / (1e10 * 0.5)
    assert found.step_seconds == pytest.approx(2 * 1.75 * working + UPDATE)


def test_start_up_grows_with_the_instances_of_which_the_slowest_is_waited_for() -> None:
    (several,) = TimeModel().predict([replace(ROUND, instances=4, evaluated_flops=0, parameters=0)])

    assert several.startup_seconds == pytest.approx(USUAL * (1 + 0.2 * math.log(4)))


def test_the_parts_say_what_the_seconds_go_to_and_sum_to_them() -> None:
    (found,) = TimeModel().predict([replace(ROUND, instances=4, devices=8, exchange=ALL_REDUCED)])

    once = PASS / SEVERAL
    assert sum(found.parts.values()) == pytest.approx(found.seconds)
    assert found.parts["compute"] == pytest.approx(100 * 2 * once)
    assert found.parts["memory"] == pytest.approx(100 * 2 * 0.032)
    assert found.parts["launches"] == pytest.approx(100 * (2 * (busy(once) - once) + 2 * 0.0008))
    assert found.parts["exchange"] == pytest.approx(100 * exposed(0.75 * 8e8 / (1e9 * 0.5), 2 / 3 * busy(once)))
    assert found.parts["evaluation"] == pytest.approx(12 / 32 / SEVERAL)
    assert found.parts["upload"] > 4 * 1.5e8 / 200e6


def test_a_processor_starts_an_operator_after_the_one_before() -> None:
    on_processor = replace(ROUND, host="", is_local=True)
    (found,) = TimeModel().predict([on_processor])

    local = 1.8  # times as fast as guessed; 23 us for an operator, and memory that is twice as fast, 2 ms for the loop
    update = 0.5 * (0.024 + 40 * 23e-6)
    assert found.step_seconds == pytest.approx(2 * (PASS / local + 500 * 23e-6) + update + 0.002)


def test_a_probe_shows_that_a_batch_four_times_as_large_takes_as_long() -> None:
    short = replace(ROUND, rows=1, kernels=1000, accumulation=1)  # 20 ms of launches beside 6 ms of arithmetic
    probe = Measurement(setting=short, step_seconds=0.045)  # as BERT base with 16 rows on an H200; 64 took 47 ms
    small, large = TimeModel([probe]).predict([short, replace(short, rows=4)])

    assert small.step_seconds == pytest.approx(0.045, rel=0.1)
    assert large.step_seconds == pytest.approx(0.047, rel=0.2)


def test_a_measurement_moves_its_neighbours_less_than_itself() -> None:
    slow = Measurement(setting=ROUND, step_seconds=2 * STEP)
    model = TimeModel([slow])
    other_chip = replace(ROUND, chip="other", cluster="other")
    other_model = replace(ROUND, model="other", cluster="other")

    def ratio(setting: TimingFeatures) -> float:
        return model.predict([setting])[0].step_seconds / STEP

    assert 1.9 < ratio(ROUND) < 2.05
    assert 1.2 < ratio(other_chip) < ratio(other_model) < ratio(ROUND)


def test_what_was_measured_has_a_narrow_interval_and_what_was_not_a_wide_one() -> None:
    long = replace(ROUND, steps=20_000)  # the steps count, not the start-up
    measured = [Measurement(setting=long, seconds=6000.0) for _ in range(5)]
    known, unknown = TimeModel(measured).predict([long, replace(long, chip="new", cluster="new", model="new")])

    assert known.seconds_high / known.seconds < 1.1
    assert unknown.seconds_high / unknown.seconds > 1.2


TRAINED, ALL = 100.0, 300.0  # parameters
TWO_INSTANCES: dict[str, Any] = {"devices": 8, "per_instance": 4}
ONE_INSTANCE: dict[str, Any] = {"devices": 2, "per_instance": 2}
GROUPS: dict[str, Any] = {"devices": 16, "per_instance": 8}


def exchanged(strategy: str, degrees: dict[str, Any], *, half: bool = True, recomputes: bool = False) -> Exchange:
    """Exchange of devices with 3 layers that pass 10 numbers of 2 bytes to each other."""
    return exchange_of(
        strategy,
        ParallelDegrees(**degrees),
        half=half,
        trained=TRAINED,
        parameters=ALL,
        layers=3,
        activations=10.0,
        recomputes=recomputes,
    )


@pytest.mark.parametrize(("half", "size"), [(True, 2), (False, 4)])
def test_shards_gather_frozen_weights_too_twice_in_every_micro_batch(half: bool, size: int) -> None:
    exchange = exchanged("fsdp", TWO_INSTANCES, half=half)

    assert exchange.step == Volume()
    assert exchange.micro_batch.link == pytest.approx(3 / 4 * (2 * size * ALL + 4 * TRAINED))
    assert exchange.micro_batch.network == pytest.approx(1 / 2 * (2 * size * ALL + 4 * TRAINED))


def test_shards_of_one_instance_send_only_gradients_over_the_network() -> None:
    exchange = exchanged("smp", {**TWO_INSTANCES, "hybrid_shard": 4})

    assert exchange.micro_batch.link == pytest.approx(3 / 4 * (2 * 2 * ALL + 4 * TRAINED))
    assert exchange.micro_batch.network == pytest.approx(2 * 1 / 2 * 4 * TRAINED)


def test_zero_2_gathers_weights_once_and_zero_3_twice_in_every_micro_batch() -> None:
    two, three = (exchanged(strategy, ONE_INSTANCE) for strategy in ("deepspeed", "deepspeed_zero3"))

    assert two.micro_batch == two.step == Volume(link=1 / 2 * 2 * TRAINED)
    assert three.micro_batch == Volume(link=1 / 2 * (2 * 2 * ALL + 2 * TRAINED))


@pytest.mark.parametrize(("recomputes", "times"), [(False, 4), (True, 6)])
def test_devices_of_a_tensor_group_all_reduce_activations_in_every_layer(recomputes: bool, times: int) -> None:
    result = exchanged("fsdp", {**GROUPS, "tensor": 4, "hybrid_shard": 2}, recomputes=recomputes)

    assert result.blocking == Volume(link=times * 3 * 2 * 3 / 4 * 2 * 10.0)
    # Two sharers in each instance hold a quarter of the weights, and the two copies are on two instances.
    assert result.micro_batch.link == pytest.approx(1 / 2 * (2 * 2 * ALL / 4 + 4 * TRAINED / 4))
    # Four rings over one connection: each sends its shard, half of a quarter of all gradients, twice half way.
    assert result.micro_batch.network == pytest.approx(4 * 2 * (2 * 1 / 2 * 4 * TRAINED / 4 / 2))


def test_stages_of_several_instances_pass_those_of_all_devices_over_the_network() -> None:
    result = exchanged("fsdp", {**GROUPS, "pipeline": 2})

    assert result.blocking == Volume(network=8 * 2 * 2 * 10.0)
    assert result.micro_batch == Volume(link=7 / 8 * (2 * ALL / 2 + 4 * TRAINED / 2))
