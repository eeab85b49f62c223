"""Copies the runs that a command has recorded inside its job into the tracking server. Copying twice changes nothing.

The job's store is read through MLflow, which upgrades tables of an older one. A job with a newer MLflow than is
installed here leaves a store that cannot be read: it stays in the job's results.
"""

import sqlite3
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME

from paretune.core.clock import Clock
from paretune.core.errors import LostContact, first_line
from paretune.core.untrusted import without_secrets
from paretune.launchers.base import Job
from paretune.projects.container_entrypoint import OWN_RUN, RUN_NAME, STORE
from paretune.storage.archives import unpack
from paretune.tracking import schema

_ATTEMPTS = 5  # to read results and copy them
_PAUSE_S = 5.0
_MOST_RUNS = 50_000  # MLflow's limit of one search
_BATCHES = {"params": 100, "tags": 100, "metrics": 500}  # entries per request; MLflow allows 100, 100 and 1000
_SET_BY_MLFLOW_RUN = ("mlflow.user", "mlflow.source.", "mlflow.project.", "mlflow.parentRunId")


@dataclass(frozen=True)
class Collector:
    """Copies what the commands of ended jobs have recorded into their runs.

    Args:
        clock: for the pauses between attempts.
        client: for the tracking server; by default the one that MLflow's own settings name.
    """

    clock: Clock
    client: MlflowClient = field(default_factory=MlflowClient)

    def __call__(self, job: Job, run_id: str) -> list[str]:
        """Copy the job's store into the run and return remarks on what could not be copied.

        Raises LostContact if S3 or the tracking server does not answer or refuses, after several attempts.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with tempfile.TemporaryDirectory(prefix="paretune-") as folder:
                    output = None if job.output is None else job.output.fetch(Path(folder))
                    return [] if output is None else collect(output, run_id, self.client)
            except tarfile.TarError as error:
                return [_problem(error)]
            except (LostContact, MlflowException, OSError) as error:
                if attempt == _ATTEMPTS:
                    raise LostContact(_problem(error)) from error
                self.clock.sleep(_PAUSE_S)
        return []


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """One run of the job's store."""

    run: Run  # as MLflow reads it
    is_own: bool  # whether it is the run that the command was given
    metrics: Sequence[Metric]  # all points of all curves
    artifacts: Sequence[tuple[str, Path]]  # path in the run's artifacts, and the folder with its files


def collect(output: Path, run_id: str, client: MlflowClient) -> list[str]:
    """Copy the store in a job's output, a folder or an archive, into the run; no effect without a store.

    Further runs that the command has opened become runs of their own in the run's experiment.

    Returns:
        Remarks on what could not be copied.
    """
    if not output.is_dir():
        with tempfile.TemporaryDirectory(prefix="paretune-") as folder:
            unpack(output, Path(folder), lambda name: name.startswith(f"{STORE}/"))
            return collect(Path(folder), run_id, client)
    store = output / STORE
    if not (store / "mlflow.db").is_file():
        return []
    try:
        runs = read_store(store)
    except Exception as error:  # the job has written it: MLflow may raise anything
        return [_problem(error)]
    remarks = []
    copies = dict[str, str]()  # id in the store to id of its copy
    experiment = client.get_run(run_id).info.experiment_id
    for stored in runs:
        parent = copies.get(stored.run.data.tags.get(MLFLOW_PARENT_RUN_ID, ""), run_id)
        copy = run_id if stored.is_own else _find_or_create_copy(stored.run, experiment, parent, client)
        copies[stored.run.info.run_id] = copy
        remarks += _copy(stored, copy, client)
    return remarks


