"""One job, from specification to recorded run.

Order matters: everything that can be refused is refused before a run is opened, and the run is opened before the job
starts, so that a job is never without a record.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from paretune.core.clock import Clock
from paretune.core.errors import BadInput, BudgetRefused, Interrupted, LostContact, ParetuneError
from paretune.core.interruption import Interruption
from paretune.estimating.estimates import Estimate
from paretune.estimating.forecast import Forecast
from paretune.jobs.attempts import RetryingJob
from paretune.jobs.preparation import prepare
from paretune.jobs.recording import JobRunWriter, Outcome, first_plan, job_name
from paretune.launchers.base import Launcher
from paretune.pricing.prices import Price, price_remarks
from paretune.spec import metrics
from paretune.spec.batch_size import BatchPlan
from paretune.spec.container import Event, JobInputs
from paretune.spec.job import JobSpec
from paretune.spec.regions import usual_region
from paretune.tracking import RunStatus, Tracking

WATCH_INTERVAL_S = 0.5
"""Between two looks at a job; a launcher that pays for looking limits itself."""


def launch(
    spec: JobSpec,
    *,
    launcher: Launcher,
    tracking: Tracking,
    home: Path,
    clock: Clock,
    environment: Mapping[str, str],
    interruption: Interruption,
    on_events: Callable[[list[Event]], None],
    forecast: Forecast | None = None,
) -> Outcome:
    """Prepare, launch, watch and record one job; or adopt the job that an earlier launcher of this run has started.

    Raises:
        BadInput, BudgetRefused, LaunchRefused: nothing was launched.
        JobFailed, OutOfMemory: the job failed; its run says why.
        Interrupted: the job was stopped first, and its run says so; with on_interrupt=detach it goes on.
        LostContact: the job goes on, but AWS no longer tells how.
    """
    inputs = partial(
        inputs_of, spec, launcher, home=home, clock=clock, environment=environment, interruption=interruption
    )
    prepared = _checked_inputs(spec, launcher, tracking, inputs)
    foreseen = _foresee(spec, launcher, prepared, forecast, environment)
    recording = JobRunWriter(spec, launcher, tracking)
    attempts = RetryingJob(
        spec,
        launcher=launcher,
        recording=recording,
        inputs=lambda: prepared or inputs(),
        clock=clock,
        on_events=on_events,
        plan=foreseen.plan or first_plan(spec, recording.run.tags()),
    )
    try:
        recording.begin(prepared, first_plan=foreseen.changed_plan, estimate=foreseen.estimate)
        said = [_announcement(spec, prepared, recording.run.run_id), *foreseen.sentences]
        on_events([Event(time=clock.now(), step=0, message=sentence) for sentence in said])
        attempts.begin()
        while not attempts.look():
            interruption.check()
            clock.sleep(WATCH_INTERVAL_S)
    except Interrupted as error:
        if spec.on_interrupt != "detach" or not spec.on_sagemaker or attempts.job is None:
            _end_early(attempts, recording, error)
            raise
        recording.leave()
        raise Interrupted(f"{error}; {attempts.job.name} goes on, `mlflow run . -e sync` collects it") from error
    except LostContact:
        recording.leave()
        raise
    except BaseException as error:
        _end_early(attempts, recording, error)
        raise
    return attempts.outcome


@dataclass(frozen=True, kw_only=True)
class _Foreseen:
    """The batch to begin with, the job's estimate, and what to tell the user about both and about the price.

    `plan` is None for a job that was started before: its run says with which batch.
    """

    plan: BatchPlan | None = None
    changed_plan: BatchPlan | None = None
    estimate: Estimate | None = None
    sentences: tuple[str, ...] = ()


def _foresee(
    spec: JobSpec,
    launcher: Launcher,
    inputs: JobInputs | None,
    forecast: Forecast | None,
    environment: Mapping[str, str],
) -> _Foreseen:
    if inputs is None:
        return _Foreseen()
    price = launcher.price(spec)
    sentences = []
    if spec.has_instances:
        region = launcher.place().get("region") or usual_region(spec.region, environment)
        sentences += price_remarks(price, spec.instance_type, region, datetime.now(UTC).date())
    if forecast is None:
        return _Foreseen(plan=spec.plan(), sentences=tuple(sentences))
    plan, against = forecast.first_plan(spec, inputs)
    if against is not None:
        sentences.append(
            f"per-device batch {against.rows} ran out of memory on as much memory before (run {against.run_id}): "
            f"beginning with {plan.per_device_train_batch_size} x {plan.gradient_accumulation_steps} accumulation "
            f"steps (global batch size stays {plan.global_batch_size})"
        )
    estimate = forecast.of(spec, plan, inputs, price)
    if estimate is not None:
        sentences.append(estimate.sentence())
    return _Foreseen(
        plan=plan,
        changed_plan=plan if against is not None else None,
        estimate=estimate,
        sentences=tuple(sentences),
    )


def inputs_of(
    spec: JobSpec, launcher: Launcher, meanwhile: Callable[[], None] = lambda: None, **place: Any
) -> JobInputs:
    """What the job reads, prepared as `preparation.prepare` does; nothing where nothing is read.

    Raises:
        BadInput: what is wrong with it, and what `meanwhile` finds.
    """
    if launcher.reads_inputs:
        return prepare(spec, meanwhile=meanwhile, **place)
    meanwhile()
    return JobInputs()


def _checked_inputs(
    spec: JobSpec, launcher: Launcher, tracking: Tracking, inputs: Callable[[Callable[[], None]], JobInputs]
) -> JobInputs | None:
    """The inputs of a job against which nothing stands; None when it was started before, and is only to be watched."""
    try:
        run_id = tracking.opened_run_id()
        if run_id is not None and launcher.attach(job_name(run_id, 1)) is not None:
            return None
        admit_everywhere(spec, launcher)
        return inputs(lambda: launcher.check(spec))
    except ParetuneError as error:
        _give_up_opened_run(tracking, error)
        raise


def _end_early(attempts: RetryingJob, recording: JobRunWriter, error: BaseException) -> None:
    """Stop and book what runs, and close its run; one that cannot be seen to stop leaves its run open."""
    try:
        attempts.stop(WATCH_INTERVAL_S)
    except LostContact:
        recording.leave()
        raise
    recording.give_up(error, attempts.job)


def _give_up_opened_run(tracking: Tracking, error: ParetuneError) -> None:
    """Close the run that `mlflow run` has opened: MLflow does it too, unless it has been killed."""
    run_id = tracking.opened_run_id()
    if run_id is not None:
        run = tracking.run(run_id)
        run.set_tags({"paretune.failure_reason": str(error)})
        run.end(RunStatus.KILLED if isinstance(error, Interrupted) else RunStatus.FAILED)


def admit(spec: JobSpec, price: Price | None) -> float | None:
    """The job's worst-case dollars, None when its price is unknown.

    Raises:
        BudgetRefused: they exceed max_cost_usd, or the price is unknown and a limit is set.
    """
    if price is None:
        if spec.max_cost_usd is not None:
            raise BudgetRefused(
                f"max_cost_usd is {spec.max_cost_usd:g} but the price of {spec.instance_type} is not known "
                "in this region: leave max_cost_usd out, or take another type or region"
            )
        return None
    minutes = spec.max_runtime_minutes + spec.keep_alive_minutes  # a warm pool is billed like a job
    worst = metrics.cost_usd(minutes * 60, spec.instance_count, price.usd_per_hour)
    if spec.max_cost_usd is not None and worst > spec.max_cost_usd:
        raise BudgetRefused(
            f"worst case {worst:.4g} USD ({minutes:g} minutes x {spec.instance_count} x "
            f"{price.usd_per_hour:g} USD per hour) must be at most max_cost_usd, {spec.max_cost_usd:g}: lower "
            "max_runtime_minutes or raise max_cost_usd"
        )
    return worst


def admit_everywhere(spec: JobSpec, launcher: Launcher) -> float | None:
    """The worst case on the instance type that was asked for; those to fall back on must fit the limit as well.

    Raises:
        BudgetRefused: see `admit`.
    """
    worst = admit(spec, launcher.price(spec))
    for instance_type in spec.instance_types()[1:]:
        elsewhere = spec.on_instance_type(instance_type)
        admit(elsewhere, launcher.price(elsewhere))
    return worst


def _announcement(spec: JobSpec, inputs: JobInputs | None, run_id: str) -> str:
    """What is about to run, plainly: which model, how many rows, which batch and rate, on what."""
    plan = spec.plan()
    if inputs is None:
        return f"job {job_name(run_id, 1)}: it has been started before; watching it"
    if inputs.dataset is None:
        what = f"your script {spec.entry_script}" if spec.entry_script else f"{spec.model} on {spec.dataset}"
    else:
        facts = inputs.dataset.facts
        rows = f"{facts['train_rows']:,.0f} rows, validated on {facts['validation_rows']:,.0f}"
        what = f"{spec.model} on {spec.dataset} ({rows})"
    where = f" on {spec.instance_count} x {spec.instance_type}" if spec.has_instances else ""
    kind = "simulated job" if spec.is_simulated else "job"
    return (
        f"{kind} {job_name(run_id, 1)}{where}: {what}; global batch size {plan.global_batch_size} = "
        f"{plan.per_device_train_batch_size} x {plan.devices} x {plan.gradient_accumulation_steps}, "
        f"learning rate {plan.learning_rate:g}"
    )


def home_folder(environment: Mapping[str, str]) -> Path:
    """Where jobs, checkpoints and prepared data lie: PARETUNE_HOME, or .paretune in the current folder; made if absent.

    Raises:
        BadInput: it cannot be a folder.
    """
    home = Path(environment.get("PARETUNE_HOME") or Path.cwd() / ".paretune")
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput([f"PARETUNE_HOME must be a folder that can be written to, got {home}: {error}"]) from error
    return home
