"""A driver of a simulated study, as the command makes one, in the current folder and in this process."""

import os
from collections.abc import Mapping
from pathlib import Path

from paretune.core.clock import Interruption
from paretune.jobs.workplace import Workplaces
from paretune.studies.definition.file import StudyFile
from paretune.studies.search.driver import Driver
from paretune.studies.search.table import StudyTable


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
        StudyTable(file, storage, origin=workplace.launcher.origin),
        run_id=workplace.tracking.create("study").run_id,
        workplace=workplace,
        on_trial=lambda trial: None,
        say=lambda text: None,
    )
