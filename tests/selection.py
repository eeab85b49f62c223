"""Choose slow tests and benchmarks by what has changed: `-p tests.selection --changed=FILE` on pytest's command line.

FILE has the names of the changed files, one a line, as `git diff --name-only REV` prints them.

A test or benchmark is touched by a change if its file imports a changed file, directly or through others; the words
`module:function` that the command line keeps of its commands count as imports. Of the touched tests, those run that fit
into `--within` seconds: first one of each file, then the others, the quickest first. `.ci/full slow` runs all of them,
and writes with `--write-seconds=FILE` how long each took.

`python -m tests.selection FILE` prints the benchmarks that a change touches.
"""

import ast
import json
import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

ROOT = Path(__file__).parents[1]
SECONDS = Path(__file__).with_name("slow_seconds.json")
"""Slow test to the seconds that it took when it was last measured (2026-11-23, one of two processes). A test that is
not among them is taken to last as long as the others of its file."""
_UNKNOWN_S = 25.0
"""For a test of a file without any: what many end-to-end tests take."""
_REFERENCE = re.compile(r"(paretune(?:\.\w+)+)(?::\w+)?")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the selection."""
    group = parser.getgroup("selection by what has changed")
    group.addoption("--changed", type=Path, help="run only tests that a change of the files named in this file touches")
    group.addoption(
        "--within", type=float, help="run only as many as fit into this many seconds, added over both processes"
    )
    group.addoption("--write-seconds", type=Path, help="add the seconds of the tests that pass to this JSON file")


def pytest_configure(config: pytest.Config) -> None:
    """Measure the tests, if asked to, in the process that gets the reports of all."""
    if (path := config.getoption("--write-seconds")) is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Seconds(path))


class Seconds:
    """Adds the seconds of set-up, call and end of each test that passes to a file like slow_seconds.json."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spent: defaultdict[str, float] = defaultdict(float)
        self.passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.spent[report.nodeid] += report.duration
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        seconds = json.loads(self.path.read_text()) if self.path.exists() else {}
        seconds |= {name: round(self.spent[name], 1) for name in self.passed}
        self.path.write_text(json.dumps(seconds, indent=1, sort_keys=True) + "\n")


@pytest.hookimpl(trylast=True)  # after `-m` has left tests out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what the change does not touch, and what does not fit into the seconds."""
    if config.getoption("--changed") is None:
        return
    changed = read_names(config.getoption("--changed"))
    touched = [item for item in items if is_touched(item.path, changed)]
    chosen = set(fitting([item.nodeid for item in touched], config.getoption("--within")))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


def fitting(names: list[str], within_s: float | None) -> list[str]:
    """The tests that fit: one of each file before a second one of any, the quickest first."""
    if within_s is None:
        return names
    seconds = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
    of_file: dict[str, list[float]] = {}
    for name, duration in seconds.items():
        of_file.setdefault(name.partition("::")[0], []).append(duration)
    cost = {name: seconds.get(name, fmean(of_file.get(name.partition("::")[0], [_UNKNOWN_S]))) for name in names}
    by_cost = sorted(names, key=lambda name: (cost[name], name))
    first = {name.partition("::")[0]: name for name in reversed(by_cost)}.values()
    order = [*sorted(first, key=lambda name: cost[name]), *(name for name in by_cost if name not in set(first))]
    chosen, left = [], within_s
    for name in order:
        if cost[name] <= left:
            chosen.append(name)
            left -= cost[name]
    return chosen


def read_names(path: Path) -> frozenset[Path]:
    """The files that are named in a file, relative to the repository."""
    return frozenset(ROOT / name for name in path.read_text().splitlines())


def is_touched(path: Path, changed: frozenset[Path]) -> bool:
    """Whether a Python file or anything that it imports has changed; files that everything uses count, too."""
    everywhere = {ROOT / "pyproject.toml", ROOT / "constraints.txt", ROOT / "tests" / "conftest.py"}
    return bool(changed & (everywhere | imported(path)))


@cache
def imported(path: Path) -> frozenset[Path]:
    """A file and all files of this repository that it imports, directly or through others."""
    reached: set[Path] = set()
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file not in reached:
            reached.add(file)
            waiting.extend(direct_imports(file) - reached)
    return frozenset(reached)


@cache
def direct_imports(path: Path) -> frozenset[Path]:
    """The files of this repository that a file imports, and for a test the `conftest.py` of its folders."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= {match[1] for match in _REFERENCE.finditer(node.value)}
    conftests = {folder / "conftest.py" for folder in path.parents if folder.is_relative_to(ROOT / "tests")}
    return frozenset(file for name in names for file in files_of(name)) | {file for file in conftests if file.exists()}


def files_of(module: str) -> list[Path]:
    """The files that may hold a module: one, or none if it is not of this repository."""
    parts = module.split(".")
    bases = [ROOT / "src", ROOT, ROOT / "benchmarks"]
    candidates = [base.joinpath(*parts).with_suffix(".py") for base in bases]
    candidates += [base.joinpath(*parts, "__init__.py") for base in bases]
    return [path for path in candidates if path.exists()]


if __name__ == "__main__":
    changed_files = read_names(Path(sys.argv[1]))
    for benchmark in sorted((ROOT / "benchmarks").glob("*.py")):
        if '\nif __name__ == "__main__":' in benchmark.read_text() and is_touched(benchmark, changed_files):
            print(benchmark.relative_to(ROOT))
