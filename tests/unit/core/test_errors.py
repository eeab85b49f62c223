"""The error tree and its exit codes."""

from paretune.core.errors import OutOfMemory


def test_a_failed_job_says_its_name_reason_log_and_where_to_look() -> None:
    error = OutOfMemory("paretune-1", "out of memory", ["step 7", "Killed"], "/logs/job.log")

    lines = ["job paretune-1 failed: out of memory", "last lines of its log:", "    step 7", "    Killed"]
    assert str(error).splitlines() == [*lines, "whole log: /logs/job.log"]
