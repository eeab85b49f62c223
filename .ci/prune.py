"""Name the tests of a folder whose removal would let no mutation of the code live.

    .ci/full prune tests/unit/estimating src/paretune/estimating 200    # tests, code, number of mutations

Each test is traced first: which lines of the code does it execute? Then lines that at least one test executes are
mutated, one at a time, and the tests that execute the line run again. A mutation swaps a comparison or an operator,
changes a number, negates a condition, or returns None. A test function may go if others, which stay, also fail for each
mutation for which it fails. The slowest ones go first. Tests that `tests/promises.md` names stay, and so do those that
execute fewer than LEAST mutations, about which this says too little. What is drawn depends on the seed only.
"""

import ast
import contextlib
import copy
import importlib.abc
import importlib.machinery
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

LEAST = 8  # mutations on lines of a test
SEED = 1
LIMIT_S = 300  # seconds for the tests of one mutation, in which they usually take a few
PRELOADED = ("numpy", "pandas", "scipy.optimize", "pydantic", "mlflow", "optuna", "hypothesis", "torch", "transformers")
COMPARISONS = {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult}


def mutated(tree: ast.Module, number: int | None = None) -> Iterator[int]:
    """Yield the line of each possible mutation. If `number` is given, change the tree by the mutation with it."""
    for at, (node, change) in enumerate(_changes(tree)):
        yield node.lineno
        if at == number:
            change()
            return


def _changes(tree: ast.Module) -> Iterator[tuple[Any, Any]]:
    annotations = {
        each for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) for each in ast.walk(node.annotation)
    }
    for node in [*ast.walk(tree)]:
        match node:
            case _ if node in annotations:
                continue
            case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
                yield node, lambda node=node, op=op: node.ops.__setitem__(0, COMPARISONS[type(op)]())
            case ast.BinOp(op=op) if type(op) in OPERATORS:
                yield node, lambda node=node, op=op: setattr(node, "op", OPERATORS[type(op)]())
            case ast.BoolOp(op=op):
                other = ast.Or if isinstance(op, ast.And) else ast.And
                yield node, lambda node=node, other=other: setattr(node, "op", other())
            case ast.Constant(value=bool(value)):
                yield node, lambda node=node, value=value: setattr(node, "value", not value)
            case ast.Constant(value=int(value) | float(value)):
                yield node, lambda node=node, value=value: setattr(node, "value", value + 1)
            case ast.If() | ast.IfExp():
                yield node, lambda node=node: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
            case ast.Return(value=ast.expr(lineno=_)) if not isinstance(node.value, ast.Constant):
                yield node, lambda node=node: setattr(node, "value", ast.Constant(None))


class Tracer:
    """A plugin of pytest that notes the lines that each test executes, and its seconds."""

    def __init__(self, files: set[str]) -> None:
        self.files, self.lines, self.seconds = files, dict[str, set[tuple[str, int]]](), dict[str, float]()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        """Trace the test."""
        found = self.lines.setdefault(function_of(item.nodeid), set())

        def trace(frame: Any, event: str, _: Any) -> Any:
            if frame.f_code.co_filename not in self.files:
                return None
            found.add((frame.f_code.co_filename, frame.f_lineno))
            return trace

        began = time.process_time()
        sys.settrace(trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            name = function_of(item.nodeid)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began


class Failures:
    """A plugin of pytest that notes the tests that fail."""

    def __init__(self) -> None:
        self.names = set[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure in any phase."""
        if report.failed:
            self.names.add(function_of(report.nodeid))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that cannot be imported: all of its tests fail."""
        if report.failed:
            self.names.add(report.nodeid)


class Mutation(importlib.abc.MetaPathFinder):
    """Imports one module with a mutation."""

    def __init__(self, path: Path, number: int) -> None:
        self.path, self.number = path, number

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Return the specification of the mutated module, or None for all others."""
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin != str(self.path):
            return None
        tree = ast.parse(self.path.read_text())
        for _ in mutated(tree, self.number):
            pass
        code = compile(ast.fix_missing_locations(tree), str(self.path), "exec")
        loader = importlib.machinery.SourceFileLoader(name, str(self.path))
        loader.get_code = lambda fullname: code  # type: ignore[method-assign]
        spec.loader = loader
        return spec


def function_of(nodeid: str) -> str:
    """Return the id of a test without its parameters."""
    return nodeid.partition("[")[0]


def run_tests(words: Sequence[str], plugin: Any, mutation: Mutation | None = None) -> Any:
    """Run tests in a fork of this process, and return the attributes of the plugin; None if they take too long."""
    with tempfile.NamedTemporaryFile("r") as file:
        child = os.fork()
        if child == 0:
            signal.alarm(LIMIT_S * (1 if mutation else 10))
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
                if mutation is not None:
                    sys.meta_path.insert(0, mutation)
                sys.dont_write_bytecode = True
                pytest.main(["-n", "0", "-q", "-p", "no:cacheprovider", "--no-header", *words], plugins=[plugin])
            Path(file.name).write_text(json.dumps(vars(plugin), default=list))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        return json.loads(file.read()) if status == 0 else None


def promised() -> set[str]:
    """Return the tests that the page of promises names."""
    return {
        f"tests/{name}" for name in re.findall(r"^ +`(\S+::\S+)`$", Path("tests/promises.md").read_text(), re.MULTILINE)
    }


def main(tests: str, source: str, count: int) -> None:
    """Print the tests that may go, and what each of them executes and finds."""
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            __import__(name)
    files = {str(path.absolute()): path for path in Path(source).rglob("*.py")}
    traced = run_tests([tests], Tracer({*files}))
    lines = {name: {(path, line) for path, line in found} for name, found in traced["lines"].items()}
    executed = set().union(*lines.values())
    possible = [
        (path, number, line)
        for path in sorted(files)
        for number, line in enumerate(mutated(ast.parse(Path(path).read_text())))
        if (path, line) in executed
    ]
    drawn = random.Random(SEED).sample(possible, min(count, len(possible)))
    touched, killed, lived = dict.fromkeys(lines, 0), dict[int, set[str]](), 0
    for at, (path, number, line) in enumerate(drawn):
        names = sorted(name for name, found in lines.items() if (path, line) in found)
        found = run_tests(names, Failures(), Mutation(Path(path), number))
        failed = {name for name in names for each in (found or {}).get("names", []) if name.startswith(each)}
        if found is None:  # an endless loop: any of them would have noticed
            failed = {*names}
        for name in names:
            touched[name] += 1
        if failed:
            killed[at] = failed
        else:
            lived += 1
            print(f"lives: {Path(path).name}:{line} ({len(names)} tests execute it)", flush=True)
    print(f"{len(lines)} test functions, {len(possible)} mutations possible, {len(drawn)} drawn, {lived} live")
    kept, gone = copy.deepcopy(killed), list[str]()
    for name in sorted(lines, key=lambda name: -traced["seconds"][name]):
        alone = any(found == {name} for found in kept.values())
        if alone or name in promised() or touched[name] < LEAST:
            continue
        gone.append(name)
        for found in kept.values():
            found.discard(name)
    for name in gone:
        finds = sum(name in found for found in killed.values())
        print(f"may go: {name} ({traced['seconds'][name]:.1f} s, executes {touched[name]}, finds {finds})")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 100)
