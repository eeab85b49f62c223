"""What a job asks of the user's own training, and what a script's text says of its training.

CodeSource        where the script or project of a job is
CodeRequest       what a job asks of it: the source, and the values that it may get
ScriptTraining    how a script trains with Hugging Face's Trainer, so that it can be estimated
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paretune.specification.parallelism import OF_THE_BATCH, BatchPlan

MODEL_FOLDER = "/opt/ml/model"
"""SageMaker's model folder, in which Hugging Face's and AWS's examples save their models."""


@dataclass(frozen=True, kw_only=True)
class CodeSource:
    """Says where the user's own training is.

    Attributes:
        entry_script: path of the script, or None for a project.
        project: folder or git address of an MLflow project, or None for a script.
        entry_point: the entry point of the project, or one of its scripts.
        words: what the user typed after the script.
        may_ask: whether its --help may be run.
    """

    entry_script: str | None
    project: str | None
    entry_point: str
    words: tuple[str, ...]
    may_ask: bool

    @property
    def command(self) -> str:
        """The first word after the script, which may be a subcommand; "" if there is none."""
        return next(iter(self.words), "")


@dataclass(frozen=True, kw_only=True)
class CodeRequest:
    """States what a job asks of the user's own training: everything that a script or project can get from a job.

    Attributes:
        source: the script or project.
        given: the parameters of the job that the user gave, by name.
        options: the values of its own options, by its own names (`training_arguments`).
        files: paths of the job's model and data, by parameter, whether or not the user gave them.
        batch: batch sizes and learning rate on the job's cluster.
        fallbacks: the same on each fallback type, with the same global batch; None if its devices cannot share it.
        num_train_epochs: number of epochs, also if the user did not give it.
        seed: the seed, also if the user did not give it.
        scales_rate: whether the learning rate is scaled with the batch.
        metric: names of the metrics that judge the job.
        metric_definitions: patterns of metrics in printed lines, as SageMaker has them.
        keeps_models: whether the model files that it saves become artifacts of its run.
        has_instances: whether it runs on instance types from a table rather than on this machine.
        files_travel: whether its files are uploaded.
        has_image: whether the job names the container's image.
    """

    source: CodeSource
    given: Mapping[str, Any]
    options: Mapping[str, Any]
    files: Mapping[str, str]
    batch: BatchPlan
    fallbacks: Mapping[str, BatchPlan | None]
    num_train_epochs: float
    seed: int
    scales_rate: bool
    metric: tuple[str, ...]
    metric_definitions: tuple[Mapping[str, str], ...]
    keeps_models: bool
    has_instances: bool
    files_travel: bool
    has_image: bool

    @property
    def paths(self) -> dict[str, str]:
        """The paths and addresses of its code, its data and its model, by parameter."""
        return {"entry_script": self.source.entry_script or "", "project": self.source.project or "", **self.files}

    @property
    def given_batch(self) -> dict[str, int]:
        """The parameters of the batch that the user gave."""
        return {name: self.given[name] for name in OF_THE_BATCH if name in self.given}


@dataclass(frozen=True, kw_only=True)
class ScriptTraining:
    """Holds what a script's text says of its training with the Trainer."""

    program: str  # `trainer`, or `trainer-4.46` with the version of transformers that it requires
    model: str | None  # the model that it loads, if its text shows it
    task: str  # classification, token-classification or causal-lm
    fine_tuning: str  # full, lora or qlora
    lora_rank: int | None
    max_seq_length: int | None
    loads_bf16: bool  # whether it loads the model in bf16, whatever the format of its files
    gets_plan: bool  # whether it has Hugging Face's parser, so that paretune passes batch and epochs
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of TrainingArguments, as far as the text shows them
