"""What other programs take of the processor."""

import time

import pytest

from paretune.training.callback import CpuUsage

BEGIN = CpuUsage(time_s=100.0, machine_s=1000.0, job_s=50.0)


@pytest.mark.parametrize(
    ("machine_s", "own_s", "usable", "cores", "share"),
    [
        (20.0, 20.0, 2, 2, 0.0),  # alone, on both cores for ten seconds
        (20.0, 10.0, 2, 2, 0.5),
        (20.0, 1.0, 2, 2, 0.95),
        (9.0, 10.0, 2, 2, 0.0),  # the two are not read at quite the same moment
        (100.0, 20.0, 2, 16, 0.0),  # a container of two cores on a machine with room
        (155.0, 10.0, 2, 16, 0.25),
    ],
)
def test_the_share_is_what_is_missing_of_the_usable_cores(
    machine_s: float, own_s: float, usable: int, cores: int, share: float
) -> None:
    later = CpuUsage(time_s=110.0, machine_s=1000.0 + machine_s, job_s=50.0 + own_s)

    assert BEGIN.others_share(later, usable=usable, cores=cores) == pytest.approx(share)


def test_what_this_process_does_is_its_own() -> None:
    before = CpuUsage.now()
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    after = CpuUsage.now()

    assert after.job_s - before.job_s >= 0.05  # a tick of the clock is 10 ms
    assert after.machine_s > before.machine_s
