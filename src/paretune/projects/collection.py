"""Copies the runs that a command has recorded inside its job into the tracking server. Copying twice changes nothing.

The job's store is read as a database, not through MLflow: the job may have an older or a newer one than is installed
here, and the tables read here have had these columns since MLflow 1.0 (logged_models: since 3.0).
"""

import itertools
import re
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME

from paretune.core.clock import Clock
from paretune.core.errors import LostContact, first_line
from paretune.core.untrusted import without_secrets
from paretune.launchers.base import Job
from paretune.projects.container_entrypoint import RUN_NAME, STORE
from paretune.storage.archives import unpack
from paretune.tracking import schema

_ATTEMPTS = 5  # to read results and copy them
_PAUSE_S = 5.0
_DAMAGED = (tarfile.TarError, sqlite3.Error)
_NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)  # MLflow itself uses 32 digits, or m- and 32 digits
_MODEL_NAME = re.compile(r"[^/\\:.%\"'\0-\x1f\x7f]{1,200}")  # what MLflow allows, except for control characters
_ACTIVE_RUNS = (
    "SELECT run_uuid, name, status, start_time, end_time, experiment_id FROM runs WHERE lifecycle_stage = 'active'"
)
_STATUSES = {"RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"}  # the constraint of the table `runs`, MLflow 3.17
_TABLES = {"runs", "params", "tags", "metrics", "logged_models"}
_CREATE_TABLE = re.compile("CREATE TABLE ", re.IGNORECASE)  # not CREATE VIRTUAL TABLE
_LONGEST_VALUE = 16 * 2**20  # bytes
_MOST_ROWS = 2_000_000  # of one table and run; a metric takes 300 bytes of memory
_MOST_STEPS = 2_000_000_000  # of SQLite's virtual machine, about half a minute; a row takes some tens
_STEPS_AT_ONCE = 1_000_000
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
            except (LostContact, MlflowException, OSError, *_DAMAGED) as error:
                problem = f"the records of the command could not be copied ({without_secrets(first_line(error))})"
                if isinstance(error, _DAMAGED):
                    return [problem]
                if attempt == _ATTEMPTS:
                    raise LostContact(problem) from error
                self.clock.sleep(_PAUSE_S)
        return []


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """One run of the job's store."""

    run_id: str
    name: str
    status: str
    start_ms: int
    end_ms: int | None
    artifacts: Path
    params: dict[str, str]
    tags: dict[str, str]
    metrics: tuple[Metric, ...]
    models: tuple[tuple[str, Path], ...]


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
    remarks = []
    copies = {run_id: run_id}  # id in the store to id of its copy
    experiment = client.get_run(run_id).info.experiment_id
    for run in sorted(read_store(store), key=lambda run: (run.run_id != run_id, run.start_ms)):
        is_own = run.run_id == run_id
        if not is_own:
            parent = copies.get(run.tags.get(MLFLOW_PARENT_RUN_ID, ""), run_id)
            copies[run.run_id] = _find_or_create_copy(run, experiment, parent, client)
        remarks += _copy(run, copies[run.run_id], client, is_own=is_own)
    return remarks


def read_store(store: Path) -> Iterator[StoredRun]:
    """The runs of a store, without deleted ones and those with names that MLflow does not use.

    Raises:
        sqlite3.Error: the store is damaged, a table lacks a column, or has values that MLflow does not write.
    """
    with closing(sqlite3.connect(store / "mlflow.db")) as database:
        _set_limits(database)
        for row in _rows(database, _ACTIVE_RUNS):
            run_id, experiment = row["run_uuid"], str(row["experiment_id"])
            folder = store / "mlruns" / experiment
            artifacts = folder / str(run_id) / "artifacts"
            if not (_is_name(run_id) and _is_name(experiment) and _lies_in(artifacts, store)):
                continue
            yield StoredRun(
                run_id=run_id,
                name=_text(row["name"]),
                status=_status(row["status"]),
                start_ms=_whole(row["start_time"] or 0),
                end_ms=None if row["end_time"] is None else _whole(row["end_time"]),
                artifacts=artifacts,
                params=_pairs(database, "params", run_id),
                tags=_pairs(database, "tags", run_id),
                metrics=tuple(_metrics(database, run_id)),
                models=tuple(_models(database, run_id, folder)),
            )


