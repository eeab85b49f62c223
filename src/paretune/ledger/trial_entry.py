"""One trial in the ledger of a study: its purpose, its end and its dollars."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import Any

from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value


class TrialStatus(Enum):
    """The status of a trial that has ended."""

    COMPLETED = "Completed"
    OUT_OF_MEMORY = "OutOfMemory"  # infeasible: a violated constraint for the sampler, never tried again
    FAILED = "Failed"
    STOPPED = "Stopped"  # by somebody, or with its driver; its cost is booked


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialNote:
    """The purpose of a trial, recorded when its dollars are reserved."""

    point: Mapping[str, Value] = field(default_factory=dict)
    seed: int = 42
    repeats: int | None = None  # number of the trial that it repeats with another seed; None for a first one
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of its job that differ from those of its point."""

    @property
    def counts(self) -> bool:
        """Whether it is one of the study's n_trials; repeats and probes are not."""
        return self.repeats is None and "probe_steps" not in self.changes


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialEnd:
    """The end of a trial's job."""

    status: TrialStatus
    metrics: Mapping[str, float] = field(default_factory=dict)  # of its run; empty unless it completed
    cost_usd: float | None = None  # what was billed, however it ended; None if the price is unknown
    billed_s: float | None = None  # seconds that were billed; None if nobody knows
    kept_usd: float | None = None  # most that its warm pool can still be billed; None if none is kept
    reason: str = ""
    retryable: bool = False  # its end says nothing of its point: no capacity, a quota, an interruption, a dead driver
    transient: bool = False  # retryable, and the cause may last, such as missing capacity: wait before the next try
    conclusive: bool = False  # it failed, and the same job would fail again: it is not run a second time
    verdicts: tuple[str, ...] = ()  # sentences about its training; see jobs/verdicts
    at: float = 0.0  # of its end by the launcher's clock, seconds since the epoch
    refused_beside: int | None = None  # jobs of its driver that ran when the launcher refused to create it

    @property
    def is_cut_off(self) -> bool:
        """Whether it was ended at its maximum runtime: a longer one may let it end."""
        return "MaxRuntimeExceeded" in self.reason

    def as_json(self) -> str:
        """One JSON object with everything but the dollars, which have columns of their own."""
        values = asdict(self) | {"status": self.status.value}
        del values["cost_usd"], values["kept_usd"]
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str, cost_usd: float | None) -> "TrialEnd":
        """Read what `as_json` wrote."""
        values = json.loads(text)
        values["status"] = TrialStatus(values["status"])
        values["verdicts"] = tuple(values["verdicts"])
        return cls(**values, cost_usd=cost_usd)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialEntry:
    """One trial in the ledger."""

    trial: int
    identity: str  # hash of what its job computes
    given: Mapping[str, str]  # parameters of its job that were given, as `JobSpec.read` takes them
    parameters: Mapping[str, str]  # all of them that are not empty, as texts
    note: TrialNote
    run_id: str  # its MLflow run; empty until that is created
    worst_usd: float | None  # dollars reserved; None if the price is unknown
    booked_usd: float | None  # dollars paid; None while it runs, or if the price is unknown
    kept_usd: float | None  # reserved for a warm pool kept after its job, 0 once booked; None if there was none
    end: TrialEnd | None  # how it ended; None while it runs
    booking_order: int | None  # from 1, in the order of booking; None while it runs
    spent_usd: float | None  # dollars that the study had paid when it was booked, its own included; None while it runs

    @classmethod
    def of_row(cls, row: Any) -> "TrialEntry":
        """The entry of a row of `tables.TRIALS`."""
        same = {column.name for column in fields(cls)} - {"given", "parameters", "note", "end"}
        given = json.loads(row.parameters)
        return cls(
            **{name: getattr(row, name) for name in same},
            given=given,
            parameters={name: text for name, text in JobSpec.read(given).as_text().items() if text},
            note=TrialNote(**json.loads(row.note)),
            end=None if row.ended is None else TrialEnd.from_json(row.ended, row.booked_usd),
        )
