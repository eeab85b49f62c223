"""How devices are divided: worked out by hand for eight and sixteen of them."""

from typing import Any

import pytest

from paretune.specification.job import JobSpec
from paretune.specification.parallelism import ParallelDegrees

P4D = {"instance_type": "ml.p4d.24xlarge", "strategy": "fsdp"}


def degrees(devices: int = 8, per_instance: int = 8, **arguments: Any) -> ParallelDegrees:
    return ParallelDegrees(devices=devices, per_instance=per_instance, **arguments)


def test_members_of_a_tensor_group_are_neighbours_and_train_on_the_same_rows() -> None:
    result = degrees(tensor=2, hybrid_shard=2)

    assert [result.data_rank(rank) for rank in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert (result.data, result.sharers, result.replicas) == (4, 2, 2)
    assert {result.stage(rank) for rank in range(8)} == {0}


def test_stages_are_farthest_apart_and_share_rows_with_the_same_place_of_the_others() -> None:
    result = degrees(pipeline=2)

    assert [result.stage(rank) for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [result.data_rank(rank) for rank in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_of_the_processes_with_the_same_rows_one_is_the_first() -> None:
    assert [rank for rank in range(8) if degrees(tensor=2).is_last_with_its_rows(rank)] == [0, 2, 4, 6]
    assert [rank for rank in range(8) if degrees(pipeline=4).is_last_with_its_rows(rank)] == [6, 7]


@pytest.mark.parametrize(
    ("devices", "per_instance", "arguments", "parts"),
    [
        (8, 8, {"tensor": 3}, ["tensor_parallel_degree must divide the 8 devices, got 3: use 1, 2, 4, 8"]),
        (16, 8, {"tensor": 16}, ["must divide the 8 devices of one instance, got 16", "use 1, 2, 4, 8"]),
        (6, 6, {"pipeline": 4}, ["pipeline_parallel_degree must divide the 6 devices, got 4: use 1, 2, 3, 6"]),
        (8, 8, {"tensor": 2, "hybrid_shard": 8}, ["hybrid_shard_degree must divide the 4 devices", "or 0 for all"]),
    ],
)
def test_degrees_that_do_not_divide_are_refused_with_those_that_do(
    devices: int, per_instance: int, arguments: dict[str, int], parts: list[str]
) -> None:
    (fault,) = degrees(devices, per_instance, **arguments).faults()

    assert all(part in fault for part in parts)


def test_a_local_cluster_is_one_machine() -> None:
    result = JobSpec(strategy="fsdp", instance_count=4, tensor_parallel_degree=2).degrees

    assert (result.per_instance, result.data) == (4, 2)
