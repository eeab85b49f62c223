"""How far the estimates that were recorded before a job lay from what the job then measured."""

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
    """One quantity of one job, predicted and measured.

    Attributes:
        quantity: seconds, cost_usd or memory_gib.
        low, high: of the 80 % interval; None where none was recorded.
    """

    job: RecordedJob
    quantity: str
    predicted: float
    measured: float
    low: float | None = None
    high: float | None = None

    @property
    def error(self) -> float:
        """Predicted less measured, as a share of what was measured."""
        return (self.predicted - self.measured) / self.measured

    @property
    def is_inside(self) -> bool | None:
        """Whether the interval holds what was measured; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """The errors of one quantity over the jobs of one origin.

    Attributes:
        mean_absolute: mean of the absolute errors, as a share.
        inside: share of the measured values that lie in their 80 % interval; None where no interval was recorded.
    """

    origin: str
    quantity: str
    jobs: int
    mean_absolute: float
    inside: float | None


def estimate_errors(jobs: Sequence[RecordedJob]) -> list[EstimateError]:
    """Every estimate of a completed job beside what was measured; what is not known or is 0 is left out."""
    found = []
    for job in jobs:
        if not job.is_completed:
            continue  # what a job took that was stopped or failed says nothing of what it would have taken
        for quantity, estimate, measurement in _PAIRS:
            predicted, measured = job.metric(estimate), job.metric(measurement)
            if predicted is not None and measured is not None and measured > 0:
                ends = {end: job.metric(f"{estimate}_{end}") for end in ("low", "high")}
                found.append(EstimateError(job=job, quantity=quantity, predicted=predicted, measured=measured, **ends))
    return found


def accuracy(errors: Sequence[EstimateError]) -> list[Accuracy]:
    """The errors per origin and quantity, in the order of their first appearance."""
    groups: dict[tuple[str, str], list[EstimateError]] = {}
    for one in errors:
        groups.setdefault((one.job.origin, one.quantity), []).append(one)
    found = []
    for (origin, quantity), group in groups.items():
        inside = [one.is_inside for one in group if one.is_inside is not None]
        found.append(
            Accuracy(
                origin=origin,
                quantity=quantity,
                jobs=len(group),
                mean_absolute=fmean(abs(one.error) for one in group),
                inside=fmean(inside) if inside else None,
            )
        )
    return found
