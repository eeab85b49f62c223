"""What a command has recorded in its job, copied into its run. Doing it twice changes nothing.

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
from paretune.core.errors import LostContact
from paretune.launchers.base import Job
from paretune.projects.container_entrypoint import RUN_NAME, STORE
from paretune.storage.archives import unpack
from paretune.tracking import schema, without_password

_ATTEMPTS = 5  # to read results and copy them
_PAUSE_S = 5.0
_DAMAGED = (tarfile.TarError, sqlite3.Error)
_NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)  # of MLflow itself: 32 digits, or m- and 32 digits
_MODEL_NAME = re.compile(r"[^/\\:.%\"'\0-\x1f\x7f]{1,200}")  # what MLflow takes, but for control characters
_ACTIVE_RUNS = (
    "SELECT run_uuid, name, status, start_time, end_time, experiment_id FROM runs WHERE lifecycle_stage = 'active'"
)
_STATUSES = {"RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"}  # as the table `runs` of MLflow 3.17 checks them
_TABLES = {"runs", "params", "tags", "metrics", "logged_models"}
_MAKES_A_TABLE = re.compile("CREATE TABLE ", re.IGNORECASE)  # not CREATE VIRTUAL TABLE
_LONGEST_VALUE = 16 * 2**20  # bytes
_MOST_ROWS = 2_000_000  # of one table and run; a metric takes 300 bytes of memory
_MOST_STEPS = 2_000_000_000  # of SQLite's machine, about half a minute; a row takes some tens
_STEPS_AT_ONCE = 1_000_000
_BATCHES = {"params": 100, "tags": 100, "metrics": 500}  # of a request; MLflow takes 100, 100 and 1000
_SET_BY_MLFLOW_RUN = ("mlflow.user", "mlflow.source.", "mlflow.project.", "mlflow.parentRunId")


@dataclass(frozen=True)
class Collector:
    """Copies what the commands of ended jobs have recorded into their runs.

    Args:
        clock: for the pauses between attempts.
        client: of the tracking server; by default of the one that MLflow's own settings name.
    """

    clock: Clock
    client: MlflowClient = field(default_factory=MlflowClient)

    def __call__(self, job: Job, run_id: str) -> list[str]:
        """Sentences on what could not be taken over; S3 and the tracking server are asked several times."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if (left := job.results()) is not None:
                    return collect_store(left / STORE, run_id, self.client)
                with tempfile.TemporaryDirectory(prefix="paretune-") as folder:
                    archive = Path(folder) / "output.tar.gz"
                    return collect(archive, run_id, self.client) if job.save_results(archive) else []
            except (LostContact, MlflowException, OSError, *_DAMAGED) as error:
                if attempt == _ATTEMPTS or isinstance(error, _DAMAGED):
                    said = without_password((str(error).splitlines() or [""])[0])
                    return [
                        f"what the command has recorded could not be copied ({said}); try again with "
                        f'--backend-config \'{{"run_id": "{run_id}", ...}}\''
                    ]
                self.clock.sleep(_PAUSE_S)
        return []


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """One run as the job's store has it."""

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


def collect(archive: Path, run_id: str, client: MlflowClient) -> list[str]:
    """Copy what the archive of a job's results holds into the run; sentences on what could not be taken over.

    Further runs of the command get runs of their own in the run's experiment.
    """
    with tempfile.TemporaryDirectory(prefix="paretune-") as folder:
        unpack(archive, Path(folder), lambda name: name.startswith(f"{STORE}/"))
        return collect_store(Path(folder) / STORE, run_id, client)


def collect_store(store: Path, run_id: str, client: MlflowClient) -> list[str]:
    """As `collect`, of a store as it is; nothing where the command has had none."""
    if not (store / "mlflow.db").is_file():
        return []
    remarks = []
    names = {run_id: run_id}
    experiment = client.get_run(run_id).info.experiment_id
    for run in sorted(read_store(store), key=lambda run: (run.run_id != run_id, run.start_ms)):
        if run.run_id != run_id:
            names[run.run_id] = _counterpart(run, experiment, names, client)
        remarks += _copy(run, names[run.run_id], client, is_own=run.run_id == run_id)
    return remarks


def read_store(store: Path) -> Iterator[StoredRun]:
    """The runs of a store, none of the deleted ones, and none that MLflow has not written.

    Raises:
        sqlite3.Error: it is damaged, a table lacks a column, or holds values that MLflow does not write.
    """
    with closing(sqlite3.connect(store / "mlflow.db")) as database:
        _limit(database)
        for row in _rows(database, _ACTIVE_RUNS):
            run_id, experiment = row["run_uuid"], str(row["experiment_id"])
            place = store / "mlruns" / experiment
            artifacts = place / str(run_id) / "artifacts"
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
                models=tuple(_models(database, run_id, place)),
            )


