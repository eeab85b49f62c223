"""A driver of a simulated study, as the command makes one, in the current folder and in this process."""

import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from paretune.core.interruption import Interruption
from paretune.jobs.workplace import Workplaces
from paretune.ledger.study_ledger import StudyLedger
from paretune.studies.definition.file import StudyFile
from paretune.studies.search.driver import Driver
from paretune.studies.search.optuna_study import OptunaStudy


def driver_of(folder: Path, path: str, overrides: Mapping[str, str]) -> Driver:
    """A driver with its storage and its MLflow store in `folder`; what it says is not printed."""
    file = StudyFile.read(path, overrides)
    home = folder / ".paretune"
    home.mkdir(exist_ok=True)
    spec = file.spec_at({name: entry.corners[0] for name, entry in file.search.items()})
    workplaces = Workplaces(environment=dict(os.environ), interruption=Interruption(), home=home)
    workplace = workplaces.of(spec)
    storage = f"sqlite:///{home / 'studies.db'}"
    return Driver(
        file,
        OptunaStudy(file, storage),
        StudyLedger(storage, file.name),
        run_id=workplace.tracking.create("study").run_id,
        workplace=workplace,
        on_trial=lambda trial: None,
        say=lambda text: None,
    )


class Killed(BaseException):
    """What a driver is killed with, that nothing catches."""


def kill(
    driver: Driver,
    search: Callable[[Driver], str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    at: str = "wait",
    after: int = 0,
    trials: int = 0,
) -> None:
    """Run a driver that is killed where it calls `at`, without a chance to stop or book anything.

    It is killed after so many of these calls, and not before so many trials run.
    """
    call, calls = getattr(driver, at), itertools.count()

    def counted() -> None:
        if next(calls) >= after and len(driver.running) >= trials:
            raise Killed
        call()

    monkeypatch.setattr(driver, at, counted)
    with pytest.raises(Killed):
        search(driver)
    driver.ledger.close()
    driver.study.close()
