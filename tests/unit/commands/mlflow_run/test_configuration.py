"""What --backend-config may say."""

from pathlib import Path
from typing import Any

import pytest

from paretune.commands.mlflow_run.project_job import Request, read_request
from paretune.core.errors import BadInput

OF_MLFLOW: dict[str, Any] = {
    "ENV_MANAGER": None,
    "SYNCHRONOUS": False,
    "DOCKER_ARGS": {},
    "STORAGE_DIR": None,
    "build_image": False,
    "docker_auth": None,
}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    return tmp_path / "mine"


def request(version: str | None = None, **keys: Any) -> Request:
    return read_request("mine", "train", {"word": "x"}, version, OF_MLFLOW | keys, {})


def test_the_keys_are_parameters_of_a_job(project: Path) -> None:
    cluster = {"instance_type": "ml.m5.xlarge", "instance_count": 2, "spot": True, "tags": {"team": "search"}}
    result = request(
        **cluster, **{"sagemaker.subnets": ["subnet-1"], "sagemaker.security_group_ids": "sg-1"}, wait=False
    )

    spec = result.spec
    assert (spec.project, spec.entry_point, spec.project_parameters) == (str(project), "train", {"word": "x"})
    assert (spec.instance_type, spec.instance_count, spec.spot, spec.tags) == tuple(cluster.values())
    assert (spec.sagemaker.subnets, spec.sagemaker.security_group_ids) == (("subnet-1",), ("sg-1",))
    assert (spec.on_sagemaker, result.waits, result.run_id) == (True, False, None)


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        request(
            "main", instance_typ="x", instance_count="many", learning_rate=1e-4, wait="yes", run_id=1, build_image=True
        )

    text = "\n".join(caught.value.faults)
    for part in (
        "instance_typ: did you mean instance_type",
        "instance_count must be a whole number at least 1 and at most 1024, got 'many'",
        "wait must be true or false, got 'yes'",
        "run_id must be a text, got 1",
        "--build-image means nothing on SageMaker",
        "--version means nothing on SageMaker: clone the project",
    ):
        assert part in text


def test_the_profile_fills_what_is_left_open() -> None:
    Path("ours.toml").write_text('region = "eu-west-1"\nspot = true\n')
    backend = OF_MLFLOW | {"instance_type": "ml.m5.xlarge"}

    spec = read_request("mine", "train", {"word": "x"}, None, backend, {"PARETUNE_PROFILE": "ours.toml"}).spec

    assert (spec.region, spec.spot) == ("eu-west-1", True)
