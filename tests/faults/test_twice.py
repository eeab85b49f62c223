"""Two launchers of one run, or two drivers of one study, by mistake."""

import signal

import pytest

from tests.faults.conftest import Trial
from tests.faults.worlds import Worlds

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "cases"), [("simulated", 4), ("local", 1)])
def test_two_launchers_of_one_run_create_one_job(name: str, cases: int, worlds: Worlds, trial: Trial) -> None:
    with worlds.world(name) as world:
        world.write_script(steps=5)
        for _ in range(cases):
            run_id = world.open_run()
            both = [world.begin(run_id), world.begin(run_id)]
            if trial.draw.random() < 0.3 and not both[0].has_ended_within(trial.draw.uniform(0.0, 6.0)):
                both[0].send(signal.SIGKILL)
            for command in both:
                command.wait()
        world.recover()
        trial.check(world)


@pytest.mark.parametrize("pause_s", [0.0, 1.0, 2.0])
def test_the_same_command_typed_again_pays_no_second_job(pause_s: float, worlds: Worlds, trial: Trial) -> None:
    with worlds.world("sagemaker") as world:
        world.write_script(steps=30)
        first = world.begin()
        first.has_ended_within(pause_s)
        second = world.begin()

        assert [first.wait(240), second.wait()] == [0, 0], second.text
        assert len(world.created_names()) == 1
        world.recover()
        trial.check(world)
