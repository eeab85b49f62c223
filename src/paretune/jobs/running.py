"""Lists the jobs in an MLflow store that have not ended, finds a job, shows what it prints, and stops it."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from paretune.core.errors import BadInput, Interrupted
from paretune.core.interruption import Interruption
from paretune.core.shell import command_line
from paretune.jobs.attempts import Attempts
from paretune.jobs.bill import Bill, recorded_price
from paretune.jobs.outcome import JobOutcome
from paretune.jobs.record import JobRecord, find_job, first_job_of, of_one_run, owner_of
from paretune.jobs.removed import RemovedJob, removed_jobs, shared_ledgers
from paretune.jobs.run_names import run_name
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Job
from paretune.specification.ending import JobState
from paretune.specification.job import JobSpec
from paretune.specification.order import job_name, job_of
from paretune.tracking import schema
from paretune.tracking.recorded_run import RecordedRun
from paretune.tracking.store import Tracking

WorkplaceOf = Callable[[JobSpec], Workplace]
_RUN_ID = re.compile(r"[0-9a-f]{1,32}")
_SHORTEST_ID = 6  # minimum number of characters of a run's id that may select it
_SHOWN = 5  # maximum number of runs that an error message lists
_TAIL = 1000  # lines read at a time while a log is followed
_MOST_LINES = 256_000  # maximum number of lines read if the job printed more than _TAIL between two reads
_FOLLOW_EVERY_S = 2.0  # seconds between two reads; AWS allows an account five reads of logs a second


def place_of(run: RecordedRun, workplace_of: WorkplaceOf) -> tuple[JobSpec, Workplace]:
    """Return the specification and the workplace of a run's job.

    Raises BadInput if the record cannot be read, or if the job is in another AWS account or region. Raises
    LaunchRefused if AWS does not say which account this is.
    """
    try:
        spec = run.spec()
    except BadInput as error:
        raise BadInput([f"it cannot be read back: {error}"]) from error
    workplace = workplace_of(spec)
    if elsewhere := workplace.elsewhere(run.tags):
        raise BadInput([elsewhere])
    return spec, workplace


def running_jobs(
    tracking: Tracking, workplace_of: WorkplaceOf, budgeted: Sequence[JobSpec] = ()
) -> list[dict[str, Any]]:
    """Return the jobs of a store that have not ended, oldest first, a row each. Raises TrackingUnavailable.

    `state` is the launcher's own word for the phase, such as Training. `since_s` is the number of seconds since the run
    was opened. `cost_usd` is the cost so far and `worst_usd` the worst case, in dollars, None if unknown. If the job
    cannot be read, `remark` is the reason. Jobs whose runs were deleted are among them, and jobs with a budget whose
    runs were removed for good; `budgeted` are jobs that name the user's budgets.
    """
    rows = [_row(run, workplace_of) for run in reversed(tracking.running())]
    return [*(row for row in rows if row is not None), *_removed_rows(tracking, workplace_of, budgeted)]


def _row(run: RecordedRun, workplace_of: WorkplaceOf) -> dict[str, Any] | None:
    """Return the row of a job, or None if its run is deleted and the job does not exist or cannot be read."""
    tags, job = run.tags, None
    names = [tags.get(schema.USER), tags.get(schema.STUDY) and f"study {tags[schema.STUDY]}"]
    names.append(f"trial {tags[schema.TRIAL]}" if schema.TRIAL in tags else None)
    where = f"{run.instance_count} x {run.instance_type}" if run.instance_type != "local" else "local"
    row: dict[str, Any] = {
        "run_id": run.run_id,
        "job": tags.get(schema.JOB_NAME, ""),
        "title": run.name,
        "where": where,
        "state": tags.get(schema.SECONDARY_STATUS, "not created yet"),
        "since_s": 0.0,
        "cost_usd": run.cost_usd,
        "worst_usd": None,
        "owner": ", ".join(filter(None, names)),
        "remark": "",
    }
    with of_one_run(lambda why: row.update(remark=why)):
        spec, workplace = place_of(run, workplace_of)
        used = tags.get(schema.USED_INSTANCE_TYPE)
        title = run_name(spec.on_instance_type(used) if used else spec, takes_seed=run.takes_seed)
        row |= {"title": title, "since_s": max(0.0, workplace.clock.now() - run.started)}
        row["worst_usd"] = workplace.launcher.worst_case_usd(spec)
        if (job := _job(run, workplace)) is not None:
            row["state"] = job.detail() or job.state().value
            bill = Bill(spec, recorded_price(tags, workplace.launcher.price(spec)))
            usd = [each for each in (bill.so_far_usd(job), run.cost_usd) if each is not None]
            row["cost_usd"] = max(usd, default=None)
    if run.is_deleted:
        row["remark"] = (
            row["remark"] or f"its run is deleted in MLflow: `{command_line('sync')}` restores and follows it"
        )
        return None if job is None else row
    return row


def _removed_rows(
    tracking: Tracking, workplace_of: WorkplaceOf, budgeted: Sequence[JobSpec]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each job that has a reservation and whose run was removed from MLflow for good."""
    for each in _removed(tracking, workplace_of, budgeted):
        job, spec = each.job, each.spec
        usd = Bill(spec, each.workplace.launcher.price(spec)).so_far_usd(job)
        yield {
            "run_id": each.reservation.run_id,
            "job": each.name,
            "title": run_name(spec),
            "where": f"{spec.instance_count} x {spec.instance_type}",
            "state": job.detail() or job.state().value,
            "since_s": job.status().seconds,
            "cost_usd": usd,
            "worst_usd": each.reservation.worst_usd,
            "owner": "",
            "remark": f"its run was removed from MLflow: `{command_line('sync')}` follows it in a new run",
        }


