"""A wish to stop, wherever it comes from, is seen at a safe moment and not before."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from paretune.core.clock import Interruption
from paretune.core.errors import Interrupted
from tests.processes import wait_until


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_is_remembered_and_raised_at_the_next_check_and_every_later_one(number: signal.Signals) -> None:
    with Interruption().listening() as interruption:
        os.kill(os.getpid(), number)
        wait_until(lambda: interruption.reason, within_s=5, what="the signal is remembered")

        for _ in range(2):
            with pytest.raises(Interrupted, match=f"interrupted by {number.name}") as raised:
                interruption.check()

    assert raised.value.exit_code == 130


def test_the_previous_handlers_come_back_after_the_block_even_when_it_raises() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    def block() -> None:
        with Interruption().listening():
            assert signal.getsignal(signal.SIGINT) not in before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()

    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


CHILD = """
import sys, time
from paretune.core.clock import Interruption
watching, other = Interruption(watch_parent=True), Interruption()
print("ready", flush=True)
sys.stdin.readline()
other.check()
try:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        watching.check()
        time.sleep(0.02)
except Exception as error:
    print(error, flush=True)
"""
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, *sys.argv[1:]])
print(child.pid, flush=True)
time.sleep(60)
"""


def test_the_death_of_the_parent_counts_only_when_it_is_watched() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        lines = [parent.stdout.readline().strip(), parent.stdout.readline().strip()]
        child = psutil.Process(int(next(line for line in lines if line != "ready")))
        try:
            parent.kill()
            wait_until(lambda: parent.poll() is not None, within_s=5, what="the parent is gone")
            parent.stdin.write("go\n")
            parent.stdin.flush()

            assert parent.stdout.readline().strip() == "the process that started this command has ended"
        finally:
            if child.is_running():
                child.kill()
