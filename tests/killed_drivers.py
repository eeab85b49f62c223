"""Drivers of a study that are killed: `python -m tests.killed_drivers KILLS SEED WORDS...` in the study's folder.

Everything is imported once and each driver is a fork, so that a kill costs a tenth of a second and not the three of a
Python start. A driver that ends by itself, because the budget is spent, is followed by one with a larger budget.
Printed at the end, as JSON: how many were killed, how many ended by themselves with which exit codes, and the budget.
"""

import json
import os
import random
import signal
import sys
import time
import traceback

FIRST_BUDGET_USD = 10.0
LONGEST_S = 1.5


def main() -> None:
    """Kill drivers of a study, each at a random moment."""
    kills, seed, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    import paretune.cli
    import paretune.commands.study
    import paretune.launchers.simulated.course
    import paretune.rehearsal  # noqa: F401

    draw = random.Random(seed)
    done, codes, budget = 0, [], FIRST_BUDGET_USD
    while done < kills:
        child = os.fork()
        if child == 0:
            _drive(["study", *words, "--budget_usd", str(budget)])
        code = _end(child, draw.uniform(0.0, LONGEST_S))
        if code is None:
            done += 1
        else:
            codes.append(code)
            budget += FIRST_BUDGET_USD
    print(json.dumps({"killed": done, "codes": codes, "budget_usd": budget}))


def _drive(words: list[str]) -> None:
    os.setpgid(0, 0)
    code = 70
    try:
        with open(f"driver-{os.getpid()}.log", "w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            sys.stdout = sys.stderr = log
            try:
                code = sys.modules["paretune.cli"].main(words)
            except BaseException:
                traceback.print_exc(file=log)
            log.flush()
    finally:
        os._exit(code)


def _end(child: int, after_s: float) -> int | None:
    """The exit code of a driver that ended before its time; None for one that was killed."""
    until = time.monotonic() + after_s
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


if __name__ == "__main__":
    main()
