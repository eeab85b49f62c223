"""Made-up runs of completed jobs, for tests of reports."""

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from paretune.jobs.card import params_of
from paretune.specification.job import JobSpec
from paretune.tracking.recorded_run import RecordedRun

_numbers = itertools.count(1)


def recorded(
    *, tags: dict[str, str] | None = None, metrics: dict[str, float] | None = None, started: float = 1.7e9, **spec: Any
) -> RecordedRun:
    """Return the run of a completed, measured job.

    `spec` has the parameters of the job. The names in `tags` do not have the prefix `paretune.`.
    """
    custom = {"origin": "measured", "state": "Completed"} | (tags or {})
    job = JobSpec(**spec)
    return RecordedRun(
        run_id=f"{next(_numbers):032x}",
        params=params_of(job),
        tags={name if name.startswith("mlflow.") else f"paretune.{name}": text for name, text in custom.items()},
        metrics=metrics or {},
        started=started,
    )


def put_run(
    store: MlflowClient, params: Mapping[str, str], tags: Mapping[str, str], metrics: Mapping[str, float], **run: Any
) -> str:
    """Add a run to the store, and return its id.

    The names in `tags` may lack the prefix `paretune.`. `run` has arguments of `create_run`.
    """
    run_id = str(store.create_run(os.environ.get("MLFLOW_EXPERIMENT_ID", "0"), **run).info.run_id)
    store.log_batch(
        run_id,
        metrics=[Metric(name, value, 0, 0) for name, value in metrics.items()],
        params=[Param(name, text) for name, text in params.items()],
        tags=[RunTag(f"paretune.{name.removeprefix('paretune.')}", text) for name, text in tags.items()],
    )
    return run_id


def on_p3(count: int, seconds: Sequence[float], f1: float = 0.9, **also: Any) -> list[RecordedRun]:
    """Return runs of jobs on `count` ml.p3.2xlarge (one GPU each), one run for each element of `seconds`.

    An instance costs 3.6 USD per hour here, so 1000 seconds cost a dollar.
    """
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
