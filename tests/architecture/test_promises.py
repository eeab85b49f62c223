"""Every promise in `tests/promises.md` has a test, which exists and tests what users see."""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.with_name("src")  # for the suite of all launchers, which is part of the package
PAGE = (TESTS / "promises.md").read_text()
OF_USERS = tuple(re.findall(r"`([^`:]+)`", PAGE.partition("\n- ")[2].partition("\n\n")[0]))
"""The folders and files that the page names; `*` stands for a part of a name."""


def promises() -> Iterator[tuple[int, str, list[str]]]:
    """Yield the number, sentence and tests of each promise."""
    for number, text in re.findall(r"^(\d+)\. (.*(?:\n +.*)*)", PAGE, re.MULTILINE):
        yield int(number), text.partition("\n")[0], re.findall(r"^ +`(.+)`$", text, re.MULTILINE)


@cache
def names_in(path: Path) -> set[str]:
    """Return the names of the tests that a file defines, including those inside classes."""
    tree = ast.parse(path.read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if function.name.startswith("test_")}


def is_of_users(path: str) -> bool:
    """Return whether a file is one of those whose tests change only when what users see changes."""
    return any(
        path.startswith(place)
        if place.endswith("/")
        else fnmatchcase(path, place) and path.count("/") == place.count("/")
        for place in OF_USERS
    )


def test_the_promises_are_numbered_and_each_has_a_test() -> None:
    rows = [*promises()]

    assert [number for number, _, _ in rows] == [*range(1, len(rows) + 1)]
    assert len(rows) >= 80
    assert [number for number, _, tests in rows if not tests] == []
    assert PAGE.count("::") == sum(len(tests) for _, _, tests in rows)  # no line has another format


@pytest.mark.parametrize(("number", "tests"), [(number, tests) for number, _, tests in promises()])
def test_the_tests_of_a_promise_exist_and_are_of_what_users_see(number: int, tests: list[str]) -> None:
    for test in tests:
        path, _, name = test.partition("::")
        assert is_of_users(path), f"{path} is not one of {', '.join(OF_USERS)}"
        file = (SOURCE if path.startswith("paretune/") else TESTS) / path
        assert file.is_file(), f"promise {number}: there is no {path}"
        assert name in names_in(file), f"promise {number}: tests/{path} has no {name}; name its present test"


def test_a_unit_test_of_an_internal_holds_no_promise() -> None:
    assert is_of_users("end_to_end/test_doctor.py")
    assert is_of_users("unit/test_pages.py")
    assert not is_of_users("unit/training/test_job.py")
    assert not is_of_users("unit/studies/search/test_driver.py")
