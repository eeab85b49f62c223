"""The error tree and its exit codes, and the last words of a log."""

import pytest

from paretune.core.errors import BadInput, OutOfMemory, first_line, is_error_in_code, last_words


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


def raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "is_in_code"),
    [
        (KeyError("label"), True),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "invalid"), True),  # a ValueError
        (raised_from(RuntimeError("could not build the model"), AttributeError("no 'bert'")), True),
        (raised_from(ImportError("Could not import module"), RuntimeError("operator does not exist")), True),
        (RuntimeError("CUDA error"), False),
        (raised_from(RuntimeError("a"), ConnectionError("b")), False),
        (PermissionError(13, "Permission denied"), False),
    ],
)
def test_an_error_in_the_code_is_known_by_its_class_or_that_of_its_cause(error: Exception, is_in_code: bool) -> None:
    assert is_error_in_code(error) is is_in_code


def test_one_fault_is_the_message_and_several_are_a_list() -> None:
    assert str(BadInput(["seed must be at least 0"])) == "seed must be at least 0"
    assert str(BadInput(["no data", "no model"])).splitlines() == ["2 faults:", "  - no data", "  - no model"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "(raised as a result of Query-invoked autoflush; consider using a session.no_autoflush block)\n"
            "(sqlite3.OperationalError) database or disk is full\n[SQL: INSERT INTO tags]",
            "database or disk is full",
        ),
        (
            "The following error happened in the commit: this typically happens due to invalid data in the commit. "
            "(psycopg.OperationalError) server closed the connection unexpectedly\n\tThis probably means",
            "server closed the connection unexpectedly",
        ),
        ("quota exceeded\nmore", "quota exceeded"),
    ],
)
def test_what_a_database_s_driver_says_is_the_reason(text: str, line: str) -> None:
    assert first_line(ValueError(text)) == line
