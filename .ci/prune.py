"""Name the tests of a folder whose removal would let no mutation of the code live.

    .ci/full prune tests/unit/estimating src/paretune/estimating 200    # tests, code, number of mutations

Each test is traced first: which lines of the code does it execute? Then lines that at least one test executes are
mutated, one at a time, and the tests that execute the line run again, the fast ones first. A mutation swaps a
comparison or an operator, changes a number or a text, negates a condition, leaves out a call, or returns None. A test
function may go if each line that it executes and each mutation for which it fails also belongs to a test that stays.
Tests that `tests/promises.md` names stay, and so do those of which too few mutations say anything. What is drawn
depends on the seed.

All tests are imported once. A mutation is put into the functions of a fork of that process, so it takes as long as its
tests do. Programs that tests start do not have it: such tests find less than they could, and stay.
"""

import ast
import contextlib
import functools
import gc
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

LEAST = 15  # mutations on lines of a test that may go
LONGEST_S = 3.0  # CPU seconds of tests that run again
BUDGET_S = 15.0  # CPU seconds for all tests of one mutation
LIMIT_S = 40  # seconds after which a mutation has made an endless loop
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

    def __init__(self, source: str, count: int, seed: int) -> None:
        self.files = {str(path.absolute()) for path in Path(source).rglob("*.py")}
        self.count, self.seed = count, seed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do everything, in place of running the tests."""
        for path in sorted(self.files):  # so that every function exists before the first fork
            __import__(".".join(Path(path).with_suffix("").parts[Path(path).parts.index("src") + 1 :]))
        found = find_functions(self.files)
        gc.collect()
        gc.freeze()
        report(session.items, self.files, found, self.count, self.seed)
        return True


def run_tests(items: list[pytest.Item], change: tuple[Any, ...] | None, files: set[str]) -> dict[str, Any] | None:
    """Run tests in a fork, and return which failed; without a change, also what each executes and its CPU seconds.

    Returns:
        None if they take too long, an empty dictionary if the mutation changes nothing.

    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setpgid(0, 0)
                signal.alarm(LIMIT_S if change else 3600)
                items[0].config._tmp_path_factory._given_basetemp = Path(folder, "tests")  # type: ignore[attr-defined]
                with open(os.devnull, "w") as nowhere:
                    os.dup2(nowhere.fileno(), 1)
                    os.dup2(nowhere.fileno(), 2)
                try:
                    if change:
                        mutate(*change)
                    found = _run(items, files if change is None else set())
                except LookupError:
                    found = {}
                result.write_text(json.dumps(found, default=list))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):  # and what its tests have started
            os.killpg(child, signal.SIGKILL)
        return json.loads(result.read_text()) if status == 0 else None


def _run(items: list[pytest.Item], files: set[str]) -> dict[str, Any]:
    failed, lines, seconds = set[str](), dict[str, set[tuple[str, int]]](), dict[str, float]()
    for item, following in zip(items, [*items[1:], None], strict=True):
        name = function_of(item.nodeid)
        found = lines.setdefault(name, set())

        def trace(frame: Any, event: str, _: Any, found: Any = found) -> Any:
            if frame.f_code.co_filename not in files:
                return None
            found.add((frame.f_code.co_filename, frame.f_lineno))
            return trace

        began = _used_s()
        sys.settrace(trace if files else None)
        reports = runtestprotocol(item, log=False, nextitem=following)
        sys.settrace(None)
        seconds[name] = seconds.get(name, 0.0) + _used_s() - began
        if any(each.failed for each in reports):
            failed.add(name)
    return {"failed": failed, "lines": lines, "seconds": seconds}


def _used_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def function_of(nodeid: str) -> str:
    """Return the id of a test without its parameters."""
    return nodeid.partition("[")[0]


def promised() -> set[str]:
    """Return the tests that the page of promises names."""
    return {
        f"tests/{name}" for name in re.findall(r"^ +`(\S+::\S+)`$", Path("tests/promises.md").read_text(), re.MULTILINE)
    }


def report(items: list[pytest.Item], files: set[str], process: tuple[Any, ...], count: int, seed: int) -> None:
    """Print the mutations that live, and the tests that may go with what each of them executes and finds."""
    traced = run_tests(items, None, files)
    assert traced is not None
    lines = {name: {(path, line) for path, line in found} for name, found in traced["lines"].items()}
    seconds = traced["seconds"]
    executed = set().union(*lines.values())
    possible = [
        (path, number, line)
        for path in sorted(files)
        for number, line in enumerate(mutated(ast.parse(Path(path).read_text())))
        if (path, line) in executed
    ]
    drawn = random.Random(seed).sample(possible, min(count, len(possible)))
    touched, killed, lived = dict.fromkeys(lines, 0), list[set[str]](), 0

    def run(mutation: tuple[str, int, int]) -> tuple[set[str], int, dict[str, Any] | None]:
        path, number, line = mutation
        able = [name for name, found in lines.items() if (path, line) in found and name not in traced["failed"]]
        names = set(_affordable(sorted(able, key=lambda name: seconds[name]), seconds))
        chosen = [each for each in items if function_of(each.nodeid) in names]
        return names, len(able), run_tests(chosen, (path, number, *process), files) if chosen else {}

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for (path, number, line), (names, able, found) in zip(drawn, pool.map(run, drawn), strict=True):
            if found == {}:
                continue
            failed = names if found is None else {*found["failed"]}
            for name in names:
                touched[name] += 1
            if failed:
                killed.append(failed)
            else:
                lived += 1
                file = Path(path).relative_to(Path.cwd())
                print(f"lives: {file}:{line} number {number} ({len(names)} of {able} tests ran)", flush=True)
    print(f"{len(lines)} test functions, {len(possible)} mutations possible, {len(killed) + lived} run, {lived} live")
    stay = promised() | {name for name in lines if touched[name] < LEAST} | {*traced["failed"]}
    for name in redundant(lines, killed, seconds, stay):
        finds = sum(name in found for found in killed)
        print(f"may go: {name} ({seconds[name]:.1f} s, executes {touched[name]}, finds {finds})")


def _affordable(names: Iterable[str], seconds: dict[str, float]) -> Iterator[str]:
    spent_s = 0.0
    for name in names:
        spent_s += seconds[name]
        if spent_s > BUDGET_S or seconds[name] > LONGEST_S:
            return
        yield name


def redundant(
    lines: dict[str, set[tuple[str, int]]], killed: list[set[str]], seconds: dict[str, float], stay: set[str]
) -> list[str]:
    """Return tests without which every executed line and every found mutation still belongs to another one."""
    belongs = dict[Any, set[str]]({at: {*found} for at, found in enumerate(killed)})
    for name, found in lines.items():
        for place in found:
            belongs.setdefault(place, set()).add(name)
    gone = list[str]()
    for name in sorted({*lines} - stay, key=lambda name: -seconds[name]):
        mine = [names for names in belongs.values() if name in names]
        if any(len(names) == 1 for names in mine):
            continue
        gone.append(name)
        for names in mine:
            names.discard(name)
    return gone


if __name__ == "__main__":
    tests, source, *numbers = sys.argv[1:]
    count, seed = [*map(int, numbers), *(100, 1)[len(numbers) :]]
    words = ["-n", "0", "-q", "-p", "no:cacheprovider", "--no-header", "-m", "not slow and not foreign", tests]
    sys.exit(pytest.main(words, plugins=[Pruner(source, count, seed)]))
