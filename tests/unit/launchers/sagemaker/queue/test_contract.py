"""The launcher of queues keeps the contract of all launchers, in an account in memory."""

import uuid
from collections.abc import Callable

import pytest

from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.specification.container import Event, JobDocument, JobInputs
from tests.launcher_contract import LauncherContract, Place
from tests.unit.launchers.sagemaker.queue.playing import Players


def _is_from_the_job(event: Event) -> bool:
    return not event.message[:1].isupper()


class TestAQueueKeepsTheContract(LauncherContract):
    @pytest.fixture
    def place(
        self, make: Callable[..., SageMakerLauncher], order: Callable[..., JobDocument], players: Players
    ) -> Place:
        def named(kind: str, **changes: object) -> tuple[JobDocument, JobInputs]:
            return order(kind, f"paretune-{uuid.uuid4().hex}-1", **changes), JobInputs()

        return Place(
            launcher=make(),
            another=make,
            order=named,
            let_time_pass=players.second,
            shortest_runtime_minutes=3 / 60,
            is_from_the_job=_is_from_the_job,
        )
