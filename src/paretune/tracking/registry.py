"""MLflow's model registry: the model of a run becomes a version of a registered model."""

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from paretune.tracking.models import logged_model_of

CANDIDATE = "candidate"  # alias of the version that was registered last
_READY_WITHIN_S = 120  # a managed server makes a Model Package of each version


def register_model(client: MlflowClient, name: str, run_id: str) -> str | None:
    """Make the model of a run a version of `name` with the alias `candidate`; returns `NAME/VERSION`.

    A run that has a version keeps it. None if MLflow has no model of the run. What MLflow raises is raised as it is.
    """
    version = _version_of(client, name, run_id)
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
            name,
            model.model_uri,
            run_id=run_id,
            await_creation_for=_READY_WITHIN_S,
            model_id=model.model_id,
        ).version
    client.set_registered_model_alias(name, CANDIDATE, version)
    return f"{name}/{version}"


def _version_of(client: MlflowClient, name: str, run_id: str) -> str | None:
    versions = client.search_model_versions(f"name = '{name}' and run_id = '{run_id}'")
    return str(versions[0].version) if versions else None
