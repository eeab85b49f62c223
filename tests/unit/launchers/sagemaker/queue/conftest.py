"""A queue in the account in memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.specification.container import JobDocument
from paretune.specification.job import JobSpec
from paretune.specification.placement import Placement
from tests.unit.launchers.sagemaker.aws import BUCKET, ROLE, Aws, FakeClock
from tests.unit.launchers.sagemaker.queue.playing import Players

QUEUE = "team"


@pytest.fixture
def players(aws: Aws, clock: FakeClock) -> Players:
    aws.queues.add(QUEUE)
    return Players(aws, clock)


@pytest.fixture
def make(aws: Aws, clock: FakeClock, package: Path, players: Players) -> Callable[..., SageMakerLauncher]:
    """Makes launchers for the queue, as several processes would."""

    def make(queue: str = QUEUE) -> SageMakerLauncher:
        cluster = Placement(role=ROLE, bucket=BUCKET, instance_type="ml.m5.large", queue=queue)
        return SageMakerLauncher(cluster, clock, {}, package=package, calls_per_minute=600)

    return make


@pytest.fixture
def launcher(make: Callable[..., SageMakerLauncher]) -> SageMakerLauncher:
    return make()


@pytest.fixture
def order() -> Callable[..., JobDocument]:
    """Makes the document of a job of one of the contract's kinds."""

    def order(kind: str = "long", name: str = "paretune-run1-1", **changes: Any) -> JobDocument:
        base = {"instance_type": "ml.m5.large", "role": ROLE, "bucket": BUCKET, "queue": QUEUE}
        spec = JobSpec(model=kind, **{**base, **changes})
        return JobDocument(job_name=name, spec=spec, plan=spec.plan())

    return order
