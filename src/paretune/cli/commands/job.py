"""The command `main`: one job."""

from paretune.cli.output.terminal import ProgressPrinter, preview, summary
from paretune.jobs.launch import admit_everywhere, launch
from paretune.jobs.preparation import inputs_of
from paretune.jobs.workplace import Workplace, Workplaces
from paretune.spec.job import JobSpec


def run(spec: JobSpec) -> int:
    """Train, measure, price and record one job; with dry_run only say what it would be."""
    workplaces = Workplaces.of_process()
    with workplaces.interruption.listening():
        workplace = workplaces.of(spec)
        if spec.dry_run:
            print(_preview(spec, workplace))
            return 0
        progress = ProgressPrinter()
        try:
            outcome = launch(spec, workplace, progress)
        finally:
            progress.close()
    print(summary(outcome))
    return 0


def _preview(spec: JobSpec, workplace: Workplace) -> str:
    launcher = workplace.launcher
    worst = admit_everywhere(spec, launcher)
    inputs = inputs_of(spec, workplace, meanwhile=lambda: launcher.check(spec))
    return preview(spec, worst, inputs, launcher)
