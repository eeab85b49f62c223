"""Runs one small paid job and gathers what AWS, CloudWatch, S3 and MLflow show of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paretune.core.errors import ParetuneError, first_line
from paretune.jobs.launch import run_job
from paretune.jobs.progress import watched
from paretune.jobs.workplace import Workplaces
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.pricing.prices import Price
from paretune.specification.container import Event
from paretune.specification.job import JobSpec
from paretune.tracking import Run, Tracking, schema


@dataclass(kw_only=True)
class ObservedJob:
    """A job as each service shows it; what a service does not show is empty."""

    spec: JobSpec
    run_id: str = ""
    name: str = ""
    request: Mapping[str, Any] = field(default_factory=dict)
    """The CreateTrainingJob request, if this process has sent it."""
    description: Mapping[str, Any] = field(default_factory=dict)  # the answer of DescribeTrainingJob at the end
    received: list[Event] = field(default_factory=list)
    """Events that the launcher received from log and results while it watched."""
    logged: Sequence[Event] = ()  # events of the job in CloudWatch
    log_fault: str = ""  # why this identity may not read the log; empty if it may
    written: Sequence[Event] = ()  # events in the job's results
    metrics: Mapping[str, float] = field(default_factory=dict)  # of the MLflow run
    tags: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Metric of the job's own events to step and value in MLflow."""
    price: Price | None = None
    worst_usd: float | None = None  # highest possible bill of the job
    failure: str = ""  # why it has no result; empty if it has one
    account: Account | None = None


def observe(spec: JobSpec, workplaces: Workplaces) -> ObservedJob:
    """Launch `spec` like every job, and observe it when it has ended, successfully or not.

    A signal stops the job first; `workplaces.interruption` then has the reason.
    """
    observed = ObservedJob(spec=spec)
    with watched(workplaces.interruption) as on_events:

        def listen(events: list[Event]) -> None:
            observed.received += events
            on_events(events)

        try:
            tracking = workplaces.of(spec).tracking
            observed.run_id = tracking.opened_run_id() or tracking.create("doctor").run_id
            workplace = workplaces.with_opened_run(observed.run_id).of(spec)
            launcher = workplace.launcher
            if not isinstance(launcher, SageMakerLauncher):
                raise TypeError(f"the launcher of a paid job is {type(launcher).__name__}")
            observed.account = launcher.account
            observed.price, observed.worst_usd = launcher.price(spec), launcher.worst_case_usd(spec)
            try:
                run_job(spec, workplace, listen)
            finally:
                _fill_in(observed, launcher, tracking)
        except ParetuneError as error:
            observed.failure = str(error)
        except Exception as error:  # the report has it, too: maintainers read it
            observed.failure = f"{type(error).__name__}: {first_line(error)}"
    return observed


def _fill_in(observed: ObservedJob, launcher: SageMakerLauncher, tracking: Tracking) -> None:
    """Fill in what is known of a job that has ended, or was never created.

    It may be the job of an earlier process that was killed; then this process has sent no request.
    """
    observed.run_id = tracking.run(observed.run_id).tags().get(schema.WATCHED_RUN) or observed.run_id
    run = tracking.run(observed.run_id)
    observed.tags, observed.metrics = run.tags(), run.metrics()
    observed.name = observed.tags.get(schema.JOB_NAME, "")
    observed.request = launcher.last_request
    job = launcher.attach(observed.name) if observed.name else None
    if job is None:
        return
    job.state()
    observed.description = job.description
    observed.logged, observed.written = job.logged_events(), job.written_events()
    observed.log_fault = job.log_fault
    observed.curves = _curves(run, observed.written)


def _curves(run: Run, events: Sequence[Event]) -> dict[str, dict[int, float]]:
    names = {name for event in events for name in event.metrics}
    return {name: run.curve(name) for name in sorted(names)}
