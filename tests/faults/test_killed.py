"""Launchers that are killed at random moments and started again or followed by `sync`, and launchers started twice.

The last line that pytest prints has the number of kills and faults.

    PARETUNE_FAULTS_KILLS=100 python -m pytest -m slow -rP tests/faults/test_killed.py -k ended_at_any_moment

kills each launcher a hundred times and prints the counts; any job that is doubled, unrecorded or stuck fails the test.
Do not change files meanwhile: the launchers have imported the code, but their jobs read it from the files.
"""

import json
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.bills import BEGIN, line, write
from tests.support.cloud import spelled
from tests.support.faults.proxy import Proxy
from tests.support.faults.worlds import Trial, World
from tests.support.processes import wait_until
from tests.support.tags import tags_of

pytestmark = pytest.mark.slow

ENDS = (*[signal.SIGKILL] * 4, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LONGEST_S = {"simulated": 0.8, "local": 8.0, "sagemaker": 9.0, "project": 10.0}
"""About how long a job takes."""
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
    print(f"{name}: {rounds} rounds, {done} kills, {len(world.known)} jobs, 0 doubled, 0 unrecorded, 0 stuck")


def _one_job(world: World, trial: Trial, most: int) -> int:
    """Start the command of one run, again after each of at most `most` kills, and return the number of kills."""
    draw = trial.draw
    run_id = None if draw.random() < 0.3 else world.open_run()
    killed = 0
    for _ in range(min(most, draw.randint(1, 6))):
        command = world.begin(run_id)
        # Early moments, when a run and its job are created, are drawn more often.
        longest_s = LONGEST_S[world.name]
        if command.has_ended_within(draw.uniform(0.0, longest_s if draw.random() < 0.5 else longest_s / 3)):
            return killed
        command.send(draw.choice(ENDS))
        command.wait()
        killed += 1
        if run_id is None:
            return killed  # the same command would begin another run
    if draw.random() < 0.5:  # otherwise `sync` has to do it
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

        assert [first.wait(), second.wait()] == [0, 0], second.text
        assert len(world.aws.jobs()) == 1


def test_of_two_launchers_one_that_is_killed_between_name_and_job_hides_nothing_of_the_other(trial: Trial) -> None:
    with trial.world("sagemaker") as world, Proxy(world.aws.url) as proxy:
        world.write_script(steps=600)
        call = trial.draw.choice(("PutObject", "CreateTrainingJob"))
        proxy.disturb("hang", lambda heard: heard == call)
        loser = world.begin_words(["paretune", "train", *spelled(world.job)], {"AWS_ENDPOINT_URL": proxy.url})
        wait_until(lambda: proxy.disturbed or loser.code is not None, within_s=600, what=f"it asks for {call}")
        os.kill(loser.process.pid, signal.SIGSTOP)  # so that it gives nothing up meanwhile
        winner = world.begin()
        wait_until(lambda: world.aws.jobs() or winner.code is not None, within_s=600, what="the job is created")
        loser.send(signal.SIGKILL)
        loser.wait()
        trial.count_fault(f"a loser killed before its {call}", took_effect=proxy.disturbed > 0)
        (name,) = world.aws.jobs()
        assert [tags_of(run)["paretune.job_name"] for run in world.runs()] == [name, name]
        theirs = world.aws.described(name)["Environment"]["PARETUNE_RUN"]

        logs = world.begin_words(["paretune", "logs", name])
        assert logs.wait() == 0, logs.text
        stop = world.begin_words(["paretune", "stop", name])
        assert stop.wait() == 0, stop.text
        winner.wait()
        bill = _bill_of(world, name)
        for _ in range(2):  # the loser's run is open at first, then `sync` closes it
            reconcile = world.begin_words(["paretune", "reconcile", "--bill", str(bill), "--json"])
            assert reconcile.wait() == 0, reconcile.text
            rows = json.loads(reconcile.text[reconcile.text.index("{") :])["rows"]
            assert [(row["run_id"], row["complete"]) for row in rows] == [(theirs, True)]
            assert abs(rows[0]["difference_usd"]) < 1e-4
            world.sync()


def _bill_of(world: World, name: str) -> Path:
    """Return the complete bill of one job."""
    (job,) = (job for job in world.created() if job.name == name)
    begins = datetime.fromtimestamp(world.aws.described(name)["CreationTime"], UTC)
    at = (begins - BEGIN) / timedelta(hours=1)
    return write([line(name, job.usd or 0.0, at), line("", 5.0, at + 24 * 3)], world.folder / "bill.csv")
