"""An AWS account in memory, without this machine's own AWS configuration."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from paretune.core.tags import Attribution
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.storage import Storage
from paretune.specification.container import JobDocument
from paretune.specification.job import JobSpec
from tests.support.aws_account import aws, clock, nothing_of_this_machine
from tests.support.fake_clock import FakeClock
from tests.support.stand_ins.aws import BUCKET, ROLE, Aws

__all__ = ["aws", "clock", "nothing_of_this_machine"]


@pytest.fixture
def storage(aws: Aws) -> Storage:
    return Storage(boto3.Session().client("s3"), BUCKET)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a package of two files, as the code that travels."""
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
    """Return a function that makes the document of a job."""

    def make(run: str = "run1", attempt: int = 1, whose: Attribution | None = None, **changes: Any) -> JobDocument:
        spec = JobSpec(**{"instance_type": "ml.m5.large", "role": ROLE, "sagemaker.s3_bucket": BUCKET, **changes})
        name, whose = f"paretune-{run}-{attempt}", whose or Attribution()
        return JobDocument(job_name=name, spec=spec, plan=spec.plan(), attempt=attempt, attribution=whose, run_id=run)

    return make
