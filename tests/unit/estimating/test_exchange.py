"""Bytes that devices send each other, by hand."""

import pytest

from paretune.estimating.exchange import Volume, exchange_of

TRAINED, ALL = 100.0, 300.0


def test_plain_data_parallelism_reduces_fp32_gradients_once_a_step() -> None:
    found = exchange_of("ddp", half=True, trained=TRAINED, parameters=ALL, instances=4, devices=8, sharers=1)

    assert found.micro_batch == Volume()
    assert found.step.link == pytest.approx(2 * 7 / 8 * 4 * TRAINED)
    assert found.step.network == pytest.approx(2 * 3 / 4 * 4 * TRAINED)


@pytest.mark.parametrize(("half", "size"), [(True, 2), (False, 4)])
def test_shards_gather_frozen_weights_too_twice_in_every_micro_batch(half: bool, size: int) -> None:
    found = exchange_of("fsdp", half=half, trained=TRAINED, parameters=ALL, instances=2, devices=4, sharers=8)

    assert found.step == Volume()
    assert found.micro_batch.link == pytest.approx(3 / 4 * (2 * size * ALL + 4 * TRAINED))
    assert found.micro_batch.network == pytest.approx(1 / 2 * (2 * size * ALL + 4 * TRAINED))


def test_shards_of_one_instance_send_only_gradients_over_the_network() -> None:
    found = exchange_of("smp", half=True, trained=TRAINED, parameters=ALL, instances=2, devices=4, sharers=4)

    assert found.micro_batch.link == pytest.approx(3 / 4 * (2 * 2 * ALL + 4 * TRAINED))
    assert found.micro_batch.network == pytest.approx(2 * 1 / 2 * 4 * TRAINED)


def test_copies_of_shards_over_several_instances_send_each_shard_between_them() -> None:
    found = exchange_of("smp", half=True, trained=TRAINED, parameters=ALL, instances=4, devices=4, sharers=8)

    gathered = 1 / 2 * (2 * 2 * ALL + 4 * TRAINED)
    assert found.micro_batch.network == pytest.approx(gathered + 2 * 1 / 2 * 4 * TRAINED / 2)


def test_zero_2_scatters_gradients_in_every_micro_batch_and_gathers_weights_once() -> None:
    found = exchange_of("deepspeed", half=True, trained=TRAINED, parameters=ALL, instances=1, devices=2, sharers=1)

    assert found.micro_batch == found.step == Volume(link=1 / 2 * 2 * TRAINED)


@pytest.mark.parametrize("strategy", ["ddp", "smddp", "fsdp", "smp", "deepspeed"])
def test_one_device_sends_nothing(strategy: str) -> None:
    found = exchange_of(strategy, half=True, trained=TRAINED, parameters=ALL, instances=1, devices=1, sharers=1)

    assert found.micro_batch == found.step == Volume()