def _limit(database: sqlite3.Connection) -> None:
    """Have a store that computes what it answers, and goes on with it for ever, end in an error.

    Raises:
        sqlite3.DataError: it has something else than tables in their place.
    """
    database.row_factory = sqlite3.Row
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    steps = itertools.count(1)
    database.set_progress_handler(lambda: next(steps) > _MOST_STEPS // _STEPS_AT_ONCE, _STEPS_AT_ONCE)
    for name, kind, made in database.execute("SELECT name, type, sql FROM sqlite_master"):
        if name in _TABLES and (kind != "table" or not _MAKES_A_TABLE.match(str(made))):
            raise sqlite3.DataError(f"{name} must be a table of MLflow, is another {kind}")


def _rows(database: sqlite3.Connection, query: str, *values: str) -> Iterator[sqlite3.Row]:
    """The rows that a query finds, as many as a job writes at most."""
    for number, row in enumerate(database.execute(query, values)):
        if number == _MOST_ROWS:
            raise sqlite3.DataError(f"it has more than {_MOST_ROWS:,} rows")
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


def _models(database: sqlite3.Connection, run_id: str, place: Path) -> Iterator[tuple[str, Path]]:
    """Name and folder of the models that a run has logged; MLflow 3 keeps them beside the run's own artifacts."""
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'logged_models'").fetchone():
        return
    query = "SELECT name, model_id FROM logged_models WHERE source_run_id = ? ORDER BY creation_timestamp_ms"
    for row in _rows(database, query, run_id):
        if not (_is_name(row["model_id"]) and _is_name(row["name"], _MODEL_NAME)):
            continue
        folder = place / "models" / row["model_id"] / "artifacts"
        if folder.is_dir() and _lies_in(folder, place):
            yield row["name"], folder


def _is_name(value: object, rule: re.Pattern[str] = _NAME) -> bool:
    """Whether MLflow names a run, an experiment or a model so, and a file system takes it for one name."""
    return isinstance(value, str) and rule.fullmatch(value) is not None


def _text(value: object) -> str:
    """A text of a row, empty where there is none; sqlite3.DataError for bytes."""
    if isinstance(value, bytes):
        raise sqlite3.DataError("a text must be no bytes")
    return "" if value is None else str(value)


def _whole(value: object) -> int:
    """A whole number of a row; sqlite3.DataError for anything else."""
    if not isinstance(value, int):
        raise sqlite3.DataError(f"a time or step must be a whole number, got {type(value).__name__}")
    return value


def _status(value: object) -> str:
    """MLflow's word for how a run is; sqlite3.DataError for anything else."""
    if value not in _STATUSES:
        raise sqlite3.DataError("the status of a run must be one of MLflow's")
    return str(value)


def _lies_in(folder: Path, place: Path) -> bool:
    """Whether a folder that a stranger's store names is below `place`: nothing else of this machine is uploaded."""
    return folder.resolve().is_relative_to(place.resolve())


def _counterpart(run: StoredRun, experiment: str, names: dict[str, str], client: MlflowClient) -> str:
    """The run outside for one that the command has opened beside its own: found again, or new."""
    found = client.search_runs([experiment], f"tags.`{schema.COPIED_FROM}` = '{run.run_id}'", max_results=1)
    if found:
        return str(found[0].info.run_id)
    own = next(iter(names.values()))  # of the job: what its command has opened beside it lies below it
    parent = names.get(run.tags.get(MLFLOW_PARENT_RUN_ID, ""), own)
    tags = {schema.COPIED_FROM: run.run_id, MLFLOW_PARENT_RUN_ID: parent}
    return str(client.create_run(experiment, start_time=run.start_ms, tags=tags, run_name=run.name).info.run_id)


def _copy(run: StoredRun, run_id: str, client: MlflowClient, *, is_own: bool) -> list[str]:
    known = client.get_run(run_id)
    params = [Param(name, text) for name, text in run.params.items() if name not in known.data.params]
    tags = {name: text for name, text in run.tags.items() if not name.startswith(_SET_BY_MLFLOW_RUN)}
    if run.name == RUN_NAME or not run.name:
        tags.pop(MLFLOW_RUN_NAME, None)
    missing = _missing(run.metrics, run_id, client)
    entities: dict[str, list[Any]] = {"params": params, "tags": [*starmap(RunTag, tags.items())], "metrics": missing}
    for kind, items in entities.items():
        for start in range(0, len(items), _BATCHES[kind]):
            batch = {kind: items[start : start + _BATCHES[kind]]}
            client.log_batch(run_id, **batch)  # type: ignore[arg-type]  # names of its lists
    if run.artifacts.is_dir() and any(run.artifacts.iterdir()):
        client.log_artifacts(run_id, str(run.artifacts))
    for name, folder in run.models:
        client.log_artifacts(run_id, str(folder), artifact_path=name)
    if not is_own and run.end_ms:
        client.set_terminated(run_id, run.status, run.end_ms)
    differing = {name for name, text in run.params.items() if known.data.params.get(name, text) != text}
    return [f"parameter {name} of the command stays as it was given to `mlflow run`" for name in sorted(differing)]


def _missing(metrics: tuple[Metric, ...], run_id: str, client: MlflowClient) -> list[Metric]:
    there: set[tuple[Any, ...]] = set()
    for name in {metric.key for metric in metrics}:
        there |= {_point(metric) for metric in client.get_metric_history(run_id, name)}
    return [metric for metric in metrics if _point(metric) not in there]


def _point(metric: Metric) -> tuple[Any, ...]:
    return metric.key, metric.step, metric.timestamp, str(metric.value)
