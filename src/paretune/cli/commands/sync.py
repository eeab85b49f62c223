"""The command `sync`: collect what has ended, follow what still runs."""

from paretune.cli.output.terminal import ProgressPrinter, collected_text
from paretune.core.clock import SystemClock
from paretune.jobs.sync import Sync
from paretune.jobs.workplace import Workplaces
from paretune.mlflow_backend.collection import Collector
from paretune.tracking import Tracking


def run(_: None) -> int:
    """Bring MLflow up to date with every job that nobody watches."""
    workplaces = Workplaces.of_process()
    tracking = Tracking(workplaces.environment, SystemClock())
    if tracking.opened_run_id() is not None:
        tracking.begin("sync")  # `mlflow run` shows a run for every command
    progress = ProgressPrinter()
    with workplaces.interruption.listening():
        try:
            collected = Sync(
                workplace_of=workplaces.of,
                tracking=tracking,
                interruption=workplaces.interruption,
                on_events=progress,
                collect=Collector(SystemClock()),
            ).run()
        finally:
            progress.close()
    print(collected_text(collected))
    return 0
