"""The switches `--small` and `--write` of every benchmark."""

import argparse
import subprocess
import sys
from pathlib import Path

import published


def parse(parser: argparse.ArgumentParser, **small: object) -> argparse.Namespace:
    """Read the command line; with `--small`, arguments that are not given have the values of `small`.

    With `--write`, the benchmark runs in its own process, and this one exits with its status: by then, what it printed
    is in `results/NAME.txt`, and its block is in the page that shows it.
    """
    parser.add_argument("--small", action="store_true", help="the same within a minute; its figures mean nothing")
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
    """Run a benchmark, show what it prints, store that if the benchmark succeeds, and return its exit status."""
    name = Path(words[0]).stem
    with subprocess.Popen([sys.executable, "-u", *words], stdout=subprocess.PIPE, text=True) as running:
        printed = []
        for line in running.stdout or ():
            print(line, end="", flush=True)
            printed.append(line.rstrip() + "\n")
    if running.returncode:
        return running.returncode
    typed = [Path(word).name if Path(word).is_absolute() else word for word in words[1:]]  # no folders of a machine
    command = f"$ python benchmarks/{name}.py {' '.join(typed)}".rstrip()
    text = "".join([command + "\n", *printed])
    if name in published.shown() and name not in published.blocks(text):
        sys.exit(f"nothing was stored: a page shows a block {name}, and none was printed (published.block makes one)")
    (published.RESULTS / f"{name}.txt").write_text(text)
    published.main()
    return 0
