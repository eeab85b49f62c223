"""Only `usd` writes dollars and only `duration` writes durations, both in `presentation/text.py`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "paretune"
WRITERS = {"presentation/text.py", "specification/price.py"}  # the latter writes hourly prices with all their digits
ALONE = {  # these run inside jobs, without paretune, or as a test suite
    "core/watchdog.py",
    "testing.py",
}
DOLLARS = (re.compile(r"\s?(USD|dollars)\b"), re.compile(r"(USD|\$) ?$"))
DURATIONS = (re.compile(r"\s?(s|m|h|min|seconds|minutes|hours)\b"), re.compile(r"(?!)"))


def test_no_text_but_that_of_the_writer_formats_dollars() -> None:
    assert [*places(DOLLARS, WRITERS)] == []


def test_no_text_but_that_of_the_writer_formats_a_duration() -> None:
    assert [*places(DURATIONS, WRITERS | ALONE, only_formatted=True)] == []


def test_the_rule_sees_each_way_to_format_dollars_and_durations() -> None:
    program = """
f"{cost:.4g} USD"
f"it costs {plain(cost, 2)} USD a month"
f"USD {cost}"
f"{cost:g} dollars"
f"{usd(cost)} and {usd(more)} more than USD"
f"{count} USDA"
"""
    assert [*lines_of(program, DOLLARS)] == [2, 3, 4, 5]
    program = """
f"after {seconds / 60:g} minutes"
f"{seconds:.1f}s"
f"{duration(seconds)} seconds"
f"{share:.0%} sure"
"""
    assert [*lines_of(program, DURATIONS, only_formatted=True)] == [2, 3]


def places(
    unit: tuple[re.Pattern[str], re.Pattern[str]], exempt: set[str], *, only_formatted: bool = False
) -> Iterator[str]:
    """Yield the lines of the source that format a number beside a unit."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name not in exempt and not name.startswith("training/"):  # training prints for logs, inside jobs
            yield from (f"{name}:{line}" for line in lines_of(path.read_text(), unit, only_formatted=only_formatted))


def lines_of(
    program: str, unit: tuple[re.Pattern[str], re.Pattern[str]], *, only_formatted: bool = False
) -> Iterator[int]:
    """Yield the lines of the f-strings with a value before or after the unit; on request, only values with a format."""
    after, before = unit
    for node in ast.walk(ast.parse(program)):
        if not isinstance(node, ast.JoinedStr):
            continue
        texts = ["", *(part.value if isinstance(part, ast.Constant) else None for part in node.values), ""]
        for index, part in enumerate(node.values, 1):
            if isinstance(part, ast.FormattedValue) and (part.format_spec is not None or not only_formatted):
                following, previous = texts[index + 1], texts[index - 1]
                if after.match(str(following or "")) or before.search(str(previous or "")):
                    yield node.lineno
