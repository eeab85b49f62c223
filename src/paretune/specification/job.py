"""A job's specification: what a user types, as one frozen, checked value.

Names, meanings and defaults of all parameters stand here and nowhere else; the command line and `mlflow run -P` read
them from here.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import unquote

from paretune.core.commands import command_line
from paretune.core.errors import BadInput, collecting, refuse
from paretune.core.untrusted import exists, is_file, is_folder
from paretune.specification import metrics
from paretune.specification.batch_size import LARGEST_BATCH_SIZE, BatchPlan, plan_batch
from paretune.specification.cluster import STEP, Cluster, listed, spreading_defaults, unsupported
from paretune.specification.legacy_smp import LEGACY_SMP_ENDED, LEGACY_SMP_TYPES
from paretune.specification.metrics import finite_numbers
from paretune.specification.parameters import (
    COMPUTES,
    Effect,
    affecting,
    check,
    default_text,
    help_lines,
    parameter,
    read,
    spell,
)

BUNDLED = "bundled:"
"""Begins the names of the model and the data sets that come as Python packages."""
BUNDLED_BEFORE = "embedded:"
"""The same until version 0.1: still read, and what hashes and the descriptions of studies are still made of."""
BUNDLED_MODEL = f"{BUNDLED}all-MiniLM-L6-v2"
BUNDLED_MODEL_ID, BUNDLED_MODEL_LICENCE = "sentence-transformers/all-MiniLM-L6-v2", "apache-2.0"
"""Hub id of the model that the bundled one is a copy of, and the licence that its card states."""
BUNDLED_DATASET = f"{BUNDLED}rotten_tomatoes"
INPUT_FILES = ("model", "dataset", "validation_file", "test_file")
"""Parameters of a job that may be files or folders of the launching machine, beside `entry_script`."""
IN_S3 = "s3://"
"""Begins the name of a file or folder in S3; such a file is fetched before the job is launched."""
ROW_FILES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "json",
    ".json": "json",
    ".parquet": "parquet",
    ".txt": "text",
}
"""What the names of files with rows end in, to the reader of the `datasets` library."""
PROJECT = "MLproject"
"""`entry_script` of a job that runs the command of an MLflow project."""

TRAINING_COMPILER = "sagemaker-training-compiler"
TRAINING_COMPILER_ENDED = (
    f"{TRAINING_COMPILER}: AWS has ended its releases with transformers 4.21 and PyTorch 1.11; whether its old images "
    "still run has not been verified, and compiler=inductor is what PyTorch compiles with today"
)
"""What is said of a job with it before it begins."""
_COMPILED_FAMILIES = ("p3", "p3dn", "g4dn", "p4d", "g5")  # TrainingCompilerConfig of sagemaker-core 2.27.0

# The hash holds these whatever their value. One that is added later is in it only where it differs from its default, so
# that checkpoints, studies and ledgers of older versions are found again: never extend this set.
_ALWAYS_IN_THE_HASH = frozenset(
    {
        *("strategy", "tensor_parallel_degree", "context_parallel_degree", "expert_parallel_degree"),
        *("hybrid_shard_degree", "activation_offloading", "instance_type", "instance_count", "processes_per_instance"),
        *("image_uri", "model", "dataset", "dataset_config_name", "validation_file", "test_file", "text_column"),
        *("label_column", "task", "max_train_samples", "max_eval_samples", "max_seq_length"),
        *("per_device_train_batch_size", "gradient_accumulation_steps", "global_batch_size", "learning_rate"),
        *("learning_rate_scaling", "reference_batch_size", "num_train_epochs", "seed", "precision", "fine_tuning"),
        *("compiler", "training_arguments", "entry_script", "probe_steps"),
    }
)

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


_REGISTERED_NAME = re.compile("[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
"""ModelPackageGroupName of SageMaker's CreateModelPackageGroup (botocore 1.44.5)."""
LONGEST_REGISTERED_NAME = 57
"""Characters: a SageMaker managed MLflow server adds some of its own to the name of the Model Package Group."""
MOST_PROFILED_STEPS = 300
"""Of one job: a trace of more steps is too large to look at."""
OWN_TRAINING = ("entry_script", "project")
"""Parameters of a job with which it runs a training of the user's own."""
ADAPTERS = ("lora", "qlora")
"""Kinds of fine-tuning that train adapters beside frozen weights."""
ALL_LINEAR = "all-linear"
"""`lora_target_modules` of adapters beside every linear layer but those of the head."""
FULL_LEARNING_RATE = 5e-5
"""That of TrainingArguments (transformers 5.23), which suits full fine-tuning."""
_ADAPTERS_OVER_FULL = 10.0
_EVALUATED_ROWS: frozenset[Effect] = frozenset({"data", "evaluation", "quality"})
_TRAINING: frozenset[Effect] = STEP | {"quality"}
_BATCH: frozenset[Effect] = frozenset({"batch", "quality"})


