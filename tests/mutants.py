"""Mutation test of one module: which changes of its code does no test notice?

    python -m tests.mutants                                       the ten modules that most others import
    python -m tests.mutants paretune.pricing.budget result.json   one module, with the tests that concern it

A mutant differs from the module in one place: an operator, a number, a truth value, a condition, a returned value, a
statement. Its tests run in a fork of a process in which the libraries are imported already, up to the first failure.
Not mutated: strings, annotations, decorators and definitions of database tables. Words after the result file go to
pytest in place of the module's tests. Of more than 30 mutants, 30 are drawn with a fixed seed.
"""

import ast
import copy
import gc
import importlib.util
import json
import math
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType

import hypothesis
import pytest

from tests.selection import ROOT, direct_imports, files_of, imported

MOST = 30
IMPORTERS = 4
"""How many test files are taken of those that import a module: those that load the fewest others."""
_PYTEST = [
    "-q",
    "-n",
    "0",
    "-x",
    "--tb=no",
    "-p",
    "no:cacheprovider",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
]
_LIMIT_FACTOR, _LIMIT_EXTRA_S = 5.0, 5.0
"""A mutant whose tests take 5 times as long as without it, and 5 s more, loops for ever."""
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt}
_COMPARISONS |= {ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
_COMPARISONS |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div}
_OPERATORS |= {ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.MatMult: ast.Mult}
_OPERATORS |= {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}


def variants(node: ast.AST) -> list[ast.AST]:
    """What may stand in the place of a node; nothing for most kinds of nodes."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            swapped = [[*ops[:at], _COMPARISONS[type(op)](), *ops[at + 1 :]] for at, op in enumerate(ops)]
            return [ast.Compare(left, list(changed), others) for changed in swapped]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return [ast.BinOp(left, _OPERATORS[type(op)](), right)]
        case ast.BoolOp(op=boolop, values=values):
            return [ast.BoolOp(ast.And() if isinstance(boolop, ast.Or) else ast.Or(), values)]
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            return [operand]
        case ast.Constant(value=bool(value)):
            return [ast.Constant(not value)]
        case ast.Constant(value=int(number) | float(number)):
            return [ast.Constant(number + 1)]
        case ast.IfExp(body=body, orelse=other):
            return [body, other]
        case ast.Return(value=ast.expr() as result) if ast.unparse(result) != "None":
            return [ast.Return(ast.Constant(None))]
        case ast.Name(id=name, ctx=context) if name in _FUNCTIONS:
            return [ast.Name(_FUNCTIONS[name], context)]
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.AugAssign():
            return [ast.Pass()]
    return []


def mutants(source: str) -> Iterator[tuple[str, Callable[[], ast.Module]]]:
    """Each mutant of a module: line, column, code before and after; and what makes its tree."""
    tree = ast.parse(source)
    untouched = _untouched(tree)
    for node in ast.walk(tree):
        for variant in variants(node) if id(node) not in untouched else []:
            text = f"{node.lineno}:{node.col_offset} {_brief(node)} -> {_brief(variant)}"  # type: ignore[attr-defined]
            yield text, partial(_with, tree, node, variant)


def most_imported(count: int = 10) -> list[str]:
    """The modules of paretune that most others import, the most imported first."""
    importers = Counter(
        file for path in sorted((ROOT / "src").rglob("*.py")) for file in direct_imports(path) if file != path
    )
    modules = [file for file, _ in importers.most_common() if file.is_relative_to(ROOT / "src")]
    names = [".".join(file.relative_to(ROOT / "src").with_suffix("").parts) for file in modules]
    return [name for name in names if not name.endswith("__init__")][:count]


def tests_of(name: str) -> list[str]:
    """The test file that mirrors a module, and of those that import it the ones that load the fewest others."""
    _, *folders, last = name.split(".")
    unit = ROOT / "tests" / "unit"
    mirror = unit.joinpath(*folders, f"test_{last}.py")
    (module,) = files_of(name)
    importers = [path for path in sorted(unit.rglob("test_*.py")) if path != mirror and module in direct_imports(path)]
    importers.sort(key=lambda path: len(imported(path)))
    return [str(path) for path in [mirror] * mirror.exists() + importers[:IMPORTERS]]


def survivors(name: str, result: Path, pytest_args: Sequence[str]) -> tuple[int, list[str]]:
    """Number of mutants of a module that were tested, and those that no test noticed.

    Args:
        name: of the module.
        result: JSON file that gets, after each mutant, what has been found so far: mutant to whether it was killed.
        pytest_args: the tests, and other arguments of pytest.

    Raises:
        SystemExit: the tests fail without a mutant.
    """
    spec = importlib.util.find_spec(name)
    assert spec is not None
    path = str(spec.origin)
    source = Path(path).read_text(encoding="utf-8")
    drawn = list(mutants(source))
    if len(drawn) > MOST:
        print(f"{MOST} of {len(drawn)} mutants of {name}, drawn with seed 0")
        drawn = random.Random(0).sample(drawn, MOST)
    hypothesis.settings.register_profile(
        "mutants", database=None, phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate]
    )
    hypothesis.settings.load_profile("mutants")
    pytest.main([*_PYTEST, *pytest_args])  # imports the libraries
    gc.freeze()  # the forks need not search through them
    start = time.monotonic()
    if _fails(name, path, compile(source, path, "exec"), pytest_args, limit_s=math.inf):
        raise SystemExit(f"the tests of {name} fail without a mutant")
    limit_s = (time.monotonic() - start) * _LIMIT_FACTOR + _LIMIT_EXTRA_S
    killed: dict[str, bool] = {}
    for text, tree in drawn:
        killed[text] = _fails(name, path, compile(tree(), path, "exec"), pytest_args, limit_s)
        result.write_text(json.dumps(killed, indent=1) + "\n", encoding="utf-8")
        if not killed[text]:
            print("survived:", text, flush=True)
    return len(drawn), [text for text, dead in killed.items() if not dead]


def _with(tree: ast.Module, node: ast.AST, variant: ast.AST) -> ast.Module:
    """A copy of the tree with the variant in the place of the node."""
    changed = copy.deepcopy(tree, {id(node): ast.copy_location(copy.deepcopy(variant), node)})
    return ast.fix_missing_locations(changed)


def _untouched(tree: ast.Module) -> set[int]:
    """Nodes that are not mutated."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        roots += [getattr(node, "annotation", None), getattr(node, "returns", None)]
        roots += getattr(node, "decorator_list", [])
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Table":
            roots.append(node)
    return {id(node) for root in roots if root is not None for node in ast.walk(root)}


def _brief(node: ast.AST) -> str:
    return ast.unparse(node).replace("\n", " ")[:100]


class _Mutant(SourceFileLoader):
    """Finds and loads one module, with other code than that of its file."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        return self._code


def _fails(name: str, path: str, code: CodeType, pytest_args: Sequence[str], limit_s: float) -> bool:
    """Whether a test fails, or they take longer than `limit_s`, with this code in the place of the module's."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        packages = ("tests", name.partition(".")[0])
        for module in [module for module in sys.modules if module.partition(".")[0] in packages]:
            del sys.modules[module]
        sys.meta_path.insert(0, _Mutant(name, path, code))
        os._exit(int(pytest.main([*_PYTEST, *pytest_args])))
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return status != 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(*most_imported(), sep="\n")
        raise SystemExit
    count, alive = survivors(sys.argv[1], Path(sys.argv[2]), sys.argv[3:] or tests_of(sys.argv[1]))
    print(f"{sys.argv[1]}: {count} mutants, {count - len(alive)} killed ({1 - len(alive) / count:.1%})")
