"""Completed jobs as their runs tell them, made up for tests of reports."""

import itertools
from collections.abc import Sequence
from typing import Any

from paretune.jobs.record import params_of
from paretune.specification.job import JobSpec
from paretune.tracking.recorded_job import RecordedJob, RecordedRun

_numbers = itertools.count(1)


def recorded(
    *, tags: dict[str, str] | None = None, metrics: dict[str, float] | None = None, started: float = 1.7e9, **spec: Any
) -> RecordedJob:
    """A completed measured job; `spec` are its parameters, `tags` are named without their prefix."""
    custom = {"origin": "measured", "state": "Completed"} | (tags or {})
    job = JobSpec(**spec)
    return RecordedJob(
        RecordedRun(
            run_id=f"{next(_numbers):032x}",
            params=params_of(job),
            tags={name if name.startswith("mlflow.") else f"paretune.{name}": text for name, text in custom.items()},
            metrics=metrics or {},
            started=started,
        )
    )


def on_p3(count: int, seconds: Sequence[float], f1: float = 0.9, **also: Any) -> list[RecordedJob]:
    """Jobs on so many ml.p3.2xlarge (one GPU each) at 3.6 USD an hour: a dollar is 1000 seconds of one instance."""
    metrics = also.pop("metrics", {})
    return [
        recorded(
            instance_type="ml.p3.2xlarge",
            instance_count=count,
            metrics={"billable_seconds": value, "cost_usd": value * count / 1000, "f1": f1, **metrics},
            **also,
        )
        for value in seconds
    ]
