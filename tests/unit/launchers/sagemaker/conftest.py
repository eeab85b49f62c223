"""An AWS account in memory, without this machine's own AWS configuration."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from paretune.core.tags import Attribution
from paretune.launchers.offers import limits_of, order_of
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.storage import Storage
from paretune.specification.container import JobInputs
from paretune.specification.order import Order, job_name
from tests.support.aws_account import aws, clock, nothing_of_this_machine
from tests.support.fake_clock import FakeClock
from tests.support.sagemaker_jobs import job_of, placed
from tests.support.stand_ins.aws import BUCKET, Aws

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
def order(launcher: SageMakerLauncher) -> Callable[..., Order]:
    """Return a function that makes the order of a job, as a launch does."""

    def make(
        run: str = "run1",
        attempt: int = 1,
        whose: Attribution | None = None,
        inputs: JobInputs | None = None,
        **changes: Any,
    ) -> Order:
        spec = job_of(**changes)
        first = order_of(
            spec,
            job_name=job_name(run, 1),
            run_id=run,
            limits=limits_of(spec, launcher, {}),
            place=placed(launcher, spec, inputs),
            inputs=inputs,
            owner=whose,
        )
        return first if attempt == 1 else first.next(attempt=attempt, spent_s=0.0)

    return make
