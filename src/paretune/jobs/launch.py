"""Launches a job, and follows it from its specification to its recorded run.

Order matters: everything that can be refused is refused before a run is opened, and the run is opened before the job
starts, so that a job is never without a record.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Literal, overload

from paretune.core.errors import BadInput, Interrupted, LostContact, ParetuneError
from paretune.core.shell import command_line
from paretune.estimating.hardware import busy_sentence
from paretune.jobs.attempts import WATCH_INTERVAL_S, Attempts
from paretune.jobs.bill import settle_pools
from paretune.jobs.model import register
from paretune.jobs.outcome import RUN_STATUS, JobOutcome
from paretune.jobs.preparation import inputs_of
from paretune.jobs.preview import (
    JobPreview,
    batch_in_words,
    foreseen,
    limit_refusal,
    preview,
    training_in_words,
    warnings_of,
)
from paretune.jobs.progress import watched
from paretune.jobs.record import JobRecord, opening_tags
from paretune.jobs.workplace import Workplace, Workplaces
from paretune.launchers.base import JobState, checkpoint_folder, job_name
from paretune.ledger.budget_file import BudgetFile
from paretune.specification.container import JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.profile import completed
from paretune.tracking import schema
from paretune.tracking.recorded_job import RecordedRun
from paretune.tracking.run import Run, RunStatus
from paretune.tracking.store import is_absent_file, require_answer, tracking_uri

_DECIDED_WITHIN_S = 60.0  # a process that has opened its run names its job, or follows another one, much earlier


@overload
def launch(spec: JobSpec, *, dry_run: Literal[False] = False, quiet: bool = False) -> JobOutcome: ...
@overload
def launch(spec: JobSpec, *, dry_run: Literal[True], quiet: bool = False) -> JobPreview: ...
def launch(spec: JobSpec, *, dry_run: bool = False, quiet: bool = False) -> JobOutcome | JobPreview:
    """A finished job: trained, measured, priced and recorded in MLflow. Blocks until it has ended.

    Parameters that have their default are taken from `paretune.toml`, as on the command line.
    Ctrl-C stops the job, books what it has cost and raises `Interrupted`.

    `dry_run` checks everything, launches nothing, and gives the job with its worst-case dollars; `quiet` shows no
    progress on standard error.

    Raises:
        BadInput, TrackingUnavailable, LaunchRefused, BudgetRefused: nothing was launched.
        JobFailed: the job failed; its run says why.
        LostContact: the job goes on, but AWS no longer tells how.
        Interrupted: the job was stopped first; with on_interrupt=detach it goes on.

    Examples:
        >>> import paretune
        >>> spec = paretune.JobSpec(launcher="simulated", instance_type="ml.g5.xlarge", max_train_samples=4000)
        >>> job = paretune.launch(spec, quiet=True)
        >>> job.origin, job.metrics["cost_usd"] < 1, "f1" in job.metrics
        ('simulated', True, False)
        >>> round(paretune.launch(spec, dry_run=True).worst_case_usd, 3)
        1.478
    """
    if spec.dry_run and not dry_run:
        raise BadInput(["dry_run=true in a specification launches nothing: call launch(spec, dry_run=True)"])
    return launch_here(completed(spec, os.environ).replace(dry_run=dry_run or None), quiet=quiet)


def launch_here(spec: JobSpec, *, quiet: bool = False) -> JobOutcome | JobPreview:
    """Launch the specification as it is, without the profile file; a dry run if it says so."""
    workplaces = Workplaces.of_process()
    with watched(workplaces.interruption, quiet=quiet) as on_events:
        workplace = replace(workplaces, on_events=on_events).of(spec)
        return preview(spec, workplace) if spec.dry_run else run_job(spec, workplace)


def run_job(spec: JobSpec, workplace: Workplace) -> JobOutcome:
    """Prepare, launch, watch and record one job; or follow the job that the same command has started before.

    A job that runs is followed if it belongs to this run, or if it is identical; `force` starts another beside the
    latter. Raises the errors of `launch`; its JobFailed is OutOfMemory if the smallest batch needs too much.
    """
    job = begin_job(spec, workplace)
    try:
        result = job.wait(workplace.interruption).result()
    except BaseException as error:
        leave_or_abandon(job, error)
        if isinstance(error, Interrupted) and job.end is not None:
            folder = workplace.home / "checkpoints" / checkpoint_folder(job.document)  # of a job on this machine
            checkpoint = f", its checkpoint is in {folder}" if any(folder.glob("*/complete.json")) else ""
            raise Interrupted(
                f"{error}; {job.document.job_name} has {job.end.state.value.lower()}{checkpoint}"
            ) from error
        raise
    if spec.on_sagemaker and not job.record.is_beside:
        with suppress(ParetuneError):  # `sync` books the pool that the job has reused, and its own
            workplace.say(*(sentence for _, sentence in settle_pools(workplace.tracking, lambda _: workplace)))
    if spec.register is None or job.record.is_beside:
        return result
    sentence = register(spec.register, result.run_id, workplace.tracking)
    return replace(result, remarks=(*result.remarks, sentence))


def begin_job(spec: JobSpec, workplace: Workplace) -> Attempts:
    """A job under way, prepared and launched or adopted, as the first half of `run_job`; raises the same errors."""
    record, inputs = _claim(spec, workplace)
    job = Attempts(record, inputs)
    try:
        job.begin()
        workplace.interruption.check()
    except BaseException as error:
        leave_or_abandon(job, error)
        raise
    return job


def _claim(spec: JobSpec, workplace: Workplace) -> tuple[JobRecord, JobInputs | None]:
    """Open the run of a job that may be launched, or take over the run of the same job that is under way.

    Returns the record and the inputs of a new job.
    """
    opened = _opened_run(workplace)
    with _closed_if_refused(opened, spec, workplace) as has_job:
        if opened is not None and has_job:
            return _adopted(spec, workplace, opened.run_id, opened), None
        launcher = workplace.launcher
        launcher.worst_case_usd(spec)
        if spec.budget is not None:
            BudgetFile.read(spec.budget)  # its faults are reported before anything is prepared
        inputs = inputs_of(spec, workplace, meanwhile=lambda: launcher.check(spec))
        launcher.check_inputs(spec, inputs)
        if same := _same_jobs(spec, inputs, workplace):
            return _adopted(spec, workplace, same[0].run_id, opened), None
        workplace.check_budgets(spec)  # before a run is opened
        job = foreseen(spec, inputs, workplace)
        if refusal := limit_refusal(job):
            raise BadInput([refusal])
        warnings = warnings_of([job])
        if not spec.has_instances and launcher.name != "simulated" and (busy := busy_sentence()):
            warnings.append(busy)
        record = JobRecord(spec, workplace)
        record.describe(inputs, estimate=job.estimate, warnings=warnings)
        record.run.flush()  # so that the next launch finds it
        if (first := _ahead(record, inputs)) is not None:
            return _adopted(spec, workplace, first.run_id, record.run), None
    estimated = [] if job.estimate is None else [f"estimated: {job.estimate.sentence()}"]
    messages = [*estimated, *(f"warning: {text}" for text in warnings)]
    workplace.say(_announcement(spec, inputs, record.run.run_id), *messages)
    return record, inputs


def _same_jobs(spec: JobSpec, inputs: JobInputs, workplace: Workplace) -> list[RecordedRun]:
    """The runs of identical jobs that run or wait to be created, whoever watches them, newest first.

    Identical jobs have the same given parameters, data, account and region. Trials of studies are left
    out, because the study's driver follows them. There are none if jobs do not outlive their launcher, or with `force`.
    """
    if spec.force or not workplace.launcher.jobs_outlive_submitter:
        return []
    location = {f"{schema.PREFIX}{name}": text for name, text in workplace.launcher.location_tags().items()}
    key = None if inputs.dataset is None else inputs.dataset.key
    given = _without_force(spec.given())
    same = f"tags.`{schema.STATE}` = 'Running' and tags.`{schema.SPEC_HASH}` = '{spec.spec_hash()}'"
    return [
        run
        for run in workplace.tracking.runs(same)
        if _without_force(schema.given_by(run.tags) or {}) == given
        and run.tags.get(schema.DATASET_KEY) == key
        and schema.TRIAL not in run.tags
        and location.items() <= run.tags.items()
    ]


def _without_force(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "force"}


def _ahead(record: JobRecord, inputs: JobInputs) -> RecordedRun | None:
    """The run of the same job that another process, of any machine, has opened meanwhile, if that one goes first.

    Everybody opens a run before looking. One whose job has a name goes first. Of others, which see each other, the
    one with the smallest id does: the rest withdraw and wait for a name. It begins when nobody else is left, so it
    waits for those that have looked before it opened its run. If they never give a name, all agree on one of them.
    """
    clock, run_id, is_in = record.workplace.clock, record.run.run_id, True
    until = clock.monotonic() + _DECIDED_WITHIN_S
    while True:
        others = sorted(
            (run for run in _same_jobs(record.spec, inputs, record.workplace) if run.run_id != run_id),
            key=lambda run: (schema.JOB_NAME not in run.tags, run.run_id),
        )
        if not others and is_in:
            return None
        if others and schema.JOB_NAME in others[0].tags:
            return others[0]
        if clock.monotonic() > until and others:
            has_waited = is_in or len(others) == 1  # of two that are left, the second has not seen the first
            return others[0 if has_waited else 1]
        should_be_in = not others or run_id < others[0].run_id
        if should_be_in != is_in:
            is_in = should_be_in
            record.run.set_tags({schema.STATE: JobState.RUNNING.value if is_in else ""})
            record.run.flush()
            continue
        try:
            record.workplace.interruption.check()
        except Interrupted:
            _close_unused(record.run, RunStatus.KILLED)
            raise
        clock.sleep(WATCH_INTERVAL_S)


def _opened_run(workplace: Workplace) -> Run | None:
    """The run that `mlflow run` has opened for this command; raises LostContact if its job runs somewhere else."""
    if "MLFLOW_RUN_ID" not in workplace.environment and is_absent_file(tracking_uri()):
        require_answer(tracking_uri())  # the file is made later: a refused job leaves none
        return None
    run_id = workplace.tracking.opened_run_id()
    run = None if run_id is None else workplace.tracking.run(run_id)
    if run is not None and (fault := workplace.elsewhere(run.tags())):
        raise LostContact(f"{job_name(run.run_id, 1)} cannot be followed from here: {fault}")
    return run


@contextmanager
def _closed_if_refused(opened: Run | None, spec: JobSpec, workplace: Workplace) -> Iterator[bool]:
    """Close the opened run with the reason if the block refuses the job; yields whether that run has a job.

    `mlflow run` closes the run that it has opened, unless it was killed.
    """
    has_job = False
    try:
        if opened is not None:
            has_job = workplace.launcher.attach(job_name(opened.run_id, 1)) is not None
            if not has_job:
                is_watcher = opened.tags().get(schema.KIND) == "watcher"  # of another job, until now
                no_watcher = {schema.KIND: "", schema.WATCHED_RUN: ""} if is_watcher else {}
                opened.set_tags(no_watcher | opening_tags(spec, workplace))
        yield has_job
    except ParetuneError as error:
        if opened is not None:
            no_job = {} if has_job else {schema.STATE: ""}
            opened.set_tags({schema.FAILURE_REASON: str(error), schema.WATCHED_BY: "", **no_job})
            opened.end(RUN_STATUS[JobState.STOPPED if isinstance(error, Interrupted) else JobState.FAILED])
        raise


def _close_unused(run: Run, status: RunStatus) -> None:
    """Close a run that gets no job; `sync` and reports leave it alone."""
    run.set_tags({schema.STATE: "", schema.WATCHED_BY: ""})
    run.end(status)


def _adopted(spec: JobSpec, workplace: Workplace, run_id: str, opened: Run | None) -> JobRecord:
    """The record of a job under way; another run of this command's own is closed with a tag that names it."""
    if opened is not None and opened.run_id != run_id:
        opened.set_tags({schema.KIND: "watcher", schema.WATCHED_RUN: run_id})
        _close_unused(opened, RunStatus.FINISHED)
    record = JobRecord(spec, workplace, run=workplace.tracking.run(run_id))
    record.adopt()
    beside = "; Ctrl-C leaves it to the process that watches it, too" if record.is_beside else ""
    workplace.say(
        f"job {job_name(run_id, 1)}: this command has started it before; watching it, so that nothing is paid twice "
        f"(force=true starts another){beside}"
    )
    return record


