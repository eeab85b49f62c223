"""One job, from specification to recorded run.

Order matters: everything that can be refused is refused before a run is opened, and the run is opened before the job
starts, so that a job is never without a record.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, overload

from paretune.core.commands import command_line
from paretune.core.errors import BadInput, Interrupted, LostContact, ParetuneError
from paretune.estimating.hardware import speed_remarks
from paretune.estimating.time_estimate import TimeEstimate
from paretune.jobs.adoption import close_watcher, elsewhere, own_job_tags, unwatched_job
from paretune.jobs.advice import foreseen, limit_refusal, warnings_of, with_history
from paretune.jobs.ending import RUN_STATUS
from paretune.jobs.preparation import inputs_of
from paretune.jobs.preview import JobPreview, batch_in_words, preview, training_in_words
from paretune.jobs.progress import watched
from paretune.jobs.record import JobRecord, opening_tags
from paretune.jobs.result import JobResult
from paretune.jobs.retrying_job import RetryingJob
from paretune.jobs.warm_pools import settle_reused
from paretune.jobs.workplace import Workplace, Workplaces, without_empty_home
from paretune.launchers.base import JobState, job_name
from paretune.ledger.budget_file import BudgetFile
from paretune.models.register import register
from paretune.specification.batch_size import BatchPlan
from paretune.specification.container import Event, JobDocument, JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.profile import completed, remarks
from paretune.tracking import Run, is_absent_file, require_answer, schema, tracking_uri
from paretune.tracking.recorded_job import first_plan


@overload
def launch(spec: JobSpec, *, dry_run: Literal[False] = False, quiet: bool = False) -> JobResult: ...
@overload
def launch(spec: JobSpec, *, dry_run: Literal[True], quiet: bool = False) -> JobPreview: ...
def launch(spec: JobSpec, *, dry_run: bool = False, quiet: bool = False) -> JobResult | JobPreview:
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


@without_empty_home()
def launch_here(spec: JobSpec, *, quiet: bool = False) -> JobResult | JobPreview:
    """Launch the specification as it is, without the profile file; a dry run if it says so."""
    workplaces = replace(Workplaces.of_process(), shows_work=not quiet)
    with watched(workplaces.interruption, quiet=quiet) as on_events:
        return preview(spec, workplaces.of(spec)) if spec.dry_run else run_job(spec, workplaces.of(spec), on_events)


def run_job(
    spec: JobSpec, workplace: Workplace, on_events: Callable[[list[Event]], None], *, study: str = ""
) -> JobResult:
    """Prepare, launch, watch and record one job; or adopt the job that an earlier launcher has started.

    A job is adopted if it belongs to this run, or if it is identical and unwatched; `again` starts another beside the
    latter. `study` is the name of the study or design that the job is part of.

    Raises:
        BadInput, BudgetRefused, LaunchRefused, JobFailed, LostContact, Interrupted: as `launch`.
        OutOfMemory: the job failed with the smallest batch that could be tried.
    """
    inputs, run, forecast = _checked(spec, workplace, study)
    record = JobRecord(spec, workplace, run=run, study=study)
    plan = first_plan(record.spec, record.run.tags()) if forecast is None else forecast.smaller_batch
    document = JobDocument.first(job_name(record.run.run_id, 1), record.spec, plan, record.attribution)
    job = RetryingJob(record, document, on_events, lambda: inputs or inputs_of(record.spec, workplace))
    try:
        _describe(record, forecast, on_events, spec.command())
        job.begin()
        result = job.wait(workplace.interruption).result()
    except BaseException as error:
        _leave_or_abandon(job, error)
        raise
    return _conclude(result, workplace, on_events)


def _identical_run(spec: JobSpec, inputs: JobInputs, workplace: Workplace) -> Run | None:
    """The run of an identical job that nobody watches, taken over by this process; None if there is none."""
    identical = unwatched_job(spec, inputs, workplace)
    if identical is None:
        return None
    close_watcher(workplace, identical)
    return workplace.tracking.run(identical.run_id)


@dataclass(frozen=True, kw_only=True)
class _Forecast:
    """The announcement and the record of a new job before it starts."""

    inputs: JobInputs
    smaller_batch: BatchPlan | None  # the batch to begin with if the one that was asked for does not fit
    estimate: TimeEstimate | None
    sentences: Sequence[str]  # about the batch, the estimate and the instances
    warnings: Sequence[str]


def _describe(
    record: JobRecord, forecast: _Forecast | None, on_events: Callable[[list[Event]], None], command: str
) -> None:
    """Record and announce the job; `forecast` is None for a job that was started before."""
    messages = [_announcement(record.spec, None if forecast is None else forecast.inputs, record.run.run_id)]
    if forecast is None:
        record.adopt()
    else:
        warnings = forecast.warnings
        record.describe(
            forecast.inputs,
            plan=forecast.smaller_batch,
            command=command,
            estimate=forecast.estimate,
            warnings=warnings,
        )
        messages += [*forecast.sentences, *(f"warning: {text}" for text in warnings)]
    _announce(messages, record.workplace, on_events)


def _announce(messages: Sequence[str], workplace: Workplace, on_events: Callable[[list[Event]], None]) -> None:
    on_events([Event(time=workplace.clock.now(), step=0, message=message) for message in messages])


def _leave_or_abandon(job: RetryingJob, error: BaseException) -> None:
    """Let the job go on after an interruption if on_interrupt=detach says so; stop it and close its run otherwise."""
    spec = job.record.spec
    detaches = isinstance(error, Interrupted) and spec.on_interrupt == "detach" and spec.on_sagemaker
    if detaches and job.current is not None:
        job.record.leave()
        raise Interrupted(f"{error}; {job.current.name} goes on, `{command_line('sync')}` collects it") from error
    job.abandon(error)


def _conclude(result: JobResult, workplace: Workplace, on_events: Callable[[list[Event]], None]) -> JobResult:
    """Settle the warm pool that the job has reused, and register its model if that was asked for."""
    if result.spec.on_sagemaker:
        _announce(settle_reused(workplace, result.job_name), workplace, on_events)
    if result.spec.register is None:
        return result
    sentence = register(result.spec.register, result.run_id, workplace.tracking)
    return replace(result, remarks=(*result.remarks, sentence))


def _foresee(spec: JobSpec, inputs: JobInputs, workplace: Workplace) -> _Forecast:
    sentences = remarks(spec, workplace.environment)
    if spec.has_instances:
        sentences += speed_remarks(spec.instance())
        if spec.sagemaker.kms_key_id and spec.instance().has_local_storage:
            sentences.append(
                f"{spec.instance_type} trains on disks that its own hardware encrypts: AWS takes no key for them, so "
                "kms_key encrypts uploads and results only"
            )
    plan, smaller_batch = spec.plan(), None
    if (lowered := workplace.forecast.smaller_batch(spec, inputs)) is not None:
        smaller_batch, against = lowered
        plan = smaller_batch
        sentences.append(
            f"per-device batch {against.rows} ran out of memory on as much memory before (run {against.run_id}): "
            f"beginning with {plan.per_device_train_batch_size} x {plan.gradient_accumulation_steps} accumulation "
            f"steps (global batch size stays {plan.global_batch_size})"
        )
    job = foreseen(spec, inputs, workplace, plan=plan)
    if refusal := limit_refusal(job):
        raise BadInput([refusal])
    estimate: TimeEstimate | None = job.estimate
    if spec.runs_own_training:
        estimate = workplace.forecast.time_of(spec, plan, inputs, job.price)
    if estimate is not None:
        sentences.append(estimate.sentence())
    warnings = warnings_of(with_history([job], workplace.tracking))
    return _Forecast(
        inputs=inputs, smaller_batch=smaller_batch, estimate=estimate, sentences=sentences, warnings=warnings
    )


def _checked(spec: JobSpec, workplace: Workplace, study: str) -> tuple[JobInputs | None, Run | None, _Forecast | None]:
    """The inputs of a job that may be launched, the run of one to adopt instead, and the forecast of a new one.

    All are None if this run has started its job before, which only needs to be watched.
    """
    launcher = workplace.launcher
    makes_store = "MLFLOW_RUN_ID" not in workplace.environment and is_absent_file(tracking_uri())
    if makes_store:  # later: a refused job leaves none
        require_answer(tracking_uri())
    run_id = None if makes_store else workplace.tracking.opened_run_id()
    # Its run stays open.
    if run_id is not None and (fault := elsewhere(workplace.tracking.run(run_id).tags(), launcher)):
        raise LostContact(f"{job_name(run_id, 1)} cannot be followed from here: {fault}")
    is_new = False
    try:
        if run_id is not None:
            if launcher.attach(job_name(run_id, 1)) is not None:
                return None, None, None
            is_new = True
            opened = workplace.tracking.run(run_id)
            tags = opened.tags()
            opened.set_tags(own_job_tags(tags) | opening_tags(spec, workplace) | workplace.watches.hold(opened))
        launcher.worst_case_usd(spec)
        if spec.budget is not None:
            BudgetFile.read(spec.budget)  # its faults are reported before anything is prepared
        inputs = inputs_of(spec, workplace, meanwhile=lambda: launcher.check(spec))
        launcher.check_inputs(spec, inputs)
        if spec.budget is not None and (spec.force or unwatched_job(spec, inputs, workplace) is None):
            workplace.budgets(
                spec, workplace.attribution(spec, study)
            ).check()  # before a run is opened; a job to adopt has its reservation
        run = None if spec.force else _identical_run(spec, inputs, workplace)
        return inputs, run, None if run is not None else _foresee(spec, inputs, workplace)
    except ParetuneError as error:
        if run_id is not None:  # `mlflow run` has opened it and closes it, unless it was killed
            run = workplace.tracking.run(run_id)
            state = JobState.STOPPED if isinstance(error, Interrupted) else JobState.FAILED
            closed = workplace.watches.release(run_id)
            closed = {schema.STATE: "", **closed} if is_new else {}  # there is no job
            run.set_tags({schema.FAILURE_REASON: str(error), **closed})
            run.end(RUN_STATUS[state])
        raise


def _announcement(spec: JobSpec, inputs: JobInputs | None, run_id: str) -> str:
    plan, name = spec.plan(), job_name(run_id, 1)
    if inputs is None:
        return (
            f"job {name}: this command has started it before, and nobody watches it; watching it, so that nothing is "
            "paid twice (force=true starts another)"
        )
    cluster = f" on {spec.instance_count} x {spec.instance_type}" if spec.has_instances else ""
    silence = f", or {spec.max_silence_minutes:g} without a sign of life" if spec.max_silence_minutes else ""
    limits = f"ended after {spec.max_runtime_minutes:g} minutes{silence}"
    batch = "" if spec.project is not None else f"; {batch_in_words(plan)}"
    kind = "simulated job" if spec.is_simulated else "job"
    facts = None if inputs.dataset is None else inputs.dataset.facts
    return f"{kind} {name}{cluster}: {training_in_words(spec, facts)}{batch}; {limits}"
