"""The model of a finished job as a LoggedModel of MLflow, and as a version of a registered model.

The training has written MLmodel beside the weights. The files of a folder on this machine become those of the
LoggedModel. What lies in S3 stays there, and MLflow loads it from there: its LoggedModel has the address.
"""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus, Metric, Run
from mlflow.exceptions import MlflowException

from paretune.specification import metrics
from paretune.specification.inputs import IN_S3
from paretune.tracking import schema

_OF_MODEL = (
    *dict.fromkeys(measure for task in metrics.TASKS.values() for measure in task.measures),
    *(metrics.EVAL_LOSS, metrics.BASELINE_TFIDF, metrics.BASELINE_MAJORITY),
    *(metrics.COST_USD, metrics.TRAIN_SECONDS, metrics.THROUGHPUT_SAMPLES),
)
"""Metrics of the run that the list of models shows."""
_STATES = ("checkpoint-*", "optimizer.pt", "scheduler.pt", "rng_state*.pth", "training_args.bin")
"""What only the training itself needs."""
CANDIDATE = "candidate"  # alias of the version of a registered model that was registered last
_READY_WITHIN_S = 120  # a managed server makes a Model Package of each version


@dataclass(frozen=True, kw_only=True)
class JobModel:
    """The model of a finished job."""

    name: str
    location: str  # where its files are: a path of this machine or an S3 URI
    kind: str | None = None  # task of its pipeline on the hub, such as text-classification, if known
    dataset: tuple[str, str] | None = None  # name and digest of the rows that it was judged on, if known


def logged_model_of(client: MlflowClient, run_id: str) -> LoggedModel | None:
    """The model of the finished job of a run; one that the job's command has logged itself if there is none of ours.

    Its tag `paretune.model` says where its files are.
    """
    run = client.get_run(run_id)
    ready = [model for model in _models_of(client, run) if model.status == LoggedModelStatus.READY]
    return max(ready, key=lambda model: (schema.MODEL in model.tags, model.creation_timestamp), default=None)


def address(logged: LoggedModel) -> str:
    """The address from which MLflow loads a model: `models:/m-...`, or that of its folder in S3."""
    location = logged.tags.get(schema.MODEL, "")
    return location if location.startswith(IN_S3) else str(logged.model_uri)


def log_model(client: MlflowClient, run_id: str, model: JobModel) -> LoggedModel:
    """The LoggedModel of a run; created if there is none, completed if its creation was interrupted."""
    run = client.get_run(run_id)
    logged = next((logged for logged in _models_of(client, run) if schema.MODEL in logged.tags), None)
    if logged is not None and logged.status == LoggedModelStatus.READY:
        return logged
    if logged is None:
        tags = {schema.MODEL: model.location}
        logged = client.create_logged_model(
            run.info.experiment_id, model.name, run_id, tags=tags, params=run.data.params, model_type=model.kind
        )
    outputs = run.outputs.model_outputs if run.outputs is not None else []
    if logged.model_id not in [output.model_id for output in outputs]:
        client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])
    if not model.location.startswith(IN_S3):
        _store(client, logged, Path(model.location))
    _link_metrics(client, run, logged, model.dataset)
    return client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)


def register_model(client: MlflowClient, name: str, run_id: str) -> str | None:
    """Make the model of a run a version of `name` with the alias `candidate`; returns `NAME/VERSION`.

    A run that has a version keeps it. None if MLflow has no model of the run. What MLflow raises is raised as it is.
    """
    versions = client.search_model_versions(f"name = '{name}' and run_id = '{run_id}'")
    version = str(versions[0].version) if versions else None
    if version is None:
        model = logged_model_of(client, run_id)
        if model is None:
            return None
        try:
            client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code not in {"RESOURCE_ALREADY_EXISTS", "ALREADY_EXISTS"}:
                raise
        version = client.create_model_version(
            name, address(model), run_id, await_creation_for=_READY_WITHIN_S, model_id=model.model_id
        ).version
    client.set_registered_model_alias(name, CANDIDATE, version)
    return f"{name}/{version}"


def _models_of(client: MlflowClient, run: Run) -> list[LoggedModel]:
    return list(
        client.search_logged_models([run.info.experiment_id], filter_string=f"source_run_id = '{run.info.run_id}'")
    )


def _store(client: MlflowClient, logged: LoggedModel, folder: Path) -> None:
    """Send the files of the folder to MLflow's store, without those that only the training needs."""
    with tempfile.TemporaryDirectory(prefix="paretune-") as scratch:
        shutil.copytree(folder.resolve(), scratch, ignore=_left_out, copy_function=os.symlink, dirs_exist_ok=True)
        client.log_model_artifacts(logged.model_id, scratch)


def _left_out(folder: str, names: list[str]) -> set[str]:
    """States of a training, and links to folders, which may lie elsewhere."""
    links = {name for name in names if (path := Path(folder, name)).is_symlink() and not path.is_file()}
    return links | shutil.ignore_patterns(*_STATES)(folder, names)


def _link_metrics(client: MlflowClient, run: Run, logged: LoggedModel, dataset: tuple[str, str] | None) -> None:
    """Have the list of models show the run's figures: the points that the run has, so that no curve gets another."""
    latest = [client.get_metric_history(run.info.run_id, name)[-1] for name in _OF_MODEL if name in run.data.metrics]
    rows = dict(zip(("dataset_name", "dataset_digest"), dataset or (), strict=False))
    linked = [
        Metric(point.key, point.value, point.timestamp, point.step, logged.model_id, run_id=run.info.run_id, **rows)
        for point in latest
    ]
    if linked:
        client.log_batch(run.info.run_id, metrics=linked)
