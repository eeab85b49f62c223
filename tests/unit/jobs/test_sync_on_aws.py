"""Jobs in an AWS account: each is paid once, and its next attempt belongs to those who launched it."""

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from paretune.core.errors import LostContact
from paretune.core.interruption import Interruption
from paretune.jobs.follow import Sync
from paretune.jobs.launch import begin_job
from paretune.jobs.workplace import Workplaces
from paretune.launchers.deadlines import LONGEST_BEFORE_CONTAINER_S, output_of
from paretune.specification.job import JobSpec
from paretune.tracking.store import Tracking
from tests.support.aws_account import aws, clock, nothing_of_this_machine
from tests.support.fake_clock import FakeClock
from tests.support.stand_ins.aws import BUCKET, Aws
from tests.support.tags import tags_of

__all__ = ["aws", "clock", "nothing_of_this_machine"]

OURS = """
SchemaVersion: '1.0'
SageMaker:
  TrainingJob:
    VpcConfig: {Subnets: [subnet-0a], SecurityGroupIds: [sg-0a]}
    OutputDataConfig: {KmsKeyId: ours}
    Tags: [{Key: cost-center, Value: '7'}]
"""  # configuration of the SageMaker SDK
OUT_OF_MEMORY = "AlgorithmError: out_of_memory: CUDA out of memory"


@pytest.fixture
def process(clock: FakeClock, workplace: Path) -> Callable[..., Workplaces]:
    """Return a function that opens the workplaces of a process with these environment variables."""

    def make(environment: Mapping[str, str]) -> Workplaces:
        return Workplaces(environment=environment, interruption=Interruption(), home=workplace, _clock=clock)

    return make


@pytest.fixture
def script(workplace: Path) -> str:
    """Return a user's own script, which needs no preparation."""
    path = workplace / "train.py"
    path.write_text("import transformers\ntransformers.HfArgumentParser([transformers.TrainingArguments])\n")
    return str(path)


