"""Launches a job, and follows it from its specification to its recorded run.

Order matters. Everything that can be checked for free is checked first. Then a run is opened, unless `mlflow run` has
already opened it. The job starts last, so a job always has a record.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, overload

from paretune.core import watchdog
from paretune.core.errors import BadInput, Interrupted, LaunchRefused, LostContact, NoAccount, ParetuneError
from paretune.core.machine import busy_sentence, user_here
from paretune.core.result import CommandOutput
from paretune.core.shell import command_line, options
from paretune.jobs.attempts import Attempts
from paretune.jobs.bill import record_pools
from paretune.jobs.model import register
from paretune.jobs.outcome import RUN_STATUS, JobOutcome
from paretune.jobs.plan import plan
from paretune.jobs.preview import JobPreview, preview
from paretune.jobs.record import ENDED, JobRecord, find_job, first_job_of, opening_tags, plan_in
from paretune.jobs.run_names import run_name
from paretune.jobs.terminal import watched
from paretune.jobs.workplace import Workplace, Workplaces
from paretune.launchers.base import Job, checkpoint_folder
from paretune.launchers.processes import is_alive
from paretune.presentation.text import duration
from paretune.specification import launchers
from paretune.specification.ending import JobState
from paretune.specification.identity import JobIdentity, Place
from paretune.specification.job import JobSpec
from paretune.specification.order import job_name, job_of
from paretune.specification.plan import Plan
from paretune.specification.profile import completed
from paretune.tracking import schema
from paretune.tracking.recorded_run import RecordedRun
from paretune.tracking.run_writer import Run
from paretune.tracking.store import alone_with, is_absent_file, require_answer, tracking_uri


@overload
def launch(spec: JobSpec, *, dry_run: Literal[False] = False, quiet: bool = False) -> JobOutcome:  # noqa: D418
    """Launch a job, and return its outcome once it has completed."""


@overload
def launch(spec: JobSpec, *, dry_run: Literal[True], quiet: bool = False) -> JobPreview:  # noqa: D418
    """Return the job as it would be launched, with its worst-case dollars."""


def launch(spec: JobSpec, *, dry_run: bool = False, quiet: bool = False) -> JobOutcome | JobPreview:
    """Launch a job, wait until it has ended, record it in MLflow, and return its metrics and cost.

    Parameters that are not given are taken from `paretune.toml`, as on the command line. Ctrl-C stops the
    job, records what it has cost and raises `Interrupted`.

    With `dry_run`, the job is checked but not launched, and the result is a preview with its worst case in dollars.
    With `quiet`, no progress is shown on standard error.

    Raises:
        BadInput, TrackingUnavailable, LaunchRefused, BudgetRefused: nothing was launched.
        JobFailed: the job failed (its run has the reason), or the preparation of its inputs crashed.
        LostContact: the job may continue, but its state is unknown, for example because AWS does not answer.
        Interrupted: the job was stopped before it completed, or it continues because another process also watches it.

    Examples:
        >>> import paretune
        >>> spec = paretune.JobSpec(launcher="simulated", instance_type="ml.g5.xlarge", max_train_samples=4000)
        >>> job = paretune.launch(spec, quiet=True)
        >>> job.origin, job.metrics["cost_usd"] < 1, "f1" in job.metrics
        ('simulated', True, False)
        >>> round(paretune.launch(spec, dry_run=True).worst_case_usd, 3)
        1.474
    """
    if spec.dry_run and not dry_run:
        raise BadInput(["dry_run=true in a specification launches nothing: call launch(spec, dry_run=True)"])
    return launch_here(completed(spec, os.environ).replace(dry_run=dry_run or None), quiet=quiet)


def launch_here(spec: JobSpec, *, quiet: bool = False) -> JobOutcome | JobPreview:
    """Launch a job, or preview it if its `dry_run` is set. Unlike `launch`, this does not read `paretune.toml`."""
    workplaces = Workplaces.of_process()
    with watched(workplaces.interruption, quiet=quiet) as on_events:
        workplaces = replace(workplaces, on_events=on_events)
        if not spec.dry_run:
            return run_job(spec, workplaces.of(spec))
        try:
            return _dry_run(spec, workplaces.of(spec))
        except NoAccount as error:
            return _dry_run(spec, workplaces.offline(spec, str(error)))


def _dry_run(spec: JobSpec, workplace: Workplace) -> JobPreview:
    """Plan a job as its launch would, raising the same errors, and return what would run."""
    require_answer(tracking_uri())
    spec = spec.replace(dry_run=None)
    return preview(plan(spec, workplace, checks_budgets=True), workplace)


def start_here(spec: JobSpec) -> CommandOutput:
    """Launch a job, or find the running job that the same command started earlier, and return without waiting for it.

    Nobody watches the job until `sync` is called: only then, a failed job is tried again and its record is completed.
    Raises the errors of `launch` except those about the job's end.
    """
    workplaces = Workplaces.of_process()
    with watched(workplaces.interruption) as on_events:
        job = begin_job(spec, replace(workplaces, on_events=on_events).of(spec))
        if not job.record.is_watched_elsewhere:
            job.record.leave()
    name, run_id = job.order.job_name, job.record.run.run_id
    run = {"run": run_id}
    lines = [
        f"{name} has been created; its run is {run_id}",
        f"  {command_line('logs', {**run, 'follow': 'true'})}  # what it prints",
        f"  {command_line('sync')}  # follow it, try again if it fails, and complete its record",
        f"  {command_line('stop', run)}  # end it",
    ]
    return CommandOutput(text="\n".join(lines), document={"job_name": name, "run_id": run_id})


def run_job(spec: JobSpec, workplace: Workplace) -> JobOutcome:
    """Prepare, launch, watch and record one job, or follow the job that the same command started earlier.

    An existing job is followed if it belongs to the run that `mlflow run` has opened, or if it is running and identical
    to this one. With `force=again`, identical jobs of other runs are not followed, and a new job starts.

    Raises the errors of `launch`. If the job ran out of memory and no smaller batch could be tried, the JobFailed is an
    OutOfMemory.
    """
    return finish_job(begin_job(spec, workplace))


def finish_job(job: Attempts) -> JobOutcome:
    """Follow a job in progress to its end, record it, and return its outcome. Raises the errors of `run_job`."""
    card, workplace = job.record.plan.card, job.record.workplace
    try:
        result = job.wait(workplace.interruption).result()
    except BaseException as error:
        job.leave(error)
        if isinstance(error, Interrupted) and job.outcome is not None:
            folder = workplace.home / "checkpoints" / checkpoint_folder(job.order)  # exists for a local job only
            checkpoint = f", its checkpoint is in {folder}" if any(folder.glob("*/complete.json")) else ""
            raise Interrupted(
                f"{error}; {job.order.job_name} has {job.outcome.state.value.lower()}{checkpoint}"
            ) from error
        raise
    if workplace.launcher.jobs_outlive_submitter:
        job.record.run.delete_tags(schema.UNSEEN)
    if workplace.launcher.traits.keeps_instances and not job.record.is_watched_elsewhere:
        with suppress(ParetuneError):  # if this fails, a later `sync` records the pool that the job reused, and its own
            records = record_pools(workplace.tracking, lambda run: None if workplace.elsewhere(run.tags) else workplace)
            workplace.say(*(sentence for _, sentence in records))
    if card.register is None or job.record.is_watched_elsewhere:
        return result
    sentence = register(card.register, result.run_id, workplace.tracking)
    return replace(result, remarks=(*result.remarks, sentence))


def begin_job(spec: JobSpec, workplace: Workplace) -> Attempts:
    """Plan a job, and launch or adopt it. This is the first half of `run_job`; it raises the same errors."""
    asked = spec.identity
    with _opened_run(asked, spec.command(), workplace) as (opened, parent):
        if opened is not None and opened.has_job:
            record, names = _adopted(asked, workplace, opened.run.run_id), None
        else:
            made = plan(spec, workplace)
            if launchers.known()[made.launcher].runs_here and (busy := busy_sentence()):
                made = made.warned(busy)
            record, names = _chosen(made, workplace, opened, parent)
    if not record.is_adopted:
        workplace.say(*_announcement(record.plan, job_name(record.job, 1)))
    return _begun(record, names)


def _chosen(
    made: Plan, workplace: Workplace, opened: "_OpenedRun | None", parent: str
) -> tuple[JobRecord, Iterator[str] | None]:
    """Return the record of a planned job, or of an equal job that is followed instead, and further names for the job.

    The names are None if no other job may have the job's name.
    """
    with nullcontext() if opened is None else alone_with(opened.run.run_id):
        equal = _equal_runs(made, workplace)
        names = None if equal is None else _names(made, workplace, equal, opened)
        followed = None if opened is None else opened.choice(workplace)
        if followed is None and equal:
            followed = _to_follow(equal, workplace)
        if followed is not None:
            if opened is not None:
                _make_watcher(opened.run, followed)
            return _adopted(made.identity, workplace, followed), names
        workplace.check_budgets(made)  # before a run is opened
        name = run_name(made.card, made.offer.instance_type)
        run = None if opened is None else workplace.tracking.begin(name)
        record = JobRecord(made, workplace, run=run, parent=parent)
        record.job = record.job if names is None else next(names)
        if opened is not None:
            record.claim()
    record.describe(made)
    return record, names


def _begun(record: JobRecord, names: Iterator[str] | None = None) -> Attempts:
    """Create or find the job of a record. If another run's identical job was created first, follow that job.

    Processes that run the same command at the same moment give their jobs the same name. AWS accepts a name only once,
    so only one of these jobs is created, and it records the id of its run. The other processes find that run, close
    their own runs, and follow the job. If that run was removed from MLflow for good and its job still runs, this
    process's run continues the record. If such a job has ended, or if its run was deleted, the next name is tried.
    """
    workplace = record.workplace
    while True:
        job = Attempts(record)
        try:
            job.begin()
            workplace.interruption.check()
        except BaseException as error:
            job.leave(error)
            raise
        if not job.taken_by:
            return job
        taken = workplace.tracking.recorder_of(job.taken_by)
        if taken is not None and not (taken.is_deleted and taken.state in ENDED):
            run_id = record.run.run_id
            with alone_with(run_id):
                recorded = workplace.tracking.recorded(run_id)
                if recorded is None or recorded.tags.get(schema.JOB_NAME) == job.order.job_name:
                    workplace.record_cost(record.plan.limits.budget, run_id, 0.0, None)
                    _make_watcher(record.run, taken.run_id)
            return _begun(_adopted(record.plan.identity, workplace, taken.run_id))
        if taken is None and (live := _running(job.order.job_name, workplace)) is not None:
            if live.launched_by not in ("", user_here(workplace.environment)):
                refused = LaunchRefused(_of_another_user(live, job.taken_by, record.plan))
                job.leave(refused)
                raise refused
            record.take_over(job.taken_by)
            gone = f"run {job.taken_by} of job {job.order.job_name} was removed from MLflow, but the job runs"
            workplace.say(f"{gone}: run {record.run.run_id} records it now, so that nothing is paid for twice")
            continue
        assert names is not None  # without `names`, a job is named after its run, so no other run has its name
        record.job, record.is_adopted = next(names), False


def _running(name: str, workplace: Workplace) -> Job | None:
    """Return the job of this name, or None if it does not exist or has ended."""
    job = workplace.launcher.attach(name)
    return None if job is None or job.state().is_terminal else job


def _of_another_user(job: Job, run_id: str, made: Plan) -> str:
    adopt = f"if the run was removed, `{command_line('sync', {'adopt': run_id})}` records the job here; "
    return (
        f"job {job.name} of {job.launched_by} runs the same training, and this MLflow store does not have its run "
        f"{run_id}: the store is perhaps a copy of the one that has it, so the job is left alone; "
        f"{adopt if made.limits.budget else ''}{options(force='again')} starts another job"
    )


def _equal_runs(made: Plan, workplace: Workplace) -> list[RecordedRun] | None:
    """Return runs of jobs with the same given parameters, data and code, newest first, without the trials of studies.

    A deleted run counts only if its job has not ended, as far as the run says. Returns None if no earlier job may be
    followed: with `force=again`, or if jobs end with the process that launched them.
    """
    identity = made.identity
    if identity.is_forced or not workplace.launcher.jobs_outlive_submitter:
        return None
    return [
        run
        for run in workplace.tracking.runs(f"tags.`{schema.SPEC_HASH}` = '{identity.computation}'", deleted=True)
        if identity.is_requested_by(schema.given_by(run.tags))
        and (not run.is_deleted or run.state == JobState.RUNNING.value)
        and run.tags.get(schema.DATASET_KEY) == identity.data_key
        and run.tags.get(schema.CODE_KEY) == identity.code_key
        and schema.TRIAL not in run.tags
    ]


def _names(made: Plan, workplace: Workplace, equal: list[RecordedRun], opened: "_OpenedRun | None") -> Iterator[str]:
    """Return names for the job. All processes that run this command try them in the same order.

    A name is a hash and a number. The hash covers the MLflow store, the location, the specification, the data and the
    code. The numbers begin above those of identical jobs of other runs that have ended. The job of the opened run is
    not counted. So two processes that continue the same run give its job the same name, even if the job has ended in
    between.
    """
    place = Place(store=workplace.tracking.store_id, location=workplace.launcher.location_tags())
    key = made.identity.name_at(place)
    ended = [
        job_of(run.tags.get(schema.JOB_NAME, "")).rpartition("-")
        for run in equal
        if run.tags.get(schema.STATE) != JobState.RUNNING.value and (opened is None or run.run_id != opened.run.run_id)
    ]
    first = max((int(number) + 1 for base, _, number in ended if base == key and number.isdigit()), default=0)
    return (f"{key}-{number}" for number in count(first))


def _to_follow(equal: list[RecordedRun], workplace: Workplace) -> str | None:
    """Return the run id of an identical job that is running where this command's jobs run.

    If there is none, return the run id of an identical job that has completed without a command that showed its result.
    If there is none either, return that of a job that was never created because its process died, or None.
    """
    location = {f"{schema.PREFIX}{name}": text for name, text in workplace.launcher.location_tags().items()}
    dead, unseen = None, list[RecordedRun]()
    for run in equal:
        if (
            run.state not in (JobState.RUNNING.value, JobState.COMPLETED.value)
            or not location.items() <= run.tags.items()
        ):
            continue
        if run.is_completed:
            if run.tags.get(schema.UNSEEN) == "true":
                unseen.append(run)
            continue
        if find_job(run.run_id, run.tags, workplace) is not None:
            return run.run_id
        watched_by = run.tags.get(schema.WATCHED_BY, "")
        if (not watched_by or is_alive(watched_by) is False) and not run.is_deleted:
            dead = dead or run.run_id
    for run in unseen:
        if find_job(run.run_id, run.tags, workplace) is not None:
            workplace.say(
                f"run {run.run_id}: its job completed after the command that launched it was interrupted, and its "
                "result has not been shown yet; it is shown now, and nothing new is paid for"
            )
            return run.run_id
    return dead


@dataclass(frozen=True)
class _OpenedRun:
    """The run that `mlflow run` has opened for this job. Several launchers may have it, such as a restarted command.

    These launchers decide one after the other, and the first one decides for all: the run gets its own job, which
    `JobRecord.claim` records, or it watches the job of another run.
    """

    run: Run
    has_job: bool
    job_name: str  # recorded when this launcher began; "" if none

    def choice(self, workplace: Workplace) -> str | None:
        """Return the id of the run whose job another launcher of this run has chosen since this one began, or None."""
        recorded = workplace.tracking.recorded(self.run.run_id)
        tags = {} if recorded is None else recorded.tags
        if tags.get(schema.KIND) == "watcher":
            return tags[schema.WATCHED_RUN]
        return self.run.run_id if tags.get(schema.JOB_NAME, "") not in ("", self.job_name) else None


@contextmanager
def _opened_run(asked: JobIdentity, command: str, workplace: Workplace) -> Iterator[tuple[_OpenedRun | None, str]]:
    """Yield the run that `mlflow run` has opened for this job, and the id of a parent run.

    Without `mlflow run`, the run is None and the id is "". A run records only one job. So if the opened run belongs to
    another job, or to a command without a job, the run is None and the id is that of the opened run: this job gets a
    new run under it.

    If the block refuses the job before it exists, this function closes the opened run with the reason, because a killed
    `mlflow run` cannot close it. Raises LostContact if the job may be running but cannot be read; its run stays open.
    """
    if "MLFLOW_RUN_ID" not in workplace.environment and is_absent_file(tracking_uri()):
        require_answer(tracking_uri())  # MLflow creates the file later, so that a refused job leaves none
        yield None, ""
        return
    run_id = workplace.tracking.opened_run_id()
    if run_id is None:
        yield None, ""
        return
    run, is_ours, has_job = workplace.tracking.run(run_id), True, False
    try:
        with alone_with(run_id):  # other processes and threads of this run may launch jobs at the same moment
            recorded = workplace.tracking.recorded(run_id)
            tags = recorded.tags if recorded else {}
            is_ours = _may_record(tags, asked)
            if is_ours and schema.GIVEN not in tags:  # in one write, because the process may be killed between two
                run.set_tags(opening_tags(asked, command, workplace))
        if is_ours:
            has_job = _has_job(run_id, tags, workplace)
        if is_ours and not has_job:
            is_watcher = tags.get(schema.KIND) == "watcher"  # until now, this run followed another run's job
            no_watcher = {schema.KIND: "", schema.WATCHED_RUN: ""} if is_watcher else {}
            run.set_tags(no_watcher | opening_tags(asked, command, workplace))
        yield (_OpenedRun(run, has_job, tags.get(schema.JOB_NAME, "")), "") if is_ours else (None, run_id)
    except LostContact:
        raise  # the job may run
    except ParetuneError as error:
        if is_ours and not has_job:  # the end of a job that exists is recorded already, or left to `sync`
            run.set_tags({schema.FAILURE_REASON: str(error), schema.WATCHED_BY: "", schema.STATE: ""})
            run.end(RUN_STATUS[JobState.STOPPED if isinstance(error, Interrupted) else JobState.FAILED])
        raise


def _may_record(tags: Mapping[str, str], asked: JobIdentity) -> bool:
    """Return whether an opened run may record this job: the run records nothing yet, or it already records this job.

    With `force=again`, a job that has ended counts as another job.
    """
    if tags.get(schema.KIND) not in (None, "", "watcher") or schema.STUDY_MARK in tags:
        return False
    if asked.is_forced and tags.get(schema.STATE) in ENDED:
        return False
    return schema.GIVEN not in tags or asked.is_requested_by(schema.given_by(tags))


def _has_job(run_id: str, tags: Mapping[str, str], workplace: Workplace) -> bool:
    """Return whether an opened run's job exists. Raises LostContact if it may be running but cannot be seen here."""
    name = first_job_of(run_id, tags)
    try:
        if fault := workplace.elsewhere(tags):
            raise LostContact(f"{name} cannot be followed from here: {fault}")
        return find_job(run_id, tags, workplace) is not None
    except (BadInput, LaunchRefused) as error:
        if tags.get(schema.JOB_NAME) and tags.get(schema.STATE) == JobState.RUNNING.value:
            raise LostContact(f"{error}\n`{command_line('sync')}` follows {name}") from error
        raise


