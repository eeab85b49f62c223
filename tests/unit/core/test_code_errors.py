"""Which errors say that a program's code is wrong: the exceptions, and what Python prints of them."""

import pytest

from paretune.core.code_errors import ERRORS_IN_CODE, prints_error_in_code
from paretune.core.errors import is_error_in_code


@pytest.mark.parametrize("error", [*ERRORS_IN_CODE, ModuleNotFoundError, IndentationError, UnboundLocalError])
def test_an_exception_for_wrong_code_is_known_as_an_object_and_as_a_printed_line(error: type[Exception]) -> None:
    assert is_error_in_code(error("some words"))
    assert prints_error_in_code(f"{error.__name__}: some words")
    assert prints_error_in_code(f"package.module.{error.__name__}")


def test_other_errors_may_pass_when_the_job_runs_again() -> None:
    assert not is_error_in_code(ZeroDivisionError())
    assert not prints_error_in_code("ZeroDivisionError: division by zero")
    assert not prints_error_in_code("MyKeyError2: some words")