def _set_limits(database: sqlite3.Connection) -> None:
    """Make a store that computes its answers without end fail with an error.

    Raises:
        sqlite3.DataError: a view or a virtual table has the name of one of MLflow's tables.
    """
    database.row_factory = sqlite3.Row
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    steps = itertools.count(1)
    database.set_progress_handler(lambda: next(steps) > _MOST_STEPS // _STEPS_AT_ONCE, _STEPS_AT_ONCE)
    for name, kind, statement in database.execute("SELECT name, type, sql FROM sqlite_master"):
        if name in _TABLES and (kind != "table" or not _CREATE_TABLE.match(str(statement))):
            raise sqlite3.DataError(f"{name} must be a table of MLflow, is another {kind}")


def _rows(database: sqlite3.Connection, query: str, *values: str) -> Iterator[sqlite3.Row]:
    """The rows of a query; raises sqlite3.DataError if there are more than a job writes."""
    for number, row in enumerate(database.execute(query, values)):
        if number == _MOST_ROWS:
            raise sqlite3.DataError(f"a table has more than {_MOST_ROWS:,} rows")
        yield row


def _pairs(database: sqlite3.Connection, table: str, run_id: str) -> dict[str, str]:
    query = f"SELECT key, value FROM {table} WHERE run_uuid = ?"  # noqa: S608  # one of two names above
    return {_text(row["key"]): _text(row["value"]) for row in _rows(database, query, run_id)}


def _metrics(database: sqlite3.Connection, run_id: str) -> Iterator[Metric]:
    query = "SELECT key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? ORDER BY timestamp, step"
    for row in _rows(database, query, run_id):
        value = float("nan") if row["is_nan"] else row["value"]
        if not isinstance(value, int | float):
            raise sqlite3.DataError(f"the value of a metric must be a number, got {type(value).__name__}")
        yield Metric(_text(row["key"]), value, _whole(row["timestamp"]), _whole(row["step"]))


def _models(database: sqlite3.Connection, run_id: str, experiment: Path) -> Iterator[tuple[str, Path]]:
    """Name and folder of the models that a run has logged; MLflow 3 keeps them in the folder of the experiment."""
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'logged_models'").fetchone():
        return
    query = "SELECT name, model_id FROM logged_models WHERE source_run_id = ? ORDER BY creation_timestamp_ms"
    for row in _rows(database, query, run_id):
        if not (_is_name(row["model_id"]) and _is_name(row["name"], _MODEL_NAME)):
            continue
        folder = experiment / "models" / row["model_id"] / "artifacts"
        if folder.is_dir() and _lies_in(folder, experiment):
            yield row["name"], folder


def _is_name(value: object, rule: re.Pattern[str] = _NAME) -> bool:
    """Whether a value can be the name of a run, an experiment or a model in MLflow, and of one file."""
    return isinstance(value, str) and rule.fullmatch(value) is not None


def _text(value: object) -> str:
    """A text of a row, empty for NULL; raises sqlite3.DataError for bytes."""
    if isinstance(value, bytes):
        raise sqlite3.DataError("a text must not be bytes")
    return "" if value is None else str(value)


def _whole(value: object) -> int:
    """A whole number of a row; raises sqlite3.DataError for anything else."""
    if not isinstance(value, int):
        raise sqlite3.DataError(f"a time or step must be a whole number, got {type(value).__name__}")
    return value


def _status(value: object) -> str:
    """The status of a run; raises sqlite3.DataError if it is not one of MLflow's."""
    if value not in _STATUSES:
        raise sqlite3.DataError("the status of a run must be one of MLflow's")
    return str(value)


def _lies_in(folder: Path, parent: Path) -> bool:
    """Whether a folder that the store names is below `parent`: nothing else of this machine may be uploaded."""
    return folder.resolve().is_relative_to(parent.resolve())


def _find_or_create_copy(run: StoredRun, experiment: str, parent: str, client: MlflowClient) -> str:
    """Id of the copy of a run that the command has opened beside its own, from an earlier call or a new one."""
    copies = client.search_runs([experiment], f"tags.`{schema.COPIED_FROM}` = '{run.run_id}'", max_results=1)
    if copies:
        return str(copies[0].info.run_id)
    tags = {schema.COPIED_FROM: run.run_id, MLFLOW_PARENT_RUN_ID: parent}
    return str(client.create_run(experiment, start_time=run.start_ms, tags=tags, run_name=run.name).info.run_id)


def _copy(run: StoredRun, run_id: str, client: MlflowClient, *, is_own: bool) -> list[str]:
    existing_params = client.get_run(run_id).data.params
    params = [Param(name, text) for name, text in run.params.items() if name not in existing_params]
    tags = {name: text for name, text in run.tags.items() if not name.startswith(_SET_BY_MLFLOW_RUN)}
    if run.name == RUN_NAME or not run.name:
        tags.pop(MLFLOW_RUN_NAME, None)
    metrics = _missing_metrics(run.metrics, run_id, client)
    entities: dict[str, list[Any]] = {"params": params, "tags": [*starmap(RunTag, tags.items())], "metrics": metrics}
    for kind, items in entities.items():
        for start in range(0, len(items), _BATCHES[kind]):
            batch = {kind: items[start : start + _BATCHES[kind]]}
            client.log_batch(run_id, **batch)  # type: ignore[arg-type]  # the keys are names of its lists
    if run.artifacts.is_dir() and any(run.artifacts.iterdir()):
        client.log_artifacts(run_id, str(run.artifacts))
    for name, folder in run.models:
        client.log_artifacts(run_id, str(folder), artifact_path=name)
    if not is_own and run.end_ms:
        client.set_terminated(run_id, run.status, run.end_ms)
    differing = {name for name, text in run.params.items() if existing_params.get(name, text) != text}
    return [f"parameter {name} of the command stays as it was given to `mlflow run`" for name in sorted(differing)]


def _missing_metrics(metrics: tuple[Metric, ...], run_id: str, client: MlflowClient) -> list[Metric]:
    existing: set[tuple[Any, ...]] = set()
    for name in {metric.key for metric in metrics}:
        existing |= {_point(metric) for metric in client.get_metric_history(run_id, name)}
    return [metric for metric in metrics if _point(metric) not in existing]


def _point(metric: Metric) -> tuple[Any, ...]:
    return metric.key, metric.step, metric.timestamp, str(metric.value)
