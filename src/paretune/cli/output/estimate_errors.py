"""How far the estimates that were recorded before a job lay from what the job then measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from paretune.spec import metrics
from paretune.tracking import RecordedRun

_PAIRS = (
    ("seconds", metrics.ESTIMATED_SECONDS, metrics.BILLABLE_SECONDS),
    ("cost_usd", metrics.ESTIMATED_COST_USD, metrics.COST_USD),
    ("memory_gib", metrics.ESTIMATED_MEMORY_GIB, metrics.PEAK_MEMORY_GIB),
)


@dataclass(frozen=True, kw_only=True)
class EstimateError:
    """One quantity of one run, predicted and measured.

    Attributes:
        run: as MLflow has it.
        quantity: seconds, cost_usd or memory_gib.
        low: of the 80 % interval; None where none was recorded.
        high: of the 80 % interval.
    """

    run: RecordedRun
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
class Summary:
    """The errors of one quantity over the runs of one origin.

    Attributes:
        mean_absolute: mean of the absolute errors, as a share.
        inside: share of the measured values that lie in their 80 % interval; None where no interval was recorded.
    """

    origin: str
    quantity: str
    runs: int
    mean_absolute: float
    inside: float | None


def estimate_errors(runs: Sequence[RecordedRun]) -> list[EstimateError]:
    """Every estimate of a completed job beside what was measured; what is not known or is 0 is left out."""
    found = []
    for run in runs:
        if run.tags.get("paretune.state", "Completed") != "Completed":
            continue  # what a job took that was stopped or failed says nothing of what it would have taken
        for quantity, estimated, measured in _PAIRS:
            if estimated in run.metrics and run.metrics.get(measured, 0) > 0:
                found.append(
                    EstimateError(
                        run=run,
                        quantity=quantity,
                        predicted=run.metrics[estimated],
                        measured=run.metrics[measured],
                        low=run.metrics.get(f"{estimated}_low"),
                        high=run.metrics.get(f"{estimated}_high"),
                    )
                )
    return found


def summarise(errors: Sequence[EstimateError]) -> list[Summary]:
    """The errors per origin and quantity, in the order of their first appearance."""
    groups: dict[tuple[str, str], list[EstimateError]] = {}
    for one in errors:
        groups.setdefault((one.run.tags.get("paretune.origin", ""), one.quantity), []).append(one)
    summaries = []
    for (origin, quantity), group in groups.items():
        inside = [one.is_inside for one in group if one.is_inside is not None]
        summaries.append(
            Summary(
                origin=origin,
                quantity=quantity,
                runs=len(group),
                mean_absolute=fmean(abs(one.error) for one in group),
                inside=fmean(inside) if inside else None,
            )
        )
    return summaries
