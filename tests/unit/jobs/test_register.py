"""Versions and their alias in a real MLflow store."""

from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.exceptions import MlflowException

from paretune.core.clock import SystemClock
from paretune.jobs.model import overdue, register
from paretune.jobs.record import params_of
from paretune.specification.job import JobSpec
from paretune.tracking import Tracking

NAME = "sentiment-en"


@pytest.fixture
def tracking(workplace: Path) -> Tracking:
    """The empty store of the workplace."""
    return Tracking({}, SystemClock())


def finished(tracking: Tracking, *, origin: str = "measured", model: bool = True, **job: Any) -> str:
    """Run id of a finished job with `register`, and with a model unless told otherwise."""
    tags = {"state": "Completed", "origin": origin, "dataset_key": "d1"}
    run = tracking.create("job", {f"paretune.{name}": text for name, text in tags.items()})
    run.log_params(params_of(JobSpec(register=NAME, **job)))
    run.log_metrics({"f1": 0.9, "cost_usd": 1.5, "validation_rows": 1000.0})
    if model:
        client = MlflowClient()
        made = client.create_logged_model("0", name="model", source_run_id=run.run_id)
        client.finalize_logged_model(made.model_id, LoggedModelStatus.READY)
    return run.run_id


def candidate() -> tuple[str, str]:
    """Version and run of the alias `candidate`."""
    version = MlflowClient().get_model_version_by_alias(NAME, "candidate")
    return str(version.version), version.run_id


def test_a_model_becomes_a_version_with_the_alias_candidate(tracking: Tracking) -> None:
    first, second = finished(tracking), finished(tracking)

    assert register(NAME, first, tracking) == f"registered as {NAME}/1, candidate"
    assert candidate() == ("1", first)
    assert register(NAME, second, tracking) == f"registered as {NAME}/2, candidate"
    assert candidate() == ("2", second)


def test_registering_twice_makes_no_second_version(tracking: Tracking) -> None:
    run_id = finished(tracking)
    register(NAME, run_id, tracking)

    assert register(NAME, run_id, tracking) == f"registered before: {NAME}/1"
    assert candidate() == ("1", run_id)
    assert not overdue(tracking)


def test_a_command_that_was_killed_after_it_had_made_the_version_is_completed(
    tracking: Tracking, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = finished(tracking)
    with monkeypatch.context() as patch:
        gone = MlflowException("gone")
        patch.setattr(MlflowClient, "set_registered_model_alias", lambda *_: (_ for _ in ()).throw(gone))
        message = register(NAME, run_id, tracking)
    assert "is not registered as sentiment-en yet (gone): `paretune sync` does it" in message
    assert [run.run_id for run in overdue(tracking)] == [run_id]

    assert register(NAME, run_id, tracking) == f"registered as {NAME}/1, candidate"


def test_a_run_without_a_model_and_a_simulated_one_register_nothing_and_are_not_asked_again(tracking: Tracking) -> None:
    without, simulated = finished(tracking, model=False), finished(tracking, origin="simulated")

    assert "its run has no model in MLflow" in register(NAME, without, tracking)
    assert "a simulated job has no model" in register(NAME, simulated, tracking)

    assert not overdue(tracking)
    assert not MlflowClient().search_model_versions(f"name = '{NAME}'")
