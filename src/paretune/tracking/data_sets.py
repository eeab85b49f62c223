"""Describes a job's data as MLflow data sets: the inputs of its run, and the rows on which its model was validated."""

import json
from collections.abc import Mapping
from pathlib import Path

from mlflow.entities import Dataset, DatasetInput, InputTag, Run
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from paretune.core.reading import exists
from paretune.core.secrets import without_secrets
from paretune.specification.inputs import BUNDLED, IN_S3, split_configuration

_VALIDATION = "validation"


def dataset_input(source: str, context: str, digest: str, rows: int) -> DatasetInput:
    """Describe one split of a run's data. MLflow keeps one input per name and digest, however often it is logged.

    `source` is an id on the Hub, a file or folder, an S3 address, or bundled:NAME. `digest` identifies the `rows` rows.
    """
    source = without_secrets(source)
    kind, location = _source(source)
    name = Path(source).name if kind == "local" and not source.startswith(BUNDLED) else source
    profile = json.dumps({"num_rows": rows})
    dataset = Dataset(name, digest, source_type=kind, source=json.dumps(location), profile=profile)
    return DatasetInput(dataset, [InputTag(MLFLOW_DATASET_CONTEXT, context)])


def validation_of(run: Run) -> dict[str, str]:
    """Return `dataset_name` and `dataset_digest` of a run's validation rows; empty if its inputs have none."""
    for item in run.inputs.dataset_inputs if run.inputs is not None else ():
        if _VALIDATION in {tag.value for tag in item.tags if tag.key == MLFLOW_DATASET_CONTEXT}:
            return {"dataset_name": item.dataset.name, "dataset_digest": item.dataset.digest}
    return {}


def _source(source: str) -> tuple[str, Mapping[str, str | None]]:
    """Return MLflow's type of a source, and the fields that MLflow's class for this type reads."""
    if source.startswith(IN_S3):
        return "s3", {"uri": source}
    name, configuration = split_configuration(source)
    if configuration is None and (source.startswith((".", "/", "~", BUNDLED)) or exists(source)):
        return "local", {"uri": source}
    return "hugging_face", {"path": name, "config_name": configuration}
