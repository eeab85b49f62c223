"""A job that hangs is ended, and one that works is not, whichever sign of life it gives."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paretune.core import watchdog

LIMIT_S = 0.6
RUNS_S = 2.5  # after which a process that nothing has stopped exits by itself

# A quarter of a second of CPU shows in a sample that is taken every fifth of a second.
COMPUTING = f"""
import time
end = time.monotonic() + {RUNS_S}
while time.monotonic() < end:
    until = time.process_time() + 0.25
    while time.process_time() < until: 1
    time.sleep(0.75)
"""
PROGRAM = f"""
import os, subprocess, sys, time
from pathlib import Path
from paretune.core import watchdog
def end(sentence):
    print(sentence, flush=True)
    os._exit(7)
events = Path(sys.argv[1])
watchdog.SILENCE_S = float(sys.argv[2])
watchdog.watch(events, end)
until = time.monotonic() + {RUNS_S}
COMPUTING = {COMPUTING!r}
"""
BODIES = {
    "hangs": f"time.sleep({RUNS_S})",
    "computes in a child": """
child = subprocess.Popen([sys.executable, "-c", COMPUTING])
child.wait()
""",
    "sends events": """
while time.monotonic() < until:
    with events.open("a") as file:
        file.write("{}\\n")
    time.sleep(0.3)
""",
}


def started(events: Path, body: str, limit_s: float = LIMIT_S) -> "subprocess.Popen[str]":
    words = [sys.executable, "-c", PROGRAM + BODIES[body], str(events), str(limit_s)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_process_that_does_nothing_is_ended_with_the_reason_and_where_it_hangs(tmp_path: Path) -> None:
    process = started(tmp_path / "events.jsonl", "hangs")
    output, stacks = process.communicate(timeout=60)

    assert process.returncode == 7
    assert output.startswith("it hangs: no new event, almost no CPU time and no GPU in use for 0.01 minutes")
    assert '"<string>", line' in stacks  # of each thread


@pytest.mark.linux
def test_a_process_that_works_or_sends_events_is_left_alone(tmp_path: Path) -> None:
    # A check every fifth of a second is frequent enough even on a busy machine.
    processes = [started(tmp_path / body, body, limit_s=2.0) for body in ("computes in a child", "sends events")]
    for process in processes:
        process.communicate(timeout=60)

    assert [process.returncode for process in processes] == [0, 0]


@pytest.mark.linux
def test_a_process_whose_name_is_not_utf_8_is_counted_like_any_other() -> None:
    name = b"\xd0" * 15
    named = f"import ctypes; ctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0)"  # 15 is PR_SET_NAME
    works = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
    before = watchdog.cpu_seconds(os.getpid())
    words = [sys.executable, "-c", f"{named}\n{works}"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()

        used = watchdog.cpu_seconds(os.getpid()) - before
        child.communicate("\n")

    assert used > 0.25


def test_a_gpu_in_use_is_a_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 0\necho 37\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert watchdog._a_gpu_works()
    smi.write_text("#!/bin/sh\necho 0\necho '[N/A]'\n")
    assert not watchdog._a_gpu_works()


def test_a_process_whose_starter_has_ended_says_so_before_it_ends_so_that_its_log_shows_how_long_it_ran() -> None:
    waiting = "from paretune.core import watchdog; import time; watchdog.end_with(1, 5, lambda: None); time.sleep(30)"

    done = subprocess.run([sys.executable, "-c", waiting], capture_output=True, text=True, check=False)

    assert done.returncode == -signal.SIGTERM
    assert done.stdout == "the process that started this one has ended\n"
