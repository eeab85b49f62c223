"""The ways through the code in CONTRIBUTING.md: their functions exist, are linked with each other, and stay short."""

import ast
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "paretune"
MOST_LINES = 400
"""Lines of code to read for one question."""
_DRIFT = 0.1
"""Share by which the lines of a way may differ from the page, which need not follow every small change."""
_WAY = re.compile(r"^### ([^\n]+): (\d+) lines\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"([\w.]+) (\d+)(?: \(through ([\w.]+)\))?")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One function of a way; `through` is what links it with an earlier one, if that does not spell its name."""

    file: str
    function: str
    stated_lines: int
    through: str

    @property
    def name(self) -> str:
        """The name by which it is called: that of the class for a constructor."""
        owner, _, name = self.function.rpartition(".")
        return owner if name == "__init__" else name

    @property
    def source(self) -> str:
        """Its text, with decorators."""
        return functions_of(self.file)[self.function]

    @property
    def lines(self) -> int:
        """Lines from its first decorator to its end."""
        return len(self.source.splitlines())

    def mentions(self, other: "Step") -> bool:
        """Whether its code has the name of another step; that of a method only behind a dot."""
        nodes = list(ast.walk(ast.parse(self.source)))
        names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        if "." not in other.function or other.function.endswith(".__init__"):
            names |= {node.id for node in nodes if isinstance(node, ast.Name)}
        return other.name in names

    def __str__(self) -> str:
        return f"{self.file}: {self.function}"


@cache
def functions_of(file: str) -> dict[str, str]:
    """Function or `Class.method` to its source with decorators."""
    text = (PACKAGE / file).read_text()
    lines = text.splitlines()
    result = {}
    for node in ast.parse(text).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef):
                first = min([member.lineno, *(decorator.lineno for decorator in member.decorator_list)])
                source = lines[first - 1 : member.end_lineno]
                indent = len(source[0]) - len(source[0].lstrip())
                result[prefix + member.name] = "\n".join(line[indent:] for line in source)
    return result


@cache
def interfaces() -> dict[str, set[str]]:
    """Class of the package to the names of its methods."""
    trees = [ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {node.name: {item.name for item in node.body if isinstance(item, ast.FunctionDef)} for node in classes}


def steps_of(text: str) -> list[Step]:
    """The steps of a way, in reading order."""
    steps = []
    for line in text.splitlines():
        file, _, rest = line.partition(": ")
        for words in rest.split(", "):
            match = _STEP.fullmatch(words)
            assert match, f"{words!r} in {line!r} must be a function, its lines and perhaps (through NAME)"
            function, lines, through = match.groups()
            steps.append(Step(file=file, function=function, stated_lines=int(lines), through=through or ""))
    return steps


def are_linked(step: Step, other: Step) -> bool:
    """Whether the code of one of two steps mentions the name of the other."""
    return step.mentions(other) or other.mentions(step)


def is_linked(step: Step, earlier: list[Step]) -> bool:
    """Whether a step calls an earlier one or is called by it; with `through`, as the page says."""
    linked = [item for item in earlier if are_linked(step, item)]
    if not step.through:
        return bool(linked)
    if step.through in interfaces():
        return any({step.name, element.name} & interfaces()[step.through] for element in linked)
    return any(step.through in entry.source for entry in earlier)


PAGE = (ROOT / "CONTRIBUTING.md").read_text()
WAYS = {title: (int(lines), steps_of(text)) for title, lines, text in _WAY.findall(PAGE)}


@pytest.fixture(params=WAYS, ids=str)
def way(request: pytest.FixtureRequest) -> list[Step]:
    return WAYS[request.param][1]


def test_the_page_has_three_ways() -> None:
    assert len(WAYS) == 3


def test_every_function_of_a_way_exists(way: list[Step]) -> None:
    missing = [str(step) for step in way if step.function not in functions_of(step.file)]

    assert not missing


def test_every_step_of_a_way_is_linked_with_an_earlier_one(way: list[Step]) -> None:
    loose = [str(step) for number, step in enumerate(way) if number and not is_linked(step, way[:number])]

    assert not loose


def test_a_function_of_another_way_counts_as_loose() -> None:
    first = next(steps for _, steps in WAYS.values())
    loose = Step(file="studies/results/tables.py", function="pareto_csv", stated_lines=1, through="")

    assert is_linked(first[1], first[:1])
    assert not is_linked(loose, first)
    assert not is_linked(replace(first[1], through="no_such_name"), first[:1])


@pytest.mark.parametrize("title", WAYS)
def test_a_way_is_read_in_few_lines(title: str) -> None:
    assert sum(step.lines for step in WAYS[title][1]) < MOST_LINES


@pytest.mark.parametrize("title", WAYS)
def test_the_page_states_about_as_many_lines_as_the_code_has(title: str) -> None:
    stated, steps = WAYS[title]

    assert stated == sum(step.stated_lines for step in steps)
    assert stated == pytest.approx(sum(step.lines for step in steps), rel=_DRIFT)
