"""Several instance types in one job, and training plans: what is sent, verified, asked, refused and priced."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from paretune.core.errors import BadInput, BudgetRefused, LostContact
from paretune.launchers.base import JobState
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.request import lost_capacity
from paretune.launchers.sagemaker.training_jobs import TrainingJobs
from paretune.specification.container import FailureKind, JobDocument, JobInputs
from paretune.specification.job import JobSpec
from tests.unit.launchers.sagemaker.aws import ACCOUNT, BUCKET, EPOCH, ROLE, Aws, FakeClock

PLAN = f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-plan/mine"
P5 = "ml.p5.48xlarge"
ON_PLAN = {"instance_type": P5, "instance_count": 2, "training_plan": PLAN}
RANKED = {
    "instance_type": "ml.g5.xlarge",
    "instance_count": 4,
    "fallback_instance_types": "ml.g5.12xlarge,ml.g6.xlarge",
    "global_batch_size": 24,
}
NAME = "paretune-run1-1"


def spec(**changes: Any) -> JobSpec:
    return JobSpec(**{"role": ROLE, "bucket": BUCKET, "region": "us-east-1", **changes})


def submit(launcher: SageMakerLauncher, **changes: Any) -> dict[str, Any]:
    """The request for a job."""
    launcher.submit(JobDocument.first(NAME, spec(**changes)), JobInputs())
    return dict(launcher.last_request)


@pytest.fixture
def plan(aws: Aws) -> dict[str, Any]:
    """A plan of three days for four instances, half a day old, as AWS describes it; a test may change it."""
    begin, end = (datetime.fromtimestamp(EPOCH + hours * 3600, UTC) for hours in (-12, 60))
    capacity = {"InstanceType": P5, "TotalInstanceCount": 4, "Status": "Active", "DurationHours": 72}
    return aws.sagemaker.plans.setdefault(
        PLAN,
        {
            "TrainingPlanArn": PLAN,
            "TrainingPlanName": "mine",
            "Status": "Active",
            "UpfrontFee": "2880.0",
            "CurrencyCode": "USD",
            "StartTime": begin,
            "EndTime": end,
            "AvailableInstanceCount": 4,
            "TargetResources": ["training-job"],
            "ReservedCapacitySummaries": [capacity],
        },
    )


def test_one_request_names_all_types_with_their_counts_and_the_document_holds_a_plan_for_each(
    launcher: SageMakerLauncher, aws: Aws
) -> None:
    resources = submit(launcher, **RANKED)["ResourceConfig"]  # which the API model has been asked about

    assert resources["InstancePreferences"] == [
        {"InstanceType": "ml.g5.xlarge", "InstanceCount": 4},
        {"InstanceType": "ml.g5.12xlarge", "InstanceCount": 3},  # 16 devices cannot share 24 rows
        {"InstanceType": "ml.g6.xlarge", "InstanceCount": 4},
    ]
    assert not {"InstanceType", "InstanceCount"} & set(resources)
    document = json.loads(aws.s3.objects[f"paretune/jobs/{NAME}/job.json"])
    assert sorted(document["plans"]) == ["ml.g5.12xlarge", "ml.g6.xlarge"]
    read = JobDocument.from_json(document).on("ml.g5.12xlarge")
    assert (read.spec.instance_count, read.plan.devices, read.plan.global_batch_size) == (3, 12, 24)


def test_a_job_of_one_type_and_one_on_spot_name_one_type(launcher: SageMakerLauncher) -> None:
    on_spot = submit(launcher, **RANKED | {"global_batch_size": 48}, spot=True)

    assert on_spot["ResourceConfig"]["InstanceType"] == "ml.g5.xlarge"
    assert "InstancePreferences" not in on_spot["ResourceConfig"]


def test_the_network_is_set_up_for_what_all_types_have(launcher: SageMakerLauncher) -> None:
    p4d = {"instance_type": "ml.p4d.24xlarge", "fallback_instance_types": "ml.p4de.24xlarge"}
    assert submit(launcher, **p4d)["Environment"]["FI_PROVIDER"] == "efa"

    mixed = JobDocument.first("paretune-run2-1", spec(instance_type=P5, fallback_instance_types="ml.g6.48xlarge"))
    assert "FI_PROVIDER" not in launcher.preview(mixed, JobInputs())["Environment"]


def test_a_job_says_what_sagemaker_has_taken_once_it_has(launcher: SageMakerLauncher, aws: Aws) -> None:
    job = launcher.submit(JobDocument.first(NAME, spec(**RANKED)), JobInputs())
    assert job.capacity().instances is None

    used = {"SelectedInstanceType": "ml.g6.xlarge", "SelectedInstanceCount": 4}
    resources = aws.sagemaker.jobs[NAME]["ResourceConfig"] | used
    aws.sagemaker.end(NAME, "Failed", FailureReason="AlgorithmError: x", ResourceConfig=resources)
    aws.clock.sleep(120)

    assert job.state() is JobState.FAILED
    assert job.capacity().instances == ("ml.g6.xlarge", 4)


def test_the_quota_of_every_type_is_compared_with_its_own_count_before_anything_is_launched(
    launcher: SageMakerLauncher, aws: Aws
) -> None:
    use = "for training job usage"
    aws.quotas.values = {f"ml.g5.xlarge {use}": 4, f"ml.g5.12xlarge {use}": 2, f"ml.g6.xlarge {use}": 3}

    with pytest.raises(BadInput) as caught:
        launcher.check(spec(**RANKED))

    assert [fault.partition(": ask")[0] for fault in caught.value.faults] == [
        f"quota 'ml.g5.12xlarge {use}' in us-east-1 is 2 and the job needs 3",
        f"quota 'ml.g6.xlarge {use}' in us-east-1 is 3 and the job needs 4",
    ]
    assert aws.count("CreateTrainingJob") == 0


def test_the_dearest_type_and_count_are_what_a_job_is_admitted_on(launcher: SageMakerLauncher) -> None:
    job = spec(**RANKED, max_runtime_minutes=57.0)
    dearest = launcher.price(job.on_instance_type("ml.g5.12xlarge"))
    assert dearest is not None

    worst = launcher.worst_case_usd(job)

    assert worst == pytest.approx(3 * dearest.usd_per_hour * (57 * 60 + launcher.billed_after_limit_s(job)) / 3600)
    with pytest.raises(BudgetRefused, match="x 3 x"):
        launcher.worst_case_usd(job.replace(max_cost_usd=worst - 0.01))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"fallback_instance_types": ",".join(f"ml.g5.{size}xlarge" for size in (2, 4, 8, 16, 12))}, "at most 4 on"),
        ({"fallback_instance_types": "ml.m5.xlarge", "kms_key": "alias/x"}, "kms_key goes with"),
    ],
)
def test_what_no_single_request_can_say_is_refused_with_a_way_out(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(BadInput, match=part):
        spec(instance_type="ml.g5.xlarge", **changes)


def test_types_that_need_images_of_their_own_are_refused_on_demand_and_taken_in_turn_on_spot(
    launcher: SageMakerLauncher,
) -> None:
    changes = {"instance_type": "ml.g5.xlarge", "fallback_instance_types": "ml.m5.xlarge"}
    with pytest.raises(BadInput, match=r"ml\.g5\.xlarge and ml\.m5\.xlarge need images of their own: .*spot=true"):
        launcher.check_offline(spec(**changes))

    launcher.check_offline(spec(**changes, spot=True))


def test_a_training_plan_is_in_the_request_and_is_looked_for_in_what_aws_shows(
    launcher: SageMakerLauncher, aws: Aws, plan: dict[str, Any]
) -> None:
    assert submit(launcher, **ON_PLAN)["ResourceConfig"]["TrainingPlanArn"] == PLAN

    assert [call.operation for call in aws.of("CreateTrainingJob", "DescribeTrainingJob", "StopTrainingJob")] == [
        "CreateTrainingJob",
        "DescribeTrainingJob",
    ]


def drop_the_plan(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create jobs as a service does that knows no training plans."""
    create = aws.sagemaker.create_training_job

    def drop(ResourceConfig: dict[str, Any], **request: Any) -> Any:  # noqa: N803  # boto's name
        retained = {name: value for name, value in ResourceConfig.items() if name != "TrainingPlanArn"}
        return create(ResourceConfig=retained, **request)

    monkeypatch.setattr(aws.sagemaker, "create_training_job", drop)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_job_that_aws_shows_without_its_plan_is_stopped_at_once_and_has_failed_at_its_own_cost(
    launcher: SageMakerLauncher,
    aws: Aws,
    plan: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    is_killed: bool,
    clock: FakeClock,
) -> None:
    drop_the_plan(aws, monkeypatch)
    if is_killed:  # between the creation and the look at what was created
        with monkeypatch.context() as patch:
            patch.setattr(TrainingJobs, "_require_plan", killed)
            with pytest.raises(KeyboardInterrupt):
                submit(launcher, **ON_PLAN)
        assert aws.sagemaker.jobs[NAME]["TrainingJobStatus"] == "InProgress"
        job = launcher.attach(NAME)
    else:
        job = launcher.submit(JobDocument.first(NAME, spec(**ON_PLAN)), JobInputs())

    assert job is not None
    assert aws.sagemaker.jobs[NAME]["TrainingJobStatus"] == "Stopping"
    aws.sagemaker.end(NAME, "Stopped", BillableTimeInSeconds=40)
    clock.sleep(60)
    assert job.state() is JobState.STOPPED
    failure = job.failure()
    assert failure is not None
    assert failure[0] is FailureKind.OFF_PLAN
    assert f"does not show {NAME} with the training plan {PLAN}, so it would be billed on demand" in failure[1]
    assert job.capacity().has_lost_plan
    assert job.billable_seconds() == 40


