"""The command `main`: one job."""

import os

from paretune.clock import SystemClock
from paretune.interruption import Interruption
from paretune.launch import admit_everywhere, home_folder, launch
from paretune.launchers.choice import launcher_for
from paretune.preparation import prepare
from paretune.spec import JobSpec
from paretune.terminal import ProgressPrinter, preview, summary
from paretune.tracking import Tracking


def run(spec: JobSpec) -> int:
    """Train, measure, price and record one job; with dry_run only say what it would be."""
    clock, environment = SystemClock(), dict(os.environ)
    home = home_folder(environment)
    interruption = Interruption(watch_parent="MLFLOW_RUN_ID" in environment)
    with interruption.listening():
        if spec.dry_run:
            launcher = launcher_for(spec, home, clock, environment)
            worst = admit_everywhere(spec, launcher)
            inputs = prepare(
                spec,
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
            outcome = launch(
                spec,
                launcher=launcher_for(spec, home, clock, environment),
                tracking=Tracking(environment, clock),
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