@dataclass(frozen=True, kw_only=True)
class JobSpec(Cluster):
    """One training on one cluster. Every field is optional; `None` means "off" or "derived".

    Raises:
        BadInput: with all faults at once, when a value is out of range or values contradict each other.
    """

    model: str = parameter(
        BUNDLED_MODEL,
        "Hugging Face model id or folder; the default is a 22.7M-parameter MiniLM in a Python package",
        affects=_TRAINING | {"data"},
        group="model",
        basic=True,
    )
    init: str = parameter(
        "pretrained",
        "random: train from the model's configuration and tokenizer, its weights are not read",
        choices=("pretrained", "random"),
        affects={"data", "quality"},
    )
    dataset: str = parameter(
        BUNDLED_DATASET,
        "hub id, folder, or CSV, TSV, JSONL, Parquet file, also s3://BUCKET/KEY; bundled:rotten_tomatoes, bundled:imdb",
        affects=_EVALUATED_ROWS,
        group="data",
        basic=True,
    )
    dataset_config_name: str | None = parameter(
        None, "configuration of a hub data set, such as sst2 of nyu-mll/glue", affects=_EVALUATED_ROWS
    )
    validation_file: str | None = parameter(
        None, "own validation rows; otherwise the data set's own or a 90/10 split", affects=_EVALUATED_ROWS
    )
    test_file: str | None = parameter(None, "own test rows, evaluated once at the end", affects={"data", "evaluation"})
    text_column: str = parameter("text", "column with the text", affects=_EVALUATED_ROWS, basic=True)
    label_column: str = parameter(
        "label",
        "column with the class, the number (regression) or the labels (multi-label: lists, a|b, or columns of 0 and 1 "
        "as a,b)",
        affects=_EVALUATED_ROWS,
        basic=True,
    )
    task: str = parameter(
        metrics.CLASSIFICATION, "what is learnt", choices=tuple(metrics.TASKS), affects=STEP | _EVALUATED_ROWS
    )
    max_train_samples: int | None = parameter(
        None, "rows to train on, drawn by a fixed seed; all = every row", minimum=1, affects={"data", "quality"}
    )
    max_eval_samples: int | None = parameter(
        None,
        "rows per evaluated split; by default a ninth of max_train_samples, or all",
        minimum=1,
        affects=_EVALUATED_ROWS,
    )
    max_seq_length: int = parameter(
        128, "tokens; longer texts are truncated and counted", minimum=4, affects=_TRAINING | {"data"}
    )
    per_device_train_batch_size: int | None = parameter(
        None,
        "rows per device and step (16)",
        minimum=1,
        maximum=LARGEST_BATCH_SIZE,
        affects=STEP | {"batch"},
        group="batch size, learning rate and epochs",
        basic=True,
    )
    gradient_accumulation_steps: int | None = parameter(
        None, "micro-batches per optimiser step (1)", minimum=1, maximum=LARGEST_BATCH_SIZE, affects=_BATCH
    )
    global_batch_size: int | None = parameter(
        None, "rows per optimiser step; the open part is derived", minimum=1, maximum=LARGEST_BATCH_SIZE, affects=_BATCH
    )
    learning_rate: float | None = parameter(
        None,
        "peak learning rate at the reference batch size; by default 5e-5, with adapters ten times that",
        above=0,
        maximum=10,
        affects=_BATCH,
        basic=True,
    )
    learning_rate_scaling: str = parameter(
        "none", "how the rate follows the global batch size", choices=("none", "sqrt", "linear"), affects=_BATCH
    )
    reference_batch_size: int = parameter(
        16, "global batch size that learning_rate suits", minimum=1, maximum=LARGEST_BATCH_SIZE, affects=_BATCH
    )
    num_train_epochs: float = parameter(
        1.0, "passes over the training rows", above=0, maximum=10_000, affects={"quality"}, basic=True
    )
    seed: int = parameter(
        42, "seed of initialisation, order and dropout", minimum=0, maximum=2**32 - 1, affects={"noise"}
    )
    precision: str = parameter(
        "auto",
        "auto takes bf16 where the hardware has it, else fp16 on GPUs with tensor cores, else fp32",
        choices=("auto", "fp32", "bf16", "fp16"),
        affects=_TRAINING,
        group="how it is trained",
    )
    fine_tuning: str = parameter(
        "full",
        "full: all weights; head: encoder frozen; lora: low-rank adapters; qlora: those on 4-bit weights",
        choices=("full", "head", "lora", "qlora"),
        affects=_TRAINING,
    )
    lora_rank: int = parameter(8, "lora, qlora: rank of the adapters", minimum=1, maximum=1024, affects=_TRAINING)
    lora_alpha: float = parameter(
        16.0, "lora, qlora: adapters are scaled by lora_alpha / lora_rank", above=0, affects={"quality"}
    )
    lora_dropout: float = parameter(
        0.0, "lora, qlora: share of the adapters' inputs that is dropped", minimum=0, maximum=0.9, affects=_TRAINING
    )
    lora_target_modules: str = parameter(
        ALL_LINEAR, "lora, qlora: comma-separated names of the linear layers that get adapters", affects=_TRAINING
    )
    compiler: str = parameter(
        "none",
        "inductor: torch.compile; sagemaker-training-compiler: the frozen one of AWS, for an entry_script",
        choices=("none", "inductor", TRAINING_COMPILER),
        affects=STEP,
    )
    training_arguments: Mapping[str, Any] = parameter(
        {},
        "JSON object: any further Hugging Face TrainingArguments",
        affects=_TRAINING,
        example='{"weight_decay": 0.01}',
    )
    entry_script: str | None = parameter(
        None,
        "a training script of your own, run instead of paretune's training",
        affects=_TRAINING,
        not_searched="a study compares settings of one training",
        group="your own script, probes and dry runs",
    )
    project: str | None = parameter(
        None,
        "an MLflow project or any folder with scripts, run instead of paretune's training: folder or git URI",
        affects=_TRAINING,
        not_searched="a study compares settings of one training",
    )
    entry_point: str = parameter(
        "main",
        "project: its entry point, or a script in it such as train.py or run.sh",
        affects=_TRAINING,
        not_searched="a study compares settings of one training",
    )
    project_parameters: Mapping[str, Any] = parameter(
        {},
        "project: JSON object of the entry point's parameters",
        affects=_TRAINING,
        example='{"alpha": 0.1}',
    )
    size: str | None = parameter(
        None,
        "project, entry_script: comma-separated parameters that its seconds grow with, such as max_rows",
        affects={"launcher"},
        not_searched="it says how seconds are estimated",
    )
    probe_steps: int | None = parameter(
        None,
        "train only so many optimiser steps, judge nothing: what a step takes and holds",
        minimum=10,
        affects={"quality"},
        not_searched="a job that is cut off has no F1",
    )
    profile_steps: int | None = parameter(
        None,
        "profile so many optimiser steps after the warm-up: trace.json.gz, profile.json, profile.md",
        minimum=1,
        maximum=MOST_PROFILED_STEPS,
        affects={"launcher"},
        not_searched="it measures a job and changes no result",
    )
    merge: bool = parameter(
        True,
        "lora, qlora: add the adapters to the weights at the end; false: adapters alone, with the name of their base",
        affects={"launcher"},
        not_searched="it is another form of the same model",
    )
    log_model: bool = parameter(
        True,
        "record the model in MLflow, for mlflow.transformers.load_model; false: leave it where the job has written it",
        affects={"launcher"},
        not_searched="it changes no result",
    )
    trials_per_job: int = parameter(
        1,
        "trials of a study that one job trains, with one start-up for all; without effect on a single job",
        minimum=1,
        maximum=64,
        affects={"bill"},
        not_searched="it changes no result",
    )
    register: str | None = parameter(
        None,
        "name in MLflow's model registry: the model becomes a version with alias candidate, champion if it is better",
        affects={"launcher"},
        not_searched="it changes no result; a study registers the model that it recommends",
    )
    again: bool = parameter(
        False,
        "start another job although an identical one runs that nobody watches; by default that one is watched",
        affects={"launcher"},
        not_searched="a study starts no job twice",
    )
    dry_run: bool = parameter(
        False,
        "check everything, print the job and its worst-case dollars, launch nothing",
        affects={"launcher"},
        not_searched="a job that is not run has no result",
        basic=True,
    )

    def __post_init__(self) -> None:
        for name in INPUT_FILES:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, current_name(getattr(self, name)))
        faults = check(self) + _contradictions(self)
        if not faults:
            with collecting(faults):
                plan = self.plan()
                if self.legacy_smp:
                    faults += self.legacy_model_parallel().batch_faults(plan.per_device_train_batch_size)
                faults += self._fallback_faults()
        refuse(faults)

    @classmethod
    def from_text(cls, texts: Mapping[str, str]) -> "JobSpec":
        """A specification from what was typed: parameter name to text; an empty text means the default.

        Raises:
            BadInput: all unknown names, wrong types and out-of-range values at once.
        """
        return read(cls, texts)

    def plan(self) -> BatchPlan:
        """The batch sizes and the learning rate this job trains with."""
        asked = {name: getattr(self, name) for name in affecting(JobSpec, "batch")}
        return plan_batch(devices=self.devices, **(asked | {"learning_rate": self.unscaled_learning_rate}))

    @property
    def unscaled_learning_rate(self) -> float:
        """The learning rate at the reference batch size: what was asked for, else the default of `fine_tuning`."""
        return self.learning_rate or default_learning_rate(self.fine_tuning)

    @property
    def runs_in_old_image(self) -> bool:
        """Whether the image is too old for paretune, and runs the `entry_script` itself."""
        return self.compiler == TRAINING_COMPILER or bool(self.legacy_smp)

    def endings(self) -> list[str]:
        """What AWS has ended of all that the job asks for, a sentence each."""
        ended = {TRAINING_COMPILER_ENDED: self.compiler == TRAINING_COMPILER, LEGACY_SMP_ENDED: bool(self.legacy_smp)}
        return [sentence for sentence, is_asked in ended.items() if is_asked]

    @property
    def runs_project(self) -> bool:
        """Whether the job runs the command of an MLflow project in place of our training."""
        return self.project is not None or self.entry_script == PROJECT

    @property
    def runs_own_training(self) -> bool:
        """Whether a training of the user's own runs, a script or a project: nothing of it is known beforehand."""
        return any(getattr(self, name) is not None for name in OWN_TRAINING)

    def sizes(self) -> dict[str, float]:
        """The numbers that `size` names: a project's parameters, training arguments, or parameters of the job."""
        known: dict[str, Any] = self.as_text() | dict(self.training_arguments) | dict(self.project_parameters)
        return finite_numbers({name: known[name] for name in listed(self.size) if name in known})

    def replace(self, **changes: Any) -> "JobSpec":
        """The same specification with some fields changed, checked again."""
        return replace(self, **changes)

    @property
    def ranks_instance_types(self) -> bool:
        """As that of a cluster; images that start the processes themselves are told of one instance type only."""
        return super().ranks_instance_types and not self.runs_in_old_image

    def on_instance_type(self, instance_type: str) -> Self:
        """The same training on another instance type: the global batch size stays, the per-device batch if it can.

        So does the number of instances, unless SageMaker chooses among the types: there may be fewer then, where so
        many devices cannot share the global batch size evenly.

        Raises:
            BadInput: its devices cannot share the global batch size evenly.
        """
        if self.project is not None:  # its command batches as it likes
            return super().on_instance_type(instance_type)
        plan = self.plan()
        changes = self._moved_to(instance_type) | {"global_batch_size": None, "gradient_accumulation_steps": None}
        elsewhere: Self = replace(self, **changes)  # type: ignore[arg-type]  # names of fields
        batch, total = plan.per_device_train_batch_size, plan.global_batch_size
        if self.ranks_instance_types:
            elsewhere = _sharing(elsewhere, total)
        fits = total % (batch * elsewhere.devices) == 0
        return replace(elsewhere, global_batch_size=total, per_device_train_batch_size=batch if fits else None)

    def _fallback_faults(self) -> list[str]:
        """Why the job cannot run on one of the types to fall back on, which each sentence names."""
        found = []
        for name in self.instance_types()[1:]:
            faults: list[str] = []
            with collecting(faults):
                self.on_instance_type(name)
            found += [f"fallback_instance_types: on {name} {fault}" for fault in faults]
        return found

    def as_text(self) -> dict[str, str]:
        """Every field as it would be typed; `from_text` reads it back."""
        return {item.name: spell(getattr(self, item.name)) for item in fields(self)}

    def changed(self) -> dict[str, str]:
        """The fields that differ from their default, as they would be typed."""
        texts = self.as_text()
        return {item.name: texts[item.name] for item in fields(self) if texts[item.name] != default_text(item)}

    def spec_hash(self, *, but: Collection[str] = ()) -> str:
        """Twelve hexadecimal digits, equal for two jobs that compute the same, `but` for some of their parameters."""
        texts, told = self.as_text(), _ALWAYS_IN_THE_HASH | set(self.changed())
        what = {name: texts[name] for name in affecting(type(self), *COMPUTES) if name in told}
        what["learning_rate"] = spell(self.unscaled_learning_rate)
        for name in ("model", "dataset"):
            what[name] = re.sub(f"^{BUNDLED}", BUNDLED_BEFORE, what[name])
        what = {name: text for name, text in what.items() if name not in but}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]

    def key_of(self, *effects: Effect, but: str = "") -> tuple[str, ...]:
        """Equal for two jobs that are alike in all that affects any of `effects`, beside batch plan and cluster.

        The texts of those parameters; batch plans and clusters are compared by their numbers instead, and so is the
        parameter `but`.
        """
        names = affecting(type(self), *effects, without=("batch", "cluster"))
        return tuple(spell(getattr(self, name)) for name in names if name != but)

    def command(self) -> str:
        """The line that repeats this job, by itself: it shares no job with other trials then."""
        return command_line("main", {name: text for name, text in self.changed().items() if name != "trials_per_job"})


