"""The commands for existing jobs: `status`, `logs`, `stop`, `sync` and `clean`.

`paretune.jobs` does the work.
"""

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from paretune.commands.command import command_of
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput
from paretune.core.result import CommandOutput
from paretune.core.secrets import printable
from paretune.core.shell import command_line
from paretune.specification.declaration import Parameters, Rules, parameter, rules_of
from paretune.specification.order import job_of

if TYPE_CHECKING:
    from paretune.jobs.workplace import Workplaces
    from paretune.tracking.store import Tracking

_MOST = 40  # limit on the number of removable objects that `clean` lists


class RunOptions(Parameters):
    """The options of a command about one recorded job."""

    run: str = parameter("")
    """id of the job's run, or at least its first six characters, or the name of the job"""

    rules: ClassVar[Rules] = rules_of(
        {
            "run is missing: give a run id or a job name; `paretune status` lists the jobs that are running": (
                lambda options: not options.run.strip()
            )
        }
    )


def _open_store(command: str, run: str = "") -> "tuple[Workplaces, Tracking]":
    """Return the launchers and the MLflow store of this process, for a command about recorded jobs, or about one `run`.

    Raises BadInput if there is no store, or if nothing in it has the id or the name `run`, and TrackingUnavailable if
    the store does not answer.
    """
    from paretune.jobs.run_names import unknown_run
    from paretune.jobs.workplace import Workplaces, has_store, store_lacks

    workplaces = Workplaces.of_process()
    if not has_store(workplaces.environment):
        raise BadInput(["there is no MLflow store here: set MLFLOW_TRACKING_URI, or cd to the folder with mlflow.db"])
    if run and not workplaces.budgets() and store_lacks(workplaces.environment, job_of(run)):
        raise BadInput([unknown_run(run)])
    from paretune.tracking.store import Tracking  # imports MLflow, which takes seconds

    tracking = Tracking(workplaces.environment, SystemClock())
    if tracking.opened_run_id() is not None:
        tracking.begin(command)  # `mlflow run` opens a run for every command: name this run after the command
    return workplaces, tracking


def _status(_: Parameters) -> CommandOutput:
    from paretune.jobs.follow import running_jobs
    from paretune.presentation.text import aligned, dollars, duration

    workplaces, tracking = _open_store("status")
    jobs = running_jobs(tracking, workplaces.at, workplaces.budgets())
    columns = {
        "run": [job["run_id"][:8] for job in jobs],
        "job": [job["title"][:50] for job in jobs],
        "on": [job["where"] for job in jobs],
        "state": [job["state"] for job in jobs],
        "progress": [job["progress"]["text"] if job["progress"] else "no counter so far" for job in jobs],
        "elapsed": [duration(job["since_s"]) for job in jobs],
        "USD so far": ["" if job["cost_usd"] is None else dollars(job["cost_usd"]) for job in jobs],
        "at worst": ["" if job["worst_usd"] is None else dollars(job["worst_usd"]) for job in jobs],
        "owner": [job["owner"] for job in jobs],
    }
    remarks = [f"{job['run_id'][:8]}: {job['remark']}" for job in jobs if job["remark"]]
    text = "\n".join([aligned(columns), *remarks]) if jobs else "no jobs are running"
    return CommandOutput(text=text, document={"running": jobs})


class LogsOptions(RunOptions):
    """The options of `logs`."""

    follow: bool = parameter(False)
    """print new lines until the job has ended; Ctrl-C does not stop the job"""
    lines: int = parameter(50, ge=1, le=1000)
    """number of lines to print, counted from the end of the log"""


def _logs(options: LogsOptions) -> CommandOutput:
    workplaces, tracking = _open_store("logs", options.run.strip())
    from paretune.jobs.follow import find_run, followed, lines_of, remaining_of
    from paretune.jobs.terminal import say_on_stderr

    run = find_run(tracking, options.run.strip(), workplaces.at, workplaces.budgets())
    if options.follow:
        with workplaces.interruption.listening():
            for line in followed(run, workplaces.at, workplaces.interruption, options.lines):
                print(printable(line), flush=True)
        return CommandOutput(text="", document={"run_id": run.run_id})
    lines, location = lines_of(run, workplaces.at, options.lines)
    text = "\n".join(lines) or f"the job has printed nothing so far; its log is at {location}"
    if (left := remaining_of(run, workplaces.at)) is not None:
        say_on_stderr(f"the job: {left}")
    progress = None if left is None else left.row()
    document = {"run_id": run.run_id, "lines": lines, "log_location": location, "progress": progress}
    return CommandOutput(text=text, document=document)


