"""A trial that has ended: its point, what was measured, what it has cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from paretune.spec.parameters import spell


class TrialStatus(Enum):
    """How a trial ended."""

    COMPLETED = "Completed"
    OUT_OF_MEMORY = "OutOfMemory"
    """Infeasible: it is told to the sampler as a constraint that is violated, and is never tried again."""
    FAILED = "Failed"
    STOPPED = "Stopped"
    """Stopped early, because even an optimistic end would have been dominated; its partial cost is booked."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial of a study that has ended.

    Attributes:
        number: from 0, in the order of asking.
        point: searched parameter to value, as typed.
        values: objective to value, finite; only those that were measured.
        cost_usd: what its job has cost, failed and stopped ones included; None where the price is unknown.
        spent_usd: dollars booked by the whole study up to its end.
        origin: measured or simulated.
        repeats: number of the trial that it repeats with another seed; None for a first one.
    """

    number: int
    run_id: str
    point: Mapping[str, str | int | float]
    parameters: Mapping[str, str]
    status: TrialStatus
    values: Mapping[str, float] = field(default_factory=dict)
    cost_usd: float | None = None
    spent_usd: float = 0.0
    origin: str = "measured"
    seed: int = 42
    repeats: int | None = None
    reason: str = ""

    @property
    def shown_status(self) -> str:
        """How it ended, as text; `Probe` for a probe that completed: it trains a few steps and has no F1."""
        is_probe = bool(self.parameters.get("probe_steps")) and self.status is TrialStatus.COMPLETED
        return "Probe" if is_probe else self.status.value

    def shown(self, name: str) -> str:
        """A searched parameter as text, floats to four digits; empty where it has none."""
        value = self.point.get(name)
        return f"{value:.4g}" if isinstance(value, float) else spell(value)