_Spec = TypeVar("_Spec", bound=JobSpec)


def _sharing(spec: _Spec, total: int) -> _Spec:
    """The job on the most instances, no more than it has, whose devices share `total` rows evenly; else as it is."""
    for count in range(spec.instance_count, 0, -1):
        with suppress(BadInput):  # its devices cannot be divided as the strategy wants
            fewer = replace(spec, instance_count=count)
            if total % fewer.devices == 0:
                return fewer
    return spec


def current_name(text: str) -> str:
    """The name of a model or a data set: its path for a file: URI, the word in use now for a bundled one."""
    if text.startswith("file://"):
        return unquote(text.removeprefix("file://"))
    return f"{BUNDLED}{text.removeprefix(BUNDLED_BEFORE)}" if text.startswith(BUNDLED_BEFORE) else text


def default_learning_rate(fine_tuning: str) -> float:
    """The learning rate at the reference batch size where none is given.

    Adapters need about ten times the rate of full fine-tuning (Schulman et al., "LoRA Without Regret", Thinking
    Machines Lab, 2025).
    """
    return _ADAPTERS_OVER_FULL * FULL_LEARNING_RATE if fine_tuning in ADAPTERS else FULL_LEARNING_RATE


_OF_A_PROJECT = ("entry_point", "project_parameters")
_WITH_A_PROJECT = {
    *(item.name for item in fields(Cluster)),
    *_OF_A_PROJECT,
    *("project", "size", "seed", "again", "dry_run"),
} - spreading_defaults().keys()
"""Parameters that mean something for the command of a project."""


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
    if spec.init == "random" and spec.fine_tuning != "full":
        rule = f"fine_tuning must be full with init=random, got {spec.fine_tuning}"
        faults.append(f"{rule}: it keeps weights as they are, and random ones know nothing; or set init=pretrained")
    faults += _fit_faults(spec) + _profile_faults(spec) + _sharing_faults(spec) + _task_faults(spec)
    faults += [] if spec.register is None else _register_faults(spec)
    faults += _project_faults(spec)
    faults += _training_compiler_faults(spec) if spec.compiler == TRAINING_COMPILER else []
    faults += _legacy_smp_faults(spec) if spec.legacy_smp else []
    if not spec.runs_own_training and spec.validation_file and spec.dataset.startswith(BUNDLED):
        rule = "validation_file goes with a data set of your own"
        faults.append(f"{rule}, got dataset={spec.dataset}: set dataset to your training rows")
    return faults