def _stop(options: RunOptions) -> CommandOutput:
    workplaces, tracking = _open_store("stop", options.run.strip())
    from paretune.jobs.follow import find_run, stop
    from paretune.jobs.terminal import watched

    run = find_run(tracking, options.run.strip(), workplaces.at, workplaces.budgets())
    with watched(workplaces.interruption) as on_events:
        end = stop(run, replace(workplaces, on_events=on_events).at)
    return CommandOutput(text=f"run {run.run_id}: {end.in_one_line()}", document=end.to_dict())


class SyncOptions(Parameters):
    """The options of `sync`."""

    adopt: str = parameter("")
    """id of a removed run, whose job another user or another machine has launched: record the job here"""

    rules: ClassVar[Rules] = rules_of(
        {
            "adopt must be at least six characters of the id of a run, as `paretune sync` prints it": (
                lambda options: bool(options.adopt) and not re.fullmatch(r"[0-9a-f]{6,32}", options.adopt)
            )
        }
    )


def _sync(options: SyncOptions) -> CommandOutput:
    from paretune.jobs.follow import Sync
    from paretune.jobs.terminal import watched

    workplaces, tracking = _open_store("sync")
    with watched(workplaces.interruption) as on_events:
        at, budgets = replace(workplaces, on_events=on_events).at, workplaces.budgets()
        sync = Sync(
            workplace_at=at,
            tracking=tracking,
            interruption=workplaces.interruption,
            budgets=budgets,
            adopt=options.adopt,
        )
        jobs = sync.run()
    lines = [str(job.result) for job in jobs if job.result is not None]
    lines += [f"run {job.run_id}: {job.remark}" if job.run_id else job.remark for job in jobs if job.remark]
    runs = [
        {"run_id": job.run_id, "remark": job.remark or None, "result": job.result and job.result.to_dict()}
        for job in jobs
    ]
    return CommandOutput(text="\n".join(lines) or "nothing to do: every run is finished", document={"runs": runs})


class CleanOptions(Parameters):
    """The options of `clean`."""

    older_than: float | None = parameter(None, ge=1)
    """remove only objects written at least this many days ago"""
    keep: Literal["front"] | None = parameter(None)
    """front: keep the models of trials on the front of their study"""
    yes: bool = parameter(False)
    """remove all removable objects, even those that the printed list omits; without this option nothing is removed"""

    rules: ClassVar[Rules] = rules_of(
        {
            "older_than is missing: give the number of days after which objects may be removed, such as 30": (
                lambda options: options.older_than is None
            )
        }
    )


def _clean(options: CleanOptions) -> CommandOutput:
    from paretune.jobs.leftovers import found_in_s3, in_words, remove

    workplaces, tracking = _open_store("clean")
    days = options.older_than or 0.0
    found, remarks = found_in_s3(tracking, workplaces.environment, days, keeps_front=options.keep == "front")
    removable = [each for each in found if not each.why_kept]
    kept = dict.fromkeys(each.why_kept for each in found if each.why_kept)
    lines = [
        f"the buckets of this store's jobs have {in_words(found)}"
        if found
        else "the jobs of this store have left nothing in S3"
    ]
    lines += [f"  {each.row()['uri']}  {each.size / 1e9:.3f} GB" for each in removable[:_MOST]]
    lines += [f"  and {len(removable) - _MOST} more"] if len(removable) > _MOST else []
    for why in kept:
        size = sum(each.size for each in found if each.why_kept == why)
        lines.append(f"kept: {size / 1e9:.3f} GB of objects, each because {why}")
    if removable and options.yes:
        remove(removable, tracking, time.strftime("%Y-%m-%d"))
        lines.append(f"removed {in_words(removable)}")
    elif removable:
        given = options.given_text() | {"yes": "true"}
        lines += [f"may be removed: {in_words(removable)}", f"to remove it: {command_line('clean', given)}"]
    document = {"removed": options.yes, "found": [each.row() for each in found], "remarks": remarks}
    return CommandOutput(text="\n".join([*lines, *remarks]), document=document)


STATUS = command_of(Parameters, _status)
LOGS = command_of(LogsOptions, _logs)
STOP = command_of(RunOptions, _stop)
SYNC = command_of(SyncOptions, _sync)
CLEAN = command_of(CleanOptions, _clean)
