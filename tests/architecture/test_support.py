"""Helpers of tests are in `tests/support`, and its page lists them."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import fork_server
from tests.support.processes import paretune

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
SUPPORT = TESTS / "support"


def imports_of(path: Path) -> set[str]:
    """Return the names of the modules that a file imports, anywhere in it; `from a import b` imports `a` and `a.b`."""
    result = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            result |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return result


def test_no_test_imports_another_test_or_a_conftest() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*TESTS.rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
        for name in imports_of(path)
        if re.search(r"(^|\.)(test_\w+|conftest)$", name) and name.startswith("tests.")
    ]

    assert found == []


def test_a_module_of_a_folder_of_tests_is_a_test_or_in_the_support_folder() -> None:
    foreign = TESTS / "foreign"  # its folders contain training scripts as people write them
    helpers = [
        path.relative_to(ROOT).as_posix()
        for path in TESTS.rglob("*.py")
        if SUPPORT not in path.parents and (foreign not in path.parents or path.parent == foreign)
        if not re.fullmatch(r"test_\w+|conftest|__init__", path.stem)
    ]

    assert helpers == []


def test_every_import_from_the_support_folder_finds_a_module() -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {node.module}"
        for path in [*TESTS.rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests")
        if not any((ROOT / (node.module or "").replace(".", "/")).with_suffix(end).exists() for end in ("", ".py"))
    ]

    assert missing == []


def test_the_page_lists_every_helper() -> None:
    listed = set(re.findall(r"`([\w/]+(?:\.py|/))`", (SUPPORT / "README.md").read_text()))
    there = {
        path.relative_to(SUPPORT).as_posix()
        for path in SUPPORT.rglob("*.py")
        if path.stem != "__init__" and path.parent.name != "sagemaker"
    }

    assert {name for name in listed if name.endswith(".py") and "tests/" not in name} - {"conftest.py"} == there


def test_no_helper_has_the_name_of_a_module_of_the_standard_library() -> None:
    # Some helpers run as programs, with their folder first on the path. There, `html.py` once hid Python's own `html`.
    hidden = sorted(path.name for path in SUPPORT.rglob("*.py") if path.stem in sys.stdlib_module_names)

    assert not hidden


def started(words: list[str], folder: Path, **options: object) -> tuple[int, str]:
    with (folder / "output").open("wb") as output:
        options |= {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT, "cwd": folder}
        process = subprocess.Popen(words, start_new_session=True, **options)  # type: ignore[call-overload]
        assert isinstance(process, fork_server.Forked) is not bool(options.get("pass_fds"))  # these start as usual
        return int(process.wait(timeout=120.0)), (folder / "output").read_text()


@pytest.mark.skipif(fork_server.PLAIN, reason="no program is forked here")
def test_a_forked_command_does_what_a_started_one_does(tmp_path: Path) -> None:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PARETUNE_HOME": str(tmp_path / "home")}
    (tmp_path / "paretune.toml").write_text("learning_rate = 'fast'")
    words = paretune("train", "--instance_type", "ml.nothing")

    forked = started(words, tmp_path, env=environment)

    assert forked == started(words, tmp_path, env=environment, pass_fds=[0])
    assert forked[0] == 2
