"""The command `sync`: collect what has ended, follow what still runs."""

from collections.abc import Sequence

from paretune.core.clock import SystemClock
from paretune.core.result import CommandOutput
from paretune.jobs.progress import watched
from paretune.jobs.sync import Collected, Sync
from paretune.jobs.workplace import Workplaces
from paretune.projects.collection import Collector
from paretune.tracking import Tracking


def run(_: None) -> CommandOutput:
    """Bring MLflow up to date with every job whose launcher has ended."""
    workplaces = Workplaces.of_process()
    tracking = Tracking(workplaces.environment, SystemClock())
    if tracking.opened_run_id() is not None:
        tracking.begin("sync")  # `mlflow run` shows a run for every command
    with watched(workplaces.interruption) as on_events:
        collected = Sync(
            workplace_of=workplaces.of,
            tracking=tracking,
            interruption=workplaces.interruption,
            on_events=on_events,
            collect=Collector(SystemClock()),
        ).run()
    return CommandOutput(text=_text(collected), document={"runs": [_document(entry) for entry in collected]})


def _text(collected: Sequence[Collected]) -> str:
    if not collected:
        return "nothing to do: no run is unfinished"
    parts = [str(entry.outcome) for entry in collected if entry.outcome is not None]
    return "\n".join(parts + [f"run {entry.run_id}: {entry.remark}" for entry in collected if entry.remark])


def _document(entry: Collected) -> dict[str, object]:
    result = entry.outcome.to_dict() if entry.outcome is not None else None
    return {"run_id": entry.run_id, "remark": entry.remark or None, "result": result}
