"""The jobs of a store that run now: what they cost so far and at worst, what they print, and how they are ended."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from paretune.core.clock import Interruption
from paretune.core.errors import BadInput, BudgetRefused, Interrupted, LaunchRefused, LostContact
from paretune.core.result import Row, as_json
from paretune.core.shell import command_line
from paretune.jobs.attempts import WATCH_INTERVAL_S, Attempts
from paretune.jobs.bill import recorded_price
from paretune.jobs.outcome import JobOutcome
from paretune.jobs.record import JobRecord, first_job_of, run_name
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Job, JobState, job_name, job_of
from paretune.pricing import cost_usd
from paretune.specification.job import JobSpec
from paretune.tracking import schema
from paretune.tracking.recorded_job import RecordedJob, RecordedRun
from paretune.tracking.store import Tracking

WorkplaceOf = Callable[[JobSpec], Workplace]
UNKNOWN = (BadInput, LaunchRefused, LostContact)  # why nothing can be said of a job
_RUN_ID = re.compile(r"[0-9a-f]{1,32}")
_TAIL = 1000  # lines of a log that are read at a time while it is followed


@dataclass(frozen=True, kw_only=True)
class StandingJob:
    """A job that has not ended, as far as its run and its launcher tell."""

    run_id: str
    job: str
    title: str  # the name of its run
    where: str  # its instances
    state: str  # the launcher's own word for its phase, such as Training
    since_s: float  # seconds since its run was opened
    cost_usd: float | None  # of its billed seconds so far; None if unknown
    worst_usd: float | None  # that its budgets hold for it; None if its price is unknown
    owner: str  # who has started it, and in which study
    remark: str = ""  # why nothing more is known

    def row(self) -> Row:
        """The job as a JSON object."""
        return {name: as_json(value) for name, value in vars(self).items()}


def place_of(run: RecordedRun, workplace_of: WorkplaceOf) -> tuple[JobSpec, Workplace]:
    """The specification of a run's job and the workplace where it runs; raises BadInput or LaunchRefused."""
    try:
        spec = RecordedJob(run).spec()
    except BadInput as error:
        raise BadInput([f"it cannot be read back: {error}"]) from error
    workplace = workplace_of(spec)
    if elsewhere := workplace.elsewhere(run.tags):
        raise BadInput([elsewhere])
    return spec, workplace


def standing(tracking: Tracking, workplace_of: WorkplaceOf) -> list[StandingJob]:
    """The jobs of a store that have not ended, oldest first. Raises TrackingUnavailable."""
    runs = tracking.runs(f"tags.`{schema.STATE}` = '{JobState.RUNNING.value}'")
    return [_standing_job(run, workplace_of) for run in reversed(runs)]


def _standing_job(run: RecordedRun, workplace_of: WorkplaceOf) -> StandingJob:
    recorded, remark, state = RecordedJob(run), "", run.tags.get(schema.SECONDARY_STATUS, "not created yet")
    usd, worst_usd, since_s, title = recorded.cost_usd, None, 0.0, recorded.name
    try:
        spec, workplace = place_of(run, workplace_of)
        title, since_s = run_name(spec), max(0.0, workplace.clock.now() - run.started)
        with suppress(BudgetRefused):
            worst_usd = workplace.launcher.worst_case_usd(spec.replace(max_cost_usd=None))
        if (job := _job(run, workplace)) is not None:
            status = job.status()
            state = job.detail() or status.state.value
            price = recorded_price(run.tags, workplace.launcher.price(spec))
            so_far_usd = cost_usd(price, spec, status.billable_seconds)
            usd = so_far_usd if usd is None or so_far_usd is None else max(usd, so_far_usd)
    except UNKNOWN as error:
        remark = str(error)
    names = [run.tags.get(schema.USER, ""), run.tags.get(schema.STUDY, "") and f"study {run.tags[schema.STUDY]}"]
    trial = run.tags.get(schema.TRIAL)
    return StandingJob(
        run_id=run.run_id,
        job=run.tags.get(schema.JOB_NAME, ""),
        title=title,
        where=f"{recorded.instance_count} x {recorded.instance_type}" if recorded.instance_type != "local" else "local",
        state=state,
        since_s=since_s,
        cost_usd=usd,
        worst_usd=worst_usd,
        owner=", ".join([*filter(None, names), *([] if trial is None else [f"trial {trial}"])]),
        remark=remark,
    )