def killed(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_job_on_its_plan_is_left_alone_by_whoever_finds_it(
    launcher: SageMakerLauncher, aws: Aws, plan: dict[str, Any]
) -> None:
    for job in (ON_PLAN, ON_PLAN | {"fallback_instance_types": "ml.p4d.24xlarge"}):
        aws.sagemaker.jobs.clear()
        submit(launcher, **job)
        result = launcher.attach(NAME)
        assert result is not None
        assert not result.capacity().has_lost_plan
    assert aws.count("StopTrainingJob") == 0


def test_a_job_without_its_plan_that_cannot_be_stopped_is_said_to_run_with_the_command_that_stops_it(
    launcher: SageMakerLauncher, aws: Aws, plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    drop_the_plan(aws, monkeypatch)
    aws.refuse("StopTrainingJob", "AccessDeniedException", "no", times=9)

    with pytest.raises(LostContact, match=f"aws sagemaker stop-training-job --training-job-name {NAME}"):
        submit(launcher, **ON_PLAN)


def test_a_request_that_the_sdk_has_built_without_the_plan_is_never_sent() -> None:
    job = JobDocument.first(NAME, spec(**ON_PLAN))

    assert lost_capacity(job, {"InstanceType": P5, "InstanceCount": 2}) == "TrainingPlanArn"
    assert lost_capacity(job, {"InstanceType": P5, "InstanceCount": 2, "TrainingPlanArn": PLAN}) == ""
    ranked = JobDocument.first(NAME, spec(**RANKED))
    assert lost_capacity(ranked, {"InstanceType": "ml.g5.xlarge"}) == "InstancePreferences"


def test_a_plan_is_of_the_type_that_was_asked_for_and_the_others_are_on_demand(
    launcher: SageMakerLauncher, plan: dict[str, Any]
) -> None:
    job = ON_PLAN | {"fallback_instance_types": "ml.p4d.24xlarge"}
    preferences = submit(launcher, **job)["ResourceConfig"]["InstancePreferences"]

    assert preferences == [
        {"InstanceType": P5, "InstanceCount": 2, "TrainingPlanArns": [PLAN]},
        {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2},
    ]
    prices = [launcher.price(cluster) for cluster in spec(**job).clusters()]
    assert [price is not None and price.usd_per_hour > 0 for price in prices] == [False, True]
    assert (launcher.worst_case_usd(spec(**job)) or 0) > 0


def test_a_job_on_a_plan_costs_nothing_more_and_its_share_of_the_fee_is_known(
    launcher: SageMakerLauncher, aws: Aws, plan: dict[str, Any]
) -> None:
    job = spec(**ON_PLAN, max_cost_usd=0.0)

    assert launcher.worst_case_usd(job) == 0.0
    assert launcher.plan_share_usd(job, 1800.0) == pytest.approx(10.0)  # 2 x 0.5 of 288 instance-hours for 2,880 USD
    assert launcher.plan_share_usd(spec(), 1800.0) is None
    launcher.plan_share_usd(job, 60.0)
    assert aws.count("DescribeTrainingPlan") == 1
    aws.quotas.values = {f"{P5} for training job usage": 0.0}  # what is on demand
    launcher.check(job)


def test_a_fee_that_cannot_be_asked_for_is_absent(launcher: SageMakerLauncher, aws: Aws) -> None:
    aws.refuse("DescribeTrainingPlan", "AccessDeniedException", "no", times=9)

    assert launcher.plan_share_usd(spec(**ON_PLAN), 1800.0) is None
    launcher.check(spec(**ON_PLAN))  # CreateTrainingJob will tell


@pytest.mark.parametrize(
    ("state", "changes", "part"),
    [
        ({"Status": "Expired"}, {}, "must be Active, and is Expired"),
        ({"Status": "Scheduled", "StartTime": datetime.fromtimestamp(EPOCH + 9e5, UTC)}, {}, "Scheduled and begins 20"),
        ({"TargetResources": ["hyperpod-cluster"]}, {}, "is of hyperpod-cluster"),
        ({}, {"instance_type": "ml.p4d.24xlarge"}, f"is of {P5}, got ml.p4d.24xlarge: set instance_type"),
        ({}, {"instance_count": 5}, "has 4 x ml.p5.48xlarge, and the job needs 5: lower instance_count"),
        (
            {"EndTime": datetime.fromtimestamp(EPOCH + 1800, UTC)},
            {},
            "in 30 minutes, and the job may take 63: set max_runtime_minutes to 27 at most",
        ),
        ({}, {"region": None, "training_plan": PLAN.replace("us-east-1", "us-west-2")}, "lies in us-west-2"),
        ({}, {"training_plan": PLAN.replace("mine", "yours")}, "does not exist: `aws sagemaker list-training-plans"),
        ({}, {"training_plan": "search"}, "training_plan=search is for estimates"),
    ],
)
def test_a_plan_that_cannot_run_the_job_is_refused_before_anything_is_launched(
    launcher: SageMakerLauncher,
    aws: Aws,
    plan: dict[str, Any],
    state: dict[str, Any],
    changes: dict[str, Any],
    part: str,
) -> None:
    plan |= state

    with pytest.raises(BadInput) as caught:
        launcher.check(spec(**ON_PLAN | changes))

    assert part in str(caught.value)
    assert aws.count("CreateTrainingJob") == 0


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"training_plan": "mine"}, r"must be the ARN of one, such as arn:aws:sagemaker:.*, got 'mine'"),
        ({"region": "eu-west-1"}, "training_plan lies in us-east-1, got region=eu-west-1: set region=us-east-1"),
        ({"spot": True}, "training_plan and spot exclude each other"),
        ({"keep_alive_minutes": 5.0}, "training_plan goes without keep_alive_minutes"),
        ({"instance_type": "local", "instance_count": 1}, "training_plan is for jobs on SageMaker, got instance_type"),
        ({"launcher": "simulated"}, "training_plan is for jobs on SageMaker, got launcher=simulated"),
    ],
)
def test_what_contradicts_a_training_plan_is_refused(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(BadInput, match=part):
        spec(**ON_PLAN | changes)
