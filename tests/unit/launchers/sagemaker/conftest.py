"""An AWS account in memory, and nothing of this machine's own AWS configuration."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from paretune.core.tags import Attribution
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.storage import Storage
from paretune.specification.container import JobDocument
from paretune.specification.job import JobSpec
from tests.fake_clock import FakeClock
from tests.stand_ins.aws import BUCKET, ROLE, Aws, account


@pytest.fixture(autouse=True)
def nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials, profiles and configuration files but those of the test; every connection is an error."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "SAGEMAKER_", "PARETUNE_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-configuration"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "no-configuration"))

    def refuse(*address: Any, **_: Any) -> None:
        raise AssertionError(f"a unit test asks the network: {address}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def aws(clock: FakeClock) -> Iterator[Aws]:
    """The account that every boto session leads to."""
    with account(clock) as made:
        yield made


@pytest.fixture
def storage(aws: Aws) -> Storage:
    return Storage(boto3.Session().client("s3"), BUCKET)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of two files, for the code that travels."""
    folder = tmp_path / "package" / "paretune"
    (folder / "training").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "training" / "__main__.py").write_text("print('trained')\n")
    return folder


@pytest.fixture
def launcher(aws: Aws, clock: FakeClock, package: Path) -> SageMakerLauncher:
    return SageMakerLauncher(None, clock, {}, package=package)


@pytest.fixture
def order() -> Callable[..., JobDocument]:
    """Makes the document of a job."""

    def make(run: str = "run1", attempt: int = 1, whose: Attribution | None = None, **changes: Any) -> JobDocument:
        spec = JobSpec(**{"instance_type": "ml.m5.large", "role": ROLE, "sagemaker.s3_bucket": BUCKET, **changes})
        name, whose = f"paretune-{run}-{attempt}", whose or Attribution()
        return JobDocument(job_name=name, spec=spec, plan=spec.plan(), attempt=attempt, attribution=whose, run_id=run)

    return make