def _project_faults(spec: JobSpec) -> list[str]:
    """What does not go with a project, or needs one."""
    changed = spec.changed()
    if spec.project is None:
        alone = [name for name in _OF_A_PROJECT if name in changed]
        faults = [f"{name} goes with project: give the folder or git URI of one, or leave it out" for name in alone]
        if spec.size is not None and not spec.runs_own_training:
            faults.append("size goes with project or entry_script: paretune knows its own training; leave it out")
        return faults
    rule = f"project={spec.project}"
    ours = [item.name for item in fields(JobSpec) if item.name not in _WITH_A_PROJECT and item.name in changed]
    faults = [f"{rule} goes without {name}: {_instead(name)}" for name in ours]
    if spec.is_simulated:
        faults.append(f"{rule} goes with jobs that really run, got launcher=simulated: nothing is known of its command")
    if not spec.has_instances and spec.instance_count > 1:
        count = f"got {spec.instance_count}: its command starts what it needs itself"
        faults.append(f"instance_count must be 1 for a project on this machine, {count}")
    return faults


def _instead(name: str) -> str:
    if name in {"entry_script", "trials_per_job"}:
        return "the job runs the project's command; leave one of them out"
    return f"it is of paretune's own training; what the command takes stands in project_parameters ({{{name}: ...}})"


