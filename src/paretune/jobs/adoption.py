"""The same command typed again: the job that an earlier one has started, and that runs though nobody watches it."""

from collections.abc import Mapping
from contextlib import suppress

from paretune.core.commands import parameters_of
from paretune.jobs.workplace import Workplace
from paretune.launchers.processes import is_watched
from paretune.spec.container import JobInputs
from paretune.spec.job import JobSpec
from paretune.tracking import RecordedRun, RunStatus, Tracking, schema


def unwatched_job(spec: JobSpec, inputs: JobInputs, workplace: Workplace) -> RecordedRun | None:
    """The newest run of an identical job that runs, or waits to be created, and that no process here watches.

    Identical are jobs of the same command on the same data, in the same account, region and bucket. None of a study:
    its own driver takes it up. None where jobs do not outlive their launcher.
    """
    if not workplace.launcher.outlives:
        return None
    place = {f"{schema.PREFIX}{name}": text for name, text in workplace.launcher.location_tags().items()}
    key = None if inputs.dataset is None else inputs.dataset.key
    asked = _asked(spec.command())
    return next(
        (
            run
            for run in _unwatched(workplace.tracking, f"tags.`{schema.SPEC_HASH}` = '{spec.spec_hash()}'")
            if _asked(run.tags.get(schema.COMMAND, "")) == asked
            and run.tags.get(schema.DATASET_KEY) == key
            and schema.TRIAL not in run.tags
            and place.items() <= run.tags.items()
        ),
        None,
    )


def _asked(command: str) -> dict[str, str] | None:
    """What a recorded command asks for, however it is spelled; `again` does not count. None where it is none."""
    with suppress(ValueError):
        return {name: text for name, text in parameters_of(command).items() if name != "again"}
    return None


def unwatched_project(command: str, tracking: Tracking) -> RecordedRun | None:
    """The same for the command of an MLflow project, by the `mlflow run` line that repeats it."""
    runs = _unwatched(tracking, f"tags.`{schema.LOGGING}` LIKE '%'")
    return next((run for run in runs if run.tags.get(schema.COMMAND) == command), None)


def close_watcher(workplace: Workplace, watched: RecordedRun) -> None:
    """Say on the run that `mlflow run` has opened for this command which run it watches instead."""
    opened = workplace.tracking.opened_run_id()
    if opened is not None and opened != watched.run_id:
        run = workplace.tracking.run(opened)
        no_job = {schema.STATE: "", schema.WATCHED_BY: ""}  # `sync` and reports leave it alone
        run.set_tags({schema.KIND: "watcher", schema.WATCHED_RUN: watched.run_id, **no_job})
        run.end(RunStatus.FINISHED)


def own_job_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """What a run with these tags says before it gets a job of its own: that it watches no other one any more."""
    return {schema.KIND: "", schema.WATCHED_RUN: ""} if tags.get(schema.KIND) == "watcher" else {}


def _unwatched(tracking: Tracking, condition: str) -> list[RecordedRun]:
    """Runs of jobs that are not known to have ended, newest first."""
    running = tracking.runs(f"tags.`{schema.STATE}` = 'Running' and {condition}")
    return [run for run in running if not is_watched(run.tags.get(schema.WATCHED_BY, ""))]
