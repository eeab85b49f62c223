"""Drivers of a study that are killed: `python -m tests.killed_drivers KILLS SEED COMMAND WORDS...` in its folder.

COMMAND is study or design.

Everything is imported once and each driver is a fork, so that a kill costs a tenth of a second and not the three of a
Python start. A driver that ends by itself, because the budget is spent or the design has run, is followed by one with a
larger budget, or of another design with the same rows.
Kills go on beyond KILLS until a driver has taken over what a killed one has left. A driver that is killed before it has
said anything was killed early: the next ones are given longer, so that a slow machine sees as much of them as a fast
one.
Printed at the end, as JSON: how many were killed, how many ended by themselves with which exit codes, and the budget.
"""

import gc
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

FIRST_BUDGET_USD = 10.0
LONGEST_S = float(os.environ.get("PARETUNE_KILL_WITHIN_S", "1.2"))
_LONGER = 1.5  # times as long, after a driver that has said nothing
_MOST = 15  # times KILLS


def main() -> None:
    """Kill drivers of a study, each at a random moment."""
    kills, seed, command, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    _import_everything(command, words)
    draw = random.Random(seed)
    done, codes, budget, longest_s = 0, [], FIRST_BUDGET_USD, LONGEST_S
    while done < kills or (done < _MOST * kills and not any("taken over" in text for text in _logs())):
        child = os.fork()
        if child == 0:
            again = ["--budget_usd", str(budget)] if command == "study" else ["--name", f"survival {len(codes)}"]
            _drive([command, *words, *again])
        code = _end(child, draw.uniform(0.0, longest_s))
        if code is None:
            done += 1
            longest_s *= 1.0 if _log_of(child) else _LONGER
        else:
            codes.append(code)
            budget += FIRST_BUDGET_USD
    print(json.dumps({"killed": done, "codes": codes, "budget_usd": budget}))


def _import_everything(command: str, words: list[str]) -> None:
    """Run a study of one trial, or the design, somewhere else: whatever is imported late is there then."""
    from paretune.cli.main import main as paretune

    workspace, custom = os.getcwd(), {name: os.environ[name] for name in ("MLFLOW_TRACKING_URI", "PARETUNE_HOME")}
    words = [os.path.abspath(word) if word.endswith(".yaml") else word for word in words]
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        os.chdir(folder)
        os.environ |= {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db", "PARETUNE_HOME": f"{folder}/home"}
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            paretune([command, *words, *(["--n_trials", "2"] if command == "study" else [])])
        os.chdir(workspace)
        os.environ |= custom
    gc.freeze()


def _drive(words: list[str]) -> None:
    os.setpgid(0, 0)
    code = 70
    try:
        with open(f"driver-{os.getpid()}.log", "w", buffering=1) as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            sys.stdout = sys.stderr = log
            try:
                code = sys.modules["paretune.cli.main"].main(words)
            except BaseException:
                traceback.print_exc(file=log)
            log.flush()
    finally:
        os._exit(code)


def _logs() -> list[str]:
    """What all drivers have said until now."""
    return [path.read_text() for path in Path().glob("driver-*.log")]


def _log_of(child: int) -> str:
    """What a driver has said; empty for one that was killed before it had a log."""
    path = Path(f"driver-{child}.log")
    return path.read_text() if path.exists() else ""


def _end(child: int, after_s: float) -> int | None:
    """The exit code of a driver that ended before its time; None for one that was killed."""
    until = time.monotonic() + after_s
    while time.monotonic() < until:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


if __name__ == "__main__":
    main()
