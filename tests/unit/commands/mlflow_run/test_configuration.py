"""What --backend-config may say."""

from pathlib import Path
from typing import Any

import pytest

from paretune.commands.mlflow_run.configuration import CLUSTER_KEYS, read_configuration
from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec

OF_MLFLOW: dict[str, Any] = {
    "ENV_MANAGER": None,
    "SYNCHRONOUS": False,
    "DOCKER_ARGS": {},
    "STORAGE_DIR": None,
    "build_image": False,
    "docker_auth": None,
}


def faults(**keys: Any) -> list[str]:
    with pytest.raises(BadInput) as caught:
        read_configuration(OF_MLFLOW | keys, {})
    return list(caught.value.faults)


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_json_values_become_a_cluster() -> None:
    configuration = read_configuration(
        OF_MLFLOW
        | {
            "instance_type": "ml.m5.xlarge",
            "instance_count": 2,
            "spot": True,
            "max_runtime_minutes": 30,
            "sagemaker.subnets": ["subnet-1", "subnet-2"],
            "sagemaker.security_group_ids": "sg-1",
            "tags": {"team": "search"},
            "sagemaker.kms_key_id": None,
            "wait": False,
        },
        {},
    )

    spec = configuration.spec
    assert (spec.instance_type, spec.instance_count, spec.spot, spec.max_runtime_minutes) == (
        "ml.m5.xlarge",
        2,
        True,
        30,
    )
    assert spec.sagemaker.subnets == ("subnet-1", "subnet-2")
    assert (spec.sagemaker.security_group_ids, spec.tags) == (("sg-1",), {"team": "search"})
    assert (configuration.wait, configuration.run_id, configuration.installs) == (
        False,
        None,
        True,
    )
    assert spec.on_sagemaker


def test_every_fault_is_told_at_once() -> None:
    text = "\n".join(
        faults(
            instance_typ="x",
            colour="red",
            instance_count="many",
            role=5,
            spot="perhaps",
            wait="yes",
            run_id=1,
            build_image=True,
        )
    )

    for part in (
        "has no key instance_typ: did you mean instance_type",
        "has no key colour: it may hold instance_type, ",
        "instance_type must be given",
        "instance_count must be a whole number at least 1 and at most 1024, got 'many'",
        "spot must be true or false, got 'perhaps'",
        "wait must be true or false, got 'yes'",
        "run_id must be a text, got 1",
        "--build-image means nothing on SageMaker",
    ):
        assert part in text


def test_a_type_that_does_not_exist_is_answered_with_its_neighbours() -> None:
    assert any("did you mean ml.m5.xlarge" in fault for fault in faults(instance_type="ml.m5.xlage"))
    assert any("such as ml." in fault for fault in faults(instance_type="local"))


def test_what_contradicts_itself_is_refused() -> None:
    assert faults(instance_type="ml.m5.xlarge", sagemaker={"subnets": "subnet-1"}) == [
        "sagemaker.subnets and sagemaker.security_group_ids go together: give both, or neither"
    ]


def test_the_profile_fills_what_is_left_open(nowhere: Path) -> None:
    (nowhere / "paretune.toml").write_text('region = "eu-west-1"\nspot = true\non_interrupt = "detach"\n')
    configuration = read_configuration({"instance_type": "ml.m5.xlarge", "sagemaker.volume_size_in_gb": 50}, {})

    assert (configuration.spec.region, configuration.spec.spot, configuration.spec.sagemaker.volume_size_in_gb) == (
        "eu-west-1",
        True,
        50,
    )
    assert configuration.spec.on_interrupt == "stop"  # says nothing of projects


def test_with_the_environment_manager_local_nothing_is_installed() -> None:
    assert not read_configuration(OF_MLFLOW | {"instance_type": "ml.m5.xlarge", "ENV_MANAGER": "local"}, {}).installs


def test_every_key_is_a_parameter_of_a_cluster() -> None:
    assert set(CLUSTER_KEYS) <= set(JobSpec().as_text())
