"""The nights of a recurring training, from the MLflow runs of its jobs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paretune.core.errors import first_line
from paretune.specification import metrics
from paretune.specification.parameters import Value
from paretune.tracking import RecordedRun, Tracking, schema

TRY, RETRAIN, INTERRUPTED, REFUSED = "try", "retrain", "interrupted", "refused"
"""The part that a job has in its night, see `schema.NIGHT_PART`."""
CHANCE, EXPECTED, DEFAULT = "chance_of_missing", "expected_usd", "default_usd"
"""Metrics of the run of a try, written before its launch: what it was chosen by."""
_ENDED = ("Completed", "Failed", "Stopped")


@dataclass(frozen=True, kw_only=True)
class NightJob:
    """One job of a night.

    Attributes:
        value: value of the metric that the floor limits, or None.
        usd, seconds: of the whole job; None if not known yet.
        forecast: chance of missing and expected dollars, recorded before the launch.
        identity: hash of the job without seed and data, see `Points.identities`; empty on runs before 2026-11-22.
    """

    run_id: str
    night: str
    part: str
    point: Mapping[str, Value]
    state: str
    value: float | None
    usd: float | None
    seconds: float | None
    started: float
    forecast: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    returned: bool = False
    identity: str = ""

    @classmethod
    def of(cls, run: RecordedRun, metric: str) -> "NightJob":
        """The job of a run."""
        state, reason = run.tags.get(schema.STATE, ""), run.tags.get(schema.FAILURE_REASON, "")
        return cls(
            run_id=run.run_id,
            night=run.tags[schema.NIGHT],
            part=run.tags.get(schema.NIGHT_PART, ""),
            point=json.loads(run.tags.get(schema.NIGHT_POINT, "{}")),
            state=state,
            value=run.metrics.get(metric) if state == "Completed" else None,
            usd=run.metrics.get(metrics.COST_USD),
            seconds=run.metrics.get(metrics.JOB_SECONDS),
            started=run.started,
            forecast={name: run.metrics[name] for name in (CHANCE, EXPECTED, DEFAULT) if name in run.metrics},
            reason=first_line(ValueError(reason)) if reason else "",
            returned=run.tags.get(schema.RETURNED) == "true",
            identity=run.tags.get(schema.NIGHT_IDENTITY, ""),
        )

    @property
    def setting(self) -> str:
        """Its point in words."""
        return setting(self.point)

    @property
    def counts(self) -> bool:
        """Whether it is an observation of its point."""
        return self.part == REFUSED or (self.part in (TRY, RETRAIN) and self.has_ended and not self.is_unmeasured)

    @property
    def is_unmeasured(self) -> bool:
        """Whether it completed without logging the metric that the floor limits."""
        return self.state == "Completed" and self.value is None

    @property
    def has_ended(self) -> bool:
        """Whether it is over; a job that was refused never began."""
        return self.state in _ENDED or self.part == REFUSED


def setting(point: Mapping[str, Value]) -> str:
    """A point in words: learning_rate=5e-05, instance_type=ml.g5.xlarge."""
    return ", ".join(f"{name}={value}" for name, value in point.items())


@dataclass(frozen=True, kw_only=True)
class Night:
    """All jobs of one night, in the order that they began; `number` counts nights from 0."""

    name: str
    number: int
    jobs: Sequence[NightJob]

    def parts(self, part: str) -> list[NightJob]:
        """The jobs that have this part in the night."""
        return [job for job in self.jobs if job.part == part]

    @property
    def usd(self) -> float:
        """Dollars of all its jobs, including interrupted ones."""
        return sum(job.usd or 0.0 for job in self.jobs)

    @property
    def returned(self) -> NightJob | None:
        """The job whose model the night returns; None if none met the floor or the night has not ended."""
        return next((job for job in self.jobs if job.returned), None)


def nights_of(tracking: Tracking, name: str, metric: str) -> list[Night]:
    """All nights of a recurring training, the oldest first."""
    runs = tracking.runs(f"tags.`{schema.RECUR}` = '{name}' and tags.`{schema.NIGHT}` LIKE '_%'")
    jobs: dict[str, list[NightJob]] = {}
    for run in sorted(runs, key=lambda run: (run.started, run.run_id)):
        job = NightJob.of(run, metric)
        jobs.setdefault(job.night, []).append(job)
    return [Night(name=night, number=number, jobs=group) for number, (night, group) in enumerate(jobs.items())]