def read_store(store: Path) -> list[StoredRun]:
    """The runs of a store, without deleted ones: the command's own, then the others in the order of their begin."""
    with closing(sqlite3.connect(store / "mlflow.db")) as database:  # MLflow tries a damaged file for 100 seconds
        database.execute("SELECT version_num FROM alembic_version")
    client, own = MlflowClient(f"sqlite:///{store / 'mlflow.db'}"), (store / OWN_RUN).read_text()
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = [
        StoredRun(
            run=run,
            is_own=run.info.run_id == own,
            metrics=[point for name in run.data.metrics for point in client.get_metric_history(run.info.run_id, name)],
            artifacts=_artifacts(run, store, client),
        )
        for run in client.search_runs(experiments, max_results=_MOST_RUNS)
    ]
    return sorted(runs, key=lambda stored: (not stored.is_own, stored.run.info.start_time))


def _artifacts(run: Run, store: Path, client: MlflowClient) -> list[tuple[str, Path]]:
    """The files of a run and of its models, which MLflow keeps in the folder of the experiment.

    The store's own addresses of them are not believed: nothing else of this machine may be uploaded.
    """
    experiment = store / "mlruns" / run.info.experiment_id
    query = f"source_run_id = '{run.info.run_id}'"
    models = client.search_logged_models([run.info.experiment_id], query)
    folders = [("", experiment / run.info.run_id / "artifacts")]
    folders += [(model.name, experiment / "models" / model.model_id / "artifacts") for model in models]
    inside = [(name, folder) for name, folder in folders if folder.resolve().is_relative_to(store.resolve())]
    return [(name, folder) for name, folder in inside if folder.is_dir() and any(folder.iterdir())]


def _problem(error: Exception) -> str:
    return f"the records of the command could not be copied ({without_secrets(first_line(error))})"


def _find_or_create_copy(run: Run, experiment: str, parent: str, client: MlflowClient) -> str:
    """Id of the copy of a run that the command has opened beside its own, from an earlier call or a new one."""
    copies = client.search_runs([experiment], f"tags.`{schema.COPIED_FROM}` = '{run.info.run_id}'", max_results=1)
    if copies:
        return str(copies[0].info.run_id)
    tags = {schema.COPIED_FROM: run.info.run_id, MLFLOW_PARENT_RUN_ID: parent}
    copy = client.create_run(experiment, start_time=run.info.start_time, tags=tags, run_name=run.info.run_name)
    return str(copy.info.run_id)


def _copy(stored: StoredRun, run_id: str, client: MlflowClient) -> list[str]:
    run, existing_params = stored.run, client.get_run(run_id).data.params
    params = [Param(name, text) for name, text in run.data.params.items() if name not in existing_params]
    tags = {name: text for name, text in run.data.tags.items() if not name.startswith(_SET_BY_MLFLOW_RUN)}
    if run.info.run_name == RUN_NAME:
        tags.pop(MLFLOW_RUN_NAME, None)
    metrics = _missing_metrics(stored.metrics, run_id, client)
    entities: dict[str, list[Any]] = {"params": params, "tags": [*starmap(RunTag, tags.items())], "metrics": metrics}
    for kind, items in entities.items():
        for start in range(0, len(items), _BATCHES[kind]):
            batch = {kind: items[start : start + _BATCHES[kind]]}
            client.log_batch(run_id, **batch)  # type: ignore[arg-type]  # the keys are names of its lists
    for name, folder in stored.artifacts:
        client.log_artifacts(run_id, str(folder), artifact_path=name or None)
    if not stored.is_own and run.info.end_time:
        client.set_terminated(run_id, run.info.status, run.info.end_time)
    differing = {name for name, text in run.data.params.items() if existing_params.get(name, text) != text}
    return [f"parameter {name} of the command stays as it was given to `mlflow run`" for name in sorted(differing)]


def _missing_metrics(metrics: Sequence[Metric], run_id: str, client: MlflowClient) -> list[Metric]:
    existing: set[tuple[Any, ...]] = set()
    for name in {metric.key for metric in metrics}:
        existing |= {_point(metric) for metric in client.get_metric_history(run_id, name)}
    return [metric for metric in metrics if _point(metric) not in existing]


def _point(metric: Metric) -> tuple[Any, ...]:
    return metric.key, metric.step, metric.timestamp, str(metric.value)