@pytest.mark.parametrize("refusals", [2, 99])
def test_a_job_whose_creation_was_not_confirmed_and_that_aws_lists_and_does_not_describe_yet_is_paid_once(
    aws: Aws, process: Callable[..., Workplaces], script: str, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    meet = aws.meet

    def create_twice(operation: str) -> None:  # as boto does if the first answer is lost
        meet(operation)
        if operation == "CreateTrainingJob" and not aws.training.jobs:
            aws.training.create(aws.of(operation)[-1].parameters)
            aws.refuse("DescribeTrainingJob", "ValidationException", "Requested resource not found.", refusals)

    monkeypatch.setattr(aws, "meet", create_twice)
    spec = JobSpec(instance_type="ml.g5.xlarge", entry_script=script)
    workplace = process({"PARETUNE_ROLE": "Trainer", "PARETUNE_BUCKET": BUCKET}).of(spec)
    may_be_lost = nullcontext() if refusals == 2 else pytest.raises(LostContact, match="`paretune sync` finds it")

    with may_be_lost:
        begin_job(spec, workplace)

    (job,) = aws.training.jobs.values()
    (run,) = workplace.tracking.unfinished()
    assert job.request["Environment"]["PARETUNE_RUN"] == run.run_id
    assert job.name == run.tags["paretune.job_name"]


def test_the_next_attempt_of_a_job_has_the_role_bucket_and_key_of_those_who_launched_it(
    aws: Aws,
    clock: FakeClock,
    workplace: Path,
    process: Callable[..., Workplaces],
    script: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roles = {aws.add_role(f"Team{team}") for team in "AB"}
    for name in ("bucket-of-a", "bucket-of-b"):
        aws.add_bucket(name)
    teams: dict[str, tuple[dict[str, Any], dict[str, str]]] = {  # one has parameters, the other variables
        "a": ({"role": "TeamA", "sagemaker": {"s3_bucket": "bucket-of-a", "kms_key_id": "alias/a"}}, {}),
        "b": ({}, {"PARETUNE_ROLE": "TeamB", "PARETUNE_BUCKET": "bucket-of-b"}),
    }
    for given, environment in teams.values():
        spec = JobSpec(instance_type="ml.g5.xlarge", entry_script=script, **given)
        begin_job(spec, process(environment).of(spec)).record.leave()
    for name in list(aws.training.jobs):
        aws.end(name, "Failed", reason=OUT_OF_MEMORY, BillableTimeInSeconds=60)
    first = {call.parameters["TrainingJobName"]: call.parameters for call in aws.of("CreateTrainingJob")}
    recorded = [json.loads(tags_of(run)["paretune.settings"]) for run in MlflowClient().search_runs(["0"])]
    assert {(tuple(sorted(each)), each["sagemaker.s3_bucket"]) for each in recorded} == {  # what somebody reads
        (("sagemaker.s3_bucket", "tags"), bucket) for bucket in ("bucket-of-a", "bucket-of-b")
    }
    aws.calls.clear()
    aws.refuse("CreateTrainingJob", "ResourceLimitExceeded", times=2)  # sync leaves both for later
    monkeypatch.setenv("SAGEMAKER_USER_CONFIG_OVERRIDE", str(workplace / "config.yaml"))
    (workplace / "config.yaml").write_text(OURS)

    Sync(
        workplace_at=process({"PARETUNE_ROLE": "Ours", "PARETUNE_BUCKET": "models"}).at,
        tracking=Tracking({}, clock),
        interruption=Interruption(),
    ).run()

    second = {call.parameters["TrainingJobName"]: call.parameters for call in aws.of("CreateTrainingJob")}
    assert {name.rpartition("-")[0] for name in second} == {name.rpartition("-")[0] for name in first}
    for name, request in second.items():
        before = first[f"{name.rpartition('-')[0]}-1"]
        for part in ("RoleArn", "OutputDataConfig", "CheckpointConfig", "ResourceConfig", "VpcConfig", "Tags"):
            assert request.get(part) == before.get(part)
    assert {request["RoleArn"] for request in second.values()} == roles


INTERNAL = "InternalServerError: We encountered an internal error"


@pytest.mark.parametrize(
    ("edited", "is_refused"),
    [
        ({"settings": {"role": "arn:aws:iam::123456789012:role/Admin", "sagemaker.s3_bucket": "theirs"}}, False),
        ({"given": {"instance_type": "ml.p5.48xlarge", "max_runtime_minutes": 40320.0}}, False),
        ({"given": {"role": "Admin"}}, False),
        ({"given": {"fallback_instance_types": ["ml.p5.48xlarge"]}}, False),
        ({"settings": {"tags": {"cost-center": "9"}}}, False),
        ({"team": "theirs"}, False),
    ],
)
def test_the_next_attempt_of_a_job_is_what_aws_says_of_the_first_whatever_mlflow_says(
    aws: Aws,
    clock: FakeClock,
    process: Callable[..., Workplaces],
    script: str,
    edited: dict[str, Any],
    is_refused: bool,
) -> None:
    here = process({"PARETUNE_ROLE": "Trainer", "PARETUNE_BUCKET": BUCKET})
    spec = JobSpec(instance_type="ml.g5.xlarge", entry_script=script, max_runtime_minutes=30.0, tags={"team": "ours"})
    record = begin_job(spec, here.of(spec)).record
    record.leave()
    (name,) = aws.training.jobs
    aws.end(name, "Failed", reason=INTERNAL, BillableTimeInSeconds=60)
    first, tags = aws.of("CreateTrainingJob")[0].parameters, record.run.tags()
    if not is_refused:
        aws.refuse("CreateTrainingJob", "ResourceLimitExceeded")  # sync leaves it for later
    for tag, change in edited.items():
        text = change if isinstance(change, str) else json.dumps(json.loads(tags[f"paretune.{tag}"]) | change)
        record.run.set_tags({f"paretune.{tag}": text})
    aws.add_role("Admin", "/")

    collected = Sync(workplace_at=here.at, tracking=Tracking({}, clock), interruption=Interruption()).run()

    requests = [call.parameters for call in aws.of("CreateTrainingJob")[1:]]
    assert bool(requests) is not is_refused
    if is_refused:
        assert "are not those that its first attempt was launched with" in collected[0].remark
    for request in requests:
        same = {*first} - {"TrainingJobName", "InputDataConfig", "StoppingCondition"}
        assert {part: request.get(part) for part in same} == {part: first[part] for part in same}
        assert request["StoppingCondition"]["MaxRuntimeInSeconds"] <= 1800


@pytest.mark.parametrize("change", [lambda path: path.write_text("# edited"), Path.unlink])
def test_the_next_attempt_of_a_job_runs_the_script_and_reads_the_data_of_the_first_whatever_has_become_of_them(
    aws: Aws,
    clock: FakeClock,
    workplace: Path,
    process: Callable[..., Workplaces],
    script: str,
    change: Callable[[Path], object],
) -> None:
    data, here = workplace / "rows.csv", process({"PARETUNE_ROLE": "Trainer", "PARETUNE_BUCKET": BUCKET})
    data.write_text("text,label\nfine,1\n")
    types = {"instance_type": "ml.g5.xlarge", "fallback_instance_types": "ml.p3.2xlarge"}  # with different images
    spec = JobSpec(entry_script=script, dataset=str(data), **types)
    begin_job(spec, here.of(spec)).record.leave()
    (name,) = aws.training.jobs
    aws.end(name, "Failed", reason="CapacityError: Unable to provision requested ML compute capacity")
    uploads, launched = set(aws.objects), Path(script).read_text()
    for path in (Path(script), data):
        change(path)
    aws.refuse("CreateTrainingJob", "ResourceLimitExceeded")  # sync leaves it for later

    Sync(workplace_at=here.at, tracking=Tracking({}, clock), interruption=Interruption()).run()

    first, second = (
        {channel["ChannelName"]: channel["DataSource"] for channel in call.parameters["InputDataConfig"]}
        for call in aws.of("CreateTrainingJob")
    )
    assert second == first | {"job": second["job"]}
    key = f"paretune/jobs/{name.removesuffix('-1')}-2/job.json"
    assert set(aws.objects) - uploads == {key}
    assert any(package.startswith("transformers") for package in json.loads(aws.objects[key])["packages"])
    code = aws.objects[first["code"]["S3DataSource"]["S3Uri"].removeprefix(f"s3://{BUCKET}/")]
    with tarfile.open(fileobj=io.BytesIO(code)) as archive:
        packed = archive.extractfile("script/train.py")
        assert packed is not None
        assert packed.read().decode() == launched


def test_the_next_attempt_of_a_project_needs_no_project_on_this_machine(
    aws: Aws, clock: FakeClock, workplace: Path, process: Callable[..., Workplaces]
) -> None:
    project, here = workplace / "theirs", process({"PARETUNE_ROLE": "Trainer", "PARETUNE_BUCKET": BUCKET})
    project.mkdir()
    (project / "run.sh").write_text("echo f1: 0.5")
    spec = JobSpec(project=str(project), entry_point="run.sh", instance_type="ml.g5.xlarge")
    begin_job(spec, here.of(spec)).record.leave()
    (name,) = aws.training.jobs
    aws.end(name, "Failed", reason=INTERNAL, BillableTimeInSeconds=60)
    shutil.rmtree(project)
    aws.refuse("CreateTrainingJob", "ResourceLimitExceeded")  # sync leaves it for later

    Sync(workplace_at=here.at, tracking=Tracking({}, clock), interruption=Interruption()).run()

    first, second = (call.parameters for call in aws.of("CreateTrainingJob"))
    for part in ("AlgorithmSpecification", "ResourceConfig", "Environment", "CheckpointConfig"):
        assert second[part] == first[part]


@pytest.mark.parametrize(("billed_s", "goes_on"), [(60, True), (3390, True), (3405, False), (3599, False)])
def test_attempts_together_are_billed_for_no_more_than_the_worst_case_of_the_job(
    aws: Aws, clock: FakeClock, process: Callable[..., Workplaces], script: str, billed_s: float, goes_on: bool
) -> None:
    here = process({"PARETUNE_ROLE": "Trainer", "PARETUNE_BUCKET": BUCKET})
    spec = JobSpec(instance_type="ml.g5.xlarge", entry_script=script, max_runtime_minutes=60.0)
    begin_job(spec, here.of(spec)).record.leave()
    (name,) = aws.training.jobs
    aws.end(
        name, "Failed", reason="InternalServerError: We encountered an internal error", BillableTimeInSeconds=billed_s
    )
    aws.refuse("CreateTrainingJob", "ResourceLimitExceeded")  # sync leaves it for later

    Sync(workplace_at=here.at, tracking=Tracking({}, clock), interruption=Interruption()).run()

    assert (aws.count("CreateTrainingJob") == 2) is goes_on
    assert bool(Tracking({}, clock).unfinished()) is goes_on
    if goes_on:
        training_s = json.loads(aws.objects[f"paretune/jobs/{name.removesuffix('-1')}-2/job.json"])["deadline_s"]
        output = output_of(spec, {})
        second_s = LONGEST_BEFORE_CONTAINER_S + training_s + output.longest_upload_s
        assert training_s > 0
        assert billed_s + second_s <= 3600 + output.billed_after_limit_s
