"""A `Workplace` with parts that a test can watch, and the driver of a simulated study."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from paretune.core.clock import Clock, SystemClock
from paretune.core.interruption import Interruption
from paretune.jobs.card import params_of
from paretune.jobs.plan import draft
from paretune.jobs.workplace import Workplace, Workplaces
from paretune.launchers.base import Launcher
from paretune.launchers.local import LocalLauncher
from paretune.launchers.offers import offers_of, payload_of
from paretune.specification.container import Event, JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.plan import Plan
from paretune.studies.definition.file import StudyFile
from paretune.studies.search.driver import Driver
from paretune.studies.search.table import StudyTable
from paretune.tracking.store import Tracking


def make_workplace(
    *,
    launcher: Launcher | None = None,
    tracking: Tracking | None = None,
    home: Path = Path(),
    clock: Clock | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    interruption: Interruption | None = None,
    messages: list[str] | None = None,
) -> Workplace:
    """Return a workplace with these parts. By default, it has a local launcher, the machine's clock and MLflow's store.

    Messages to the user of the workplace are added to `messages`.
    """

    def keep(events: list[Event]) -> None:
        if messages is not None:
            messages.extend(event.message for event in events if event.message)

    clock = clock or SystemClock()
    return Workplace(
        launcher=launcher or LocalLauncher(home, clock, environment),
        home=home,
        clock=clock,
        environment=environment,
        interruption=interruption or Interruption(),
        store=tracking,
        on_events=keep,
    )


def planned(spec: JobSpec, workplace: Workplace, inputs: JobInputs | None = None) -> Plan:
    """Return the plan of a job with these inputs, by default none, and without an estimate."""
    place = workplace.launcher.place(spec)
    inputs = inputs or JobInputs()
    command = inputs.command
    plan = replace(
        draft(spec, workplace),
        offers=offers_of(spec, place, workplace.launcher.price, command=command),
        payload=payload_of(spec, command),
        place=place,
    )
    if command is None:
        return replace(plan, is_whole=True, inputs=inputs)
    return replace(
        plan,
        card=replace(plan.card, takes_seed=command.takes_seed, params=params_of(spec, command)),
        accumulates=command.accumulates,
        takes_batch=command.takes_batch,
        is_whole=True,
        inputs=inputs,
    )


def driver_of(folder: Path, path: str, overrides: Mapping[str, str]) -> Driver:
    """Return a driver like that of the command `study`, with its storage under `folder`. The driver prints nothing."""
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
