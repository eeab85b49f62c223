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
