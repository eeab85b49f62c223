"""The error tree and its exit codes, and the last words of a log."""

from paretune.core.errors import OutOfMemory, last_words


def test_a_failed_job_says_its_name_reason_log_and_where_to_look() -> None:
    error = OutOfMemory("paretune-1", "out of memory", ["step 7", "Killed"], "/logs/job.log")

    lines = ["job paretune-1 failed: out of memory", "last lines of its log:", "    step 7", "    Killed"]
    assert str(error).splitlines() == [*lines, "whole log: /logs/job.log"]


def test_the_last_words_of_a_log_are_those_of_the_child_that_failed() -> None:
    log = [
        "reading rows",
        "Traceback (most recent call last):",
        '  File "prepare.py", line 1, in <module>',
        "ValueError: 12 of 30 words missing",
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "subprocess.CalledProcessError: Command '['python', 'prepare.py']' returned non-zero exit status 1.",
        "",
    ]

    assert last_words(log) == "ValueError: 12 of 30 words missing"
    assert last_words(log[:4]) == "ValueError: 12 of 30 words missing"
    assert last_words(log[6:]) == log[6]