def _fit_faults(spec: JobSpec) -> list[str]:
    """Ways of making a model fit that do not go together."""
    faults = []
    adapters = [item for item in fields(spec) if item.name.startswith("lora_")]
    changed = [item.name for item in adapters if getattr(spec, item.name) != item.default]
    if changed and spec.fine_tuning not in ADAPTERS:
        rule = f"{', '.join(changed)} go{'es' if len(changed) == 1 else ''} with fine_tuning={' or '.join(ADAPTERS)}"
        faults.append(f"{rule}, got {spec.fine_tuning}")
    if spec.fine_tuning == "qlora" and spec.strategy not in {"ddp", "smddp"}:
        faults.append(
            f"fine_tuning=qlora goes with strategy ddp, got {spec.strategy}: 4-bit weights cannot be sharded; use "
            "fine_tuning=lora, or ddp"
        )
    if spec.fine_tuning == "qlora" and spec.compiler == "inductor" and spec.entry_script is None:
        faults.append("fine_tuning=qlora goes with compiler none, got inductor: no training has run with both")
    batch, parts = spec.per_device_train_batch_size, spec.micro_batches
    if batch and parts and batch % parts:
        faults.append(f"micro_batches must divide per_device_train_batch_size {batch}, got {parts}")
    return faults


def _task_faults(spec: JobSpec) -> list[str]:
    """What paretune's own training does not do with regression and with several labels a row."""
    if spec.entry_script is not None or spec.task not in {metrics.REGRESSION, metrics.MULTI_LABEL}:
        return []
    rule, faults = f"task={spec.task}", []
    if (spec.pipeline_parallel_degree or 1) > 1:
        faults.append(f"{rule} goes without pipeline_parallel_degree: leave it out")
    if spec.task == metrics.REGRESSION and spec.strategy in {"deepspeed", "smp"}:
        faults.append(f"{rule} goes with strategy ddp, fsdp or smddp, got {spec.strategy}: set strategy=fsdp")
    if spec.task == metrics.REGRESSION and spec.recorded_runs is not None:
        faults.append(f"{rule} goes without recorded_runs: a table of runs tells F1 only; leave it out")
    if spec.training_arguments.get("label_smoothing_factor"):
        faults.append(f"training_arguments must not set label_smoothing_factor with {rule}: leave it out")
    return faults


