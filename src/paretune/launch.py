"""One job, from specification to recorded run.

Order matters: everything that can be refused is refused before a run is opened, and the run is opened before the job
starts, so that a job is never without a record.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from paretune import metrics
from paretune.catalog import Price
from paretune.clock import Clock
from paretune.container import Event, JobDocument, JobInputs
from paretune.errors import BadInput, BudgetRefused, Interrupted, ParetuneError
from paretune.interruption import Interruption
from paretune.launchers.base import Job, JobState, Launcher, watch
from paretune.preparation import prepare
from paretune.recording import Outcome, Recording, job_name, ran_out_of_memory
from paretune.spec import JobSpec
from paretune.tracking import RunStatus, Tracking

_WATCH_INTERVAL_S = 0.5


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
) -> Outcome:
    """Prepare, launch, watch and record one job.

    Raises:
        BadInput, BudgetRefused: nothing was launched and no run was opened.
        JobFailed, OutOfMemory: the job failed; its run says why.
        Interrupted: the job was stopped first, and its run says so.
    """
    try:
        admit(spec, launcher.price(spec))
        inputs = prepare(spec, home=home, clock=clock, environment=environment, interruption=interruption)
    except ParetuneError as error:
        _give_up_opened_run(tracking, error)
        raise
    recording = Recording(spec, launcher, tracking)
    try:
        recording.begin(inputs)
        _tell(on_events, clock, _announcement(spec, inputs, recording.run.run_id))
        document = JobDocument(job_name=job_name(recording.run.run_id, 1), spec=spec, plan=spec.plan())
        while True:
            job = recording.job = launcher.submit(document, inputs)
            state = _see_through(job, recording, clock, interruption, on_events)
            again = _again_with_less_memory(document, job, state, recording)
            if again is None:
                return recording.finish(job, state, clock)
            document = again
            _tell(on_events, clock, recording.retry(document))
    except BaseException as error:
        recording.give_up(error)
        raise


def _again_with_less_memory(
    document: JobDocument, job: Job, state: JobState, recording: Recording
) -> JobDocument | None:
    """The next attempt of a job that ran out of memory; None when there is none, or no time left for it."""
    plan = document.plan.with_less_memory()
    if state is not JobState.FAILED or not ran_out_of_memory(job) or plan is None:
        return None
    attempt = document.attempt + 1
    again = JobDocument(
        job_name=job_name(recording.run.run_id, attempt),
        spec=document.spec,
        plan=plan,
        attempt=attempt,
        spent_seconds=recording.job_seconds,
    )
    return again if again.max_seconds > 0 else None


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
                f"max_cost_usd is {spec.max_cost_usd:g} but the price of {spec.instance_type} is unknown"
            )
        return None
    worst = metrics.cost_usd(spec.max_runtime_minutes * 60, spec.instance_count, price.usd_per_hour)
    if spec.max_cost_usd is not None and worst > spec.max_cost_usd:
        raise BudgetRefused(
            f"worst case {worst:.4g} USD ({spec.max_runtime_minutes:g} minutes x {spec.instance_count} x "
            f"{price.usd_per_hour:g} USD per hour) must be at most max_cost_usd, {spec.max_cost_usd:g}: lower "
            "max_runtime_minutes or raise max_cost_usd"
        )
    return worst


def _see_through(
    job: Job,
    recording: Recording,
    clock: Clock,
    interruption: Interruption,
    on_events: Callable[[list[Event]], None],
) -> JobState:
    """Watch the job to its end and book its seconds; when interrupted, stop it, wait for that, and raise."""
    try:
        for events in watch(job, clock=clock, interval_s=_WATCH_INTERVAL_S, check=interruption.check):
            recording.run.log_events(events)
            on_events(events)
    except BaseException:
        job.stop()
        for events in watch(job, clock=clock, interval_s=_WATCH_INTERVAL_S, check=lambda: None):
            recording.run.log_events(events)
        raise
    finally:
        recording.job_seconds += job.seconds()
    return job.state()


def _tell(on_events: Callable[[list[Event]], None], clock: Clock, message: str) -> None:
    on_events([Event(time=clock.now(), step=0, message=message)])


def _announcement(spec: JobSpec, inputs: JobInputs, run_id: str) -> str:
    """What is about to run, plainly: which model, how many rows, which batch and rate."""
    plan = spec.plan()
    if inputs.dataset is None:
        what = f"your script {spec.entry_script}"
    else:
        facts = inputs.dataset.facts
        rows = f"{facts['train_rows']:,.0f} rows, validated on {facts['validation_rows']:,.0f}"
        what = f"{spec.model} on {spec.dataset} ({rows})"
    return (
        f"job {job_name(run_id, 1)}: {what}; global batch size {plan.global_batch_size} = "
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
