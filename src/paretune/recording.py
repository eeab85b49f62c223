"""What one job leaves in MLflow: parameters and price before it starts, everything it measured and cost at its end."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paretune import metrics
from paretune.catalog import Price
from paretune.clock import Clock
from paretune.container import FailureKind, JobDocument, JobInputs, JobReport
from paretune.errors import Interrupted, JobFailed, OutOfMemory
from paretune.figures import classification_report, confusion_figure
from paretune.launchers.base import Job, JobState, Launcher
from paretune.spec import JobSpec
from paretune.tracking import RunStatus, Tracking

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
    price: Price | None
    open_command: str
    model: str
    has_gap: bool


class Recording:
    """What goes into the run of one job, over all its attempts.

    Args:
        spec: what is to run.
        launcher: where.
        tracking: gives the run.
    """

    def __init__(self, spec: JobSpec, launcher: Launcher, tracking: Tracking) -> None:
        self.run = tracking.begin(_run_name(spec))
        self.job: Job | None = None
        self.job_seconds = 0.0
        self._closed = False
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
                "paretune.job_name": job_name(self.run.run_id, 1),
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
            self.run.log_dataset(spec.dataset, inputs.dataset.key, spec.dataset)
            self.run.log_metrics(self._facts)

    def retry(self, document: JobDocument) -> str:
        """Record that the job runs again with less memory; the sentence that tells the user."""
        plan = document.plan
        self.run.set_tags(
            {
                "paretune.job_name": document.job_name,
                "paretune.out_of_memory_retries": str(document.attempt - 1),
                "paretune.used_per_device_train_batch_size": str(plan.per_device_train_batch_size),
                "paretune.used_gradient_accumulation_steps": str(plan.gradient_accumulation_steps),
            }
        )
        return (
            f"out of memory: again with per-device batch {plan.per_device_train_batch_size} x "
            f"{plan.gradient_accumulation_steps} accumulation steps (global batch size stays {plan.global_batch_size})"
        )

    def finish(self, job: Job, state: JobState, clock: Clock) -> Outcome:
        """Record how the job ended, waiting a while for a tracking server that is away; raise if the job failed."""
        report, failure = job.report(), job.failure()
        reason = failure[1] if failure is not None else ""
        if ran_out_of_memory(job):
            reason = (
                "out of memory, with the smallest per-device batch that could be tried: lower max_seq_length, set "
                f"fine_tuning to lora or head, or use a larger instance ({reason})"
            )
        measured = self._write(report, state, reason)
        patience = clock.monotonic() + _PATIENCE_S
        while self.run.has_gap and clock.monotonic() < patience:
            clock.sleep(_PATIENCE_S / 24)
            self.run.has_gap = False
            self._write(report, state, reason)
        if state is not JobState.COMPLETED:
            kind = OutOfMemory if ran_out_of_memory(job) else JobFailed
            raise kind(job.name, reason or "it was stopped from outside", job.log_tail(), job.log_location())
        return Outcome(
            run_id=self.run.run_id,
            job_name=job.name,
            metrics=measured | dict(self._facts),
            price=self._price,
            open_command=self._tracking.open_command(self.run.run_id),
            model=job.model_location(),
            has_gap=self.run.has_gap,
        )

    def give_up(self, error: BaseException) -> None:
        """Close the run of a command that ends early; what its job has cost is booked, and a result it has is kept."""
        if self._closed:
            return
        if self.job is not None and self.job.state() is JobState.COMPLETED:
            self._write(self.job.report(), JobState.COMPLETED, "")
        else:
            self._write(None, JobState.STOPPED if isinstance(error, Interrupted) else JobState.FAILED, str(error))

    def _write(self, report: JobReport | None, state: JobState, reason: str) -> dict[str, float]:
        """Everything that is known at the end; writing it twice changes nothing."""
        measured = self._book(report)
        if report is not None:
            self._artifacts(report)
        self.run.set_tags({"paretune.state": state.value, "paretune.failure_reason": reason or None})
        self.run.end(_STATUS[state])
        self._closed = True
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
        used = {name: str(report.facts[name]) for name in ("precision", "device") if name in report.facts}
        self.run.set_tags({f"paretune.used_{name}": text for name, text in used.items()})


def job_name(run_id: str, attempt: int) -> str:
    """A pure function of run and attempt, so that a job is found again and never started twice.

    At most 63 letters, digits and hyphens, as SageMaker wants it.
    """
    return f"paretune-{run_id}-{attempt}"


def ran_out_of_memory(job: Job) -> bool:
    """Whether the job failed for lack of memory."""
    failure = job.failure()
    return failure is not None and failure[0] is FailureKind.OUT_OF_MEMORY


def _run_name(spec: JobSpec) -> str:
    what = spec.entry_script or spec.model
    plan = spec.plan()
    return f"b{plan.global_batch_size} lr{plan.learning_rate:g} {Path(what).name.removeprefix('embedded:')}"
