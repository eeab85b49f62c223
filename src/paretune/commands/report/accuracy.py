"""Errors of the estimates that were recorded before jobs, against what the jobs measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from paretune.specification import metrics
from paretune.tracking import RecordedJob

_PAIRS = (
    ("seconds", metrics.ESTIMATED_SECONDS, metrics.BILLABLE_SECONDS),
    ("cost_usd", metrics.ESTIMATED_COST_USD, metrics.COST_USD),
    ("memory_gib", metrics.ESTIMATED_MEMORY_GIB, metrics.PEAK_MEMORY_GIB),
)


@dataclass(frozen=True, kw_only=True)
class EstimateError:
    """One quantity of one job, predicted and measured."""

    job: RecordedJob
    quantity: str  # seconds, cost_usd or memory_gib
    predicted: float
    measured: float
    low: float | None = None  # end of the 80 % interval; None if none was recorded
    high: float | None = None  # its other end

    @property
    def error(self) -> float:
        """Predicted minus measured, as a share of the measured value."""
        return (self.predicted - self.measured) / self.measured

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured value lies in the interval, or None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """The errors of one quantity over the jobs of one origin."""

    origin: str
    quantity: str
    jobs: int
    mean_absolute: float  # mean of the absolute errors, as a share
    inside: float | None  # share of the measured values in their 80 % interval; None if no interval was recorded


def estimate_errors(jobs: Sequence[RecordedJob]) -> list[EstimateError]:
    """Return the estimates of completed jobs with the measured values; missing values and zeros are left out."""
    errors = []
    for job in jobs:
        if not job.is_completed:
            continue  # a job that was stopped or failed did not take what the whole job would have taken
        for quantity, estimate, measurement in _PAIRS:
            predicted, measured = job.metric(estimate), job.metric(measurement)
            if predicted is not None and measured is not None and measured > 0:
                ends = {end: job.metric(f"{estimate}_{end}") for end in ("low", "high")}
                errors.append(EstimateError(job=job, quantity=quantity, predicted=predicted, measured=measured, **ends))
    return errors


def accuracy(errors: Sequence[EstimateError]) -> list[Accuracy]:
    """Return the errors per origin and quantity, in the order of their first appearance."""
    groups: dict[tuple[str, str], list[EstimateError]] = {}
    for error in errors:
        groups.setdefault((error.job.origin, error.quantity), []).append(error)
    accuracies = []
    for (origin, quantity), group in groups.items():
        inside = [error.is_inside for error in group if error.is_inside is not None]
        accuracies.append(
            Accuracy(
                origin=origin,
                quantity=quantity,
                jobs=len(group),
                mean_absolute=fmean(abs(error.error) for error in group),
                inside=fmean(inside) if inside else None,
            )
        )
    return accuracies