def _register_faults(spec: JobSpec) -> list[str]:
    """Why no model of this job could become a version of the registered model that it names."""
    name, faults = spec.register or "", []
    if not _REGISTERED_NAME.fullmatch(name) or len(name) > LONGEST_REGISTERED_NAME:
        faults.append(
            f"register must be at most {LONGEST_REGISTERED_NAME} letters, digits and hyphens, the ends no hyphens, as "
            f"AWS names Model Package Groups, got {name!r}: take one such as sentiment-en"
        )
    if spec.probe_steps is not None:
        faults.append(f"register={name} needs a model, and a job with probe_steps leaves none: leave one of them out")
    if not spec.log_model:
        faults.append(f"register={name} needs the model in MLflow, got log_model=false: leave one of them out")
    return faults


def _profile_faults(spec: JobSpec) -> list[str]:
    """Why nothing of this job could be profiled, whatever its steps."""
    if spec.profile_steps is None:
        return []
    rule, faults = f"profile_steps={spec.profile_steps}", []
    if spec.is_simulated:
        faults.append(f"{rule} goes with a job that really trains, got launcher=simulated: leave one of them out")
    if spec.entry_script is not None:
        what = f"entry_script={spec.entry_script}"
        faults.append(f"{rule} goes with paretune's own training, got {what}: call torch.profiler in your script")
    return faults


