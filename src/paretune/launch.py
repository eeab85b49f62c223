"""One job, from specification to recorded run.

Order matters: everything that can be refused is refused before a run is opened, and the run is opened before the job
starts, so that a job is never without a record.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paretune import metrics
from paretune.catalog import Price
from paretune.clock import Clock
from paretune.container import Event, FailureKind, JobDocument, JobInputs, JobReport
from paretune.errors import BudgetRefused, Interrupted, JobFailed, OutOfMemory, ParetuneError
from paretune.figures import classification_report, confusion_figure
from paretune.interruption import Interruption
from paretune.launchers.base import Job, JobState, Launcher, watch
from paretune.preparation import prepare
from paretune.spec import JobSpec
from paretune.tracking import Run, RunStatus, Tracking

_WATCH_INTERVAL_S = 0.5
_PATIENCE_S = 120.0  # how long a finished job waits for a tracking server that has gone away
_STATUS = {
    JobState.COMPLETED: RunStatus.FINISHED,
    JobState.FAILED: RunStatus.FAILED,
    JobState.STOPPED: RunStatus.KILLED,
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished job: what it measured, what it cost and where it is recorded."""

    run_id: str
    job_name: str
    metrics: Mapping[str, float]
    facts: Mapping[str, str | int | float | bool]
    price: Price | None
    open_command: str
    model: str
    has_gap: bool


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
    admit(spec, launcher.price(spec))
    inputs = prepare(spec, home=home, clock=clock, environment=environment, interruption=interruption)
    run = tracking.begin(_run_name(spec))
    recording = _Recording(spec, launcher, tracking, run)
    recording.begin(inputs)
    document = _document(spec, run.run_id, 1)
    try:
        while True:
            job = launcher.submit(document, inputs)
            state = _see_through(job, recording, clock, interruption, on_events)
            recording.job_seconds += job.seconds()
            smaller = document.plan.with_less_memory()
            if state is JobState.FAILED and _ran_out_of_memory(job) and smaller is not None:
                document = JobDocument(
                    job_name=_job_name(run.run_id, document.attempt + 1),
                    spec=spec,
                    plan=smaller,
                    attempt=document.attempt + 1,
                )
                recording.note_retry(document, on_events, clock)
                continue
            return recording.finish(job, state, clock)
    except Interrupted as error:
        recording.interrupted(str(error))
        raise
    except ParetuneError:
        raise
    except BaseException:
        run.end(RunStatus.FAILED)
        raise


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
    recording: "_Recording",
    clock: Clock,
    interruption: Interruption,
    on_events: Callable[[list[Event]], None],
) -> JobState:
    """Watch the job to its end; when interrupted, stop it, wait for that, and raise."""
    try:
        for events in watch(job, clock=clock, interval_s=_WATCH_INTERVAL_S, check=interruption.check):
            recording.run.log_events(events)
            on_events(events)
    except BaseException:
        job.stop()
        for events in watch(job, clock=clock, interval_s=_WATCH_INTERVAL_S, check=lambda: None):
            recording.run.log_events(events)
        recording.job_seconds += job.seconds()
        raise
    return job.state()


