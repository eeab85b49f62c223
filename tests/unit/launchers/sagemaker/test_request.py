"""The CreateTrainingJob request, field by field, for each strategy and each setting of the cluster."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from paretune.core.errors import BadInput
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.request import TrainingJobRequest, build
from paretune.launchers.sagemaker.staging import Staging
from paretune.specification.container import JobDocument, JobInputs
from paretune.specification.job import JobSpec
from tests.stand_ins.sagemaker.operations import check_rules
from tests.stand_ins.sagemaker.validation import check
from tests.unit.launchers.sagemaker.aws import BUCKET, ROLE, Aws

Make = Callable[..., JobDocument]
Ask = Callable[..., dict[str, Any]]

GPU = "ml.p4d.24xlarge"
TENSOR = {"tensor_parallel_degree": 8, "hybrid_shard_degree": 2, "cpu_offload": True}
PIPELINE = {
    "pipeline_parallel_degree": 4,
    "micro_batches": 8,
    "training_arguments.gradient_checkpointing": True,
    "activation_offloading": True,
}
COMMAND = "exec bash start_job.sh python3 -m paretune.training /opt/ml"


@pytest.fixture
def ask(launcher: SageMakerLauncher, order: Make, aws: Aws) -> Ask:
    """The request that a launcher sends for a specification."""

    def make(**changes: Any) -> dict[str, Any]:
        document = order(**changes)
        launcher.submit(document, JobInputs())
        return aws.of("CreateTrainingJob")[-1].parameters

    return make


def drivers(request: Mapping[str, Any], aws: Aws) -> dict[str, Any]:
    """What the SDK's drivers are told: the JSON files of the channel sm_drivers."""
    prefix = channels(request)["sm_drivers"].removeprefix(f"s3://{BUCKET}/")
    names = ("sourcecode.json", "distributed.json")
    return {name: json.loads(aws.s3.objects[prefix + name]) for name in names}


def channels(request: Mapping[str, Any]) -> dict[str, str]:
    """Name to address."""
    return {
        channel["ChannelName"]: channel["DataSource"]["S3DataSource"]["S3Uri"] for channel in request["InputDataConfig"]
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"instance_type": "ml.g5.12xlarge", "instance_count": 2, "strategy": "fsdp"},
        {"instance_type": GPU, "instance_count": 2, "strategy": "fsdp", **TENSOR},
        {"instance_type": GPU, "instance_count": 2, "strategy": "fsdp", **PIPELINE},
        {"instance_type": GPU, "instance_count": 2, "strategy": "smddp"},
        {"instance_type": GPU, "strategy": "smp", "tensor_parallel_degree": 2},
        {"instance_type": GPU, "strategy": "deepspeed"},
        {"spot": True, "tags": {"team": "search"}, "sagemaker.volume_size_in_gb": 77},
        {
            "sagemaker.subnets": "subnet-1, subnet-2",
            "sagemaker.security_group_ids": "sg-1",
            "sagemaker.kms_key_id": "alias/mine",
        },
        {"keep_alive_minutes": 10.0},
    ],
    ids=["default", "fsdp", "tensor", "pipeline", "smddp", "smp", "deepspeed", "spot", "network", "warm pool"],
)
def test_every_request_keeps_the_rules_of_the_api(ask: Ask, changes: dict[str, Any]) -> None:
    request = ask(**changes)

    shape = botocore.session.get_session().get_service_model("sagemaker").operation_model("CreateTrainingJob")
    faults = ParamValidator().validate(request, shape.input_shape)
    assert not faults.has_errors(), faults.generate_report()
    check("CreateTrainingJob", request)  # lengths, patterns and choices too
    check_rules(request)
    assert len({*channels(request)}) == len(request["InputDataConfig"]) <= 20
    assert all(name.replace("_", "").isalnum() for name in channels(request))


