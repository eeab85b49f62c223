"""Gives every command broken and harmful input: how many end in a traceback, start or write something, and how long.

    python benchmarks/hostile_inputs.py             20,000 inputs
    python benchmarks/hostile_inputs.py --small     100

An input is a command with one to four harmful parameters or a broken file; its seed gives it again. Everything runs in
this process, in folders that are removed; what would start a process or call a server is ended there.
"""

import argparse
import random
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path

import arguments
import published

sys.path.insert(0, str(Path(__file__).parents[1]))  # the inputs are those of the tests

_SHOWN = 5
_TOLD_EVERY = 1_000


def main() -> None:
    """Give the inputs and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument(
        "--first", type=int, default=1_000_000, help="seed of the first one; the tests use smaller ones"
    )
    options = arguments.parse(parser, inputs=100)

    from tests.hostile.inputs import an_input, give, store_in

    seeds = range(options.first, options.first + options.inputs)
    codes, wrong, seconds, grown = Counter[str](), list[str](), list[float](), 0.0
    with tempfile.TemporaryDirectory() as temporary_directory:
        Path(temporary_directory, "store").mkdir()
        store = store_in(Path(temporary_directory, "store"))
        for seed in seeds:
            hostile = an_input(random.Random(seed))
            with tempfile.TemporaryDirectory(dir=temporary_directory) as folder:
                outcome = give(hostile, Path(folder), store)
            codes["accepted" if outcome.code in (None, 0) else f"exit {outcome.code}"] += 1
            wrong += [f"seed {seed}: {text.strip().splitlines()[-1][:200]}" for text in outcome.wrong]
            seconds.append(outcome.seconds)
            grown = max(grown, outcome.grown_mib)
            if len(seconds) % _TOLD_EVERY == 0:
                print(f"{len(seconds):,} inputs, {len(wrong)} wrong", file=sys.stderr, flush=True)
    lines = [
        f"{options.inputs:,} inputs: " + ", ".join(f"{count:,} {code}" for code, count in sorted(codes.items())),
        f"tracebacks, processes, files elsewhere, hangs: {len(wrong)}",
        f"seconds: median {statistics.median(seconds):.3f}, longest {max(seconds):.2f}, "
        f"above one second {sum(value > 1 for value in seconds)}; most memory that one has added: {grown:.0f} MiB",
    ]
    print(published.block("hostile_inputs", [*(f"- {line}" for line in lines), "", published.conditions("mlflow")]))
    for text in wrong[:_SHOWN]:
        print(text)
    for used, seed in sorted(zip(seconds, seeds, strict=True), reverse=True)[:_SHOWN]:
        print(f"seed {seed}: {used:.2f} s")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
