"""The job of one trial: its run nested under the study's, begun or adopted, looked at, and what came out of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from paretune import metrics
from paretune.attempts import Attempts
from paretune.clock import Clock
from paretune.container import Event, FailureKind, JobInputs
from paretune.errors import JobFailed, OutOfMemory
from paretune.forecast import Forecast
from paretune.interruption import Interruption
from paretune.launch import inputs_of
from paretune.launchers.base import Launcher
from paretune.prepared import recall
from paretune.recording import Recording
from paretune.spec import JobSpec
from paretune.tracking import Tracking
from paretune.trials import TrialStatus

PARENT = "mlflow.parentRunId"
"""MLflow's tag that nests a run under another."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """What all jobs of a study share."""

    launcher: Launcher
    tracking: Tracking
    forecast: Forecast
    home: Path
    clock: Clock
    environment: Mapping[str, str]
    interruption: Interruption

    def known_inputs(self, spec: JobSpec) -> JobInputs:
        """What is known of a job's inputs without preparing them."""
        known = recall(spec, self.home) if self.launcher.reads_inputs else None
        return known or JobInputs()


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a trial's job ended.

    Attributes:
        status: in the study's words.
        metrics: of its run; empty unless it completed.
        cost_usd: booked, whatever the end; None where the price is unknown.
        reason: why it did not complete.
        curve: share of the training and F1.
        is_trouble: AWS had no capacity: nothing was learnt about the point.
    """

    status: TrialStatus
    metrics: Mapping[str, float] = field(default_factory=dict)
    cost_usd: float | None = None
    reason: str = ""
    curve: tuple[tuple[float, float], ...] = ()
    is_trouble: bool = False

    def as_json(self) -> dict[str, Any]:
        """Everything, for the books."""
        return {
            "status": self.status.value,
            "metrics": dict(self.metrics),
            "reason": self.reason,
            "curve": [list(point) for point in self.curve],
        }


class TrialJob:
    """A trial under way.

    Args:
        number: of the trial.
        spec: its job.
        run_id: its MLflow run.
        place: what it shares with the others.
    """

    def __init__(self, number: int, spec: JobSpec, run_id: str, place: Place) -> None:
        self.number = number
        self.spec = spec
        self.curve: list[tuple[float, float]] = []
        self.stopped_because = ""
        self._place = place
        inputs = partial(
            inputs_of,
            spec,
            place.launcher,
            home=place.home,
            clock=place.clock,
            environment=place.environment,
            interruption=place.interruption,
        )
        self.recording = Recording(spec, place.launcher, place.tracking, run_id=run_id)
        self._inputs = inputs
        self._attempts = Attempts(
            spec,
            launcher=place.launcher,
            recording=self.recording,
            inputs=inputs,
            clock=place.clock,
            on_events=self._follow,
            halves=False,
        )

    def begin(self) -> None:
        """Open its record and start its job, or adopt what an earlier driver has started.

        Raises:
            ParetuneError: the job could not be started.
        """
        inputs = self._inputs()
        price = self._place.launcher.price(self.spec)
        estimate = self._place.forecast.of(self.spec, self.spec.plan(), inputs, price)
        self.recording.begin(inputs, estimate=estimate)
        self._attempts.begin()

    def look(self) -> Ended | None:
        """How it ended; None while it runs."""
        try:
            if not self._attempts.look():
                return None
        except OutOfMemory as error:
            return self._ended(TrialStatus.OUT_OF_MEMORY, error.reason)
        except JobFailed as error:
            failure = self._attempts.job.failure() if self._attempts.job is not None else None
            if self.stopped_because:
                return self._ended(TrialStatus.STOPPED, self.stopped_because)
            trouble = failure is not None and failure[0] is FailureKind.CAPACITY
            return self._ended(TrialStatus.FAILED, error.reason, is_trouble=trouble)
        found = self._ended(TrialStatus.COMPLETED, "")
        if metrics.F1 in self._attempts.outcome.metrics and (not self.curve or self.curve[-1][0] < 1.0):
            self.curve.append((1.0, self._attempts.outcome.metrics[metrics.F1]))
        return Ended(
            status=found.status,
            metrics=self._attempts.outcome.metrics,
            cost_usd=found.cost_usd,
            curve=tuple(self.curve),
        )

    def stop_early(self, reason: str) -> None:
        """Ask the job to stop; `look` says when it has."""
        if not self.stopped_because and self._attempts.job is not None:
            self.stopped_because = reason
            self._attempts.job.stop()

    def abandon(self, error: BaseException, pause_s: float) -> Ended:
        """Stop the job now, wait until it has stopped, book it and close its run."""
        self._attempts.stop(pause_s)
        self.recording.give_up(error, self._attempts.job)
        return self._ended(TrialStatus.STOPPED, str(error))

    def leave(self) -> None:
        """Watch it no longer; it goes on."""
        self.recording.leave()

    def billable_seconds(self) -> float:
        """Seconds billed so far."""
        running = self._attempts.job.billable_seconds() if self._attempts.job is not None else 0.0
        return self.recording.billable_seconds + running

    def usd(self, seconds: float) -> float | None:
        """Dollars of so many billable seconds on its cluster; None where the price is unknown."""
        price = self._place.launcher.price(self.spec)
        return None if price is None else metrics.cost_usd(seconds, self.spec.instance_count, price.usd_per_hour)

    def _ended(self, status: TrialStatus, reason: str, *, is_trouble: bool = False) -> Ended:
        return Ended(
            status=status,
            cost_usd=self.recording.cost_usd,
            reason=reason,
            curve=tuple(self.curve),
            is_trouble=is_trouble,
        )

    def _follow(self, events: list[Event]) -> None:
        for event in events:
            value = event.metrics.get("eval/f1")
            if value is not None and event.total_steps:
                self.curve.append((min(1.0, event.step / event.total_steps), value))
