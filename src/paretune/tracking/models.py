"""The model of a finished job as a LoggedModel of MLflow, made around the files of its folder without loading them.

What lies on this machine becomes a model of the transformers and pyfunc flavours:

    MLmodel  requirements.txt  python_env.yaml  README.md
    model/                   the files of the job's model folder
    components/tokenizer/    those of them that are no weights

What lies elsewhere (S3) stays there: the LoggedModel has the card and says where the files are, in its tag and in the
MLmodel file, and has no flavour that could load it.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from mlflow import MlflowClient
from mlflow import __version__ as mlflow_version
from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus, Metric, Run
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, Schema
from mlflow.utils import PYTHON_VERSION
from mlflow.utils.environment import _PythonEnv
from mlflow.utils.file_utils import local_file_uri_to_path

from paretune.specification import metrics
from paretune.tracking import schema

CLASSIFICATION, GENERATION = "text-classification", "text-generation"
"""Tasks of `transformers.pipeline` that our own trainings are for."""
_PIPELINES = {
    "ForSequenceClassification": CLASSIFICATION,
    "ForCausalLM": GENERATION,
    "LMHeadModel": GENERATION,
    "ForTokenClassification": "token-classification",
    "ForMaskedLM": "fill-mask",
}
"""The end of the name of a class of transformers to the task of its pipeline, of those that read one text."""
_TEXT = Schema([ColSpec(DataType.string)])
# As mlflow.transformers declares them (mlflow 3.17.2, transformers/signature.py); importing it would import PyTorch.
_SIGNATURES = {
    CLASSIFICATION: ModelSignature(
        inputs=_TEXT, outputs=Schema([ColSpec(DataType.string, name="label"), ColSpec(DataType.double, name="score")])
    ),
    GENERATION: ModelSignature(inputs=_TEXT, outputs=Schema([ColSpec(DataType.string)])),
}
_OF_MODEL = (
    *dict.fromkeys(measure for task in metrics.TASKS.values() for measure in task.measures),
    *(metrics.EVAL_LOSS, metrics.BASELINE_TFIDF, metrics.BASELINE_MAJORITY),
    *(metrics.COST_USD, metrics.TRAIN_SECONDS, metrics.THROUGHPUT_SAMPLES),
)
"""Metrics of the run that the list of models shows."""
_ENVIRONMENT = "python_env.yaml"
_LINKED_FROM = 2**20  # bytes; a smaller file is copied, so that an editor cannot change two at once
_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")
_LEFT_OUT = (".pt", ".pth")  # states of optimisers and generators of random numbers
_PICKLED_ARGUMENTS = "training_args.bin"
CANDIDATE = "candidate"  # alias of the version of a registered model that was registered last
_READY_WITHIN_S = 120  # a managed server makes a Model Package of each version


@dataclass(frozen=True, kw_only=True)
class JobModel:
    """The model of a finished job."""

    name: str
    location: str  # where its files are: a path of this machine or an S3 URI
    folder: Path | None  # the same as a folder that can be read here; None if the files stay in S3
    card: str  # text of its README.md
    requirements: tuple[str, ...]  # packages that load it, with versions if they are known, as pip reads them
    dataset: tuple[str, str] | None = None  # name and digest of the rows that it was judged on, if known


def logged_model_of(client: MlflowClient, run_id: str) -> LoggedModel | None:
    """The model of the finished job of a run; one that the job's command has logged itself if there is none of ours.

    Its tag `paretune.model` says where its files are; `model_uri` is its address in MLflow.
    """
    run = client.get_run(run_id)
    ready = [model for model in _models_of(client, run) if model.status == LoggedModelStatus.READY]
    return max(ready, key=lambda model: (schema.MODEL in model.tags, model.creation_timestamp), default=None)


def log_model(client: MlflowClient, run_id: str, model: JobModel) -> LoggedModel:
    """The LoggedModel of a run; created if there is none, completed if its creation was interrupted."""
    run = client.get_run(run_id)
    logged = next((logged for logged in _models_of(client, run) if schema.MODEL in logged.tags), None)
    if logged is not None and logged.status == LoggedModelStatus.READY:
        return logged
    if logged is None:
        tags = {schema.MODEL: model.location}
        logged = client.create_logged_model(run.info.experiment_id, model.name, run_id, tags=tags)
    outputs = run.outputs.model_outputs if run.outputs is not None else []
    if logged.model_id not in [output.model_id for output in outputs]:
        client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])
    _store(client, logged, model)
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
            name, model.model_uri, run_id, await_creation_for=_READY_WITHIN_S, model_id=model.model_id
        ).version
    client.set_registered_model_alias(name, CANDIDATE, version)
    return f"{name}/{version}"


def why_not(folder: Path) -> str:
    """The reason why a folder cannot be logged as a model that transformers loads; empty if it can."""
    config = _config(folder)
    if not config:
        return "no config.json of a Hugging Face model"
    if not any(_weights(folder)):
        return "no weights (model.safetensors)"
    if not any((folder / name).is_file() for name in ("tokenizer_config.json", "tokenizer.json")):
        return "no tokenizer beside the weights"
    return "" if _task(config) else f"no pipeline of texts for architectures={config.get('architectures')}"


def _models_of(client: MlflowClient, run: Run) -> list[LoggedModel]:
    return list(
        client.search_logged_models([run.info.experiment_id], filter_string=f"source_run_id = '{run.info.run_id}'")
    )


def _store(client: MlflowClient, logged: LoggedModel, model: JobModel) -> None:
    """Write the files of the model into MLflow's store; large files are hard links if the store is on the same disk."""
    described = Model(run_id=logged.source_run_id, model_id=logged.model_id)
    local = _local_folder(logged.artifact_location)
    if local is not None:
        _fill(local, described, model, _link_or_copy)
        return
    with tempfile.TemporaryDirectory(prefix="paretune-") as scratch:
        _fill(Path(scratch), described, model, lambda source, target: target.symlink_to(source.resolve()))
        client.log_model_artifacts(logged.model_id, scratch)