def test_the_default_request_says_all_that_it_should_and_nothing_else(ask: Ask, aws: Aws) -> None:
    request = ask(num_train_epochs=2.0, max_runtime_minutes=30.5)

    assert set(request) == {
        "TrainingJobName",
        "AlgorithmSpecification",
        "RoleArn",
        "InputDataConfig",
        "OutputDataConfig",
        "ResourceConfig",
        "StoppingCondition",
        "CheckpointConfig",
        "Environment",
        "Tags",
        "EnableManagedSpotTraining",
    }
    assert request["TrainingJobName"] == "paretune-run1-1"
    assert request["RoleArn"] == ROLE
    assert request["EnableManagedSpotTraining"] is False
    assert request["ResourceConfig"] == {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30}
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 1830}
    assert request["OutputDataConfig"] == {"S3OutputPath": f"s3://{BUCKET}/paretune/jobs", "CompressionType": "GZIP"}
    assert request["CheckpointConfig"]["LocalPath"] == "/opt/ml/checkpoints"
    assert set(channels(request)) == {"job", "code", "sm_drivers"}
    assert channels(request)["job"] == f"s3://{BUCKET}/paretune/jobs/paretune-run1-1/job.json"
    content = json.loads(aws.s3.objects["paretune/jobs/paretune-run1-1/job.json"])
    assert content["spec"]["num_train_epochs"] == 2.0
    assert not {"MetricDefinitions"} & set(request["AlgorithmSpecification"])  # numbers come as events


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "deepspeed", "deepspeed_zero3"])
def test_ddp_fsdp_and_deepspeed_leave_spreading_to_the_training_and_differ_in_the_document_alone(
    ask: Ask, aws: Aws, strategy: str
) -> None:
    request = ask(instance_type="ml.g5.12xlarge", instance_count=2, strategy=strategy)

    assert drivers(request, aws)["sourcecode.json"]["command"] == COMMAND
    assert drivers(request, aws)["distributed.json"] == {}
    assert "HyperParameters" not in request
    assert "SM_FRAMEWORK_PARAMS" not in request["Environment"]
    assert json.loads(aws.s3.objects["paretune/jobs/paretune-run1-1/job.json"])["spec"]["strategy"] == strategy
    assert "huggingface-pytorch-training" in request["AlgorithmSpecification"]["TrainingImage"]


@pytest.mark.parametrize("degrees", [TENSOR, PIPELINE], ids=["tensor", "pipeline"])
def test_degrees_of_fsdp_travel_in_the_document_and_the_training_divides_the_devices(
    ask: Ask, aws: Aws, degrees: dict[str, Any]
) -> None:
    request = ask(instance_type=GPU, instance_count=2, strategy="fsdp", **degrees)

    spec = json.loads(aws.s3.objects["paretune/jobs/paretune-run1-1/job.json"])["spec"]
    assert spec.items() >= JobSpec(instance_type=GPU, instance_count=2, strategy="fsdp", **degrees).given().items()
    assert drivers(request, aws)["sourcecode.json"]["command"] == COMMAND
    assert "HyperParameters" not in request


def test_smddp_is_switched_on_as_transformers_looks_for_it(ask: Ask, aws: Aws) -> None:
    request = ask(instance_type=GPU, instance_count=2, strategy="smddp")

    assert json.loads(request["Environment"]["SM_FRAMEWORK_PARAMS"]) == {
        "sagemaker_distributed_dataparallel_enabled": True
    }
    assert "smdistributed-modelparallel" in request["AlgorithmSpecification"]["TrainingImage"]
    assert drivers(request, aws)["sourcecode.json"]["command"] == COMMAND


def test_smp_takes_every_degree_under_the_name_that_the_library_knows(ask: Ask, aws: Aws) -> None:
    request = ask(
        instance_type=GPU,
        instance_count=2,
        strategy="smp",
        tensor_parallel_degree=4,
        hybrid_shard_degree=2,
        activation_offloading=True,
        seed=7,
    )

    assert json.loads(request["HyperParameters"]["mp_parameters"]) == {
        "tensor_parallel_degree": 4,
        "hybrid_shard_degree": 2,
        "sm_activation_offloading": True,
        "random_seed": 7,
    }
    assert drivers(request, aws)["sourcecode.json"]["command"] == COMMAND
    assert "'" not in request["HyperParameters"]["mp_parameters"]


