"""Name the tests of a folder whose removal would let no mutation of the code live.

    .ci/full prune tests/unit src/paretune 30    # tests, code, number of mutations for each test

Each test is traced first: which lines of the code does it execute? A test function may go if each of its lines is also
executed by a test that stays, and if each of its mutations that it finds is also found by a test that stays. Its
mutations are drawn from its lines, most of them from those that few other tests execute. A mutation swaps a comparison
or an operator, changes a number or a text, negates a condition, leaves out a call, or returns None. Tests that
`tests/promises.md` names stay, and so do slow ones, and those with fewer than LEAST mutations. The longest ones go
first. What is drawn depends on the name of the test only. Read a test before you remove it: a mutation is no proof.

All tests are imported once. A mutation is put into the functions of a fork of that process, so it takes as long as its
tests do. Programs that tests start do not have it: such tests find less than they could, and stay.
"""

import ast
import contextlib
import functools
import gc
import inspect
import json
import math
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

LEAST = 8  # mutations of a test that may go
LONGEST_S = 0.35  # CPU seconds of tests that are judged
BUDGET_S = 25.0  # CPU seconds of the other tests that execute a mutated line, the fast ones first
COMPARISONS = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult}


Place = tuple[str, int]
"""A file and a line."""


def mutated(tree: ast.Module, number: int | None = None) -> Iterator[int]:
    """Yield the line of each possible mutation. If `number` is given, change the tree by the mutation with it."""
    for at, (node, change) in enumerate(_changes(tree)):
        yield node.lineno
        if at == number:
            change()
            return


def _changes(tree: ast.Module) -> Iterator[tuple[Any, Any]]:
    """Yield each node in a function that can be changed, and what changes it."""
    inside = [
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in function.body
        for node in ast.walk(statement)
    ]
    left_out = {each for node in inside for part in _not_executed(node) for each in ast.walk(part)}
    for node in dict.fromkeys(inside):
        match node:
            case _ if node in left_out:
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
            case ast.Constant(value=str(value)):
                yield node, lambda node=node, value=value: setattr(node, "value", f"{value}~")
            case ast.If() | ast.IfExp() | ast.While():
                yield node, lambda node=node: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
            case ast.Return(value=ast.expr(lineno=_)) if not isinstance(node.value, ast.Constant):
                yield node, lambda node=node: setattr(node, "value", ast.Constant(None))
            case ast.Expr(value=ast.Call()):
                yield node, lambda node=node: setattr(node, "value", ast.Constant(None))


