"""What a user reads of a job that did not end well."""

import pytest

from paretune.jobs.outcome import failure_message
from paretune.specification.container import FailureKind
from paretune.specification.job import JobSpec

ON_SAGEMAKER = JobSpec(instance_type="ml.g5.xlarge", fallback_instance_types="ml.g5.2xlarge")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            FailureKind.OUT_OF_MEMORY,
            ["memory, with batch 8:", "max_seq_length", "fine_tuning", "larger instance"],
        ),
        (FailureKind.CAPACITY, ["ml.g5.xlarge or ml.g5.2xlarge", "fallback_instance_types"]),
        (FailureKind.DISK_FULL, ["volume_size_in_gb"]),
        (FailureKind.ERROR, []),
    ],
)
def test_the_reason_of_a_failure_comes_with_what_to_do_about_it(kind: FailureKind, text: list[str]) -> None:
    message = failure_message(ON_SAGEMAKER, (kind, "the reason"), "with batch 8")

    assert not [part for part in ["the reason", *text] if part not in message]


def test_a_full_disk_of_this_machine_asks_for_no_volume() -> None:
    message = failure_message(JobSpec(), (FailureKind.DISK_FULL, "the disk is full"), "")
    assert message.startswith("the disk is full: make room, or set PARETUNE_HOME")
    assert "volume_size_in_gb" not in message


@pytest.mark.parametrize(
    ("fine_tuning", "remedy"),
    [
        ("full", "lower max_seq_length, set fine_tuning to lora, qlora or head, or use"),
        ("lora", "lower max_seq_length, set fine_tuning to qlora, or use"),
        ("qlora", "lower max_seq_length, or use"),
    ],
)
def test_the_remedy_of_a_lack_of_memory_is_something_else_than_what_ran(fine_tuning: str, remedy: str) -> None:
    failure = (FailureKind.OUT_OF_MEMORY, "CUDA out of memory")

    assert remedy in failure_message(JobSpec(fine_tuning=fine_tuning), failure, "with batch 1")
