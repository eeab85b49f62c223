"""Instances that die alone."""

import pytest

from tests.faults.conftest import Trial
from tests.faults.worlds import Worlds
from tests.processes import wait_until

pytestmark = pytest.mark.slow


def test_one_instance_of_several_that_dies_ends_the_job_which_is_booked(worlds: Worlds, trial: Trial) -> None:
    with worlds.world("sagemaker") as world:
        assert world.emulator is not None
        world.write_script(steps=600)
        world.job |= {"instance_count": 2}
        command = world.begin(world.open_run())
        wait_until(world.created_names, within_s=60, what="the job is created")
        command.has_ended_within(trial.draw.uniform(0.0, 5.0))
        world.emulator.kill_instance(world.created_names()[-1], trial.draw.choice(("algo-1", "algo-2")))
        assert command.wait() == 3, command.text
        world.recover()
        trial.check(world)
