"""The work of a job, compared with counts by hand."""

from dataclasses import replace
from typing import Any

import pytest

from paretune.core import machine
from paretune.estimating import hardware
from paretune.estimating.architecture import Architecture
from paretune.estimating.counting import Work, describe
from paretune.estimating.hardware import accelerator_of, processor
from paretune.estimating.workload import setting_of
from paretune.specification.catalog import instance
from paretune.specification.job import JobSpec

BUILT = Architecture(
    parameters=1500, matrices=1000, layers=6, hidden_size=10, vocabulary=50, adapted_widths=1080, kind="bert"
)


@pytest.fixture(autouse=True)
def _machine_of_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a machine with 8 CPUs and 16 GiB that cannot multiply in bf16."""
    monkeypatch.setattr(hardware, "local_gpu", lambda: None)
    monkeypatch.setattr(hardware, "this_processor", lambda: processor(8, 16.0))
    monkeypatch.setattr(machine, "processor_flags", set)


def work_of(*, kind: str = "bert", **changes: Any) -> Work:
    spec = JobSpec(**{"dataset": "a/b", "max_train_samples": 900, **changes})
    setting = setting_of(spec, spec.plan(), replace(BUILT, kind=kind))
    assert setting is not None
    return describe(setting)


def test_a_gpu_cluster_in_numbers() -> None:
    work = work_of(
        instance_type="ml.p4d.24xlarge", instance_count=2, per_device_train_batch_size=4, gradient_accumulation_steps=3
    )

    assert (work.instances, work.devices, work.is_local) == (2, 8, False)
    assert (work.accumulation, work.steps) == (3, 5)  # 900 / (4 x 16 x 3) = 4.7
    assert work.arithmetic == 312e12 * 1.3 / 2  # auto is bf16 on an A100, which sustains a larger share than others
    assert work.memory == 1555e9 * 0.75
    assert work.constants["chip"] == "chip:NVIDIA A100 bf16"
    # After the last step, 16 devices share 100 rows. A forward pass takes a third of the work of training on a row, and
    # `flops` is for 4 rows.
    assert work.evaluated_flops == pytest.approx(100 / 16 / 3 * work.flops / 4)


@pytest.mark.parametrize(
    ("changes", "gbps", "flow_gbps", "constant"),
    [
        ({"instance_type": "ml.g4dn.12xlarge"}, 50, 10, "tcp"),
        ({"instance_type": "ml.g5.xlarge"}, 2.5, 10, "tcp"),  # the sustained rate, after a burst
        ({"instance_type": "ml.c5n.18xlarge"}, 100, 10, "tcp"),  # PyTorch does not use its EFA
        ({"instance_type": "ml.p4d.24xlarge"}, 400, 400, "efa"),
        ({"instance_type": "ml.p3.16xlarge", "strategy": "smddp"}, 25, 25, "efa"),  # it also has many flows
    ],
)
def test_without_efa_a_cluster_exchanges_in_few_flows(
    changes: dict[str, Any], gbps: float, flow_gbps: float, constant: str
) -> None:
    work = work_of(instance_count=2, **changes)

    assert (work.network, work.flow) == (gbps * 1e9 / 8, flow_gbps * 1e9 / 8)
    assert work.constants["network"] == constant


ONE_GPU: dict[str, Any] = {"instance_type": "ml.g5.xlarge", "per_device_train_batch_size": 4}


@pytest.mark.parametrize(
    ("changes", "kernels"),
    [
        ({"precision": "fp32"}, 51),
        ({"precision": "fp16"}, 86),  # casts
        ({"precision": "bf16"}, 51),  # of weights that are bf16, with fp32 masters
        ({"precision": "bf16-true"}, 51),
        ({"precision": "bf16", "kind": "deberta-v2"}, 86),  # trained under autocast: no masters
        ({"precision": "bf16", "kind": "gemma", "task": "causal-lm"}, 151),
        ({"precision": "bf16", "strategy": "fsdp"}, 51),  # shards are gathered in bf16
        ({"precision": "fp16", "task": "causal-lm"}, 151),
        ({"precision": "bf16", "fine_tuning": "lora"}, 2 * 51),  # the same number again for the adapters
        ({"precision": "fp32", "training_arguments": {"gradient_checkpointing": True}}, 51 * 4 / 3),
        ({"precision": "fp32", "training_arguments": {"torch_compile": True}}, 51 / 2),
    ],
)
def test_a_layer_has_as_many_kernels_as_its_kind_and_precision(changes: dict[str, Any], kernels: float) -> None:
    assert work_of(**ONE_GPU, **changes).kernels == pytest.approx(6 * kernels)


def test_the_optimizer_moves_each_weight_with_its_moments_and_masters_also_their_rounded_copy() -> None:
    fused = work_of(**ONE_GPU, precision="fp32")

    assert (fused.updated, fused.update_kernels) == (24 * 1500, 41)
    assert work_of(**ONE_GPU, precision="bf16").updated == (24 + 12) * 1500  # gradients to fp32, masters to bf16


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("bf16", 2)])
def test_frozen_weights_are_read_in_each_pass_in_the_format_of_the_products(precision: str, size: int) -> None:
    few, many = (
        describe(setting)
        for matrices in (1000, 1500)
        if (
            setting := setting_of(
                spec := JobSpec(
                    **ONE_GPU, dataset="a/b", max_train_samples=900, fine_tuning="lora", precision=precision
                ),
                spec.plan(),
                replace(BUILT, matrices=matrices),
            )
        )
    )

    assert many.moved - few.moved == pytest.approx(2 * size * 500)  # forward and backward, without gradients of weights


P4D: dict[str, Any] = {"instance_type": "ml.p4d.24xlarge", "strategy": "fsdp", "per_device_train_batch_size": 8}


def test_a_tensor_group_shares_the_work_of_a_row_and_has_a_part_of_its_activations_each() -> None:
    whole, shared = work_of(**P4D), work_of(**P4D, tensor_parallel_degree=4)
    read = 20 * 1000  # bytes of weights in a micro-batch

    assert shared.flops == pytest.approx(whole.flops / 4)
    assert shared.moved - read / 4 == pytest.approx((whole.moved - read) * (10 + 24 / 4) / 34)
    assert shared.updated == pytest.approx(24 * 1500 / 4 / 2)  # two groups share what each has
    assert shared.steps == 900 // (8 * 2) + 1
    assert (shared.bubble, shared.kernels) == (0.0, 6 * 51)


def test_a_processor_instance_is_one_device_and_each_local_process_has_a_gpu_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_processors = work_of(instance_type="ml.m5.4xlarge", instance_count=2)
    monkeypatch.setattr(hardware, "local_gpu", lambda: accelerator_of(instance("ml.g5.xlarge")))
    work = work_of(instance_count=2)

    assert (work.constants["chip"], work.devices, work.is_local) == ("chip:NVIDIA A10G bf16", 2, True)
    assert work.arithmetic == 70e12 * 0.85 / 2
    assert (on_processors.instances, on_processors.devices, on_processors.arithmetic) == (2, 1, 16 * 96e9 / 2)


def test_a_device_map_divides_the_weights_and_not_the_time() -> None:
    job: dict[str, Any] = {"instance_type": "ml.g5.12xlarge", "fine_tuning": "qlora", "per_device_train_batch_size": 4}
    in_turn, alike = work_of(**job, strategy="device_map"), work_of(**job)

    assert in_turn.bubble == 3  # three of four devices wait
    assert in_turn.flops * 4 == pytest.approx(alike.flops)


def test_shards_of_four_bit_weights_are_gathered_packed_and_all_devices_work_at_a_time() -> None:
    job: dict[str, Any] = {"instance_type": "ml.g5.12xlarge", "fine_tuning": "qlora", "per_device_train_batch_size": 4}
    shards, in_turn = work_of(**job, strategy="fsdp"), work_of(**job, strategy="device_map")
    trained = shards.updated * 4 / 24  # 24 bytes per trained weight, of which each of 4 devices updates a quarter

    assert shards.micro_link == pytest.approx(3 / 4 * (2 * (0.5 * 1000 + 2 * 500) + 4 * trained))
    assert (shards.bubble, in_turn.bubble) == (0, 3)


EIGHT: dict[str, Any] = {"instance_type": "ml.p4d.24xlarge", "per_device_train_batch_size": 1}


def test_gradients_are_reduced_once_a_step_and_cross_the_network_once_for_each_machine() -> None:
    work = work_of(**EIGHT, instance_count=2)

    assert work.step_link == pytest.approx(7 / 8 * 4 * 1500)  # an all-reduce of bf16 gradients
    assert work.step_network == pytest.approx(1 / 2 * 4 * 1500)
    assert work.micro_link == work.micro_network == work.blocking_link == 0
    for kind, precision in (("bert", "fp32"), ("bert", "fp16"), ("modernbert", "bf16")):
        cast = work_of(**EIGHT, instance_count=2, kind=kind, precision=precision)
        assert cast.step_network == 2 * work.step_network  # of fp32 gradients


@pytest.mark.parametrize(("precision", "size"), [("bf16", 2), ("fp32", 4)])
def test_shards_are_gathered_twice_in_every_micro_batch(precision: str, size: int) -> None:
    work = work_of(**EIGHT, instance_count=2, strategy="fsdp", precision=precision)
    shards_of_one = work_of(**EIGHT, instance_count=2, strategy="fsdp", precision=precision, hybrid_shard_degree=8)

    assert work.step_link == work.step_network == 0
    assert work.micro_link == pytest.approx(7 / 8 * (2 * size + 4) * 1500)
    assert work.micro_network == pytest.approx(1 / 2 * (2 * size + 4) * 1500)
    assert shards_of_one.micro_network == 0
    assert shards_of_one.step_network == pytest.approx(2 * 1 / 2 * 4 * 1500)  # of two instances: only gradients


def test_copies_of_shards_on_one_machine_exchange_once_a_step_and_not_over_the_network() -> None:
    job: dict[str, Any] = EIGHT | {"precision": "fp32"}
    whole, copies = work_of(**job), work_of(**job, strategy="fsdp", hybrid_shard_degree=1)
    pairs = work_of(**job, strategy="fsdp", hybrid_shard_degree=2)

    assert (copies.micro_link, copies.micro_network, copies.step_network) == (0, 0, 0)
    assert copies.step_link == pytest.approx(whole.step_link)  # what data parallelism sends
    assert pairs.step_link == pytest.approx(2 * 3 / 4 * 4 * 1500 / 2)  # of four copies, half of the weights each
    assert pairs.micro_network == pairs.step_network == 0


@pytest.mark.parametrize(("recomputes", "times"), [(False, 4), (True, 6)])
def test_devices_of_a_tensor_group_all_reduce_activations_in_every_layer(recomputes: bool, times: int) -> None:
    arguments = {"gradient_checkpointing": recomputes}
    job: dict[str, Any] = EIGHT | {"instance_count": 2, "strategy": "fsdp", "training_arguments": arguments}
    alone, work = work_of(**job), work_of(**job, tensor_parallel_degree=4, hybrid_shard_degree=2)

    assert alone.blocking_link == 0
    assert work.blocking_link == pytest.approx(times * 6 * 2 * 3 / 4 * 2 * 128 * 10)  # 128 tokens of two bytes, 10 wide
    # Two sharers in each instance hold a quarter of the weights, and the two copies are on two instances.
    assert work.micro_link == pytest.approx(1 / 2 * (2 * 2 * 1500 / 4 + 4 * 1500 / 4))
    assert work.micro_network == 0
    assert work.step_network == pytest.approx(4 * 2 * (2 * 1 / 2 * 4 * 1500 / 4 / 2))  # an all-reduce of each shard


def test_stages_of_several_instances_pass_those_of_all_devices_over_the_network() -> None:
    work = work_of(**EIGHT, instance_count=2, strategy="fsdp", pipeline_parallel_degree=2)

    assert (work.blocking_link, work.blocking_network) == (0, pytest.approx(8 * 2 * 2 * 128 * 10))
    assert work.micro_network == 0
    assert work.micro_link == pytest.approx(7 / 8 * (2 * 1500 / 2 + 4 * 1500 / 2))


def test_eight_v100_of_an_instance_slow_each_other_and_eight_a100_do_not() -> None:
    v100 = [work_of(instance_type=name, precision="fp32").arithmetic for name in ("ml.p3.2xlarge", "ml.p3.16xlarge")]
    a100 = work_of(instance_type="ml.p4d.24xlarge", precision="fp32").arithmetic

    assert v100[0] / v100[1] == pytest.approx(1.14)
    assert a100 == pytest.approx(19.5e12 * 0.7)
