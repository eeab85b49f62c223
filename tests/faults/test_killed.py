"""Launchers that are killed at random moments, and started again or followed by `sync`."""

import random
import signal

import pytest

from tests.faults.commands import Forked
from tests.faults.conftest import Trial
from tests.faults.worlds import World, Worlds

pytestmark = pytest.mark.slow

ENDS = ("kill", "kill", "kill", "term", "interrupt", "hang up", "parent")
SIGNALS = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "interrupt": signal.SIGINT,
    "hang up": signal.SIGHUP,
    "parent": signal.SIGKILL,  # sent to the parent only
}
LONGEST_S = {"simulated": 0.8, "local": 8.0, "sagemaker": 9.0, "project": 10.0}
"""Until about the end of a job."""
KILLS = {"simulated": 12, "local": 3, "sagemaker": 4, "project": 3}


@pytest.mark.parametrize("name", KILLS)
def test_a_launcher_that_is_ended_at_any_moment_leaves_one_job_one_bill_and_one_run(
    name: str, worlds: Worlds, trial: Trial
) -> None:
    kills = KILLS[name]
    with worlds.world(name) as world:
        done = 0
        while done < kills:
            done += _one_job(world, trial.draw, kills - done)
        world.recover()
        trial.check(world)


def _one_job(world: World, draw: random.Random, most: int) -> int:
    """Begin the command of one run until it ends by itself, or `most` have been killed; how many have been."""
    run_id = None if world.name == "project" or draw.random() < 0.3 else world.open_run()
    killed = 0
    for _ in range(min(most, draw.randint(1, 6))):
        how = draw.choice(ENDS)
        reference = {run.info.run_id for run in world.runs()}
        command = world.begin(run_id, under_parent=how == "parent")
        if not _end(command, how, _moment(world, draw)):
            return killed
        killed += 1
        if run_id is None:
            new = [run.info.run_id for run in world.runs() if run.info.run_id not in reference]
            if world.name != "project" or not new:
                return killed  # the same command would begin another run
            (run_id,) = new
    if draw.random() < 0.5:  # else `sync` has to do it
        world.begin(run_id).wait()
    return killed


def _moment(world: World, draw: random.Random) -> float:
    """Seconds after the start; early ones, when a run and a job come into being, are drawn more often."""
    longest_s = LONGEST_S[world.name]
    return draw.uniform(0.0, longest_s if draw.random() < 0.5 else longest_s / 3)


def _end(command: Forked, how: str, after_s: float) -> bool:
    """End a command; False when it has ended by itself before."""
    if command.has_ended_within(after_s):
        return False
    command.send(SIGNALS[how])
    command.wait()
    return True
