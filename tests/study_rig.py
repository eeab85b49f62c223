"""A driver of a simulated study, as the command makes one, in the current folder and in this process."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from paretune.core.interruption import Interruption
from paretune.estimating.forecast import Forecast
from paretune.jobs.choice import clock_for, launcher_for
from paretune.studies.definition.file import StudyFile
from paretune.studies.search.driver import Driver
from paretune.studies.search.ledger import Ledger
from paretune.studies.search.optuna_study import OptunaStudy
from paretune.studies.search.trial_job import Place
from paretune.tracking import Tracking


def driver_of(folder: Path, path: str, overrides: Mapping[str, str]) -> Driver:
    """A driver with its storage and its MLflow store in `folder`; what it says is not printed."""
    file = StudyFile.read(path, overrides)
    home = folder / ".paretune"
    home.mkdir(exist_ok=True)
    spec = file.spec_at({name: entry.corners[0] for name, entry in file.search.items()})
    clock, environment = clock_for(spec, home), dict(os.environ)
    tracking = Tracking(environment, clock)
    storage = f"sqlite:///{home / 'studies.db'}"
    place = Place(
        launcher=launcher_for(spec, home, clock, environment),
        tracking=tracking,
        forecast=Forecast(tracking, simulated=True),
        home=home,
        clock=clock,
        environment=environment,
        interruption=Interruption(),
    )
    return Driver(
        file,
        OptunaStudy(file, storage),
        Ledger(storage, file.name),
        run_id=tracking.create("study").run_id,
        place=place,
        now=time.time,
        on_trial=lambda trial: None,
        say=lambda text: None,
    )