def _not_executed(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.AnnAssign():
            return [node.annotation]
        case ast.Expr(value=ast.Constant()):
            return [node.value]
        case _:
            return []


def mutate(path: str, number: int, functions: dict[str, list[FunctionType]], caches: list[Any]) -> None:
    """Put a mutation into functions of this process.

    Raises:
        LookupError: It changes no function, as it changes only what has no effect or a function that is made later.

    """
    tree = ast.parse(Path(path).read_text())
    for _ in mutated(tree, number):
        pass
    changed = {_place(code): code for code in _codes(compile(ast.fix_missing_locations(tree), path, "exec"))}
    found = False
    for each in functions.get(path, []):
        code = changed.get(_place(each.__code__))
        if code is not None and code != each.__code__ and code.co_freevars == each.__code__.co_freevars:
            each.__code__ = code
            found = True
    if not found:
        raise LookupError
    for cache in caches:
        cache.cache_clear()


def find_functions(files: set[str]) -> tuple[dict[str, list[FunctionType]], list[Any]]:
    """Return the functions of this process by file, and the caches of functions in these files."""
    functions, caches = dict[str, list[FunctionType]](), list[Any]()
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename in files:
            functions.setdefault(each.__code__.co_filename, []).append(each)
        elif isinstance(each, functools._lru_cache_wrapper):
            inner = getattr(each, "__wrapped__", None)
            if isinstance(inner, FunctionType) and "/src/paretune/" in inner.__code__.co_filename:
                caches.append(each)
    return functions, caches


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


class Pruner:
    """A plugin of pytest that runs the collected tests in forks, first traced, then with mutations."""

    def __init__(self, source: str, count: int) -> None:
        self.count = count
        self.files = {str(path.absolute()) for path in Path(source).rglob("*.py")}
        self.tests = dict[str, list[pytest.Item]]()  # by their names without parameters
        self.lines = dict[str, set[Place]]()  # that a test executes
        self.seconds = dict[str, float]()  # of CPU
        self.failed, self.gone = set[str](), set[str]()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge all tests, in place of running them."""
        for path in sorted(self.files):  # so that every function exists before the first fork
            __import__(".".join(Path(path).with_suffix("").parts[Path(path).parts.index("src") + 1 :]))
        self.functions, self.caches = find_functions(self.files)  # before objects are frozen, which hides them
        for item in session.items:
            self.tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
        gc.collect()
        gc.freeze()
        self._trace(session.items)
        executed = dict[Place, set[str]]()
        for name, found in self.lines.items():
            for place in found:
                executed.setdefault(place, set()).add(name)
        mutations = dict[Place, list[int]]()
        for path in sorted(self.files):
            for number, line in enumerate(mutated(ast.parse(Path(path).read_text()))):
                mutations.setdefault((path, line), []).append(number)
        stay = promised() | self.failed | {name for name, seconds in self.seconds.items() if seconds > LONGEST_S}
        for name in sorted(self.lines.keys() - stay, key=self._length, reverse=True):
            if (verdict := self._verdict(name, executed, mutations)) is not None:
                print(f"{verdict}: {name} ({self._length(name)} lines, {self.seconds[name]:.2f} s)", flush=True)
        print(f"{len(self.gone)} of {len(self.lines)} test functions may go")
        return True

    def _length(self, name: str) -> int:
        lines, _ = inspect.getsourcelines(self.tests[name][0].function)  # type: ignore[attr-defined]
        return len(lines)

    def _verdict(
        self, name: str, executed: Mapping[Place, set[str]], mutations: Mapping[Place, list[int]]
    ) -> str | None:
        """Return what is known about a test; None if only it executes a line."""
        others = {place: executed[place] - {name} - self.gone - self.failed for place in self.lines[name]}
        if not all(others.values()) or not others:
            return None
        draw = random.Random(name)
        pool = [(place, number) for place in sorted(others) for number in mutations.get(place, ())]
        rarest = sorted(pool, key=lambda each: len(others[each[0]]))[: 2 * self.count]
        of_rare = draw.sample(rarest, min(2 * self.count // 3, len(rarest)))
        of_any = draw.sample(pool, min(self.count // 3, len(pool)))
        ran, finds = 0, 0
        for place, number in dict.fromkeys([*of_rare, *of_any]):
            found = self._finds([name], place, number)
            if found is None:
                continue
            ran += 1
            finds += found
            fast = [*_affordable(sorted(others[place], key=self.seconds.__getitem__), self.seconds)]
            if found and not self._finds(fast, place, number):
                return f"stays, as only it finds number {number} in {Path(place[0]).name}:{place[1]}"
        if ran < LEAST:
            return f"stays, as it has only {ran} mutations"
        self.gone.add(name)
        return f"may go, as others find the {finds} of {ran} mutations that it finds"

    def _finds(self, names: Sequence[str], place: Place, number: int) -> bool | None:
        """Return whether one of the tests fails with a mutation, or does not end; None if nothing is mutated."""

        def fails() -> bool | None:
            try:
                mutate(place[0], number, self.functions, self.caches)
            except LookupError:
                return None
            return any(self._fails(item, following) for item, following in _pairs(items))

        items = [item for name in names for item in self.tests[name]]
        ended, found = in_fork(fails, items, limit_s=10 + 8 * sum(self.seconds[name] for name in names))
        return found if ended else True

    def _fails(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        return any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))

    def _trace(self, items: Sequence[pytest.Item]) -> None:
        """Find the lines and the seconds of each test, and which fail without a mutation."""
        ended, traced = in_fork(lambda: self._traced(items), items, limit_s=3600)
        assert ended, "the tests take more than an hour, or end their process"
        for name, found in traced["lines"].items():
            self.lines[name] = {(path, line) for path, line in found}
        self.seconds, self.failed = traced["seconds"], {*traced["failed"]}
        assert any(self.lines.values()), "no test executes a line of these files"

    def _traced(self, items: Sequence[pytest.Item]) -> dict[str, Any]:
        failed, lines, seconds = set[str](), dict[str, set[Place]](), dict[str, float]()
        for item, following in _pairs(items):
            name = item.nodeid.partition("[")[0]
            found = lines.setdefault(name, set())

            def trace(frame: Any, event: str, _: Any, found: Any = found) -> Any:
                if frame.f_code.co_filename not in self.files:
                    return None
                found.add((frame.f_code.co_filename, frame.f_lineno))
                return trace

            began = _used_s()
            sys.settrace(trace)
            if self._fails(item, following):
                failed.add(name)
            sys.settrace(None)
            seconds[name] = seconds.get(name, 0.0) + _used_s() - began
        return {"failed": failed, "lines": lines, "seconds": seconds}


def in_fork(function: Callable[[], Any], items: Sequence[pytest.Item], *, limit_s: float) -> tuple[bool, Any]:
    """Return whether a function ends well in a fork with temporary files of its own, and its result."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setpgid(0, 0)
                signal.alarm(math.ceil(limit_s))
                for item in items[:1]:
                    item.config._tmp_path_factory._given_basetemp = Path(folder, "tests")  # type: ignore[attr-defined]
                with open(os.devnull, "w") as nowhere:
                    os.dup2(nowhere.fileno(), 1)
                    os.dup2(nowhere.fileno(), 2)
                result.write_text(json.dumps(function(), default=list))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):  # and what its tests have started
            os.killpg(child, signal.SIGKILL)
        return status == 0, json.loads(result.read_text()) if status == 0 else None


def _pairs(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=True)


def _affordable(names: Iterable[str], seconds: Mapping[str, float]) -> Iterator[str]:
    spent_s = 0.0
    for name in names:
        spent_s += seconds[name]
        if spent_s > BUDGET_S:
            return
        yield name


def _used_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def promised() -> set[str]:
    """Return the tests that the page of promises names."""
    return {
        f"tests/{name}" for name in re.findall(r"^ +`(\S+::\S+)`$", Path("tests/promises.md").read_text(), re.MULTILINE)
    }


if __name__ == "__main__":
    tests, source, *numbers = sys.argv[1:]
    words = ["-n", "0", "-q", "-p", "no:cacheprovider", "--no-header", "-m", "not slow and not foreign", tests]
    sys.exit(pytest.main(words, plugins=[Pruner(source, int(numbers[0]) if numbers else 30)]))
