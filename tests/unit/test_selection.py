"""Which slow tests and benchmarks run for a change."""

from pathlib import Path

import pytest

from tests import selection
from tests.selection import ROOT, is_touched

BENCHMARK = ROOT / "benchmarks" / "estimate_error.py"
END_TO_END = ROOT / "tests" / "end_to_end" / "test_one_job.py"


@pytest.mark.parametrize(
    ("path", "changed", "touched"),
    [
        (END_TO_END, "tests/end_to_end/test_one_job.py", True),
        (
            END_TO_END,
            "src/paretune/tracking/run.py",
            True,
        ),  # through the words by which the command line finds commands
        (END_TO_END, "tests/conftest.py", True),
        (END_TO_END, "docs/index.md", False),
        (BENCHMARK, "src/paretune/estimating/timing.py", True),
        (BENCHMARK, "src/paretune/commands/mcp/server.py", False),
        (BENCHMARK, "pyproject.toml", True),
    ],
)
def test_a_file_is_touched_by_a_change_of_what_it_imports(path: Path, changed: str, touched: bool) -> None:
    assert (ROOT / changed).exists()
    assert is_touched(path, frozenset({ROOT / changed})) is touched


def test_one_test_of_each_file_comes_before_a_second_one_of_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seconds.json").write_text('{"a.py::one": 5, "a.py::two": 1, "b.py::three": 20, "c.py::four": 60}')
    monkeypatch.setattr(selection, "SECONDS", tmp_path / "seconds.json")
    names = ["a.py::one", "a.py::two", "b.py::three", "c.py::four", "c.py::new"]

    assert selection.fitting(names, within_s=52) == ["a.py::two", "b.py::three", "c.py::new", "a.py::one"]
    assert selection.fitting(names, within_s=None) == names
