"""AWS that throttles, breaks connections, denies, loses answers, or does not yet know what it has created."""

import json
import signal

import pytest
from mlflow.entities import Run

from tests.support.faults.commands import Forked
from tests.support.faults.proxy import TROUBLES, Proxy
from tests.support.faults.worlds import Trial, World
from tests.support.processes import wait_until
from tests.support.tags import tags_of

pytestmark = pytest.mark.slow

PACE = 20.0  # a minute of boto's retries takes three seconds
CALLS = (
    *("CreateTrainingJob", "DescribeTrainingJob", "ListTrainingJobs", "StopTrainingJob"),
    *("FilterLogEvents", "PutObject", "GetObject", "ListObjectsV2", "HeadObject", "GetCallerIdentity", "HeadBucket"),
)
OTHER_CALLS = {"GetRole", "CreateBucket", "DeleteObjects", "GetBucketLocation"}
DENIED = {"HeadObject": "403", "HeadBucket": "403"} | dict.fromkeys(
    ("PutObject", "GetObject", "ListObjectsV2"), "AccessDenied"
)


def test_calls_that_fail_for_a_while_double_nothing_and_lose_nothing(trial: Trial) -> None:
    cases = trial.draw.sample([(how, call) for how in TROUBLES for call in CALLS], 2)
    with trial.world("sagemaker") as world, Proxy(world.aws.url) as proxy:
        world.write_script(steps=5)
        world.environment["AWS_ENDPOINT_URL"] = proxy.url
        for how, call in cases:
            proxy.disturb(how, lambda heard, call=call: heard == call, times=trial.draw.choice((1, 3, 30)))
            _run_and_sometimes_stop(world, trial, stops=call == "StopTrainingJob")
            proxy.calm()
            trial.count_fault(f"{how} of {call}", took_effect=proxy.disturbed > 0)
        assert set(proxy.heard) <= {*CALLS, *OTHER_CALLS}  # both lists are complete
        world.environment["AWS_ENDPOINT_URL"] = world.aws.url


def _run_and_sometimes_stop(world: World, trial: Trial, *, stops: bool) -> None:
    command = world.begin(world.open_run(), pace=PACE)
    if (stops or trial.draw.random() < 0.2) and not command.has_ended_within(trial.draw.uniform(2.0, 8.0)):
        command.send(signal.SIGTERM)
    command.wait()


def test_an_identity_that_may_not_make_one_call_leaves_nothing_unrecorded(trial: Trial) -> None:
    call = trial.draw.choice(CALLS)
    with trial.world("sagemaker") as world:
        world.write_script(steps=5)
        code = DENIED.get(call, "AccessDeniedException")
        world.aws.inject(call, code, f"User is not authorized to perform: {call}", times=1000, status=403)
        _run_and_sometimes_stop(world, trial, stops=call == "StopTrainingJob")
        world.aws.clear_injections()
        was_denied = any(request.status == 403 for request in world.aws.requests(call))
        trial.count_fault(f"{call} denied", took_effect=was_denied)


def test_a_job_that_aws_does_not_show_yet_is_neither_created_again_nor_given_up(trial: Trial) -> None:
    with trial.world("project", shown_after_s=10.0) as world:
        _until_created(world, command := world.begin())
        command.send(trial.draw.choice((signal.SIGKILL, signal.SIGHUP)))
        command.wait()
        world.begin(world.runs()[0].info.run_id).wait()
        trial.count_fault("a job that is shown late")


def test_a_job_that_aws_does_not_show_yet_is_stopped_all_the_same(trial: Trial) -> None:
    with trial.world("sagemaker", shown_after_s=6.0) as world:
        world.write_script(steps=600)
        _until_created(world, command := world.begin(world.open_run()))
        command.send(signal.SIGTERM)
        assert command.wait() == 130, command.text
        (job,) = world.created()
        assert job.state == "Stopped"
        trial.count_fault("a job that is shown late")


def _until_created(world: World, command: Forked) -> None:
    wait_until(lambda: world.aws.jobs() or command.code is not None, within_s=600, what="the job is created")


def test_a_job_whose_instance_dies_goes_on_as_a_second_one_and_both_are_recorded(trial: Trial) -> None:
    with trial.world("sagemaker") as world:
        world.attempts = 2
        world.write_script(steps=100)
        world.job |= {"instance_count": 2}
        _until_created(world, command := world.begin(world.open_run()))
        command.has_ended_within(trial.draw.uniform(0.0, 5.0))
        world.aws.kill_instance(world.aws.jobs()[-1], trial.draw.choice(("algo-1", "algo-2")))
        assert command.wait() == 0, command.text
        assert [job.state for job in world.created()] == ["Failed", "Completed"]
        trial.count_fault("an instance that dies")


def test_a_job_on_a_training_plan_goes_on_under_the_plan_which_alone_is_paid(trial: Trial) -> None:
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/november"
    with trial.world("sagemaker") as world:
        world.attempts = 2
        world.write_script(steps=50)
        world.job |= {"instance_count": 2, "sagemaker.training_plan": plan}
        _until_created(world, command := world.begin())
        command.send(signal.SIGKILL)
        command.wait()
        world.aws.kill_instance(world.aws.jobs()[0], "algo-1")

        text = world.sync()

        trial.count_fault("an instance of a training plan that dies")
        bodies = [request.body for request in world.aws.requests("CreateTrainingJob")]
        assert [body["ResourceConfig"]["TrainingPlanArn"] for body in bodies] == [plan, plan], text
        (run,) = world.runs()
        assert run.data.metrics["cost_usd"] == 0.0


@pytest.mark.parametrize("edited", ["role", "instance type", "limit"])
def test_a_tag_that_somebody_edits_changes_no_next_attempt(edited: str, trial: Trial) -> None:
    with trial.world("sagemaker") as world:
        world.attempts = 2
        world.write_script(steps=50)
        world.job |= {"instance_count": 2}
        _until_created(world, command := world.begin())
        command.send(signal.SIGKILL)
        command.wait()
        (run,), (name,) = world.runs(), world.aws.jobs()
        world.aws.kill_instance(name, "algo-1")
        _edit(world, run, edited)

        text = world.sync()

        trial.count_fault(f"an edited tag ({edited})")
        first, *others = (request.body for request in world.aws.requests("CreateTrainingJob"))
        assert len(others) == 1, text  # the next attempt is what AWS says of the first
        for key in ("RoleArn", "ResourceConfig", "OutputDataConfig"):
            assert [other[key] for other in others] == [first[key]] * len(others)
        for other in others:
            limits = (each["StoppingCondition"]["MaxRuntimeInSeconds"] for each in (other, first))
            assert next(limits) <= next(limits)


def _edit(world: World, run: Run, edited: str) -> None:
    """Edit a tag of a run, as anybody who may write to MLflow can."""
    name, values = {
        "role": ("settings", {"role": "arn:aws:iam::123456789012:role/Admin"}),
        "instance type": ("given", {"instance_type": "ml.p5.48xlarge"}),
        "limit": ("given", {"max_runtime_minutes": 40320.0}),
    }[edited]
    recorded = json.loads(tags_of(run).get(f"paretune.{name}", "{}"))
    world.client.set_tag(run.info.run_id, f"paretune.{name}", json.dumps(recorded | values))
