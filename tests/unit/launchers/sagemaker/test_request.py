"""The requests of typical jobs: as the golden files in `requests` have them, and as the API model of AWS takes them.

`REWRITE_REQUESTS=1 python -m pytest tests/unit/launchers/sagemaker/test_request.py` writes the files anew.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.specification.container import JobDocument, JobInputs, ProjectPayload
from tests.stand_ins.aws import BUCKET, Aws
from tests.stand_ins.sagemaker.jobs import check

Make = Callable[..., JobDocument]
Ask = Callable[..., dict[str, Any]]

GPU = "ml.p4d.24xlarge"
CASES: dict[str, dict[str, Any]] = {
    "cpu": {"num_train_epochs": 2.0, "max_runtime_minutes": 30.5},
    "spot_cluster": {
        "instance_type": "ml.g5.12xlarge",
        "instance_count": 2,
        "strategy": "fsdp",
        "spot": True,
        "tags": {"team": "search"},
        "sagemaker.subnets": "subnet-1, subnet-2",
        "sagemaker.security_group_ids": "sg-1",
        "sagemaker.kms_key_id": "alias/mine",
    },
    "project": {"instance_type": "ml.g4dn.xlarge", "project": "."},
}


@pytest.fixture
def ask(launcher: SageMakerLauncher, order: Make, aws: Aws) -> Ask:
    """The request that a launcher sends for a specification."""

    def make(**changes: Any) -> dict[str, Any]:
        payload = ProjectPayload(code={}, program="run.py", document={})
        project = payload if "project" in changes else None
        launcher.submit(order(**changes), JobInputs(project=project))
        return aws.of("CreateTrainingJob")[-1].parameters

    return make


@pytest.mark.parametrize("name", CASES)
def test_a_request_is_that_of_its_golden_file_and_keeps_the_rules_of_the_api(ask: Ask, name: str) -> None:
    request = ask(**CASES[name])

    shape = botocore.session.get_session().get_service_model("sagemaker").operation_model("CreateTrainingJob")
    faults = ParamValidator().validate(request, shape.input_shape)
    assert not faults.has_errors(), faults.generate_report()
    check("CreateTrainingJob", request)  # lengths, patterns and choices too
    text = re.sub("/code/[0-9a-f]{32}/", "/code/HASH/", json.dumps(request, indent=1)) + "\n"
    path = Path(__file__).parent / "requests" / f"{name}.json"
    if os.environ.get("REWRITE_REQUESTS"):
        path.write_text(text)
    assert text == path.read_text()


def test_spot_waits_no_longer_than_aws_allows(ask: Ask) -> None:
    request = ask(spot=True, max_runtime_minutes=40_320.0)

    assert request["StoppingCondition"]["MaxWaitTimeInSeconds"] == 28 * 24 * 3600


@pytest.mark.parametrize(("instance_type", "has_disks"), [("ml.g5.xlarge", True), ("ml.p3.2xlarge", False)])
def test_a_key_is_not_named_for_disks_that_the_instance_encrypts_itself(
    ask: Ask, aws: Aws, instance_type: str, has_disks: bool
) -> None:
    key = {"sagemaker.kms_key_id": "alias/mine", "sagemaker.volume_size_in_gb": 100}
    request = ask(instance_type=instance_type, **key)

    assert ("VolumeKmsKeyId" not in request["ResourceConfig"]) is has_disks
    assert request["OutputDataConfig"]["KmsKeyId"] == "alias/mine"
    assert {call.parameters["SSEKMSKeyId"] for call in aws.of("PutObject")} == {"alias/mine"}


def test_what_is_sent_says_nothing_of_this_machine_and_nothing_is_printed(
    ask: Ask, aws: Aws, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    request = ask()

    uploaded = b"".join(aws.s3.objects.values()) + json.dumps(request).encode()
    assert str(tmp_path).encode() not in uploaded
    assert str(Path.home()).encode() + b"/" not in uploaded
    assert capsys.readouterr() == ("", "")
    assert caplog.records == []


@pytest.mark.parametrize(("instance_type", "uses"), [(GPU, True), ("ml.p5en.48xlarge", True), ("ml.g5.xlarge", False)])
def test_only_instances_with_rdma_are_told_to_use_it(ask: Ask, instance_type: str, uses: bool) -> None:
    environment = ask(instance_type=instance_type)["Environment"]

    assert (environment.get("FI_EFA_USE_DEVICE_RDMA") == "1") is uses
    assert BUCKET not in environment.values()


def test_libraries_of_aws_are_switched_on_in_the_request(ask: Ask) -> None:
    smp = ask(instance_type=GPU, strategy="smp", tensor_parallel_degree=4, activation_offloading=True)
    smddp = ask(run="run2", instance_type=GPU, instance_count=2, strategy="smddp")

    degrees = {"tensor_parallel_degree": 4, "sm_activation_offloading": True}
    assert json.loads(smp["HyperParameters"]["mp_parameters"]).items() >= degrees.items()
    enabled = {"sagemaker_distributed_dataparallel_enabled": True}
    assert json.loads(smddp["Environment"]["SM_FRAMEWORK_PARAMS"]) == enabled
