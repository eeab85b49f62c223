"""The command `main`: one job."""

import os

from paretune.cli.output.terminal import ProgressPrinter, preview, summary
from paretune.core.interruption import Interruption
from paretune.estimating.forecast import Forecast
from paretune.jobs.choice import clock_for, launcher_for
from paretune.jobs.launch import admit_everywhere, home_folder, inputs_of, launch
from paretune.spec.job import JobSpec
from paretune.tracking import Tracking


def run(spec: JobSpec) -> int:
    """Train, measure, price and record one job; with dry_run only say what it would be."""
    environment = dict(os.environ)
    home = home_folder(environment)
    clock = clock_for(spec, home)
    interruption = Interruption(watch_parent="MLFLOW_RUN_ID" in environment)
    with interruption.listening():
        if spec.dry_run:
            launcher = launcher_for(spec, home, clock, environment)
            worst = admit_everywhere(spec, launcher)
            inputs = inputs_of(
                spec,
                launcher,
                home=home,
                clock=clock,
                environment=environment,
                interruption=interruption,
                meanwhile=lambda: launcher.check(spec),
            )
            print(preview(spec, worst, inputs, launcher))
            return 0
        progress = ProgressPrinter()
        try:
            tracking = Tracking(environment, clock)
            outcome = launch(
                spec,
                launcher=launcher_for(spec, home, clock, environment),
                tracking=tracking,
                forecast=Forecast(tracking, simulated=spec.is_simulated),
                home=home,
                clock=clock,
                environment=environment,
                interruption=interruption,
                on_events=progress,
            )
        finally:
            progress.close()
    print(summary(outcome))
    return 0
