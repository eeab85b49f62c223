"""The request of a job ends where its plan begins: the places that know a `JobSpec` become fewer, never more."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "paretune"
AFTER_ADMISSION = {  # files that see only admitted jobs: the goal is that none of them reads the request
    *(f"jobs/{name}.py" for name in ("record", "attempts", "bill", "outcome", "model", "run_names")),
    *(f"jobs/{name}.py" for name in ("follow", "sync", "running", "removed")),
    *(f"launchers/sagemaker/{name}.py" for name in ("request", "jobs", "job")),
}
NEWEST = {
    "files that import JobSpec": 60,
    "functions that take a JobSpec": 170,
    "reads of the request after admission": 0,
}


def test_the_request_is_known_in_fewer_places_and_never_in_more() -> None:
    counted = counts_of({path.relative_to(SOURCE).as_posix(): path.read_text() for path in SOURCE.rglob("*.py")})

    assert differences(counted, NEWEST) == []


@pytest.mark.parametrize(("now", "sentence"), [(8, "rose from 7 to 8: pass"), (6, "fell from 7 to 6: write 6 down")])
def test_a_count_that_rises_fails_and_so_does_one_that_falls_and_is_not_written_down(now: int, sentence: str) -> None:
    (difference,) = differences({"reads": now}, {"reads": 7})

    assert sentence in difference
    assert differences({"reads": 7}, {"reads": 7}) == []


def test_the_counts_see_each_way_to_know_the_request() -> None:
    record = """
from paretune.specification.job import Job as J, JobSpec

class Record:
    def adopt(self, spec: "JobSpec | None", *others: int) -> None:
        self.spec.record, record.spec, spec.task, aspect.spec_hash

    async def describe(self, *, specs: list[JobSpec]) -> None:
        specs.sort, other.task

    def finish(self) -> JobSpec:
        pass
"""
    card = "from paretune.specification.job import JobStatus\nspec.task\n"

    counted = counts_of({"jobs/record.py": record, "jobs/card.py": card})

    assert [*counted.values()] == [1, 2, 2]


def counts_of(programs: dict[str, str]) -> dict[str, int]:
    """Return the numbers of NEWEST for programs, by their path below the source folder."""
    trees = {name: ast.parse(text) for name, text in programs.items()}
    after_admission = [tree for name, tree in trees.items() if name in AFTER_ADMISSION]
    numbers = (
        sum(any(imports(tree)) for tree in trees.values()),
        sum(map(takes_it, (node for tree in trees.values() for node in ast.walk(tree)))),
        sum(map(reads_it, (node for tree in after_admission for node in ast.walk(tree)))),
    )
    return dict(zip(NEWEST, numbers, strict=True))


def imports(tree: ast.AST) -> Iterator[bool]:
    """Yield for each import from a module whether it is one of JobSpec."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield any(each.name == "JobSpec" for each in node.names)


def takes_it(node: ast.AST) -> bool:
    """Return whether the node defines a function with a parameter whose annotation names JobSpec."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
    return any(each and each.annotation and "JobSpec" in ast.unparse(each.annotation) for each in parameters)


def reads_it(node: ast.AST) -> bool:
    """Return whether the node reads an attribute of `spec` or of an object's `.spec`."""
    match node:
        case ast.Attribute(value=ast.Name(id="spec") | ast.Attribute(attr="spec")):
            return True
    return False


def differences(counted: dict[str, int], newest: dict[str, int]) -> list[str]:
    """Return a sentence for each count that is not its newest value, with what to do about it."""
    return [
        f"{what} rose from {known} to {number}: pass the value that is needed, or the plan, in place of the request"
        if number > known
        else f"{what} fell from {known} to {number}: write {number} down as the newest value in NEWEST"
        for what, number in counted.items()
        if number != (known := newest[what])
    ]
