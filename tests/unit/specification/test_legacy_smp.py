"""Settings of version 1 of SageMaker's model parallelism library: what goes together, and what is said where not."""

from typing import Any

import pytest

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec, launch_faults
from paretune.specification.legacy_smp import LegacyModelParallel

P4D: dict[str, Any] = {"instance_type": "ml.p4d.24xlarge", "entry_script": "train.py"}
FULL: dict[str, Any] = {
    "pipeline_parallel_degree": 2,
    "microbatches": 4,
    "placement_strategy": "cluster",
    "shard_optimizer_state": True,
    "tensor_parallel_degree": 2,
    "ddp": True,
    "optimize": "speed",
    "pipeline": "interleaved",
}


def faults_of(settings: dict[str, Any], **changes: Any) -> list[str]:
    with pytest.raises(BadInput) as caught:
        JobSpec(legacy_smp=settings, **{**P4D, **changes})
    return list(caught.value.faults)


def test_devices_that_share_a_model_have_rows_in_common_and_a_tensor_group_only_with_a_prescaled_batch() -> None:
    job = JobSpec(legacy_smp=FULL, per_device_train_batch_size=8, **P4D)

    assert job.devices == 8 // 2
    assert job.plan().global_batch_size == 4 * 8
    assert job.replace(legacy_smp={**FULL, "prescaled_batch": True}).devices == 8 // 2 // 2
    assert job.replace(legacy_smp={"partitions": 8}).devices == 1
    assert launch_faults(job) == []


def test_it_is_read_back_as_it_was_typed() -> None:
    job = JobSpec(legacy_smp=FULL, **P4D)

    assert JobSpec.from_text(job.as_text()) == job


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({**FULL, "microbatch": 4}, "legacy_smp knows no microbatch: did you mean microbatches"),
        ({**FULL, "horovod": True}, "horovod is for TensorFlow"),
        ({**FULL, "fp16": True}, "fp16 needs version 1.10 of the library and the image of transformers 4.17 has 1.8.1"),
        ({**FULL, "microbatches": "4"}, "microbatches must be a whole number, got '4'"),
        ({**FULL, "microbatches": True}, "microbatches must be a whole number, got True"),
        ({**FULL, "microbatches": 3}, "microbatches must divide per_device_train_batch_size 8, got 3"),
        ({**FULL, "ddp": 1}, "ddp must be true or false, got 1"),
        ({**FULL, "pipeline": "interleave"}, "pipeline must be one of interleaved, simple, got 'interleave'; did you"),
        ({**FULL, "memory_weight": 2}, "memory_weight must be at least 0 and at most 1, got 2"),
        ({**FULL, "placement_strategy": "DDT"}, "placement_strategy must be cluster, spread or the letters D, P, T"),
        ({**FULL, "partitions": 2}, "give pipeline_parallel_degree or partitions, and not both"),
        ({"microbatches": 4}, "give pipeline_parallel_degree or partitions"),
        ({**FULL, "ddp": False}, "tensor_parallel_degree above 1 needs ddp=true"),
        ({"partitions": 2}, "ddp must be true, for 8 devices hold 4 copies of the model"),
        ({"partitions": 8, "auto_partition": False}, "auto_partition=false needs a default_partition"),
        ({"partitions": 8, "default_partition": 8}, "default_partition must be below the 8 stages, got 8"),
        ({**FULL, "pipeline_parallel_degree": 3}, "must divide the 8 devices, got 2 x 3: use 1, 2, 4, 8"),
    ],
)
def test_settings_that_the_library_does_not_take_are_refused(settings: dict[str, Any], part: str) -> None:
    (fault,) = faults_of(settings, per_device_train_batch_size=8)

    assert part in fault
    assert fault.startswith("legacy_smp")


def test_the_rows_of_a_device_are_divided_whether_they_are_typed_or_derived() -> None:
    cut = {**FULL, "microbatches": 3}

    assert faults_of(cut) == ["legacy_smp: microbatches must divide per_device_train_batch_size 16, got 3"]
    assert JobSpec(legacy_smp=cut, global_batch_size=24, **P4D).plan().per_device_train_batch_size == 6


def test_settings_of_newer_libraries_go_with_an_image_of_one_s_own() -> None:
    own = JobSpec(legacy_smp={**FULL, "fp16": True}, image_uri="mine:1", **P4D)

    assert own.legacy_model_parallel() == LegacyModelParallel(**FULL)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"entry_script": None}, "legacy_smp needs an entry_script"),
        ({"entry_script": "MLproject"}, "legacy_smp needs an entry_script"),
        ({"instance_type": "ml.p5.48xlarge"}, "legacy_smp needs ml.g4dn.12xlarge, ml.p3.16xlarge"),
        ({"instance_type": "local"}, "legacy_smp is for SageMaker, got instance_type=local"),
        ({"launcher": "simulated"}, "legacy_smp is for SageMaker, got launcher=simulated"),
        ({"strategy": "fsdp"}, "legacy_smp is a strategy of its own, got strategy=fsdp"),
        ({"compiler": "inductor"}, "legacy_smp goes with compiler=none, got inductor"),
    ],
)
def test_a_job_that_the_old_image_cannot_run_is_refused(changes: dict[str, Any], part: str) -> None:
    (fault,) = faults_of(FULL, **changes)

    assert fault.startswith(part)


def test_all_faults_come_at_once() -> None:
    found = faults_of({**FULL, "microbatch": 4, "optimize": "cost"}, entry_script=None, strategy="smp")

    assert len(found) == 4
    assert sum("entry_script" in fault for fault in found) == 1
