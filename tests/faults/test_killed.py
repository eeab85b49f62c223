"""Launchers that are killed at random moments, and started again or followed by `sync`; and started twice.

    PARETUNE_FAULTS_KILLS=100 python -m pytest -m slow -rP tests/faults/test_killed.py -k ended_at_any_moment

kills each launcher a hundred times and prints the counts; any job that is doubled, unbooked or stuck fails the test.
Change no file meanwhile: the launchers have imported the code, and their jobs take it from the files.
"""

import os
import signal

import pytest

from tests.support.faults.worlds import Trial, World

pytestmark = pytest.mark.slow

ENDS = (*[signal.SIGKILL] * 4, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LONGEST_S = {"simulated": 0.8, "local": 8.0, "sagemaker": 9.0, "project": 10.0}
"""Until about the end of a job."""
KILLS = {"simulated": 12, "local": 3, "sagemaker": 4, "project": 3}
if "PARETUNE_FAULTS_KILLS" in os.environ:
    KILLS = dict.fromkeys(KILLS, int(os.environ["PARETUNE_FAULTS_KILLS"]))


@pytest.mark.parametrize("name", KILLS)
def test_a_launcher_that_is_ended_at_any_moment_leaves_one_job_one_bill_and_one_run(name: str, trial: Trial) -> None:
    with trial.world(name) as world:
        rounds = done = 0
        while done < KILLS[name]:
            done += _one_job(world, trial, KILLS[name] - done)
            rounds += 1
    print(f"{name}: {rounds} rounds, {done} kills, {len(world.known)} jobs, 0 doubled, 0 unbooked, 0 stuck")


def _one_job(world: World, trial: Trial, most: int) -> int:
    """Begin the command of one run until it ends by itself, or `most` have been killed; how many have been."""
    draw = trial.draw
    run_id = None if draw.random() < 0.3 else world.open_run()
    killed = 0
    for _ in range(min(most, draw.randint(1, 6))):
        command = world.begin(run_id)
        # Early moments, when a run and a job come into being, are drawn more often.
        longest_s = LONGEST_S[world.name]
        if command.has_ended_within(draw.uniform(0.0, longest_s if draw.random() < 0.5 else longest_s / 3)):
            return killed
        command.send(draw.choice(ENDS))
        command.wait()
        killed += 1
        if run_id is None:
            return killed  # the same command would begin another run
    if draw.random() < 0.5:  # else `sync` has to do it
        world.begin(run_id).wait()
    return killed


@pytest.mark.parametrize(("name", "cases"), [("simulated", 4), ("local", 1)])
def test_two_launchers_of_one_run_create_one_job(name: str, cases: int, trial: Trial) -> None:
    with trial.world(name) as world:
        world.write_script(steps=5)
        for _ in range(cases):
            run_id = world.open_run()
            both = [world.begin(run_id), world.begin(run_id)]
            if trial.draw.random() < 0.3 and not both[0].has_ended_within(trial.draw.uniform(0.0, 6.0)):
                both[0].send(signal.SIGKILL)
            for command in both:
                command.wait()


@pytest.mark.parametrize("pause_s", [0.0, 1.0, 2.0])
def test_the_same_command_typed_again_pays_no_second_job(pause_s: float, trial: Trial) -> None:
    with trial.world("sagemaker") as world:
        world.write_script(steps=100)  # longer than the second command may need to begin
        first = world.begin()
        first.has_ended_within(pause_s)
        second = world.begin()

        assert [first.wait(240), second.wait()] == [0, 0], second.text
        assert len(world.aws.jobs()) == 1
