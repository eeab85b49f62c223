"""Completed jobs as their runs tell them, made up for tests of reports."""

import itertools
from collections.abc import Sequence
from typing import Any

from paretune.jobs.record import params_of
from paretune.specification.job import JobSpec
from paretune.tracking import RecordedJob, RecordedRun

_numbers = itertools.count(1)
_PUBLISHED = (
    "run_id,dataset,model,num_parameters,per_device_train_batch_size,learning_rate,num_train_epochs,instance_type,"
    "instance_count,accelerator_count,global_batch_size,num_steps,hourly_price_usd,volume_size_gb,strategy,"
    "dataset_size,billable_seconds,f1,cost_usd"
)
TOLD = {"max_seq_length": "256", "precision": "fp32"}
"""What that table does not tell of its runs."""


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


def published_table() -> str:
    """A table of the shape of a published benchmark: 1, 8 and 16 GPUs by three data sizes. All numbers are invented."""
    rows = []
    clusters = (("ml.p3.2xlarge", 1, 1, 4.0, "none"), ("ml.p3.16xlarge", 1, 8, 30.0, "smddp"))
    clusters = (*clusters, ("ml.p3.16xlarge", 2, 16, 30.0, "smddp"))
    for workspace, (kind, count, devices, price, strategy) in enumerate(clusters):
        for repeat, (size, epochs) in enumerate([(50_000, 20), (50_000, 20), (200_000, 5), (500_000, 2), (500_000, 2)]):
            seconds = round(30_000 / devices**0.85 + 40 * repeat * (3 - workspace))
            loss = (0.03 if size == 50_000 else 0.004) * (0.0, 0.5, 2.0)[workspace]
            f1 = 0.91 + 0.008 * repeat - loss + 0.0003 * (-1) ** (repeat + workspace)
            steps = round(0.9 * size * epochs / (16 * devices))
            cost = seconds / 3600 * price * count
            rows.append(
                f"{len(rows)},some_reviews,distilbert-base-uncased,66955010,16,3e-5,{epochs},{kind},{count},{devices},"
                f"{16 * devices},{steps},{price},30,{strategy},{size},{seconds},{f1:.6f},{cost:.6f}"
            )
    return "\n".join([_PUBLISHED, *rows]) + "\n"
