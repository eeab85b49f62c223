"""The virtual clock, shared through a file."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from paretune.launchers.simulated.virtual_clock import VirtualClock


class Changing:
    """Changes at given moments."""

    def __init__(self, *moments: float) -> None:
        self.moments = moments

    def next_change(self, after: float) -> float | None:
        return min((moment for moment in self.moments if moment > after), default=None)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "place"


def test_it_starts_at_the_machine_s_time_and_moves_only_when_slept_on(home: Path) -> None:
    before = time.time()
    clock = VirtualClock(home)
    start = clock.now()

    assert before <= start <= time.time()
    assert clock.now() == clock.monotonic() == start
    clock.sleep(3600)
    assert clock.now() == pytest.approx(start + 3600)


def test_another_process_sees_and_moves_the_same_time(home: Path) -> None:
    clock = VirtualClock(home)
    start = clock.now()
    program = "import sys, pathlib\nfrom paretune.launchers.simulated.virtual_clock import VirtualClock\n"
    program += "clock = VirtualClock(pathlib.Path(sys.argv[1]))\nprint(clock.now())\nclock.sleep(60)"
    result = subprocess.run([sys.executable, "-c", program, str(home)], capture_output=True, text=True, check=True)

    assert float(result.stdout) == start
    assert clock.now() == pytest.approx(start + 60)


def test_a_sleep_lasts_until_the_next_change_of_anything_watched(home: Path) -> None:
    clock = VirtualClock(home)
    start = clock.now()
    near, far = Changing(start + 50), Changing(start + 20, start + 90)
    clock.watch(near)
    clock.watch(far)
    moments = []
    for _ in range(4):
        clock.sleep(0.5)
        moments.append(clock.now() - start)

    assert moments == pytest.approx([20, 50, 90, 90.5])


def test_a_moment_to_wake_at_counts_once(home: Path) -> None:
    clock = VirtualClock(home)
    start = clock.now()
    clock.wake_at(start + 60)
    clock.sleep(0.5)
    assert clock.now() == pytest.approx(start + 60)
    clock.sleep(0.5)
    assert clock.now() == pytest.approx(start + 60.5)
