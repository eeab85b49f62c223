"""Records the model of a finished job as a LoggedModel of MLflow, and registers it as a version of a registered model.

The job has written MLmodel next to the weights. Files in a folder on this machine are copied into the LoggedModel.
Files in S3 stay there. MLflow chooses where it stores the files of a LoggedModel, so these cannot be the files in S3:
instead, the LoggedModel gets a few kilobytes of code that load the model from its address. A registered version refers
to the address itself.
"""

import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import mlflow.artifacts
import mlflow.pyfunc
from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus, Run
from mlflow.exceptions import MlflowException
from mlflow.models import Model

from paretune.core.errors import first_line
from paretune.specification import metrics
from paretune.specification.inputs import IN_S3
from paretune.tracking import model_in_s3, schema
from paretune.tracking.data_sets import validation_of

_LOGGER = logging.getLogger(__name__)
_OF_VALIDATION = (metrics.F1, metrics.EVAL_LOSS, metrics.PERPLEXITY)
"""Metrics that the list of models shows, measured on the validation rows."""
_OF_MODEL = (*_OF_VALIDATION, metrics.COST_USD, metrics.TRAIN_SECONDS)
"""All metrics that the list of models shows."""
_STATES = ("checkpoint-*", "optimizer.pt", "scheduler.pt", "rng_state*.pth", "training_args.bin")
"""Files that only the training run itself needs."""
CANDIDATE = "candidate"  # alias of the version of a registered model for which registration was last requested
_READY_WITHIN_S = 120  # longest wait until a version is ready; a managed server makes a Model Package of each version


def logged_model_of(client: MlflowClient, run_id: str) -> LoggedModel | None:
    """Return the LoggedModel of a run: paretune's own, else the newest that the job's command logged, else None.

    Only paretune's own has the tag `paretune.model`, with the location of its files.
    """
    run = client.get_run(run_id)
    ready = [model for model in _models_of(client, run) if model.status == LoggedModelStatus.READY]
    return max(ready, key=lambda model: (schema.MODEL in model.tags, model.creation_timestamp), default=None)


def address(logged: LoggedModel) -> str:
    """Return the address from which MLflow loads a model: `models:/m-...`, or the address of its folder in S3."""
    location = logged.tags.get(schema.MODEL, "")
    return location if location.startswith(IN_S3) else str(logged.model_uri)


def log_model(
    client: MlflowClient, run_id: str, name: str, location: str, model_type: str | None = None
) -> LoggedModel:
    """Return the LoggedModel of a run; the model's files are at `location`, a folder here or an S3 URI.

    The LoggedModel is created if it does not exist, and completed if its creation was interrupted. Its quality metrics
    refer to the validation rows among the run's inputs.
    """
    run = client.get_run(run_id)
    logged = next((logged for logged in _models_of(client, run) if schema.MODEL in logged.tags), None)
    if logged is not None and logged.status == LoggedModelStatus.READY:
        return logged
    if logged is None:
        tags, params = {schema.MODEL: location}, run.data.params
        logged = client.create_logged_model(run.info.experiment_id, name, run_id, tags, params, model_type)
    outputs = run.outputs.model_outputs if run.outputs is not None else []
    if logged.model_id not in [output.model_id for output in outputs]:
        client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])
    if location.startswith(IN_S3):
        _store_loader(client, logged, location)
    else:
        _store(client, logged, Path(location))
    validation = validation_of(run)
    for name in set(_OF_MODEL) & run.data.metrics.keys():  # one by one, because a server may deny batches
        point = client.get_metric_history(run_id, name)[-1]  # logged again at the same step
        place: dict[str, Any] = {"model_id": logged.model_id, **(validation if name in _OF_VALIDATION else {})}
        client.log_metric(run_id, name, point.value, point.timestamp, point.step, **place)
    return client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)


def register_model(client: MlflowClient, name: str, run_id: str) -> str | None:
    """Register the model of a run as a version of `name` with the alias `candidate`; return `NAME/VERSION`.

    If the run already has a version of `name`, that version is kept and gets the alias. Returns None if MLflow has no
    model of the run. Raises MLflow's errors.
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
    """Copy the files of the folder to MLflow's store, without files that only the training run itself needs."""
    with tempfile.TemporaryDirectory(prefix="paretune-") as scratch:
        shutil.copytree(folder.resolve(), scratch, ignore=_left_out, copy_function=os.symlink, dirs_exist_ok=True)
        client.log_model_artifacts(logged.model_id, scratch)


def _store_loader(client: MlflowClient, logged: LoggedModel, address: str) -> None:
    """Store a small model in MLflow that loads the model at `address`, which is in S3.

    The small model has the same signature, and the same requirements plus boto3. Nothing is stored if `address` cannot
    be read or has no MLflow model.
    """
    with tempfile.TemporaryDirectory(prefix="paretune-") as scratch:
        try:
            model = Model.load(address)
            # `get_model_dependencies` would also fetch the weights.
            needed = mlflow.artifacts.download_artifacts(f"{address.rstrip('/')}/requirements.txt", dst_path=scratch)
        except Exception as error:  # MLflow raises what boto3 raises
            _LOGGER.info("models:/%s has no files: %s", logged.model_id, first_line(error))
            return
        mlflow.pyfunc.save_model(
            f"{scratch}/model",
            loader_module=model_in_s3.__name__.rpartition(".")[2],
            code_paths=[model_in_s3.__file__],
            model_config={model_in_s3.ADDRESS: address},
            pip_requirements=[*Path(needed).read_text().splitlines(), "boto3"],
            mlflow_model=Model(run_id=logged.source_run_id, signature=model.signature, model_id=logged.model_id),
        )
        client.log_model_artifacts(logged.model_id, f"{scratch}/model")


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Return the names not to upload: training states, and links to folders, because these may be outside `folder`."""
    links = {name for name in names if (path := Path(folder, name)).is_symlink() and not path.is_file()}
    return links | shutil.ignore_patterns(*_STATES)(folder, names)
