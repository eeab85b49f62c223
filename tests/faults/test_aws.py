"""AWS that throttles, breaks connections, denies, loses answers, or does not know yet what it has created."""

import random
import signal
import time

import pytest

from tests.faults.commands import Forked
from tests.faults.conftest import Trial
from tests.faults.proxy import standing_before
from tests.faults.worlds import World, Worlds

pytestmark = pytest.mark.slow

PACE = 20.0  # boto's minute of trying again takes three seconds
CALLS = (
    *("CreateTrainingJob", "DescribeTrainingJob", "ListTrainingJobs", "StopTrainingJob"),
    *("FilterLogEvents", "PutObject", "GetObject", "ListObjectsV2", "HeadObject", "GetCallerIdentity", "HeadBucket"),
)
DENIED = {"HeadObject": "403", "HeadBucket": "403"}
TROUBLES = ("reset", "lost", "hang", "429", "500", "503", "garbage", "slow")


def _assert_no_call_is_forgotten(heard: set[str]) -> None:
    reference = {*CALLS, "ListServiceQuotas", "GetRole"}
    assert heard <= reference | {"CreateBucket", "DeleteObjects", "GetBucketLocation"}, heard - reference


def test_calls_that_fail_for_a_while_double_nothing_and_lose_nothing(worlds: Worlds, trial: Trial) -> None:
    cases = trial.draw.sample([(how, call) for how in TROUBLES for call in CALLS], 2)
    with worlds.world("sagemaker") as world:
        assert world.emulator is not None
        world.write_script(steps=5)
        with standing_before(world.emulator.url) as proxy:
            world.environment["AWS_ENDPOINT_URL"] = proxy.url
            for how, call in cases:
                proxy.disturb(how, lambda heard, call=call: heard == call, times=trial.draw.choice((1, 3, 30)))
                _run_and_sometimes_stop(world, trial.draw, stops=call == "StopTrainingJob")
                proxy.calm()
            _assert_no_call_is_forgotten(set(proxy.heard))
            world.recover()
        trial.check(world)


def _run_and_sometimes_stop(world: World, draw: random.Random, *, stops: bool) -> None:
    command = world.begin(world.open_run(), pace=PACE)
    if (stops or draw.random() < 0.2) and not command.has_ended_within(draw.uniform(2.0, 8.0)):
        command.send(signal.SIGTERM)
    command.wait()


def test_an_identity_that_may_not_make_one_call_leaves_nothing_unbooked(worlds: Worlds, trial: Trial) -> None:
    call = trial.draw.choice(CALLS)
    with worlds.world("sagemaker") as world:
        assert world.emulator is not None
        world.write_script(steps=5)
        code = DENIED.get(call, "AccessDenied" if call in ("PutObject", "GetObject", "ListObjectsV2") else "")
        message = f"User is not authorized to perform: {call}"
        world.emulator.inject(call, code or "AccessDeniedException", message, times=1000, status=403)
        _run_and_sometimes_stop(world, trial.draw, stops=call == "StopTrainingJob")
        world.emulator.clear_injections()
        world.recover()
        trial.check(world)


def test_a_job_that_aws_does_not_show_yet_is_neither_created_again_nor_given_up(worlds: Worlds, trial: Trial) -> None:
    with worlds.world("project", shown_after_s=10.0) as world:
        _until_created(world, command := world.begin())
        command.send(trial.draw.choice((signal.SIGKILL, signal.SIGHUP)))
        command.wait()
        world.begin(world.runs()[0].info.run_id).wait()
        world.recover()
        trial.check(world)


def test_a_job_that_aws_does_not_show_yet_is_stopped_all_the_same(worlds: Worlds, trial: Trial) -> None:
    with worlds.world("sagemaker", shown_after_s=6.0) as world:
        world.write_script(steps=600)
        _until_created(world, command := world.begin(world.open_run()))
        command.send(signal.SIGTERM)
        assert command.wait() == 130, command.text
        (job,) = world.created()
        assert job.state == "Stopped"
        trial.check(world)


def _until_created(world: World, command: Forked) -> None:
    before = len(world.created_names())
    while len(world.created_names()) == before and command.code is None:
        time.sleep(0.01)


def test_events_out_of_order_and_events_told_twice_are_all_recorded_once(worlds: Worlds, trial: Trial) -> None:
    with worlds.world("sagemaker") as world:
        assert world.emulator is not None
        world.write_script(steps=40)
        with standing_before(world.emulator.url) as proxy:
            proxy.draw = trial.draw
            world.environment["AWS_ENDPOINT_URL"] = proxy.url
            for how in ("shuffled", "twice"):
                proxy.disturb(how, lambda heard: heard == "FilterLogEvents")
                assert world.begin(world.open_run()).wait() == 0
                proxy.calm()
            assert proxy.disturbed
        world.recover()
        trial.check(world)
