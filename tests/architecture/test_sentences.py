"""No code reads a sentence that people read: how a job ended, what is reserved and what a run is called are values."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "paretune"
SENTENCES = {"reason", "sentence", "remark", "remarks"}  # names of attributes and variables that hold sentences
TAGS = {"FAILURE_REASON", "REMARKS", "RESERVED", "RUN_NAME", "WARNINGS", "VERDICT", "NOTE"}  # tags that hold sentences
METHODS = {"startswith", "endswith", "partition", "rpartition", "split", "rsplit", "find", "index", "count", "replace"}
SEARCHES = {"search", "match", "fullmatch", "findall", "finditer", "sub", "split"}
ALLOWED = {
    "launchers/sagemaker/aws_errors.py": "AWS's own answer, in which its words are the only facts",
    "specification/ending.py": "compares two sentences, and reads nothing in them",
    "training/rows/sources.py": "the message of another library, which has no other fact",
    "user_code/runner.py": "what a user's program printed, in which its words are the only facts",
    "studies/results/answer.py": "shortens a list of reasons for the page, and decides nothing",
}


def test_no_code_looks_into_a_sentence_for_what_has_happened() -> None:
    found = [
        f"{name}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if (name := path.relative_to(SOURCE).as_posix()) not in ALLOWED
        for line in readings(ast.parse(path.read_text()))
    ]

    assert found == []


def test_the_rule_sees_each_way_to_read_a_sentence() -> None:
    program = """
if "MaxRuntimeExceeded" in end.reason: pass
if "limit" not in tags.get(schema.FAILURE_REASON, ""): pass
if _ERROR.search(trial.reason): pass
if re.sub("x", "#", sentence): pass
if reason.startswith("out of memory"): pass
remarks, found, _ = tags[schema.REMARKS].partition("reserved")
name = tags.get(schema.RUN_NAME, "").replace("1 USD", "2 USD")
"""
    assert [*readings(ast.parse(program))] == [*range(2, 9)]
    assert [*readings(ast.parse("if reason in lines and reason: print(f'{reason}', ending.cause in causes)"))] == []


def readings(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of the expressions that look into a sentence."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[text]) if is_sentence(text):
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=text, attr=method)) if method in METHODS and is_sentence(text):
                yield node.lineno
            case ast.Call(func=ast.Attribute(attr=method), args=texts) if method in SEARCHES:
                if any(map(is_sentence, texts)):
                    yield node.lineno


def is_sentence(node: ast.expr) -> bool:
    """Return whether an expression is a variable, an attribute or a tag that holds a sentence."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in SENTENCES
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Attribute(attr=tag), *_]):
            return tag in TAGS
        case ast.Subscript(slice=ast.Attribute(attr=tag)):
            return tag in TAGS
    return False
