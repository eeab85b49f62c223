"""The files of a model that MLflow knows, on this machine: of a registered version, a LoggedModel or a run."""

import tarfile
from dataclasses import dataclass
from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.utils.file_utils import local_file_uri_to_path

from paretune.core.errors import BadInput, first_line
from paretune.core.untrusted import without_secrets
from paretune.storage.archives import unpack
from paretune.tracking.models import location_of, logged_model_of
from paretune.tracking.run import TROUBLE

_BELOW = ("", "model", "peft", "data/model")  # the place of the files of a Hugging Face model in a model of MLflow
_MARKS = ("config.json", "adapter_config.json")


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """A model on this machine."""

    name: str  # what it is, for people, such as `sentiment/3`
    folder: Path  # its Hugging Face folder
    run_id: str  # the run of the job that has trained it; empty where it is not known
    params: dict[str, str]  # parameters of that run


def fetch(client: MlflowClient, address: str, scratch: Path) -> ModelFiles:
    """The model at `models:/NAME@ALIAS`, `models:/NAME/3`, `models:/m-ID`, `runs:/ID` or `runs:/ID/PATH`.

    Files that are not on this machine are downloaded into the folder `scratch`.

    Raises:
        BadInput: there is no such model, or its files are not those of a Hugging Face model.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    try:
        name, run_id, location = _resolve(client, address)
        root = _downloaded(location, scratch)
        params = dict(client.get_run(run_id).data.params) if run_id else {}
    except (tarfile.TarError, *TROUBLE) as error:
        reason = without_secrets(first_line(error))
        raise BadInput([f"model {address} cannot be read from MLflow: {reason}"]) from error
    for below in _BELOW:
        if any((root / below / mark).is_file() for mark in _MARKS):
            return ModelFiles(name=name, folder=root / below, run_id=run_id, params=params)
    raise BadInput([f"model {address} holds no Hugging Face model: expected {' or '.join(_MARKS)} in it"])


def _resolve(client: MlflowClient, address: str) -> tuple[str, str, str]:
    """Name, run id and location of the files of a model: a path or an address of a store."""
    kind, _, rest = address.partition(":/")
    if kind == "runs":
        run_id, _, path = rest.partition("/")
        if path:
            return address, run_id, address
        model = logged_model_of(client, run_id)
        if model is None:
            raise BadInput([f"run {run_id} has no model in MLflow: give its folder, or runs:/{run_id}/PATH"])
        return address, run_id, location_of(model)
    if rest.startswith("m-"):
        logged = client.get_logged_model(rest)
        return address, logged.source_run_id or "", location_of(logged)
    name, at, alias = rest.partition("@")
    if at:
        aliases = client.get_registered_model(name).aliases
        if alias not in aliases:
            allowed = " or ".join(f"models:/{name}@{other}" for other in sorted(aliases)) or f"models:/{name}/VERSION"
            raise BadInput([f"model {name} has no version with the alias {alias}: take {allowed}"])
        version = client.get_model_version_by_alias(name, alias)
    else:
        name, _, number = rest.partition("/")
        version = client.get_model_version(name, number)
    label = f"{version.name}/{version.version}"
    model_id = version.model_id or (version.source or "").removeprefix("models:/")  # databases keep only the source
    if model_id.startswith("m-"):
        return label, version.run_id or "", location_of(client.get_logged_model(model_id))
    return label, version.run_id or "", str(version.source)


def _downloaded(location: str, scratch: Path) -> Path:
    """The files at a location, downloaded to this machine; an archive is unpacked."""
    scheme = location.partition(":")[0] if "://" in location or ":/" in location else ""
    if scheme in ("", "file"):
        path = Path(local_file_uri_to_path(location))  # type: ignore[no-untyped-call]
    else:
        path = Path(mlflow.artifacts.download_artifacts(artifact_uri=location, dst_path=str(scratch)))
    if not path.is_file():
        return path
    unpack(path, scratch / "unpacked")
    return scratch / "unpacked"
