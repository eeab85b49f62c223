"""Play histories: `python -m tests.histories --count 1000`, or `--seed 7` to play one again with its log."""

import argparse
import logging
import secrets
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.histories.defects import DEFECTS, put_back
from tests.histories.history import commit, play, simulated


def main() -> int:
    """Play them, print the figures; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="histories with fresh seeds")
    parser.add_argument("--seed", type=int, help="play this history alone, with its log")
    parser.add_argument("--from", type=int, dest="first", help="first seed, in place of a fresh one")
    parser.add_argument("--defect", choices=sorted(DEFECTS), help="put a defect back, and stop when it shows")
    given = parser.parse_args()
    first = given.seed if given.seed is not None else given.first
    first = secrets.randbits(40) if first is None else first
    broken, faults, jobs, steps = [], Counter[str](), 0, 0
    logging.disable()  # of MLflow that does not answer
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as folder, simulated(), put_back(given.defect):
        for seed in range(first, first + (1 if given.seed is not None else given.count)):
            played = play(seed, Path(folder), log=given.seed is not None)
            jobs, steps = jobs + played.jobs, steps + played.steps
            faults.update(fault.partition(":")[0] for fault in played.faults)
            print("\n".join(played.log), end="\n" if played.log else "")
            print("\n".join(played.described()), end="\n" if played.broken else "", flush=True)
            broken += [seed] if played.broken else []
            if given.defect and broken:
                print(f"{given.defect}: shows in history {seed - first + 1}")
                return 1
    seconds = time.process_time() - begun
    count = 1 if given.seed is not None else given.count
    met = ", ".join(f"{name} {number}" for name, number in sorted(faults.items()))
    print(
        f"{count:,} histories from seed {first}, commit {commit()}: {len(broken)} broken; {jobs:,} jobs, {steps:,} "
        f"steps, {sum(faults.values()):,} faults ({met}); {1000 * seconds / count:.1f} ms of processor time each, "
        f"{3600 * count / seconds:,.0f} an hour"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
