"""An emulated AWS account for whole jobs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cloud import Cloud, job_of_seconds
from tests.support.stand_ins.sagemaker.emulator import Emulator
from tests.support.stores import copy_store, user_s_own

os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # else each MLflow server starts six more processes


@pytest.fixture
def cloud(tmp_path: Path, workplace: Path) -> Iterator[Cloud]:
    """Return a user with an account."""
    with Emulator(tmp_path / "account") as emulator:
        yield Cloud(emulator, workplace)


@pytest.fixture(scope="module")
def shared_cloud(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Cloud]:
    """Return a user with an account that all tests of a file share."""
    folder = tmp_path_factory.mktemp("user")
    with Emulator(tmp_path_factory.mktemp("account")) as emulator:
        yield Cloud(emulator, folder, {"MLFLOW_TRACKING_URI": copy_store(empty_store, folder)} | user_s_own(folder))


@pytest.fixture
def tiny_job(tiny_model: Path, reviews: Path) -> dict[str, object]:
    """Return a training job that takes seconds on a CPU instance."""
    return job_of_seconds(tiny_model, reviews)


@pytest.fixture
def long_job(tiny_job: dict[str, object]) -> dict[str, object]:
    """Return a training job of thousands of steps, which tests interrupt."""
    arguments = {"eval_strategy": "no", "logging_steps": 5}
    return tiny_job | {"num_train_epochs": 400, "training_arguments": arguments}
