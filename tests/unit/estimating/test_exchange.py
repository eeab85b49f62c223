"""Bytes that devices send each other, by hand."""

from typing import Any

import pytest

from paretune.estimating.exchange import Exchange, Volume, exchange_of
from paretune.specification.parallelism import ParallelDegrees

TRAINED, ALL = 100.0, 300.0


def sent(strategy: str, *, half: bool = True, **degrees: Any) -> Exchange:
    """Exchange of devices without activations."""
    return exchange_of(strategy, ParallelDegrees(**degrees), half=half, trained=TRAINED, parameters=ALL)


@pytest.mark.parametrize(("half", "size"), [(True, 2), (False, 4)])
def test_shards_gather_frozen_weights_too_twice_in_every_micro_batch(half: bool, size: int) -> None:
    exchange = exchange_of(
        "fsdp", ParallelDegrees(devices=8, per_instance=4), half=half, trained=TRAINED, parameters=ALL
    )

    assert exchange.step == Volume()
    assert exchange.micro_batch.link == pytest.approx(3 / 4 * (2 * size * ALL + 4 * TRAINED))
    assert exchange.micro_batch.network == pytest.approx(1 / 2 * (2 * size * ALL + 4 * TRAINED))


def test_shards_of_one_instance_send_only_gradients_over_the_network() -> None:
    exchange = exchange_of(
        "smp", ParallelDegrees(devices=8, per_instance=4, hybrid_shard=4), half=True, trained=TRAINED, parameters=ALL
    )

    assert exchange.micro_batch.link == pytest.approx(3 / 4 * (2 * 2 * ALL + 4 * TRAINED))
    assert exchange.micro_batch.network == pytest.approx(2 * 1 / 2 * 4 * TRAINED)


def test_zero_2_scatters_gradients_in_every_micro_batch_and_gathers_weights_once() -> None:
    exchange = exchange_of(
        "deepspeed", ParallelDegrees(devices=2, per_instance=2), half=True, trained=TRAINED, parameters=ALL
    )

    assert exchange.micro_batch == exchange.step == Volume(link=1 / 2 * 2 * TRAINED)


def test_zero_3_gathers_weights_twice_and_scatters_gradients_in_every_micro_batch() -> None:
    exchange = sent("deepspeed_zero3", devices=2, per_instance=2)

    assert exchange.micro_batch == Volume(link=1 / 2 * (2 * 2 * ALL + 2 * TRAINED))
    assert exchange.step == Volume()


def divided(devices: int, strategy: str = "fsdp", *, recomputes: bool = False, **degrees: Any) -> Any:
    """Exchange of 8 devices an instance: 3 layers that pass 10 numbers of 2 bytes to each other."""
    return exchange_of(
        strategy,
        ParallelDegrees(devices=devices, per_instance=8, **degrees),
        half=True,
        trained=TRAINED,
        parameters=ALL,
        layers=3,
        activations=10.0,
        recomputes=recomputes,
    )


@pytest.mark.parametrize(("recomputes", "times"), [(False, 4), (True, 6)])
def test_devices_of_a_tensor_group_all_reduce_activations_in_every_layer(recomputes: bool, times: int) -> None:
    result = divided(16, tensor=4, hybrid_shard=2, recomputes=recomputes)

    assert result.blocking == Volume(link=times * 3 * 2 * 3 / 4 * 2 * 10.0)
    # Two sharers in each instance hold a quarter of the weights, and the two copies are on two instances.
    shards = 1 / 2 * (2 * 2 * ALL / 4 + 4 * TRAINED / 4)
    assert result.micro_batch.link == pytest.approx(shards)
    # Four rings over one connection: each sends its shard, half of a quarter of all gradients, twice half way.
    assert result.micro_batch.network == pytest.approx(4 * 2 * (2 * 1 / 2 * 4 * TRAINED / 4 / 2))


def test_stages_of_several_instances_pass_those_of_all_devices_over_the_network() -> None:
    result = divided(16, pipeline=2)

    assert result.blocking == Volume(network=8 * 2 * 2 * 10.0)
    assert result.micro_batch == Volume(link=7 / 8 * (2 * ALL / 2 + 4 * TRAINED / 2))