def test_smp_without_degrees_sends_only_what_was_set(ask: Ask) -> None:
    request = ask(instance_type=GPU, strategy="smp", hybrid_shard_degree=0)

    assert json.loads(request["HyperParameters"]["mp_parameters"]) == {"hybrid_shard_degree": 0, "random_seed": 42}


@pytest.mark.parametrize(
    ("changes", "wait"),
    [
        ({}, 3600 + 3600),
        ({"max_runtime_minutes": 40_320.0}, 28 * 24 * 3600),
    ],
)
def test_spot_waits_as_long_as_was_said_and_never_longer_than_aws_allows(
    ask: Ask, changes: dict[str, Any], wait: int
) -> None:
    request = ask(spot=True, **changes)

    assert request["EnableManagedSpotTraining"] is True
    assert request["StoppingCondition"]["MaxWaitTimeInSeconds"] == wait
    assert wait >= request["StoppingCondition"]["MaxRuntimeInSeconds"]


def test_a_warm_pool_network_key_volume_and_tags_stand_where_aws_wants_them(ask: Ask, aws: Aws) -> None:
    request = ask(
        keep_alive_minutes=7.5,
        sagemaker={
            "subnets": " subnet-1 ,subnet-2,",
            "security_group_ids": "sg-1",
            "kms_key_id": "alias/mine",
            "volume_size_in_gb": 123,
        },
        tags={"team": "search"},
    )

    assert request["ResourceConfig"] == {
        "InstanceType": "ml.m5.large",
        "InstanceCount": 1,
        "VolumeSizeInGB": 123,
        "KeepAlivePeriodInSeconds": 450,
        "VolumeKmsKeyId": "alias/mine",
    }
    assert request["VpcConfig"] == {"Subnets": ["subnet-1", "subnet-2"], "SecurityGroupIds": ["sg-1"]}
    assert request["OutputDataConfig"]["KmsKeyId"] == "alias/mine"
    tags = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
    assert tags.pop("paretune:spec")
    assert tags == {"team": "search", "paretune:run": "run1"}
    sent = aws.of("PutObject")
    assert sent
    assert {call.parameters["SSEKMSKeyId"] for call in sent} == {"alias/mine"}


def test_a_key_is_not_named_for_disks_that_the_instance_encrypts_itself(ask: Ask) -> None:
    for name in ("ml.g5.xlarge", "ml.g4dn.xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge"):
        request = ask(instance_type=name, sagemaker={"kms_key_id": "alias/mine", "volume_size_in_gb": 100})

        assert "VolumeKmsKeyId" not in request["ResourceConfig"], name
        assert request["OutputDataConfig"]["KmsKeyId"] == "alias/mine"
    for name in ("ml.m5.large", "ml.p3.2xlarge", "ml.r5.4xlarge"):
        request = ask(instance_type=name, sagemaker={"kms_key_id": "alias/mine", "volume_size_in_gb": 100})

        assert request["ResourceConfig"]["VolumeKmsKeyId"] == "alias/mine", name


def test_two_launches_of_the_same_code_send_it_once(ask: Ask, aws: Aws) -> None:
    first = channels(ask(run="run1"))
    before = aws.count("PutObject")
    second = channels(ask(run="run2", learning_rate=1e-3))

    assert {name: first[name] for name in ("code", "sm_drivers")} == {
        name: second[name] for name in ("code", "sm_drivers")
    }
    (job,) = (call.parameters["Key"] for call in aws.of("PutObject")[before:])
    assert job == "paretune/jobs/paretune-run2-1/job.json"


def test_the_code_says_nothing_of_this_machine(ask: Ask, aws: Aws, tmp_path: Path) -> None:
    request = ask()

    uploaded = b"".join(aws.s3.objects.values()) + json.dumps(request, default=str).encode()
    assert str(tmp_path).encode() not in uploaded
    assert str(Path.home()).encode() + b"/" not in uploaded
    assert drivers(request, aws)["sourcecode.json"]["source_dir"] == "code.tar.gz"


