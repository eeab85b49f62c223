"""One small job that is paid for, and all that AWS, CloudWatch, S3 and MLflow say of it."""

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
    """A job as every side tells it; what a side does not tell is empty.

    Attributes:
        request: the CreateTrainingJob request, where this process has sent it.
        description: what DescribeTrainingJob says at the end.
        received: what the launcher heard, from log and results, while it watched.
        logged: what CloudWatch has of the job's own events.
        written: what the job's results have of them.
        metrics: of the MLflow run.
        curves: metric of the job's own events to step and value in MLflow.
        worst_usd: what the job could be billed at most.
        failure: why it has no result; empty where it has one.
    """

    spec: JobSpec
    run_id: str = ""
    name: str = ""
    request: Mapping[str, Any] = field(default_factory=dict)
    description: Mapping[str, Any] = field(default_factory=dict)
    received: list[Event] = field(default_factory=list)
    logged: Sequence[Event] = ()
    written: Sequence[Event] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    price: Price | None = None
    worst_usd: float | None = None
    failure: str = ""
    account: Account | None = None


def observe(spec: JobSpec, workplaces: Workplaces) -> ObservedJob:
    """Launch `spec`, as every job is launched, and look at it from all sides when it has ended, well or not.

    A signal stops the job first; `workplaces.interruption` then says so.
    """
    seen = ObservedJob(spec=spec)
    with watched(workplaces.interruption) as on_events:

        def listen(events: list[Event]) -> None:
            seen.received += events
            on_events(events)

        try:
            tracking = workplaces.of(spec).tracking
            seen.run_id = tracking.opened_run_id() or tracking.create("doctor").run_id
            workplace = workplaces.with_opened_run(seen.run_id).of(spec)
            launcher = workplace.launcher
            if not isinstance(launcher, SageMakerLauncher):
                raise TypeError(f"the launcher of a paid job is {type(launcher).__name__}")
            seen.account = launcher.account
            seen.price, seen.worst_usd = launcher.price(spec), launcher.worst_case_usd(spec)
            try:
                run_job(spec, workplace, listen)
            finally:
                _look(seen, launcher, tracking)
        except ParetuneError as error:
            seen.failure = str(error)
        except Exception as error:  # the report says so too: it is read by those who can mend it
            seen.failure = f"{type(error).__name__}: {first_line(error)}"
    return seen


def _look(seen: ObservedJob, launcher: SageMakerLauncher, tracking: Tracking) -> None:
    """Fill in what is known of a job that has ended, or was never created.

    It may be that of an earlier run, which was killed: then this process has sent no request.
    """
    seen.run_id = tracking.run(seen.run_id).tags().get(schema.WATCHED_RUN) or seen.run_id
    run = tracking.run(seen.run_id)
    seen.tags, seen.metrics = run.tags(), run.metrics()
    seen.name = seen.tags.get(schema.JOB_NAME, "")
    seen.request = launcher.last_request
    job = launcher.attach(seen.name) if seen.name else None
    if job is None:
        return
    job.state()
    seen.description = job.description
    seen.logged, seen.written = job.logged_events(), job.written_events()
    seen.curves = _curves(run, seen.written)


def _curves(run: Run, events: Sequence[Event]) -> dict[str, dict[int, float]]:
    names = {name for event in events for name in event.metrics}
    return {name: run.curve(name) for name in sorted(names)}