def _sharing_faults(spec: JobSpec) -> list[str]:
    """Why its trials cannot share jobs."""
    if spec.trials_per_job == 1:
        return []
    others = {
        "entry_script": (spec.entry_script is not None, "a script trains one setting"),
        "keep_alive_minutes": (bool(spec.keep_alive_minutes), "there is one start-up for all trials of a job"),
        "profile_steps": (spec.profile_steps is not None, "a profile shows one training"),
        "max_wait_minutes": (spec.max_wait_minutes is not None, "the time of a job is that of all its trials"),
        "fallback_instance_types": (len(spec.instance_types()) > 1, "trials of one job have one instance type"),
    }
    rule = f"trials_per_job={spec.trials_per_job} goes without"
    return [f"{rule} {name}: {why}; leave one of them out" for name, (is_set, why) in others.items() if is_set]


def _training_compiler_faults(spec: JobSpec) -> list[str]:
    """What the image of SageMaker Training Compiler cannot do."""
    rule, instead = f"compiler={TRAINING_COMPILER}", "or take compiler=inductor"
    why = "for transformers 4.21, with which AWS has ended its releases"
    faults = _old_image_faults(spec, rule, f"an instance of {', '.join(_COMPILED_FAMILIES)}", why, instead)
    for name in spec.instance_types() if spec.on_sagemaker else ():
        if name.removeprefix("ml.").partition(".")[0] not in _COMPILED_FAMILIES:
            families = ", ".join(_COMPILED_FAMILIES)
            faults.append(f"{rule} needs an instance of {families}, got {name}: take one of them, {instead}")
    if spec.on_sagemaker and spec.strategy != "ddp":
        faults.append(f"{rule} goes with strategy ddp, got {spec.strategy}: leave strategy out, {instead}")
    return faults