def find_run(tracking: Tracking, name: str) -> RecordedRun:
    """The run with this id, with an id that begins so, or with a job of this name; raises BadInput."""
    if _RUN_ID.fullmatch(name):
        runs = [run for run in tracking.runs(f"tags.`{schema.STATE}` != ''") if run.run_id.startswith(name)]
    else:
        attempts = job_name(job_of(re.sub(r"[^\w-]", "", name)), 1)[:-1]
        runs = tracking.runs(f"tags.`{schema.JOB_NAME}` LIKE '{attempts}%'")
    if len(runs) == 1:
        return runs[0]
    if runs:
        raise BadInput([f"{name} begins the ids of {len(runs)} runs: give more of it"])
    raise BadInput([f"no job here has the run or the name {name}: `{command_line('status')}` lists those that run"])


def lines_of(run: RecordedRun, workplace_of: WorkplaceOf, lines: int) -> tuple[list[str], str]:
    """The last lines that the job of a run has printed, and where its whole log is. Raises BadInput, LaunchRefused."""
    job = _found(run, place_of(run, workplace_of)[1])
    return job.log_tail(lines), job.log_location()


def followed(run: RecordedRun, workplace_of: WorkplaceOf, interruption: Interruption, lines: int) -> Iterator[str]:
    """The lines that the job of a run prints, until it has ended; the job goes on when this is interrupted."""
    workplace = place_of(run, workplace_of)[1]
    job, seen, is_last = _found(run, workplace), list[str](), False
    while True:
        is_last = job.state().is_terminal
        tail = job.log_tail(_TAIL if seen else lines)
        overlap = next((count for count in range(min(len(seen), len(tail)), 0, -1) if seen[-count:] == tail[:count]), 0)
        yield from tail[overlap:]
        seen = (seen + tail[overlap:])[-_TAIL:]
        if is_last:
            return
        interruption.check()
        workplace.clock.sleep(WATCH_INTERVAL_S)


def stop(run: RecordedRun, workplace_of: WorkplaceOf) -> JobOutcome:
    """Stop the job of a run, wait until its launcher says so, book what it has cost and close the run.

    Whoever watches the job as well sees it stopped, and records the same end. Raises BadInput if the job has ended or
    is not there, and LostContact if the launcher does not say that it has stopped; its run stays open.
    """
    spec, workplace = place_of(run, workplace_of)
    _found(run, workplace)
    if run.tags.get(schema.STATE) != JobState.RUNNING.value:
        raise BadInput([f"the job of run {run.run_id} has ended: {run.tags.get(schema.STATE) or 'it was never begun'}"])
    record = JobRecord(spec, workplace, run=workplace.tracking.run(run.run_id))
    record.adopt()
    job = Attempts(record)
    end = None
    while end is None and (job.current is None or job.current.state().is_terminal):  # earlier attempts come first
        end = job.poll()
    if end is None:
        job.abandon(Interrupted(f"it was stopped by `{command_line('stop')}`"))
        end = job.end
    assert end is not None  # `abandon` has concluded it
    return end


def _job(run: RecordedRun, workplace: Workplace) -> Job | None:
    name = run.tags.get(schema.JOB_NAME) or first_job_of(run.run_id, run.tags)
    job = workplace.launcher.attach(name)
    return job if job is not None and job.run_id == run.run_id else None


def _found(run: RecordedRun, workplace: Workplace) -> Job:
    if (job := _job(run, workplace)) is None:
        text = f"the job of run {run.run_id} is not there: it is not created yet, or its launcher has been removed"
        raise BadInput([f"{text}; `{command_line('sync')}` closes what never began"])
    return job
