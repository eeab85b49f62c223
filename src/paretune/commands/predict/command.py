"""The command `predict`: a trained model on the rows of a file."""

import re
from dataclasses import dataclass
from pathlib import Path

from paretune.commands.command import command_of, imported_later
from paretune.core.errors import BadInput
from paretune.core.untrusted import at_home, exists, is_file, is_folder
from paretune.specification.catalog import instances, unknown_type
from paretune.specification.inputs import current_name
from paretune.specification.parameters import check, parameter
from paretune.specification.regions import region_faults

_WRITTEN = (".csv", ".tsv", ".jsonl")
_REGISTERED = re.compile(r"models:/(m-[\w-]+|[^/@]+(@[\w-]+|/\d+))")
_RUN = re.compile(r"runs:/\w{4,}(/.+)?")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/")
_FORMS = "a folder, models:/NAME@champion, models:/NAME/3 or runs:/RUN_ID"


@dataclass(frozen=True, kw_only=True)
class PredictRequest:
    """The model, the rows that it predicts, and the price of the machine; raises BadInput with all faults."""

    model: str | None = parameter(None, f"needed: {_FORMS}")
    data: str | None = parameter(None, "needed: CSV, TSV, JSONL or Parquet file with the rows")
    text_column: str | None = parameter(None, "column with the text; by default that of the model's training, or text")
    label_column: str | None = parameter(
        None, "column with the true class, for F1; it may be absent; by default that of the model's training, or label"
    )
    output: str = parameter("predictions.csv", "file to write: the rows with prediction and score (.csv, .tsv, .jsonl)")
    batch_size: int = parameter(32, "texts that the model reads at once", minimum=1, maximum=65_536)
    max_seq_length: int | None = parameter(
        None, "tokens, longer texts are truncated; by default as in the training", minimum=4
    )
    instance_type: str | None = parameter(
        None, "price the seconds as if this type had taken them; by default the notional price of this machine"
    )
    region: str | None = parameter(None, "region of that price; by default the profile's, AWS_REGION, else us-east-1")
    local_price_usd_per_hour: float | None = parameter(
        None, "price of this machine, for its dollars; by default the profile's, else that of ml.m5.large", above=0
    )

    def __post_init__(self) -> None:
        faults = check(self) + self._model_faults() + self._file_faults() + region_faults(self.region)
        if self.instance_type is not None and self.instance_type not in instances():
            faults.append(unknown_type(self.instance_type, instances()))
        if self.instance_type is not None and self.local_price_usd_per_hour is not None:
            faults.append(
                "local_price_usd_per_hour and instance_type both say what an hour costs: leave one of them out"
            )
        if faults:
            raise BadInput(faults)

    @property
    def is_address(self) -> bool:
        """Whether the model is in MLflow, not in a folder."""
        return (self.model or "").startswith(("models:/", "runs:/"))

    @property
    def model_folder(self) -> Path:
        """Folder of a model that is not in MLflow."""
        return at_home(current_name(self.model or ""))

    @property
    def data_path(self) -> Path:
        """File with the rows."""
        return at_home(current_name(self.data or ""))

    @property
    def output_path(self) -> Path:
        """File that is written."""
        return at_home(self.output)

    def _model_faults(self) -> list[str]:
        if self.model is None:
            return [f"model must name the model that predicts: {_FORMS}"]
        if self.is_address:
            pattern = _REGISTERED if self.model.startswith("models:/") else _RUN
            if pattern.fullmatch(self.model):
                return []
            return [f"model must be {_FORMS}, got {self.model!r}: a registered model needs an alias or a version"]
        if _ADDRESS.match(self.model) and not self.model.startswith("file:/"):
            return [f"model must be {_FORMS}, got {self.model!r}: download it first"]
        if not is_folder(self.model_folder):
            problem = "is no folder" if exists(self.model_folder) else f"does not exist (looked from {Path.cwd()})"
            return [f"model {self.model} {problem}: give {_FORMS}"]
        return []

    def _file_faults(self) -> list[str]:
        faults = []
        if self.data is None:
            faults.append("data must name the file with the rows: --data rows.csv")
        elif not is_file(self.data_path):
            faults.append(f"data {self.data} does not exist (looked from {Path.cwd()})")
        output = self.output_path
        if output.suffix.lower() not in _WRITTEN:
            faults.append(f"output must end in {', '.join(_WRITTEN)}, got {self.output}")
        if not is_folder(output.parent) or is_folder(output):
            faults.append(f"output must be a file in a folder that exists, got {self.output}: mkdir {output.parent}")
        elif self.data is not None and is_file(self.data_path) and exists(output) and output.samefile(self.data_path):
            faults.append(f"output must be another file than data, got {self.output} for both")
        return faults


COMMAND = command_of(PredictRequest, "predict", imported_later("paretune.commands.predict.run:run_predict"))
