"""The mutation test finds what a test file leaves open."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import mutants

ROOT = Path(__file__).parents[2]


def test_a_change_that_no_test_notices_survives_and_the_others_are_killed(tmp_path: Path) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "age.py").write_text("def is_adult(age):\n    return age >= 18\n")
    test = "from planted.age import is_adult\n\ndef test_it():\n    assert is_adult(19)\n    assert not is_adult(17)\n"
    (package / "test_age.py").write_text(test)

    ran = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "planted.age", "result.json", "planted/test_age.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads((tmp_path / "result.json").read_text()) == {
        "2:4 return age >= 18 -> return None": True,
        "2:11 age >= 18 -> age > 18": False,
        "2:18 18 -> 19": False,
    }
    assert ran.stdout.endswith("planted.age: 3 mutants, 1 killed (33.3%)\n")


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("a < b == c", ["a <= b == c", "a < b != c"]),
        ("a and not b", ["a or not b", "a and b"]),
        ("a + 1", ["a - 1", "a + 2"]),
        ("x if all(y) else False", ["x", "False", "x if any(y) else False", "x if all(y) else True"]),
        ("f('text')", ["pass"]),
        ("raise ValueError", ["pass"]),
        ("x: int | None = y", []),
        ("T = Table('t', Column('c', String(255)))", []),
    ],
)
def test_a_mutant_differs_in_one_place(source: str, changed: list[str]) -> None:
    assert sorted(ast.unparse(tree()) for _, tree in mutants(source)) == sorted(changed)
