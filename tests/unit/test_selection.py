"""Which slow tests and benchmarks run for a change."""

import json
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
    names = ["a.py::one", "a.py::two", "b.py::three", "c.py::four", "d.py::new"]

    assert selection.fitting(names, within_s=52) == ["a.py::two", "b.py::three", "d.py::new", "a.py::one"]
    assert selection.fitting(names, within_s=None) == names


def test_a_test_that_was_not_measured_takes_as_long_as_the_others_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seconds.json").write_text('{"a.py::one": 2, "a.py::two": 4}')
    monkeypatch.setattr(selection, "SECONDS", tmp_path / "seconds.json")

    assert selection.fitting(["a.py::new", "a.py::two"], within_s=7) == ["a.py::new", "a.py::two"]
    assert selection.fitting(["a.py::new"], within_s=2.9) == []


def test_the_seconds_of_the_tests_that_pass_are_added_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "seconds.json").write_text('{"a.py::earlier": 2}')
    seconds = selection.Seconds(tmp_path / "seconds.json")
    for name, outcome in (("a.py::good", "passed"), ("a.py::bad", "failed")):
        for when in ("setup", "call", "teardown"):
            report = pytest.TestReport(name, ("", 0, ""), {}, outcome, None, when, duration=1.0)  # type: ignore[arg-type]
            seconds.pytest_runtest_logreport(report)
    seconds.pytest_sessionfinish()

    assert json.loads((tmp_path / "seconds.json").read_text()) == {"a.py::earlier": 2, "a.py::good": 3.0}
