"""A job as the models see it."""

from typing import Any

import pytest

from paretune.estimating import features as room
from paretune.estimating.architecture import Architecture
from paretune.estimating.features import Footprint, JobFeatures, describe
from paretune.estimating.hardware import accelerator_of, processor
from paretune.specification.catalog import instance
from paretune.specification.job import JobSpec

BUILT = Architecture(parameters=1500, matrices=1000, layers=6, hidden_size=10, vocabulary=50, adapted_widths=1080)


@pytest.fixture(autouse=True)
def _machine_of_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 8 processors and 16 GiB that multiplies no bf16."""
    monkeypatch.setattr(room, "_this_gpu", lambda: None)
    monkeypatch.setattr(room.hardware, "this_processor", lambda: processor(8, 16.0))
    monkeypatch.setattr(room.hardware, "processor_flags", set)


def described(**changes: Any) -> JobFeatures:
    spec = JobSpec(**{"dataset": "a/b", "max_train_samples": 900, **changes})
    found = describe(spec, spec.plan(), BUILT)
    assert found is not None
    return found


def test_a_gpu_cluster_in_numbers() -> None:
    found = described(
        instance_type="ml.p4d.24xlarge", instance_count=2, per_device_train_batch_size=4, gradient_accumulation_steps=3
    )
    time = found.time

    assert (time.instances, time.devices, time.is_local) == (2, 8, False)
    assert (time.rows, time.accumulation, time.steps) == (4, 3, 5)  # 900 / (4 x 16 x 3) = 4.7
    assert time.peak_flops == 312e12 * 1.3  # auto is bf16 on an A100, which sustains more than others
    assert time.network_bytes_per_s == 50e9  # 400 Gbit/s
    assert time.chip == "NVIDIA A100 bf16"
    assert found.memory.usable_gib == pytest.approx(40 - 0.9)
    # After the last step; a forward pass is a third of a forward and a backward one.
    assert time.evaluated_flops == pytest.approx(100 * time.flops_per_row / 3)


@pytest.mark.parametrize(
    ("changes", "gbps", "flow_gbps"),
    [
        ({"instance_type": "ml.g4dn.12xlarge"}, 50, 10),
        ({"instance_type": "ml.g5.xlarge"}, 2.5, 10),  # what lasts, after a burst
        ({"instance_type": "ml.p4d.24xlarge"}, 400, 0),  # EFA
        ({"instance_type": "ml.p3.16xlarge", "strategy": "smddp"}, 25, 0),  # which has many flows
    ],
)
def test_without_efa_a_cluster_exchanges_in_few_flows(changes: dict[str, Any], gbps: float, flow_gbps: float) -> None:
    time = described(instance_count=2, **changes).time

    assert (time.network_bytes_per_s, time.flow_bytes_per_s) == (gbps * 1e9 / 8, flow_gbps * 1e9 / 8)


ONE_GPU: dict[str, Any] = {"instance_type": "ml.g5.xlarge", "per_device_train_batch_size": 4}


@pytest.mark.parametrize(
    ("changes", "kernels"),
    [
        ({"precision": "fp32"}, 51),
        ({"precision": "bf16"}, 86),  # casts
        ({"precision": "bf16", "strategy": "fsdp"}, 51),  # shards are gathered in bf16
        ({"precision": "bf16", "task": "causal-lm"}, 151),
        ({"precision": "bf16", "fine_tuning": "lora"}, 2 * 51),  # as many again for the adapters
        ({"precision": "fp32", "training_arguments": {"gradient_checkpointing": True}}, 51 * 4 / 3),
        ({"precision": "fp32", "training_arguments": {"torch_compile": True}}, 51 / 2),
    ],
)
def test_a_layer_has_as_many_kernels_as_its_kind_and_precision(changes: dict[str, Any], kernels: float) -> None:
    assert described(**ONE_GPU, **changes).time.kernels == pytest.approx(6 * kernels)


def test_an_optimiser_that_is_not_fused_writes_every_intermediate() -> None:
    fused = described(**ONE_GPU).time
    looped = described(**ONE_GPU, training_arguments={"optim": "adamw_torch"}).time

    assert (fused.updated, fused.update_kernels) == (24 * 1500, 41)
    assert (looped.updated, looped.update_kernels) == (84 * 1500, 150 * 6)


P4D: dict[str, Any] = {"instance_type": "ml.p4d.24xlarge", "strategy": "fsdp", "per_device_train_batch_size": 8}


def test_a_tensor_group_shares_the_work_of_a_row_and_has_a_part_of_its_activations_each() -> None:
    whole, shared = described(**P4D).time, described(**P4D, tensor_parallel_degree=4).time

    assert shared.flops_per_row == pytest.approx(whole.flops_per_row / 4)
    assert shared.moved_per_row == pytest.approx(whole.moved_per_row * (10 + 24 / 4) / 34)
    assert shared.updated == pytest.approx(24 * 1500 / 4 / 2)  # two groups share what each has
    assert shared.steps == 900 // (8 * 2) + 1
    assert (shared.bubble, shared.kernels) == (0.0, 6 * 51)


def test_a_processor_instance_is_one_device_with_a_share_of_its_memory() -> None:
    found = described(instance_type="ml.m5.4xlarge", instance_count=2)

    assert (found.time.instances, found.time.devices, found.time.peak_flops) == (2, 1, 16 * 96e9)
    assert found.memory.on_processor
    assert found.memory.usable_gib == pytest.approx(64 * 0.85)


def test_each_local_process_has_a_gpu_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_this_gpu", lambda: accelerator_of(instance("ml.g5.xlarge")))
    found = described(instance_count=2)

    assert (found.time.chip, found.time.devices, found.time.is_local) == ("NVIDIA A10G bf16", 2, True)
    assert found.time.peak_flops == 70e12 * 0.85
    assert found.memory.usable_gib == pytest.approx(22888 / 1024 - 0.9)


@pytest.mark.parametrize(
    ("strategy", "weights", "state"),
    [("ddp", 1, 1), ("fsdp", 16, 16), ("deepspeed", 1, 16), ("deepspeed_zero3", 16, 16), ("smp", 16, 16)],
)
def test_strategies_share_weights_and_state(strategy: str, weights: int, state: int) -> None:
    memory = described(strategy=strategy, instance_type="ml.p4d.24xlarge", instance_count=2).memory

    assert (memory.weight_sharers, memory.state_sharers) == (weights, state)


def test_a_device_map_divides_the_weights_and_not_the_time() -> None:
    job: dict[str, Any] = {"instance_type": "ml.g5.12xlarge", "fine_tuning": "qlora", "per_device_train_batch_size": 4}
    in_turn, alike = described(**job, strategy="device_map"), described(**job)

    assert in_turn.memory.parameters == alike.memory.parameters / 4
    assert in_turn.memory.frozen_bytes == alike.memory.frozen_bytes
    assert in_turn.time.bubble == 3  # of four devices three wait
    assert in_turn.time.flops_per_row * 4 == pytest.approx(alike.time.flops_per_row)


SMALL, LARGE = "ml.g4dn.xlarge", "ml.g6e.xlarge"  # 16 and 48 GiB


def held(batch: int, instance_type: str = "ml.g5.xlarge", **terms: object) -> Footprint:
    texts = {"instance_type": instance_type, "per_device_train_batch_size": str(batch)}
    spec = JobSpec.read(texts | {name: str(value) for name, value in terms.items()})
    return Footprint.of(spec, spec.plan())


FULL = [held(128)]  # of the ml.g5.xlarge, 24 GiB: 128 rows do not fit


@pytest.mark.parametrize(
    ("footprint", "fits"),
    [
        (held(32), True),
        (held(32, LARGE), True),
        (held(32, instance_count=4), True),
        (held(128), False),
        (held(256), False),
        (held(128, SMALL), False),
        (held(128, "ml.g5.12xlarge"), False),
        (held(64), True),  # from here on it is open
        (held(128, LARGE), True),
        (held(128, fine_tuning="lora"), True),
        (held(128, max_seq_length=64), True),
        (held(128, precision="fp16"), True),
        (held(128, training_arguments='{"gradient_checkpointing": true}'), True),
    ],
)
def test_what_did_not_fit_rules_out_as_many_rows_or_more_on_as_much_memory_or_less(
    footprint: Footprint, fits: bool
) -> None:
    assert (footprint.why_full(FULL) is None) is fits


def test_sharded_weights_fit_on_more_devices_where_they_did_not_on_fewer() -> None:
    full = [held(16, "ml.g5.12xlarge", strategy="fsdp", instance_count=2)]

    assert held(16, "ml.g5.12xlarge", strategy="fsdp", instance_count=1).why_full(full)
    assert not held(16, "ml.g5.12xlarge", strategy="fsdp", instance_count=4).why_full(full)
    assert not held(16, "ml.g5.12xlarge", strategy="ddp", instance_count=1).why_full(full)
