"""A job's specification: what a user types, as one frozen, checked value.

Names, meanings and defaults of all parameters stand here and nowhere else; the command line and `mlflow run -P` read
them from here.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput
from paretune.spec.batch_size import LARGEST_BATCH_SIZE, BatchPlan, plan_batch
from paretune.spec.cluster import CLUSTER_GROUPS, Cluster
from paretune.spec.parameters import check, help_lines, parameter, read, spell

EMBEDDED_MODEL = "embedded:all-MiniLM-L6-v2"
EMBEDDED_DATASET = "embedded:rotten_tomatoes"

# Not part of what a job computes: two jobs that differ only here continue from each other's checkpoint.
NOT_IN_THE_HASH = {
    "dry_run",
    *("launcher", "recorded_runs", "simulation"),
    *("max_runtime_minutes", "max_wait_minutes", "max_cost_usd", "local_price_usd_per_hour"),
    *("spot", "fallback_instance_types", "capacity_wait_minutes", "keep_alive_minutes", "on_interrupt"),
    *("region", "role", "bucket", "volume_gib", "subnets", "security_group_ids", "kms_key", "tags"),
}

# Training arguments that have a parameter of their own, or that paretune needs for itself.
RESERVED_TRAINING_ARGUMENTS = {
    "output_dir": "paretune chooses the folder",
    "report_to": "paretune records the run itself",
    "learning_rate": "use the parameter learning_rate",
    "per_device_train_batch_size": "use the parameter per_device_train_batch_size",
    "gradient_accumulation_steps": "use the parameter gradient_accumulation_steps",
    "num_train_epochs": "use the parameter num_train_epochs",
    "seed": "use the parameter seed",
    "bf16": "use the parameter precision",
    "fp16": "use the parameter precision",
    "torch_compile": "use the parameter compiler",
    "hub_token": "parameters are recorded, so no secret may be in them; set HF_TOKEN in the environment",
    "disable_tqdm": "the launcher draws the progress bar",
    "auto_find_batch_size": "paretune halves the batch itself and keeps the global batch size",
    "train_sampling_strategy": "batches are always grouped by length",
    "dataloader_drop_last": "every row is trained on in every epoch",
    "resume_from_checkpoint": "the same command continues by itself",
}


@dataclass(frozen=True, kw_only=True)
class JobSpec(Cluster):
    """One training on one cluster. Every field is optional; `None` means "off" or "derived".

    Raises:
        BadInput: with all faults at once, when a value is out of range or values contradict each other.
    """

    model: str = parameter(
        EMBEDDED_MODEL, "Hugging Face model id or folder; the default is a 22.7M-parameter MiniLM in a Python package"
    )
    dataset: str = parameter(
        EMBEDDED_DATASET,
        "hub id, folder, or CSV, TSV, JSONL, Parquet file; also embedded:rotten_tomatoes, embedded:imdb",
    )
    dataset_config_name: str | None = parameter(None, "configuration of a hub data set, such as sst2 of nyu-mll/glue")
    validation_file: str | None = parameter(None, "own validation rows; otherwise the data set's own or a 90/10 split")
    test_file: str | None = parameter(None, "own test rows, evaluated once at the end")
    text_column: str = parameter("text", "column with the text")
    label_column: str = parameter("label", "column with the class, as text or whole numbers (classification)")
    task: str = parameter("classification", "what is learnt", choices=("classification", "causal-lm"))
    max_train_samples: int | None = parameter(
        None, "rows to train on, drawn by a fixed seed; all = every row", minimum=1
    )
    max_eval_samples: int | None = parameter(
        None, "rows per evaluated split; by default a ninth of max_train_samples, or all", minimum=1
    )
    max_seq_length: int = parameter(128, "tokens; longer texts are truncated and counted", minimum=4)
    per_device_train_batch_size: int | None = parameter(
        None, "rows per device and step (16)", minimum=1, maximum=LARGEST_BATCH_SIZE
    )
    gradient_accumulation_steps: int | None = parameter(
        None, "micro-batches per optimiser step (1)", minimum=1, maximum=LARGEST_BATCH_SIZE
    )
    global_batch_size: int | None = parameter(
        None, "rows per optimiser step; the open part is derived", minimum=1, maximum=LARGEST_BATCH_SIZE
    )
    learning_rate: float = parameter(5e-5, "peak learning rate at the reference batch size", above=0, maximum=10)
    learning_rate_scaling: str = parameter(
        "none", "how the rate follows the global batch size", choices=("none", "sqrt", "linear")
    )
    reference_batch_size: int = parameter(
        16, "global batch size that learning_rate suits", minimum=1, maximum=LARGEST_BATCH_SIZE
    )
    num_train_epochs: float = parameter(1.0, "passes over the training rows", above=0, maximum=10_000)
    seed: int = parameter(42, "seed of initialisation, order and dropout", minimum=0, maximum=2**32 - 1)
    precision: str = parameter(
        "auto", "auto takes bf16 where the hardware has it, else fp32", choices=("auto", "fp32", "bf16", "fp16")
    )
    fine_tuning: str = parameter(
        "full", "full: all weights; head: encoder frozen; lora: low-rank adapters", choices=("full", "head", "lora")
    )
    compiler: str = parameter("none", "inductor compiles the model (torch.compile)", choices=("none", "inductor"))
    training_arguments: Mapping[str, Any] = parameter({}, "JSON object: any further Hugging Face TrainingArguments")
    entry_script: str | None = parameter(None, "a training script of your own, run instead of paretune's training")
    probe_steps: int | None = parameter(
        None, "train only so many optimiser steps, judge nothing: what a step takes and holds", minimum=10
    )
    dry_run: bool = parameter(False, "check everything, print the job and its worst-case dollars, launch nothing")

    def __post_init__(self) -> None:
        faults = check(self) + _contradictions(self)
        if not faults:
            try:
                self.plan()
                for instance_type in self.instance_types()[1:]:
                    self.on(instance_type)
            except BadInput as error:
                faults += error.faults
        if faults:
            raise BadInput(faults)

    @classmethod
    def from_text(cls, texts: Mapping[str, str]) -> "JobSpec":
        """A specification from what was typed: parameter name to text; an empty text means the default.

        Raises:
            BadInput: all unknown names, wrong types and out-of-range values at once.
        """
        return read(cls, texts)

    def plan(self) -> BatchPlan:
        """The batch sizes and the learning rate this job trains with."""
        return plan_batch(
            per_device_train_batch_size=self.per_device_train_batch_size,
            gradient_accumulation_steps=self.gradient_accumulation_steps,
            global_batch_size=self.global_batch_size,
            devices=self.devices,
            learning_rate=self.learning_rate,
            learning_rate_scaling=self.learning_rate_scaling,
            reference_batch_size=self.reference_batch_size,
        )

    def replace(self, **changes: Any) -> "JobSpec":
        """The same specification with some fields changed, checked again."""
        return replace(self, **changes)

    def on(self, instance_type: str) -> "JobSpec":
        """The same training on another instance type: the global batch size stays, the per-device batch if it can.

        Raises:
            BadInput: its devices cannot share the global batch size evenly.
        """
        plan = self.plan()
        elsewhere = replace(
            self,
            instance_type=instance_type,
            fallback_instance_types=None,
            processes_per_instance=None if instance_type != self.instance_type else self.processes_per_instance,
            global_batch_size=None,
            gradient_accumulation_steps=None,
        )
        batch, total = plan.per_device_train_batch_size, plan.global_batch_size
        fits = total % (batch * elsewhere.devices) == 0
        return replace(elsewhere, global_batch_size=total, per_device_train_batch_size=batch if fits else None)

    def as_text(self) -> dict[str, str]:
        """Every field as it would be typed; `from_text` reads it back."""
        return {item.name: spell(getattr(self, item.name)) for item in fields(self)}

    def changed(self) -> dict[str, str]:
        """The fields that differ from their default, as they would be typed."""
        standard = JobSpec().as_text()
        return {name: text for name, text in self.as_text().items() if text != standard[name]}

    def spec_hash(self) -> str:
        """Twelve hexadecimal digits, equal for two jobs that compute the same."""
        what = {name: text for name, text in self.as_text().items() if name not in NOT_IN_THE_HASH}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]

    def command(self, entry_point: str = "main") -> str:
        """The `mlflow run` line that repeats this job."""
        import shlex

        words = ["mlflow", "run", "."] + ([] if entry_point == "main" else ["-e", entry_point])
        words += [word for name, text in self.changed().items() for word in ("-P", f"{name}={text}")]
        return shlex.join(words)


PARAMETER_GROUPS = {
    "model": "model and data",
    "per_device_train_batch_size": "batch size, learning rate and epochs",
    "precision": "how it is trained",
    "entry_script": "your own script, probes and dry runs",
    **CLUSTER_GROUPS,
}
"""First parameter of each group of the help to the group's title, in the order of `parameter_help`."""


