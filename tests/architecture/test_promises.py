"""Every promise in `tests/promises.md` has a test of what users see, and one that `.ci/run` runs."""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.with_name("src")  # for the suite of all launchers, which is part of the package
CI_RUN = TESTS.with_name(".ci") / "run"
STAGES = {*re.findall(r'stage "([^"]+)"', CI_RUN.read_text())}
"""The parts of `.ci/run`, which a promise may name as `.ci/run::PART`."""
PAGE = (TESTS / "promises.md").read_text()
OF_USERS = tuple(re.findall(r"`([^`:]+)`", PAGE.partition("\n- ")[2].partition("\n\n")[0]))
"""The folders and files that the page names; `*` stands for a part of a name."""


def promises() -> Iterator[tuple[int, str, list[str]]]:
    """Yield the number, sentence and tests of each promise."""
    for number, text in re.findall(r"^(\d+)\. (.*(?:\n +.*)*)", PAGE, re.MULTILINE):
        yield int(number), text.partition("\n")[0], re.findall(r"^ +`(.+)`$", text, re.MULTILINE)


@cache
def names_in(path: Path) -> dict[str, bool]:
    """Return the names of the tests that a file defines, and for each whether `.ci/run` runs it with some values."""
    tree = ast.parse(path.read_text())
    marks = "".join(ast.unparse(node) for node in tree.body if "pytestmark" in ast.unparse(node).partition("=")[0])
    return {name: is_run(marks) for name, marks in _marked(tree, marks)}


def _marked(node: ast.AST, marks: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each test below a node, and the marks of its module, of its class and its own."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            own = marks + "".join(_own_marks(item) for item in child.decorator_list)
            if isinstance(child, ast.ClassDef):
                yield from _marked(child, own)
            elif child.name.startswith("test_"):
                yield child.name, own


def _own_marks(decorator: ast.expr) -> str:
    """Return the text of a decorator, of whose parametrization only `essential` counts: other values may be fast."""
    text = ast.unparse(decorator)
    is_essential = "mark.essential" in text
    return ("mark.essential" if is_essential else "") if "parametrize" in text else text


def is_run(marks: str) -> bool:
    """Return whether `.ci/run` runs a test with these marks."""
    return "mark.essential" in marks or not re.search(r"mark\.(slow|foreign)\b", marks)


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
def test_the_tests_of_a_promise_exist_one_is_of_what_users_see_and_one_is_in_ci_run(
    number: int, tests: list[str]
) -> None:
    are_run = []
    for test in tests:
        path, _, name = test.partition("::")
        if path == ".ci/run":
            assert name in STAGES, f"promise {number}: .ci/run has no stage {name}"
            are_run.append(test)
            continue
        file = (SOURCE if path.startswith("paretune/") else TESTS) / path
        assert file.is_file(), f"promise {number}: there is no {path}"
        assert name in names_in(file), f"promise {number}: tests/{path} has no {name}; name its present test"
        if names_in(file)[name]:
            are_run.append(test)
    assert any(is_of_users(test.partition("::")[0]) for test in tests), (
        f"promise {number} has no test of {', '.join(OF_USERS)}"
    )
    assert are_run, f"promise {number}: .ci/run runs none of its tests; name a fast one, or mark one as essential"


def test_marks_say_whether_ci_run_runs_a_test(tmp_path: Path) -> None:
    (tmp_path / "test_fast.py").write_text(
        "import pytest\n"
        "def test_fast(): pass\n"
        "@pytest.mark.slow\n"
        "def test_slow(): pass\n"
        "@pytest.mark.slow\n"
        "class TestAll:\n"
        "    def test_in_class(self): pass\n"
        "@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.slow)])\n"
        "def test_some_values(n): pass\n"
    )
    (tmp_path / "test_slow.py").write_text(
        "import pytest\n"
        "pytestmark = pytest.mark.slow\n"
        "def test_slow(): pass\n"
        "@pytest.mark.essential\n"
        "def test_essential(): pass\n"
        "@pytest.mark.parametrize('n', [pytest.param(2, marks=pytest.mark.essential)])\n"
        "def test_one_value(n): pass\n"
    )

    fast, slow = names_in(tmp_path / "test_fast.py"), names_in(tmp_path / "test_slow.py")

    assert fast == {"test_fast": True, "test_slow": False, "test_in_class": False, "test_some_values": True}
    assert slow == {"test_slow": False, "test_essential": True, "test_one_value": True}


def test_a_unit_test_of_an_internal_is_not_of_what_users_see() -> None:
    assert is_of_users("end_to_end/test_doctor.py")
    assert is_of_users("unit/test_pages.py")
    assert not is_of_users("unit/training/test_job.py")
    assert not is_of_users("unit/studies/search/test_driver.py")
