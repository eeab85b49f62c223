"""Which instance types a strategy runs on."""

from typing import Any

import pytest

from paretune.spec.cluster import SMDDP_INSTANCE_TYPES, Cluster, unsupported


@pytest.mark.parametrize(
    ("strategy", "instance_type", "said"),
    [
        (
            "smddp",
            "ml.g5.xlarge",
            "strategy smddp needs ml.p4d.24xlarge or ml.p4de.24xlarge, got ml.g5.xlarge: use ddp",
        ),
        ("smp", "ml.g5.12xlarge", "strategy smp needs an instance of p4d, p4de, p5, p5e, p5en, got ml.g5.12xlarge"),
        ("deepspeed", "ml.m5.large", "strategy deepspeed needs GPUs, and ml.m5.large has none: use fsdp or ddp"),
    ],
)
def test_a_strategy_that_an_instance_lacks_is_refused_with_what_to_do(
    strategy: str, instance_type: str, said: str
) -> None:
    (fault,) = unsupported(Cluster(strategy=strategy, instance_type=instance_type))

    assert fault.startswith(said)


@pytest.mark.parametrize(
    ("strategy", "instance_type"),
    [
        *(("smddp", name) for name in SMDDP_INSTANCE_TYPES),
        ("smp", "ml.p5.48xlarge"),
        ("deepspeed", "ml.g4dn.xlarge"),
        ("ddp", "ml.m5.large"),
        ("fsdp", "ml.m5.large"),
    ],
)
def test_a_strategy_on_what_it_runs_on_is_no_fault(strategy: str, instance_type: str) -> None:
    assert unsupported(Cluster(strategy=strategy, instance_type=instance_type)) == []


@pytest.mark.parametrize(("processes", "faults"), [(None, 0), (4, 0), (5, 1)])
def test_a_gpu_has_one_process_at_most(processes: int | None, faults: int) -> None:
    found = unsupported(Cluster(instance_type="ml.g5.12xlarge", processes_per_instance=processes))

    assert len(found) == faults


def test_types_to_fall_back_on_are_checked_as_well() -> None:
    cluster: dict[str, Any] = {"instance_type": "ml.p4d.24xlarge", "fallback_instance_types": "ml.g5.xlarge"}
    (fault,) = unsupported(Cluster(strategy="smddp", **cluster))

    assert "got ml.g5.xlarge" in fault
