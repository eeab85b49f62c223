"""Versions and aliases in a real MLflow store: what a job registers, and what two of them leave behind."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.exceptions import MlflowException

from paretune.core.clock import SystemClock
from paretune.jobs.record import params_of
from paretune.models.register import figures_in, overdue, register
from paretune.specification.job import JobSpec
from paretune.tracking import Tracking
from paretune.tracking.registry import RegisteredVersion, Registry

NAME = "sentiment-en"
GOOD = {"f1": 0.9, "baseline_f1_tfidf": 0.75, "baseline_f1_majority": 0.33, "validation_rows": 1000.0, "cost_usd": 1.5}
FIRST = "there was no champion, and F1 0.9000 ± 0.0095 is above the 0.7500 of TF-IDF, the best baseline"


@pytest.fixture
def tracking(workplace: Path) -> Tracking:
    """The empty store of the workplace."""
    return Tracking({}, SystemClock())


def finished(
    tracking: Tracking, f1: float = 0.9, *, origin: str = "measured", model: bool = True, rows: str = "a1", **job: Any
) -> str:
    """Run id of a finished job with `register`, and with a model unless told otherwise."""
    spec = JobSpec(register=NAME, **job)
    tags = {"state": "Completed", "origin": origin, "validation_rows": rows, "dataset_key": "d1", "used_device": "cpu"}
    run = tracking.create("job", {f"paretune.{name}": text for name, text in tags.items()})
    run.log_params(params_of(spec))
    speed = {"total_parameters": 22e6, "evaluation_samples_per_second": 500.0}
    run.log_metrics(GOOD | speed | {"f1": f1})
    if model:
        client = MlflowClient()
        made = client.create_logged_model("0", name="model", source_run_id=run.run_id)
        client.finalize_logged_model(made.model_id, LoggedModelStatus.READY)
    return run.run_id


def aliases() -> dict[str, int]:
    """Alias to version of the registered model."""
    return {name: int(version) for name, version in MlflowClient().get_registered_model(NAME).aliases.items()}


def versions() -> list[int]:
    """All versions, oldest first."""
    return sorted(
        int(model_version.version) for model_version in MlflowClient().search_model_versions(f"name = '{NAME}'")
    )


def tags(version: int) -> dict[str, str]:
    """Tags of a version, without their prefix."""
    result = MlflowClient().get_model_version(NAME, str(version)).tags
    return {name.removeprefix("paretune."): text for name, text in result.items()}


def test_the_first_model_above_its_baselines_is_candidate_and_champion_and_its_version_tells_its_figures(
    tracking: Tracking,
) -> None:
    run_id = finished(tracking)

    message = register(NAME, run_id, tracking)

    assert message == f"registered as {NAME}/1, candidate and champion: {FIRST}"
    assert aliases() == {"candidate": 1, "champion": 1}
    version = MlflowClient().get_model_version_by_alias(NAME, "champion")
    assert version.run_id == run_id
    assert version.source.startswith("models:/m-")
    assert tags(1) == {
        "judged_by": "f1",
        "f1": "0.9",
        "noise": "0.00948683",
        "noise_basis": "binomial standard error of F1 on 1,000 validation rows",
        "baseline_f1_tfidf": "0.75",
        "baseline_f1_majority": "0.33",
        "cost_usd": "1.5",
        "dataset_key": "d1",
        "validation_rows": "a1",
        "parameters": "2.2e+07",
        "seconds_per_1000_rows": "2",
        "measured_on": "local, cpu",
        "champion": "true",
        "decision": FIRST,
    }
    assert MlflowClient().get_run(run_id).data.tags["paretune.registered"] == f"{NAME}/1"


def test_a_worse_model_stays_candidate_with_the_reason_on_its_version_and_a_better_one_becomes_champion(
    tracking: Tracking,
) -> None:
    register(NAME, finished(tracking), tracking)

    version = register(NAME, finished(tracking, 0.8, learning_rate=1e-3), tracking)
    assert version.startswith(f"registered as {NAME}/2, candidate; champion is {NAME}/1: F1 0.80")
    assert aliases() == {"candidate": 2, "champion": 1}
    assert tags(2)["champion"] == "false"
    assert "worse by 0.100" in tags(2)["decision"]

    register(NAME, finished(tracking, 0.98, rows="b2"), tracking)
    assert aliases() == {"candidate": 3, "champion": 1}  # judged on other rows


def test_a_model_that_is_better_beyond_noise_becomes_champion(tracking: Tracking) -> None:
    register(NAME, finished(tracking, 0.85), tracking)

    version = register(NAME, finished(tracking, 0.97), tracking)

    assert f"registered as {NAME}/2, candidate and champion" in version
    assert aliases() == {"candidate": 2, "champion": 2}


def test_registering_twice_makes_no_second_version_and_moves_nothing(tracking: Tracking) -> None:
    first = finished(tracking)
    register(NAME, first, tracking)
    register(NAME, finished(tracking, 0.99), tracking)

    version = register(NAME, first, tracking)

    assert version == f"registered before: {NAME}/1"
    assert versions() == [1, 2]
    assert aliases() == {"candidate": 2, "champion": 2}
    assert not overdue(tracking)


def test_a_command_that_was_killed_after_it_had_made_the_version_is_completed(
    tracking: Tracking, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = finished(tracking)
    with monkeypatch.context() as patch:
        patch.setattr(Registry, "point", lambda *_: (_ for _ in ()).throw(MlflowException("gone")))
        version = register(NAME, run_id, tracking)
    assert "is not registered as sentiment-en yet (gone): `paretune sync` does it" in version
    assert [run.run_id for run in overdue(tracking)] == [run_id]

    register(NAME, run_id, tracking)

    assert versions() == [1]
    assert aliases() == {"candidate": 1, "champion": 1}


def test_a_run_without_a_model_and_a_simulated_one_register_nothing_and_are_not_asked_again(tracking: Tracking) -> None:
    without, simulated = finished(tracking, model=False), finished(tracking, origin="simulated")

    assert "its run has no model in MLflow" in register(NAME, without, tracking)
    assert "a simulated job has no model" in register(NAME, simulated, tracking)

    assert not overdue(tracking)
    assert not versions()


def test_repeats_with_other_seeds_make_the_error_of_a_model(tracking: Tracking) -> None:
    for seed, f1 in enumerate((0.90, 0.92, 0.91, 0.93), start=2):
        finished(tracking, f1, seed=seed)
    finished(tracking, 0.5, seed=9, rows="b2")  # judged on other rows, so that it is no repeat

    register(NAME, finished(tracking, 0.9), tracking)

    assert tags(1)["noise_basis"] == "5 runs that differ in their seed"
    # By hand: squares around the mean 0.912 are 0.00068; ((2 x 0.004^2 + 0.00068) / 6)^0.5 = 0.010893; t(6) 2.4469.
    assert figures_in(MlflowClient().get_model_version(NAME, "1").tags).error == pytest.approx(
        0.010893 * 2.4469 / 1.96, rel=1e-3
    )


@pytest.fixture
def at_the_same_time(tracking: Tracking, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Registers the model of `slow`, and that of `quick` in the moment before the former would move the champion."""
    monkeypatch.setattr(Tracking, "registry", lambda self: Registry(MlflowClient(), nullcontext))

    def both(slow: str, quick: str) -> None:
        point = Registry.point

        def late(self: Registry, alias: str, version: RegisteredVersion) -> None:
            if alias == "champion" and version.run_id == slow:
                monkeypatch.setattr(Registry, "point", point)
                register(NAME, quick, tracking)
            point(self, alias, version)

        monkeypatch.setattr(Registry, "point", late)
        register(NAME, slow, tracking)

    return both


@pytest.mark.parametrize(("slow", "quick", "champion"), [(0.96, 0.99, 3), (0.99, 0.96, 2), (0.97, 0.97, 2)])
def test_of_two_that_register_at_the_same_time_on_a_server_the_better_one_is_champion(
    tracking: Tracking, at_the_same_time: Callable[[str, str], None], slow: float, quick: float, champion: int
) -> None:
    register(NAME, finished(tracking, 0.8), tracking)

    at_the_same_time(finished(tracking, slow, learning_rate=1e-3), finished(tracking, quick, learning_rate=1e-4))

    assert aliases()["champion"] == champion
    assert [tags(number)["champion"] for number in (2, 3)] == [str(champion == number).lower() for number in (2, 3)]
