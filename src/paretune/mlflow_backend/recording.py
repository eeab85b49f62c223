"""What the job itself leaves in a project's run: where it ran, what it cost, how it ended."""

from collections.abc import Mapping, Sequence

from mlflow import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_PROJECT_BACKEND

from paretune.core.clock import Clock
from paretune.launchers.base import JobState
from paretune.mlflow_backend.jobs import ProjectJob
from paretune.pricing.budget import cost_usd
from paretune.pricing.prices import Price
from paretune.spec import metrics
from paretune.spec.job import JobSpec
from paretune.tracking import Run, RunStatus

_ENDED = {
    JobState.COMPLETED: RunStatus.FINISHED,
    JobState.FAILED: RunStatus.FAILED,
    JobState.STOPPED: RunStatus.KILLED,
}
_PATIENCE_S = 120.0  # how long an ended job waits for a tracking server that is away


class ProjectRecord:
    """The run of one project.

    Args:
        run_id: the run that MLflow has opened.
        spec: instances.
        price: of one of them an hour.
        client: of the tracking server.
        clock: for time stamps and patience.
    """

    def __init__(self, run_id: str, spec: JobSpec, price: Price | None, client: MlflowClient, clock: Clock) -> None:
        self.run = Run(client, run_id, clock)
        self._spec = spec
        self._price = price
        self._clock = clock
        self._detail = ""

    def begin(self, job_name: str, place: Mapping[str, str], *, collect: bool) -> None:
        """Name the job before it is created, so that it can be found by its run."""
        price = self._price
        self.run.set_tags(
            {
                MLFLOW_PROJECT_BACKEND: "sagemaker",
                "paretune.launcher": "sagemaker",
                "paretune.job_name": job_name,
                "paretune.state": "InProgress",
                "paretune.logging": "collect" if collect else "direct",
                "paretune.instance_type": self._spec.instance_type,
                "paretune.instance_count": str(self._spec.instance_count),
                **{f"paretune.{name}": text for name, text in place.items()},
                "paretune.price_usd_per_hour": f"{price.usd_per_hour:g}" if price else None,
                "paretune.price_region": price.region if price else None,
                "paretune.price_as_of": price.as_of if price else None,
                "paretune.price_source": price.source if price else None,
            }
        )

    def follow(self, job: ProjectJob) -> str:
        """Record SageMaker's secondary status; the status when it is a new one, else empty."""
        if job.detail() == self._detail:
            return ""
        self._detail = job.detail()
        self.run.set_tags({"paretune.secondary_status": self._detail})
        return self._detail

    def refuse(self, reason: str) -> None:
        """Close the run of a job that was never created."""
        self.run.set_tags({"paretune.state": "Failed", "paretune.failure_reason": reason})
        self.run.end(RunStatus.FAILED)

    def end(self, job: ProjectJob, reason: str, remarks: Sequence[str]) -> None:
        """Everything that is known at the end, and how it ended; waits a while for a tracking server that is away."""
        until = self._clock.monotonic() + _PATIENCE_S
        self._write(job, reason, remarks)
        while self.run.has_gap and self._clock.monotonic() < until:
            self._clock.sleep(_PATIENCE_S / 24)
            self.run.has_gap = False
            self._write(job, reason, remarks)

    def _write(self, job: ProjectJob, reason: str, remarks: Sequence[str]) -> None:
        billable = job.billable_seconds()
        measured = {metrics.JOB_SECONDS: job.seconds(), metrics.BILLABLE_SECONDS: billable}
        usd = cost_usd(self._price, self._spec, billable)
        if usd is not None:
            measured[metrics.COST_USD] = usd
        known = self.run.metrics()  # of an earlier process: what is there is not written twice
        self.run.log_metrics({name: value for name, value in measured.items() if known.get(name) != value})
        facts = {f"paretune.{name}": text for name, text in job.facts().items()}
        state = job.state()
        said = {"paretune.failure_reason": reason or None, "paretune.remarks": "; ".join(remarks) or None}
        self.run.set_tags({"paretune.state": state.value, **said, **facts})
        self.run.end(_ENDED[state])