def _legacy_smp_faults(spec: JobSpec) -> list[str]:
    """What the image of the old model parallelism library cannot do."""
    rule, instead = "legacy_smp", "or take strategy=fsdp with tensor_parallel_degree or pipeline_parallel_degree"
    types = ", ".join(LEGACY_SMP_TYPES)
    faults = _old_image_faults(
        spec, rule, types, "for transformers 4.17 that uses smdistributed.modelparallel", instead
    )
    for name in spec.instance_types() if spec.on_sagemaker else ():
        if name not in LEGACY_SMP_TYPES:
            faults.append(f"{rule} needs {types}, got {name}: take one of them, {instead}")
    if spec.strategy != "ddp":
        faults.append(f"{rule} is a strategy of its own, got strategy={spec.strategy}: leave strategy out")
    if spec.compiler != "none":
        faults.append(f"{rule} goes with compiler=none, got {spec.compiler}: leave compiler out")
    with collecting(faults):
        read = spec.legacy_model_parallel()
        if spec.has_instances and not faults:
            faults += read.faults_on(spec.processes * spec.instance_count, spec.processes)
    return faults


def _old_image_faults(spec: JobSpec, rule: str, needed: str, why: str, instead: str) -> list[str]:
    """Why a job cannot run in an image that is too old for paretune: it needs a script, and SageMaker."""
    faults = []
    if spec.entry_script is None or spec.runs_project:
        faults.append(
            f"{rule} needs an entry_script {why} and on which paretune's own training does not run: give one, {instead}"
        )
    if not spec.on_sagemaker:
        where = "launcher=simulated" if spec.is_simulated else f"instance_type={spec.instance_type}"
        faults.append(f"{rule} is for SageMaker, got {where}: take {needed}, {instead}")
    return faults


def launch_faults(spec: JobSpec) -> list[str]:
    """Why a job that can be described cannot be run, estimated or simulated; empty if it can.

    Recorded jobs may be such ones: that is why they can be described.
    """
    return (unsupported(spec) if spec.has_instances else []) + _untried_faults(spec)


def _untried_faults(spec: JobSpec) -> list[str]:
    """What paretune's own training would get wrong with version 2 of SageMaker's model parallelism library."""
    if spec.strategy != "smp" or spec.runs_own_training:
        return []
    degrees = ("tensor_parallel_degree", "context_parallel_degree", "expert_parallel_degree")
    names = [name for name in degrees if (getattr(spec, name) or 1) > 1]
    if not names:
        return []
    return [
        f"{', '.join(names)} above 1 with strategy=smp need{'s' if len(names) == 1 else ''} a training script of your "
        "own that uses torch.sagemaker, for paretune's own training would evaluate and save such a model wrongly: give "
        "an entry_script, or take strategy=fsdp, which trains with tensor_parallel_degree"
    ]


def missing_files(texts: Mapping[str, str]) -> list[str]:
    """One fault per parameter that can only be a path and leads nowhere, or to a device or a pipe."""
    faults = []
    project = texts.get("project", "").partition("#")[0]
    if project and not re.match(r"\w+://|git@|file:", project) and not exists(project):
        faults.append(
            f"project {project} does not exist (looked from {Path.cwd()}): give a folder, or a git URI such as "
            "https://github.com/mlflow/mlflow-example"
        )
    for name in (*INPUT_FILES, "entry_script"):
        text = current_name(texts.get(name, ""))
        if text.startswith(IN_S3) and name != "entry_script":
            continue  # whether it is there is asked once the rest is right
        is_path = name.endswith(("_file", "_script")) or text.startswith((".", "/", "~"))
        is_path = is_path or Path(text).suffix.lower() in ROW_FILES
        if text and is_path and not exists(text):
            faults.append(f"{name} {text} does not exist (looked from {Path.cwd()})")
        elif text and exists(text) and not is_file(text) and not is_folder(text):
            faults.append(f"{name} must be a file or a folder, and {text} is a device, a pipe or a socket")
        elif text and name == "entry_script" and is_folder(text):
            faults.append(f"{name} must be a file, and {text} is a folder: name the script in it")
    return faults