def _make_watcher(run: Run, watched: str) -> None:
    """Close the run of a command that follows the job of the run with the id `watched`, unless that is the same run."""
    if run.run_id != watched:
        no_job = {schema.JOB_NAME: "", schema.STATE: "", schema.WATCHED_BY: ""}  # so that `sync` and reports skip it
        run.set_tags({schema.KIND: "watcher", schema.WATCHED_RUN: watched, **no_job})
        run.end("FINISHED")


def _adopted(asked: JobIdentity, workplace: Workplace, run_id: str) -> JobRecord:
    """Return the record of a job that another process started."""
    run = workplace.tracking.run(run_id)
    record = JobRecord(plan_in(run, workplace, asked), workplace, run=run)
    record.adopt()
    note = "; Ctrl-C here does not stop it, because another process also watches it" * record.is_watched_elsewhere
    workplace.say(
        f"job {job_name(record.job, 1)}: an earlier run of this command started this job; following it, so that "
        f"nothing is paid for twice (force=again starts another){note}"
    )
    return record


def _announcement(made: Plan, name: str) -> list[str]:
    """Return sentences for the user before a job is created: the job, its estimate and its warnings."""
    card, offer = made.card, made.offer
    cluster = f" on {offer.instance_count} x {offer.instance_type}" if offer.has_instances else ""
    limits = (
        f"stopped after {duration(made.limits.max_seconds)}, "
        f"or after {duration(watchdog.SILENCE_S)} without a sign of life"
    )
    batch = f"; {card.texts['batch']}" if "batch" in card.texts else ""
    kind = "simulated job" if card.is_simulated else "job"
    return [
        f"{kind} {name}{cluster}: {card.texts['would run']}{batch}; {limits}",
        *([f"estimated: {card.texts['expected']}"] if "expected" in card.texts else []),
        *(f"warning: {text}" for text in card.warnings),
    ]
