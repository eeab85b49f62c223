"""Parses the command line of a benchmark, with the switches `--small` and `--write` that all of them have."""

import argparse
import subprocess
import sys
from pathlib import Path

import published


def parse(parser: argparse.ArgumentParser, **small: object) -> argparse.Namespace:
    """Read the command line. With `--small`, arguments that are not given get their values from `small`.

    With `--write`, this function does not return. It runs the benchmark in another process, writes the output to
    `results/NAME.txt`, copies its block into the page that shows it, and exits with the status of the benchmark.
    """
    parser.add_argument(
        "--small", action="store_true", help="a short version, within a minute; its figures mean nothing"
    )
    parser.add_argument("--write", action="store_true", help="store what is printed, and copy its block to its page")
    request = parser.parse_args()
    if request.write:
        if request.small:
            parser.error("--write must not be given with --small, whose figures mean nothing: leave out one of them")
        sys.exit(_run_and_store([word for word in sys.argv if word != "--write"]))
    if request.small:
        parser.set_defaults(**small)
        request = parser.parse_args()
    return request


def _run_and_store(words: list[str]) -> int:
    """Run a benchmark, show its output and, if it succeeds, store the output. Return its exit status."""
    name = Path(words[0]).stem
    with subprocess.Popen([sys.executable, "-u", *words], stdout=subprocess.PIPE, text=True) as running:
        printed = []
        for line in running.stdout or ():
            print(line, end="", flush=True)
            printed.append(line.rstrip() + "\n")
    if running.returncode:
        return running.returncode
    typed = [Path(word).name if Path(word).is_absolute() else word for word in words[1:]]  # hides local folders
    command = f"$ python benchmarks/{name}.py {' '.join(typed)}".rstrip()
    text = "".join([command + "\n", *printed])
    if name in published.shown() and name not in published.blocks(text):
        sys.exit(f"nothing was stored: a page shows a block {name}, and none was printed (published.block makes one)")
    (published.RESULTS / f"{name}.txt").write_text(text)
    published.main()
    return 0
