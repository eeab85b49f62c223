"""Jobs that earlier commands have started: the one that the same command finds again, and those that are elsewhere."""

from collections.abc import Mapping
from contextlib import suppress

from paretune.core.commands import parameters_of
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Launcher
from paretune.launchers.processes import is_watched
from paretune.specification.container import JobInputs
from paretune.specification.job import JobSpec
from paretune.tracking import RecordedRun, RunStatus, Tracking, schema


def elsewhere(tags: Mapping[str, str], launcher: Launcher) -> str:
    """A sentence when a run with these tags has its job where `launcher` does not look; else empty.

    That is another AWS account, region, bucket or queue: a job is not found there, and would be started, and paid, a
    second time; one whose bucket is another has no results. A run without a job names none of them.

    Raises:
        BadInput, LaunchRefused: the launcher cannot tell where it is.
    """
    if not {schema.ACCOUNT, schema.REGION} & tags.keys():
        return ""
    here = launcher.location_tags()

    def differ(name: str) -> bool:
        recorded, own = tags.get(f"{schema.PREFIX}{name}"), here.get(name)
        return recorded is not None and own is not None and recorded != own

    was_in, is_in = (_queue_name(queue) for queue in (tags.get(schema.QUEUE, ""), here.get("queue", "")))
    found = []
    if differ("account"):
        found.append(
            f"its job is in the AWS account {tags[schema.ACCOUNT]}, and these credentials are of {here['account']}: "
            "set AWS_PROFILE"
        )
    if differ("region"):
        found.append(
            f"its job is in the region {tags[schema.REGION]}, and this command asks {here['region']}: "
            f"set region={tags[schema.REGION]}, or AWS_REGION"
        )
    if not found and differ("bucket"):  # whose default depends on the two
        found.append(
            f"its job writes to the bucket {tags[schema.BUCKET]}, and this command reads {here['bucket']}: "
            f"set bucket={tags[schema.BUCKET]}, or PARETUNE_BUCKET"
        )
    if "account" in here and was_in != is_in:
        queues = [f"the queue {name}" if name else "no queue" for name in (was_in, is_in)]
        found.append(f"its job is in {queues[0]}, and this command asks {queues[1]}: set queue as it was")
    return "; ".join(found)


def _queue_name(queue: str) -> str:
    """The name of a queue that is given by its name or its ARN."""
    return queue.rpartition("/")[2]


def unwatched_job(spec: JobSpec, inputs: JobInputs, workplace: Workplace) -> RecordedRun | None:
    """The newest run of an identical job that runs, or waits to be created, and that no process here watches.

    Identical are jobs of the same command on the same data, in the same account, region and bucket. None of a study:
    its own driver takes it up. None where jobs do not outlive their launcher.
    """
    if not workplace.launcher.jobs_outlive_submitter:
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
