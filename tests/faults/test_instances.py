"""Instances that die alone, and spot instances that are taken away while checkpoints are written."""

from pathlib import Path

import pytest

from tests.end_to_end.cloud import job_of_seconds
from tests.faults.conftest import IS_LONG, Trial
from tests.faults.worlds import Worlds
from tests.processes import wait_until

pytestmark = pytest.mark.slow


def test_one_instance_of_several_that_dies_ends_the_job_which_is_booked(worlds: Worlds, trial: Trial) -> None:
    cases = trial.count(short=1, long=8)
    with worlds.world("sagemaker") as world:
        assert world.emulator is not None
        world.write_script(steps=600)
        world.job |= {"instance_count": 2}
        for number in range(cases):
            command = world.begin(world.open_run())
            wait_until(lambda: len(world.created_names()) > number, within_s=60, what="the job is created")  # noqa: B023
            command.has_ended_within(trial.draw.uniform(0.0, 5.0))
            world.emulator.kill_instance(world.created_names()[-1], trial.draw.choice(("algo-1", "algo-2")))
            assert command.wait() == 3, command.text
        world.recover()
        trial.check(world, "instance dies", cases)


@pytest.mark.skipif(not IS_LONG, reason="of the long form: PARETUNE_FAULTS=long")
def test_spot_instances_taken_away_while_checkpoints_are_written_lose_no_event(
    worlds: Worlds, trial: Trial, tiny_model: Path, reviews: Path
) -> None:
    cases = trial.count(short=1, long=4)
    saving = {"eval_strategy": "no", "logging_steps": 1, "save_strategy": "steps", "save_steps": 1, "max_steps": 40}
    with worlds.world("sagemaker", interrupt_grace_s=1.0) as world:
        assert world.emulator is not None
        world.job = job_of_seconds(tiny_model, reviews) | {"training_arguments": saving, "spot": "true"}
        for number in range(cases):
            command = world.begin(world.open_run())
            wait_until(lambda: len(world.created_names()) > number, within_s=60, what="the job is created")  # noqa: B023
            name = world.created_names()[-1]
            folder = world.emulator.job_folder(name)
            wait_until(
                lambda: any(folder.glob("1/algo-1/ml/checkpoints/checkpoint-*")),  # noqa: B023
                within_s=90,
                what="a checkpoint is being written",
            )
            world.emulator.interrupt(name)
            assert command.wait() == 0, command.text
        world.recover()
        trial.check(world, "spot", cases)