def _removed(tracking: Tracking, workplace_of: WorkplaceOf, budgeted: Sequence[JobSpec]) -> Iterator[RemovedJob]:
    for shared in shared_ledgers(tracking, workplace_of, budgeted):
        with of_one_run(lambda _: None):  # `sync` reports what is wrong with the ledger
            yield from removed_jobs(shared, tracking, workplace_of)[0]


def find_run(
    tracking: Tracking, name: str, workplace_of: WorkplaceOf | None = None, budgeted: Sequence[JobSpec] = ()
) -> RecordedRun:
    """Find a run by its id, the beginning of its id, or its job's name. Raises BadInput unless exactly one matches.

    Deleted runs are found, too. If the run of a job with a budget was removed from MLflow for good, a new run is
    created for the job, and returned. If several runs name the job and `workplace_of` is given, the job itself is read
    to learn which run it belongs to.
    """
    if _RUN_ID.fullmatch(name):
        if len(name) < _SHORTEST_ID:
            raise BadInput([f"give at least {_SHORTEST_ID} characters of the id of a run, got {name!r}"])
        found = tracking.runs(f"tags.`{schema.STATE}` != ''", deleted=True)
        runs = [run for run in found if any(each.startswith(name) for each in run.ids)]
    else:
        attempts = job_name(job_of(re.sub(r"[^\w-]", "", name)), 1)[:-1]
        runs = tracking.runs(f"tags.`{schema.JOB_NAME}` LIKE '{attempts}%'", deleted=True)
        if len(runs) > 1:
            runs = [run for run in runs if run.has_job] or runs
        if len(runs) > 1 and workplace_of is not None:
            runs = [run for run in runs if _is_seen(run, workplace_of)] or runs
    if len(runs) == 1:
        return runs[0]
    if not runs and workplace_of is not None:
        for removed in _removed(tracking, workplace_of, budgeted):
            if removed.reservation.run_id.startswith(name) or job_of(removed.name) == job_of(name):
                return removed.record_anew(tracking)
    if runs:
        ids = ", ".join(run.run_id[:8] for run in runs[:_SHOWN])
        raise BadInput([f"{name} selects {len(runs)} runs ({ids}): give the id of one"])
    raise BadInput([f"no job here has the run id or the name {name}: `{command_line('status')}` lists running jobs"])


def lines_of(run: RecordedRun, workplace_of: WorkplaceOf, lines: int) -> tuple[list[str], str]:
    """Return the last lines that a run's job printed, and where its whole log is. Raises BadInput, LaunchRefused."""
    workplace = place_of(run, workplace_of)[1]
    job = _existing(run, _job(run, workplace), workplace)
    return job.log_tail(lines), job.log_location()


