"""Predicted seconds and dollars of a job, with where they come from."""

from collections.abc import Mapping
from dataclasses import dataclass

from paretune.estimating.phases import Seconds, phases_of
from paretune.presentation.numbers import duration, usd
from paretune.pricing.budget import cost_usd
from paretune.pricing.prices import Price
from paretune.specification import metrics
from paretune.specification.job import JobSpec


@dataclass(frozen=True, kw_only=True)
class TimeEstimate:
    """Predicted seconds and dollars of one job."""

    spec: JobSpec
    measured_here: int  # number of similar jobs that have run on this cluster
    time: Seconds
    price: Price | None  # of one instance; None if unknown, then the dollars are None, too
    basis: str  # evidence for the prediction, in words

    def usd(self, seconds: float) -> float | None:
        """Return the dollars of this many billable seconds."""
        return cost_usd(self.price, self.spec, seconds)

    @property
    def cost_usd(self) -> float | None:
        """Predicted dollars, or None without a price."""
        return self.usd(self.time.seconds)

    @property
    def phases(self) -> Mapping[str, Seconds]:
        """Seconds of each of `PHASES`; only `training` on this machine."""
        return phases_of(self.time, self.spec)

    @property
    def exceeds_limit(self) -> bool:
        """Whether the whole interval is above max_runtime_minutes.

        False for a probe, with force, and for a rehearsal whose table of recorded runs may have other seconds.
        """
        spec = self.spec
        is_exempt = spec.force or spec.probe_steps is not None or spec.simulation.runs is not None
        return not is_exempt and self.time.seconds_low > spec.max_runtime_minutes * 60

    def sentence(self) -> str:
        """Return the estimate in one line: seconds with their interval, dollars, and the evidence."""
        time = self.time
        dollars = "" if self.cost_usd is None else f", {usd(self.cost_usd)}"
        between = f"{duration(time.seconds_low)} to {duration(time.seconds_high)}"
        return f"{duration(time.seconds)} ({between} in 80 % of such jobs){dollars}; from {self.basis}"

    def as_metrics(self) -> dict[str, float]:
        """Return the metrics of the estimate that a job's run records."""
        values = {
            metrics.ESTIMATED_SECONDS: self.time.seconds,
            f"{metrics.ESTIMATED_SECONDS}_low": self.time.seconds_low,
            f"{metrics.ESTIMATED_SECONDS}_high": self.time.seconds_high,
        }
        return values if self.cost_usd is None else values | {metrics.ESTIMATED_COST_USD: self.cost_usd}
