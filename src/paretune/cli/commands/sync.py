"""The command `sync`: collect what has ended, follow what still runs."""

import os

from paretune.cli.output.terminal import ProgressPrinter, collected_text
from paretune.core.clock import Clock, SystemClock
from paretune.core.interruption import Interruption
from paretune.jobs.choice import clock_for, launcher_for
from paretune.jobs.launch import home_folder
from paretune.jobs.sync import Sync
from paretune.launchers.base import Launcher
from paretune.spec.job import JobSpec
from paretune.tracking import Tracking


def run(_: None) -> int:
    """Bring MLflow up to date with every job that nobody watches."""
    clock, environment = SystemClock(), dict(os.environ)
    home = home_folder(environment)
    launchers: dict[tuple[object, ...], Launcher] = {}
    clocks: dict[bool, Clock] = {False: clock}

    def clock_of(spec: JobSpec) -> Clock:
        if spec.is_simulated not in clocks:
            clocks[spec.is_simulated] = clock_for(spec, home)
        return clocks[spec.is_simulated]

    def launcher_of(spec: JobSpec) -> Launcher:
        key = (spec.on_sagemaker, spec.is_simulated, spec.region, spec.bucket)
        if key not in launchers:
            launchers[key] = launcher_for(spec, home, clock_of(spec), environment)
        return launchers[key]

    tracking = Tracking(environment, clock)
    if tracking.opened_run_id() is not None:
        tracking.begin("sync")  # `mlflow run` shows a run for every command
    progress = ProgressPrinter()
    interruption = Interruption(watch_parent="MLFLOW_RUN_ID" in environment)
    with interruption.listening():
        try:
            collected = Sync(
                launcher_of=launcher_of,
                tracking=tracking,
                home=home,
                clock_of=clock_of,
                environment=environment,
                interruption=interruption,
                on_events=progress,
            ).run()
        finally:
            progress.close()
    print(collected_text(collected))
    return 0
