"""The model of a finished job as a LoggedModel of MLflow."""

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelStatus


def logged_model_of(client: MlflowClient, run_id: str) -> LoggedModel | None:
    """The model of the finished job of a run; None where there is none that is ready."""
    experiment = client.get_run(run_id).info.experiment_id
    found = client.search_logged_models([experiment], filter_string=f"source_run_id = '{run_id}'")
    ready = [one for one in found if one.status == LoggedModelStatus.READY]
    return max(ready, key=lambda one: one.creation_timestamp, default=None)
