"""The error tree and its exit codes."""

from paretune.core.errors import BadInput, OutOfMemory, did_you_mean


def test_one_fault_is_a_sentence_and_several_are_a_list() -> None:
    assert str(BadInput(["seed must be a whole number, got 'a'"])) == "seed must be a whole number, got 'a'"
    assert str(BadInput(["one", "two"])) == "2 faults:\n  - one\n  - two"


def test_a_misspelt_name_is_asked_about() -> None:
    reference = ("learning_rate", "learning_rate_scaling", "seed")

    assert did_you_mean("learning_rat", reference) == "did you mean learning_rate or learning_rate_scaling?"
    assert did_you_mean("learning_rat", reference, most=1) == "did you mean learning_rate?"
    assert did_you_mean("rate", reference) == did_you_mean("", reference, or_longer=True) == ""
    assert did_you_mean("rate", reference, or_longer=True) == "did you mean learning_rate or learning_rate_scaling?"


def test_a_failed_job_says_its_name_reason_log_and_where_to_look() -> None:
    error = OutOfMemory("paretune-1", "out of memory", ["step 7", "Killed"], "/logs/job.log")

    lines = ["job paretune-1 failed: out of memory", "last lines of its log:", "    step 7", "    Killed"]
    assert str(error).splitlines() == [*lines, "whole log: /logs/job.log"]
