"""Mutation test of one module: which changes of its code does no test notice?

    python -m tests.mutants paretune.pricing.budget result.json tests/unit/pricing/test_budget.py

A mutant differs from the module in one place: an operator, a number, a truth value, a condition, a returned value, a
statement. Its tests run in a fork of a process in which the libraries are imported already, up to the first failure.
Not mutated: strings, annotations, decorators and definitions of database tables. What follows the result file goes to
pytest. Of more than 100 mutants, 100 are drawn with a fixed seed.
"""

import ast
import copy
import gc
import importlib.util
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType

import hypothesis
import pytest

MOST = 100
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
_LIMIT_S = 120.0  # a mutant that runs longer loops for ever: the tests of one module take seconds
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
            return [ast.Compare(left, list(one), others) for one in swapped]
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
    found = list(mutants(source))
    if len(found) > MOST:
        print(f"{MOST} of {len(found)} mutants, drawn with seed 0")
        found = random.Random(0).sample(found, MOST)
    hypothesis.settings.register_profile(
        "mutants", database=None, phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate]
    )
    hypothesis.settings.load_profile("mutants")
    pytest.main([*_PYTEST, *pytest_args])  # imports the libraries
    gc.freeze()  # the forks need not search through them
    if _fails(name, path, compile(source, path, "exec"), pytest_args):
        raise SystemExit(f"the tests of {name} fail without a mutant")
    killed: dict[str, bool] = {}
    for text, tree in found:
        killed[text] = _fails(name, path, compile(tree(), path, "exec"), pytest_args)
        result.write_text(json.dumps(killed, indent=1) + "\n", encoding="utf-8")
        if not killed[text]:
            print("survived:", text, flush=True)
    return len(found), [text for text, dead in killed.items() if not dead]


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


def _fails(name: str, path: str, code: CodeType, pytest_args: Sequence[str]) -> bool:
    """Whether a test fails, or takes too long, with this code in the place of the module's."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        for one in [one for one in sys.modules if one.partition(".")[0] in ("tests", name.partition(".")[0])]:
            del sys.modules[one]
        sys.meta_path.insert(0, _Mutant(name, path, code))
        os._exit(int(pytest.main([*_PYTEST, *pytest_args])))
    end = time.monotonic() + _LIMIT_S
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status != 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


if __name__ == "__main__":
    count, alive = survivors(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
    print(f"{sys.argv[1]}: {count} mutants, {count - len(alive)} killed ({1 - len(alive) / count:.1%})")
