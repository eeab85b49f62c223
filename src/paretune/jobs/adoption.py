"""Jobs that earlier commands have started: the one that this command adopts, and those that run somewhere else."""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Launcher
from paretune.specification.container import JobInputs
from paretune.specification.job import JobSpec
from paretune.tracking import RecordedRun, RunStatus, Tracking, schema

_ELSEWHERE = {
    "account": "its job is in the AWS account {recorded}, and these credentials are of {current}: set AWS_PROFILE",
    "region": "its job is in the region {recorded}, and this command asks {current}: set region={recorded}, or "
    "AWS_REGION",
    "bucket": "its job writes to the bucket {recorded}, and this command reads {current}: set s3_bucket in "
    "sagemaker, or PARETUNE_BUCKET",
}
"""Tag of a job's place to why it is not found here. The bucket comes last, as its default depends on the others."""


def elsewhere(tags: Mapping[str, str], launcher: Launcher) -> str:
    """The reason why `launcher` cannot find the job of a run with these tags; empty if it looks in the right place.

    A job in another AWS account or region is not found, and would be started and paid a second time; a job with
    another bucket would have no results. A run without a job has none of these tags.

    Raises:
        BadInput, LaunchRefused: the launcher cannot tell where it is.
    """
    if not {schema.ACCOUNT, schema.REGION} & tags.keys():
        return ""
    here = launcher.location_tags()

    reasons: list[str] = []
    for name, sentence in _ELSEWHERE.items():
        recorded, current = tags.get(f"{schema.PREFIX}{name}"), here.get(name)
        if None not in (recorded, current) and recorded != current and not (name == "bucket" and reasons):
            reasons.append(sentence.format(recorded=recorded, current=current))
    return "; ".join(reasons)


@contextmanager
def launching_alone() -> Iterator[None]:
    """No other process of this user on this machine looks for an identical job or opens its run meanwhile."""
    path = Path(tempfile.gettempdir()) / f"paretune-{os.getuid()}.lock"
    with ExitStack() as held:
        with suppress(OSError):  # somebody else's file, or a folder that cannot be written: nothing is locked
            file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
            held.callback(os.close, file)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def running_job(spec: JobSpec, inputs: JobInputs, workplace: Workplace) -> RecordedRun | None:
    """The newest run of an identical job that runs or waits to be created, whoever watches it.

    Identical jobs have the same given parameters, data, account, region and bucket. Trials of studies are left
    out, because the study's driver follows them. None if jobs do not outlive their launcher.
    """
    if not workplace.launcher.jobs_outlive_submitter:
        return None
    location = {f"{schema.PREFIX}{name}": text for name, text in workplace.launcher.location_tags().items()}
    key = None if inputs.dataset is None else inputs.dataset.key
    given = _without_force(spec.given())
    condition = f"tags.`{schema.SPEC_HASH}` = '{spec.spec_hash()}'"
    return next(
        (
            run
            for run in _running(workplace.tracking, condition)
            if _without_force(schema.job_document(run.tags) or {}) == given
            and run.tags.get(schema.DATASET_KEY) == key
            and schema.TRIAL not in run.tags
            and location.items() <= run.tags.items()
        ),
        None,
    )


def _without_force(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "force"}


def close_watcher(workplace: Workplace, watched: RecordedRun) -> None:
    """Close the run that `mlflow run` has opened for this command, with a tag that names the run it watches instead."""
    opened = workplace.tracking.opened_run_id()
    if opened is not None and opened != watched.run_id:
        run = workplace.tracking.run(opened)
        no_job = {schema.STATE: "", schema.WATCHED_BY: ""}  # `sync` and reports leave it alone
        run.set_tags({schema.KIND: "watcher", schema.WATCHED_RUN: watched.run_id, **no_job})
        run.end(RunStatus.FINISHED)


def own_job_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags that turn the run of a watcher into the run of a job of its own; none for any other run."""
    return {schema.KIND: "", schema.WATCHED_RUN: ""} if tags.get(schema.KIND) == "watcher" else {}


def _running(tracking: Tracking, condition: str) -> list[RecordedRun]:
    """Runs of jobs that are not recorded as ended, newest first."""
    return tracking.runs(f"tags.`{schema.STATE}` = 'Running' and {condition}")