def test_building_asks_aws_nothing_and_prints_nothing(
    aws: Aws, account: Account, staging: Staging, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    staging.dry = True
    request = build(plain_order(), account, staging)

    assert request["TrainingJobName"] == "paretune-run1-1"
    assert aws.calls == []
    assert capsys.readouterr() == ("", "")
    assert caplog.records == []


def test_a_dry_request_is_the_request_that_is_sent(launcher: SageMakerLauncher, order: Make, aws: Aws) -> None:
    request = launcher.preview(order(), JobInputs())
    assert aws.s3.objects == {}

    launcher.submit(order(), JobInputs())

    assert request == aws.of("CreateTrainingJob")[-1].parameters


def test_a_value_of_the_environment_that_is_too_long_is_refused_by_name(account: Account, staging: Staging) -> None:
    order = plain_order(environment={"SHORT": "1", "FIRST": "x" * 513, "SECOND": "x" * 600})

    with pytest.raises(BadInput) as caught:
        build(order, account, staging)

    assert caught.value.faults == (
        "FIRST must be at most 512 characters for a job",
        "SECOND must be at most 512 characters for a job",
    )
    assert staging.uploaded == {}


def test_building_leaves_the_environment_as_it_was(
    account: Account, staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    staging.dry = True
    before = dict(os.environ)
    build(plain_order(), account, staging)
    assert dict(os.environ) == before

    monkeypatch.setenv("SAGEMAKER_VALIDATE_ROLE", "true")
    build(plain_order(), account, staging)
    assert os.environ["SAGEMAKER_VALIDATE_ROLE"] == "true"


def test_defaults_in_the_sdk_s_configuration_file_do_not_change_a_request(
    account: Account, staging: Staging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging.dry = True
    order = plain_order(environment={"OWN": "1"})
    plain = build(order, account, staging)
    configuration = tmp_path / "other.yaml"
    configuration.write_text(
        "SchemaVersion: '1.0'\nSageMaker:\n  TrainingJob:\n    RoleArn: arn:aws:iam::123456789012:role/Other\n"
        "    Environment: {EXTRA: '1'}\n  PythonSDK: {Modules: {Session: {DefaultS3Bucket: other}}}\n"
    )
    monkeypatch.setenv("SAGEMAKER_USER_CONFIG_OVERRIDE", str(configuration))

    assert build(order, account, staging) == plain


@pytest.mark.parametrize(
    ("instance_type", "expected"),
    [
        ("ml.p4d.24xlarge", {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "RDMAV_FORK_SAFE": "1"}),
        ("ml.p5en.48xlarge", {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "RDMAV_FORK_SAFE": "1"}),
        ("ml.g5.xlarge", {}),
        ("ml.m5.large", {}),
    ],
)
def test_only_instances_with_rdma_are_told_to_use_it(ask: Ask, instance_type: str, expected: dict[str, str]) -> None:
    environment = ask(instance_type=instance_type)["Environment"]

    assert {name: text for name, text in environment.items() if name.startswith(("FI_", "RDMAV"))} == expected


def plain_order(**changes: Any) -> TrainingJobRequest:
    usual: dict[str, Any] = {
        "document": JobDocument.first("paretune-run1-1", JobSpec(instance_type="ml.m5.large")),
        "image_uri": "image",
        "code": {"paretune/__init__.py": ""},
        "command": "python3 -m paretune.training /opt/ml",
        "channels": {"job": f"s3://{BUCKET}/job.json"},
        "environment": {},
        "checkpoints": f"s3://{BUCKET}/checkpoints/",
        "volume_gib": 30,
        "tags": {},
    }
    return TrainingJobRequest(**(usual | changes))


@pytest.mark.parametrize(
    ("index", "variable"),
    [
        ("https://packages.example.com/simple", "PIP_INDEX_URL"),
        ("arn:aws:codeartifact:us-east-1:123456789012:repository/mine/pypi", "CA_REPOSITORY_ARN"),
    ],
)
def test_an_index_of_packages_is_named_to_pip_or_to_the_driver_of_the_sdk(ask: Ask, index: str, variable: str) -> None:
    assert ask(sagemaker={"package_index": index})["Environment"][variable] == index


def test_the_driver_of_the_sdk_reads_the_variable_that_names_a_repository() -> None:
    from sagemaker.core.utils import install_requirements

    assert install_requirements.CA_REPOSITORY_ARN_ENV == "CA_REPOSITORY_ARN"