def parameter_help() -> dict[str, str]:
    """Name of every parameter of a job to one line of help; what is trained comes first."""
    lines = help_lines(JobSpec)
    inherited = {item.name for item in fields(Cluster)}
    return {name: lines[name] for name in sorted(lines, key=lambda name: name in inherited)}


def _contradictions(spec: JobSpec) -> list[str]:
    faults = spec.cluster_faults()
    for name in spec.training_arguments:
        if name in RESERVED_TRAINING_ARGUMENTS:
            faults.append(f"training_arguments must not set {name}: {RESERVED_TRAINING_ARGUMENTS[name]}")
    if spec.entry_script is None and spec.validation_file and spec.dataset.startswith("embedded:"):
        faults.append(
            f"validation_file goes with a data set of your own, got dataset={spec.dataset}: "
            "set dataset to your training rows"
        )
    return faults


def missing_files(texts: Mapping[str, str]) -> list[str]:
    """One fault per parameter that can only be a path and leads nowhere."""
    faults = []
    for name in ("dataset", "validation_file", "test_file", "entry_script", "model"):
        text = texts.get(name, "")
        is_path = name.endswith(("_file", "_script")) or text.startswith((".", "/", "~")) or _has_file_ending(text)
        if text and is_path and not Path(text).expanduser().exists():
            faults.append(f"{name} {text} does not exist (looked from {Path.cwd()})")
    return faults


def _has_file_ending(text: str) -> bool:
    return Path(text).suffix.lower() in {".csv", ".tsv", ".jsonl", ".json", ".parquet", ".txt"}
