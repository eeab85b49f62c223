"""What a study knows of its trials: points that were tried, what came out, and what each has cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class TrialStatus(Enum):
    """How a trial ended, or that it has not."""

    RUNNING = "Running"
    COMPLETED = "Completed"
    OUT_OF_MEMORY = "OutOfMemory"
    """Infeasible: the sampler learns from it, it is never tried again."""
    FAILED = "Failed"
    STOPPED = "Stopped"
    """Stopped early, because even an optimistic end would have been dominated; its partial cost is booked."""
    REPEATED = "Repeated"
    """Answered from the record of an equal trial; it has cost nothing."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial of a study.

    Attributes:
        number: from 0, in the order of asking.
        run_id: MLflow run of its job.
        point: searched parameter to value, as typed.
        parameters: all parameters of its job, as text.
        status: how it ended.
        values: objective to value, finite; only those that were measured.
        spreads: objective to the standard deviation of one run, where repeats have shown it.
        cost_usd: what its job has cost, failed and stopped ones included; None where the price is unknown.
        spent_usd: dollars booked by the whole study up to its end.
        origin: measured or simulated.
        seed: seed of its training.
        repeats: number of the trial that it repeats with another seed; None for a first one.
        reason: one sentence for one that did not complete.
    """

    number: int
    run_id: str
    point: Mapping[str, str | int | float]
    parameters: Mapping[str, str]
    status: TrialStatus
    values: Mapping[str, float] = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)
    cost_usd: float | None = None
    spent_usd: float = 0.0
    origin: str = "measured"
    seed: int = 42
    repeats: int | None = None
    reason: str = ""