def followed(run: RecordedRun, workplace_of: WorkplaceOf, interruption: Interruption, lines: int) -> Iterator[str]:
    """Yield the last `lines` lines of a run's job, then new ones until it has ended. Ctrl-C does not stop the job."""
    workplace = place_of(run, workplace_of)[1]
    job = _existing(run, _job(run, workplace), workplace)
    is_last, seen = job.state().is_terminal, job.log_tail(_TAIL)
    yield from seen[-lines:]
    while not is_last:
        interruption.check()
        workplace.clock.sleep(_FOLLOW_EVERY_S)
        is_last = job.state().is_terminal
        count, tail = _TAIL, job.log_tail(_TAIL)
        while (begin := _first_new(seen, tail, len(tail) < count)) is None and len(tail) == count < _MOST_LINES:
            count *= 4  # the job has printed more lines than these since the last read
            tail = job.log_tail(count)
        if begin is None and tail:
            yield f"(lines before this one are missing here: {job.log_location()})"
        yield from tail[begin:]
        seen = tail[-_TAIL:] or seen


def _first_new(seen: list[str], tail: list[str], is_whole: bool) -> int | None:
    """Return the index of the first line of `tail` that is new after `seen`; None if `tail` begins after `seen`.

    `is_whole` says whether `tail` has every line that was printed so far.
    """
    if not seen:
        return 0 if is_whole else None
    whole = len(seen) < _TAIL  # whether `seen` has every line that was printed so far
    for end in range(min(len(tail), len(seen)) if whole else len(tail), 0, -1):
        overlap = min(end, len(seen))
        if tail[end - 1].startswith(seen[-1]) and seen[-overlap:-1] == tail[end - overlap : end - 1]:
            return end - (tail[end - 1] != seen[-1])  # a last line that was incomplete before is returned again
    return None


def stop(run: RecordedRun, workplace_of: WorkplaceOf) -> JobOutcome:
    """Stop the job of a run, wait until its launcher confirms that, record its cost and close the run.

    No further attempt is created. Another process that watches the job sees it stop, and records the same outcome.

    Raises BadInput if the job has ended or does not exist. Raises LostContact if the launcher does not confirm the
    stop; then the run stays open.
    """
    spec, workplace = place_of(run, workplace_of)
    first = find_job(run.run_id, run.tags, workplace)  # a later attempt may not exist yet
    _existing(run, first, workplace)
    if run.tags.get(schema.STATE) != JobState.RUNNING.value:
        state = run.tags.get(schema.STATE) or "its run records no state"
        raise BadInput([f"the job of run {run.run_id} has ended: {state}"])
    record = JobRecord(spec, workplace, run=workplace.tracking.run(run.run_id))
    record.adopt()
    job = Attempts(record, creates=False)
    while job.poll() is None and (job.current is None or job.current.state().is_terminal):
        pass  # go through the attempts that have ended to the one that is running
    outcome = job.end(Interrupted(f"it was stopped by `{command_line('stop')}`"))
    record.run.delete_tags(schema.UNSEEN)
    return outcome


def _is_seen(run: RecordedRun, workplace_of: WorkplaceOf) -> bool:
    """Return whether the job that a run names belongs to this run, according to the job itself."""
    with of_one_run(lambda _: None):
        return _job(run, place_of(run, workplace_of)[1]) is not None
    return False


def _job(run: RecordedRun, workplace: Workplace) -> Job | None:
    name = run.tags.get(schema.JOB_NAME) or first_job_of(run.run_id, run.tags)
    job = workplace.launcher.attach(name)
    return job if job is not None and job.run_id == owner_of(run.run_id, run.tags, workplace) else None


def _existing(run: RecordedRun, job: Job | None, workplace: Workplace) -> Job:
    if job is None:
        text = f"the job of run {run.run_id} does not exist: it has not been created yet, or it has been removed"
        closes = f"{text}; `{command_line('sync')}` closes the run if the job was never created"
        raise BadInput([workplace.other_machine(run.tags) or closes])
    return job