def _fill(folder: Path, described: Model, model: JobModel, put: Callable[[Path, Path], None]) -> None:
    """Write the files of the model into a folder; `put` puts one file of the job's folder at its path there."""
    folder.mkdir(parents=True, exist_ok=True)
    for source, name in _files(model.folder) if model.folder is not None else ():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        put(source, folder / name)
    _describe(described, model, folder)


def _local_folder(location: str) -> Path | None:
    if urlsplit(location).scheme not in ("", "file"):
        return None
    return Path(local_file_uri_to_path(location)).absolute()  # type: ignore[no-untyped-call]


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each file that belongs to the model, and its names in the LoggedModel."""
    weights = {*_weights(folder)}
    for path in sorted(folder.iterdir()):
        if not path.is_file() or path.suffix in _LEFT_OUT or path.name == _PICKLED_ARGUMENTS:
            continue
        yield path, f"model/{path.name}"
        if path not in weights and "adapter" not in path.name and path.name != "README.md":
            yield path, f"components/tokenizer/{path.name}"


def _link_or_copy(source: Path, target: Path) -> None:
    if source.stat().st_size >= _LINKED_FROM:
        try:
            os.link(source.resolve(), target)
        except OSError:  # another disk, or one without links
            pass
        else:
            return
    shutil.copyfile(source, target)


def _describe(described: Model, model: JobModel, folder: Path) -> None:
    """Complete the description of the model, and write it as the MLmodel file with what it names."""
    config = {} if model.folder is None else _config(model.folder)
    task = _task(config)
    described.metadata = {schema.MODEL: model.location}
    described.signature = _SIGNATURES.get(task, ModelSignature(inputs=_TEXT)) if task else None
    if model.folder is not None and not why_not(model.folder):
        described.add_flavor(
            "transformers",
            transformers_version=config.get("transformers_version"),
            code=None,
            task=task,
            pipeline_model_type=_architecture(config),
            model_binary="model",
            components=["tokenizer"],
            tokenizer_type="AutoTokenizer",
        )
        # Not by mlflow.pyfunc, whose import takes seconds and warns of its own types.
        environment = {"virtualenv": _ENVIRONMENT}
        loader = {"loader_module": "mlflow.transformers", "python_version": PYTHON_VERSION, "env": environment}
        described.add_flavor("python_function", **loader)
    described.model_size_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    described.save(str(folder / "MLmodel"))
    (folder / "requirements.txt").write_text("\n".join([f"mlflow=={mlflow_version}", *model.requirements]) + "\n")
    _PythonEnv.current().to_yaml(str(folder / _ENVIRONMENT))  # type: ignore[no-untyped-call]
    (folder / "README.md").write_text(model.card, encoding="utf-8")


def _config(folder: Path) -> dict[str, object]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def _task(config: Mapping[str, object]) -> str:
    """Task of the pipeline for a model of this configuration; empty if paretune has none for it."""
    return next((task for end, task in _PIPELINES.items() if _architecture(config).endswith(end)), "")


def _architecture(config: Mapping[str, object]) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def _weights(folder: Path) -> list[Path]:
    return [path for pattern in _WEIGHTS for path in folder.glob(pattern)]


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