class _Recording:
    """What goes into the run of one job, over all its attempts."""

    def __init__(self, spec: JobSpec, launcher: Launcher, tracking: Tracking, run: Run) -> None:
        self.run = run
        self.job_seconds = 0.0
        self._spec = spec
        self._launcher = launcher
        self._tracking = tracking
        self._price = launcher.price(spec)
        self._facts: Mapping[str, float] = {}

    def begin(self, inputs: JobInputs) -> None:
        """Parameters, tags and what is known of the data alone."""
        spec, plan = self._spec, self._spec.plan()
        self.run.log_params(
            spec.as_text()
            | {
                "per_device_train_batch_size": str(plan.per_device_train_batch_size),
                "gradient_accumulation_steps": str(plan.gradient_accumulation_steps),
                "global_batch_size": str(plan.global_batch_size),
                "scaled_learning_rate": repr(plan.learning_rate),
            }
        )
        price = self._price
        self.run.set_tags(
            {
                "paretune.origin": "measured",
                "paretune.launcher": self._launcher.name,
                "paretune.job_name": _job_name(self.run.run_id, 1),
                "paretune.state": JobState.RUNNING.value,
                "paretune.spec_hash": spec.spec_hash(),
                "paretune.command": spec.command(),
                "paretune.dataset_key": inputs.dataset.key if inputs.dataset is not None else None,
            }
        )
        if price is not None:
            self.run.set_tags(
                {
                    "paretune.price_usd_per_hour": f"{price.usd_per_hour:g}",
                    "paretune.price_region": price.region or None,
                    "paretune.price_as_of": price.as_of or None,
                    "paretune.price_source": price.source,
                }
            )
        if inputs.dataset is not None:
            self._facts = inputs.dataset.facts
            self.run.log_metrics(self._facts)

    def note_retry(self, document: JobDocument, on_events: Callable[[list[Event]], None], clock: Clock) -> None:
        """Say, in the run and to the user, that the job runs again with less memory."""
        plan = document.plan
        self.run.set_tags(
            {
                "paretune.job_name": document.job_name,
                "paretune.out_of_memory_retries": str(document.attempt - 1),
                "paretune.used_per_device_train_batch_size": str(plan.per_device_train_batch_size),
                "paretune.used_gradient_accumulation_steps": str(plan.gradient_accumulation_steps),
            }
        )
        message = (
            f"out of memory: again with per-device batch {plan.per_device_train_batch_size} x "
            f"{plan.gradient_accumulation_steps} accumulation steps (global batch size stays {plan.global_batch_size})"
        )
        on_events([Event(time=clock.now(), step=0, message=message)])

    def finish(self, job: Job, state: JobState, clock: Clock) -> Outcome:
        """Record how the job ended, waiting a while for a tracking server that is away; raise if the job failed."""
        report, failure = job.report(), job.failure()
        reason = failure[1] if failure is not None else ""
        measured = self._write(report, state, reason)
        patience = clock.monotonic() + _PATIENCE_S
        while self.run.has_gap and clock.monotonic() < patience:
            clock.sleep(_PATIENCE_S / 24)
            self.run.has_gap = False
            self._write(report, state, reason)
        if state is not JobState.COMPLETED:
            kind = OutOfMemory if _ran_out_of_memory(job) else JobFailed
            raise kind(job.name, reason or "it was stopped from outside", job.log_tail(), job.log_location())
        return Outcome(
            run_id=self.run.run_id,
            job_name=job.name,
            metrics=measured | dict(self._facts),
            facts=report.facts if report is not None else {},
            price=self._price,
            open_command=self._tracking.open_command(self.run.run_id),
            model=job.model_location(),
            has_gap=self.run.has_gap,
        )

    def interrupted(self, reason: str) -> None:
        """Record that the job was stopped on request; what it has cost is booked."""
        self._write(None, JobState.STOPPED, reason)

    def _write(self, report: JobReport | None, state: JobState, reason: str) -> dict[str, float]:
        """Everything that is known at the end; writing it twice changes nothing."""
        measured = self._book(report)
        if report is not None:
            self._artifacts(report)
        self.run.set_tags({"paretune.state": state.value, "paretune.failure_reason": reason or None})
        self.run.end(_STATUS[state])
        return measured

    def _book(self, report: JobReport | None) -> dict[str, float]:
        measured = dict(report.metrics) if report is not None else {}
        measured |= {metrics.JOB_SECONDS: self.job_seconds, metrics.BILLABLE_SECONDS: self.job_seconds}
        if self._price is not None:
            measured[metrics.COST_USD] = metrics.cost_usd(
                self.job_seconds, self._spec.instance_count, self._price.usd_per_hour
            )
        self.run.log_metrics(measured)
        return measured

    def _artifacts(self, report: JobReport) -> None:
        self.run.log_text(report.to_json(), "report.json")
        if report.confusion_matrix:
            self.run.log_figure(confusion_figure(report), "confusion_matrix.png")
            self.run.log_text(classification_report(report), "classification_report.txt")
        self.run.set_tags(
            {
                f"paretune.used_{name}": str(report.facts[name])
                for name in ("precision", "device")
                if name in report.facts
            }
        )


def _document(spec: JobSpec, run_id: str, attempt: int) -> JobDocument:
    return JobDocument(job_name=_job_name(run_id, attempt), spec=spec, plan=spec.plan(), attempt=attempt)


def _job_name(run_id: str, attempt: int) -> str:
    """A pure function of run and attempt, so that a job is found again and never started twice.

    At most 63 letters, digits and hyphens, as SageMaker wants it.
    """
    return f"paretune-{run_id}-{attempt}"


def _run_name(spec: JobSpec) -> str:
    what = spec.entry_script or spec.model
    return f"{Path(what).name.removeprefix('embedded:')} b{spec.plan().global_batch_size} lr{spec.learning_rate:g}"


def _ran_out_of_memory(job: Job) -> bool:
    failure = job.failure()
    return failure is not None and failure[0] is FailureKind.OUT_OF_MEMORY


def home_folder(environment: Mapping[str, str]) -> Path:
    """Where jobs, checkpoints and prepared data lie: PARETUNE_HOME, or .paretune in the current folder."""
    return Path(environment.get("PARETUNE_HOME") or os.path.join(os.getcwd(), ".paretune"))