def leave_or_abandon(job: Attempts, error: BaseException) -> None:
    """Let the job go on if another process watches it, too, or if it is to be detached; else stop and close it."""
    spec = job.record.spec
    detaches = isinstance(error, Interrupted) and spec.on_interrupt == "detach" and spec.on_sagemaker
    if job.record.is_beside or (detaches and job.current is not None):
        job.record.leave()
        if isinstance(error, Interrupted) and job.current is not None:
            raise Interrupted(f"{error}; {job.current.name} goes on, `{command_line('sync')}` collects it") from error
        return
    job.abandon(error)


def _announcement(spec: JobSpec, inputs: JobInputs, run_id: str) -> str:
    plan, name = spec.plan(), job_name(run_id, 1)
    cluster = f" on {spec.instance_count} x {spec.instance_type}" if spec.has_instances else ""
    silence = f", or {spec.max_silence_minutes:g} without a sign of life" if spec.max_silence_minutes else ""
    limits = f"ended after {spec.max_runtime_minutes:g} minutes{silence}"
    batch = "" if spec.runs_user_code else f"; {batch_in_words(plan)}"
    kind = "simulated job" if spec.is_simulated else "job"
    facts = None if inputs.dataset is None else inputs.dataset.facts
    return f"{kind} {name}{cluster}: {training_in_words(spec, facts)}{batch}; {limits}"
