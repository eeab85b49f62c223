"""Copies the figures of benchmarks from benchmarks/results into README and docs, so that nobody types them.

    python benchmarks/published.py            # copy the blocks of all stored results into the pages that show them

A benchmark ends by printing a block (`block`). `--write` (arguments.py) stores its whole output in `results/NAME.txt`,
and copies the block into the page that has a block of the same name. A test checks that both are equal.
"""

import datetime
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
_REPOSITORY = Path(__file__).parents[1]
PAGES = (_REPOSITORY / "README.md", *sorted((_REPOSITORY / "docs").rglob("*.md")))
"""Pages that may show figures."""
_BLOCK = re.compile(r"<!-- (?P<name>\w+): begin -->\n(?P<body>.*?)<!-- (?P=name): end -->\n", re.DOTALL)
_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")
"""Instruction sets for multiplying matrices, the fastest first."""


def block(name: str, lines: Iterable[str]) -> str:
    """Return the block `name`: lines of Markdown between two comments that mark its beginning and its end."""
    return "\n".join([f"<!-- {name}: begin -->", *lines, f"<!-- {name}: end -->"])


def blocks(text: str) -> dict[str, str]:
    """Return the text of each block, by name."""
    return {result["name"]: result["body"] for result in _BLOCK.finditer(text)}


def shown() -> dict[str, str]:
    """Return the text of each block that the pages show, by name."""
    return {name: body for page in PAGES for name, body in blocks(page.read_text()).items()}


def copied(text: str, results: Path) -> str:
    """Return the text of a page with each block replaced by the stored result of the same name."""
    stored = {name: body for path in sorted(results.glob("*.txt")) for name, body in blocks(path.read_text()).items()}

    def current(result: re.Match[str]) -> str:
        return block(result["name"], [stored.get(result["name"], result["body"]).rstrip("\n")]) + "\n"

    return _BLOCK.sub(current, text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table; all columns but the first are aligned to the right."""
    lines = [list(header), ["---", *["---:"] * (len(header) - 1)], *map(list, rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def conditions(*packages: str) -> str:
    """Return the date, the commit, the CPU and the versions with which a benchmark runs."""
    versions = [f"{name} {_version(name)}" for name in packages]
    made = [f"{datetime.date.today()}", f"commit {commit()}", cpu(), f"Python {platform.python_version()}"]
    return ", ".join([*made, *versions])


def cpu() -> str:
    """Return the CPU, its number of threads, and its fastest instruction set for multiplying matrices."""
    facts = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", facts, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", facts, re.MULTILINE)
    has = set(flags[1].split()) if flags else set()
    fastest = next((f" with {name}" for name in _INSTRUCTIONS if name in has), "")
    return f"{model[1] if model else platform.machine()} ({os.cpu_count()} threads{fastest})"


def commit() -> str:
    """Return the commit that is checked out, with `-dirty` if files have changed since."""
    words = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    result = subprocess.run(words, cwd=_REPOSITORY, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def main() -> None:
    """Copy the blocks of all stored results into the pages."""
    for page in PAGES:
        page.write_text(copied(page.read_text(), RESULTS))


if __name__ == "__main__":
    main()
