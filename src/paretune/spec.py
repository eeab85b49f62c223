"""A job's specification: what a user types, as one frozen, checked value.

Names, meanings and defaults of all parameters stand here and nowhere else; the command line and `mlflow run -P` read
them from here.
"""

import dataclasses
import difflib
import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from paretune.batch_size import LARGEST_BATCH_SIZE, BatchPlan, plan_batch
from paretune.errors import BadInput

EMBEDDED_MODEL = "embedded:all-MiniLM-L6-v2"
EMBEDDED_DATASET = "embedded:rotten_tomatoes"

# Not part of what a job computes: two jobs that differ only here continue from each other's checkpoint.
_NOT_IN_THE_HASH = {"launcher", "dry_run", "max_runtime_minutes", "max_cost_usd", "local_price_usd_per_hour"}

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


def _parameter(
    default: Any,
    about: str,
    *,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
) -> Any:
    """A field with its help text and its range (`minimum` and `maximum` allowed, `above` not)."""
    rules = {"about": about, "choices": choices, "minimum": minimum, "maximum": maximum, "above": above}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=rules)
    return field(default=default, metadata=rules)


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """One training on one cluster. Every field is optional; `None` means "off" or "derived".

    Raises:
        BadInput: with all faults at once, when a value is out of range or values contradict each other.
    """

    model: str = _parameter(
        EMBEDDED_MODEL, "Hugging Face model id or folder; the default is a 22.7M-parameter MiniLM in a Python package"
    )
    dataset: str = _parameter(
        EMBEDDED_DATASET,
        "hub id, folder, or CSV, TSV, JSONL, Parquet file; also embedded:rotten_tomatoes, embedded:imdb",
    )
    dataset_config_name: str | None = _parameter(None, "configuration of a hub data set, such as sst2 of nyu-mll/glue")
    validation_file: str | None = _parameter(None, "own validation rows; otherwise the data set's own or a 90/10 split")
    test_file: str | None = _parameter(None, "own test rows, evaluated once at the end")
    text_column: str = _parameter("text", "column with the text")
    label_column: str = _parameter("label", "column with the class, as text or whole numbers (classification)")
    task: str = _parameter("classification", "what is learnt", choices=("classification", "causal-lm"))
    max_train_samples: int | None = _parameter(
        None, "rows to train on, drawn by a fixed seed; all = every row", minimum=1
    )
    max_eval_samples: int | None = _parameter(
        None, "rows per evaluated split; by default a ninth of max_train_samples, or all", minimum=1
    )
    max_seq_length: int = _parameter(128, "tokens; longer texts are truncated and counted", minimum=4)
    per_device_train_batch_size: int | None = _parameter(
        None, "rows per device and step (16)", minimum=1, maximum=LARGEST_BATCH_SIZE
    )
    gradient_accumulation_steps: int | None = _parameter(
        None, "micro-batches per optimiser step (1)", minimum=1, maximum=LARGEST_BATCH_SIZE
    )
    global_batch_size: int | None = _parameter(
        None, "rows per optimiser step; the open part is derived", minimum=1, maximum=LARGEST_BATCH_SIZE
    )
    learning_rate: float = _parameter(5e-5, "peak learning rate at the reference batch size", above=0, maximum=10)
    learning_rate_scaling: str = _parameter(
        "none", "how the rate follows the global batch size", choices=("none", "sqrt", "linear")
    )
    reference_batch_size: int = _parameter(
        16, "global batch size that learning_rate suits", minimum=1, maximum=LARGEST_BATCH_SIZE
    )
    num_train_epochs: float = _parameter(1.0, "passes over the training rows", above=0, maximum=10_000)
    seed: int = _parameter(42, "seed of initialisation, order and dropout", minimum=0, maximum=2**32 - 1)
    precision: str = _parameter(
        "auto", "auto takes bf16 where the hardware has it, else fp32", choices=("auto", "fp32", "bf16", "fp16")
    )
    fine_tuning: str = _parameter(
        "full", "full: all weights; head: encoder frozen; lora: low-rank adapters", choices=("full", "head", "lora")
    )
    strategy: str = _parameter("ddp", "how one job is spread over devices", choices=("ddp",))
    compiler: str = _parameter("none", "inductor compiles the model (torch.compile)", choices=("none", "inductor"))
    training_arguments: Mapping[str, Any] = _parameter({}, "JSON object: any further Hugging Face TrainingArguments")
    entry_script: str | None = _parameter(None, "a training script of your own, run instead of paretune's training")
    instance_type: str = _parameter("local", "local: processes on this machine")
    instance_count: int = _parameter(1, "instances; locally, data-parallel processes", minimum=1, maximum=1024)
    launcher: str = _parameter("auto", "where the job runs; auto reads instance_type", choices=("auto", "local"))
    max_runtime_minutes: float = _parameter(
        60.0, "the job is stopped after this; every job has a limit", above=0, maximum=40_320
    )
    max_cost_usd: float | None = _parameter(None, "refuse to launch when the worst case costs more", minimum=0)
    local_price_usd_per_hour: float = _parameter(
        0.115, "notional price of a local instance; the default is that of ml.m5.large", minimum=0
    )
    dry_run: bool = _parameter(False, "check everything, print the job and its worst-case dollars, launch nothing")

    def __post_init__(self) -> None:
        faults = [fault for item in fields(self) for fault in _range_faults(item, getattr(self, item.name))]
        faults += _contradictions(self)
        if not faults:
            try:
                self.plan()
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
        known = {item.name: item for item in fields(cls)}
        faults: list[str] = []
        values: dict[str, Any] = {}
        for name, text in texts.items():
            if name not in known:
                faults.append(_unknown(name, known))
            elif text.strip():
                try:
                    values[name] = _from_text(name, text, _types(cls)[name])
                except ValueError as error:
                    faults.append(str(error))
        try:
            spec = cls(**values)
        except BadInput as error:
            faults += error.faults
        if faults:
            raise BadInput(faults)
        return spec

    def plan(self) -> BatchPlan:
        """The batch sizes and the learning rate this job trains with."""
        return plan_batch(
            per_device_train_batch_size=self.per_device_train_batch_size,
            gradient_accumulation_steps=self.gradient_accumulation_steps,
            global_batch_size=self.global_batch_size,
            devices=self.instance_count,
            learning_rate=self.learning_rate,
            learning_rate_scaling=self.learning_rate_scaling,
            reference_batch_size=self.reference_batch_size,
        )

    def as_text(self) -> dict[str, str]:
        """Every field as it would be typed; `from_text` reads it back."""
        return {item.name: _to_text(getattr(self, item.name)) for item in fields(self)}

    def changed(self) -> dict[str, str]:
        """The fields that differ from their default, as they would be typed."""
        standard = JobSpec().as_text()
        return {name: text for name, text in self.as_text().items() if text != standard[name]}

    def spec_hash(self) -> str:
        """Twelve hexadecimal digits, equal for two jobs that compute the same."""
        what = {name: text for name, text in self.as_text().items() if name not in _NOT_IN_THE_HASH}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]

    def command(self, entry_point: str = "main") -> str:
        """The `mlflow run` line that repeats this job."""
        import shlex

        words = ["mlflow", "run", "."] + ([] if entry_point == "main" else ["-e", entry_point])
        words += [word for name, text in self.changed().items() for word in ("-P", f"{name}={text}")]
        return shlex.join(words)


def parameter_help() -> dict[str, str]:
    """Name of every parameter to one line of help, with its default and choices."""
    lines = {}
    for item in fields(JobSpec):
        default = _to_text(item.default) if item.default is not dataclasses.MISSING else "{}"
        choices = f" [{' | '.join(item.metadata['choices'])}]" if item.metadata["choices"] else ""
        lines[item.name] = f"{item.metadata['about']}{choices}" + (f" (default: {default})" if default else "")
    return lines


def _types(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _unknown(name: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, known, n=3) or [other for other in known if name in other][:3]
    hint = f"did you mean {' or '.join(near)}?" if near else "`paretune main --help` lists all parameters"
    return f"unknown parameter {name}: {hint}"


def _from_text(name: str, text: str, annotation: Any) -> Any:
    is_optional = isinstance(annotation, types.UnionType)
    if is_optional:
        (annotation,) = [member for member in annotation.__args__ if member is not types.NoneType]
    if annotation is str:
        return text  # as it is: a column may be called " text", a configuration "all"
    text = text.strip()
    if is_optional and text.lower() in {"none", "all"}:
        return None
    if annotation is bool:
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.lower() not in words:
            raise ValueError(f"{name} must be true or false, got {text!r}")
        return words[text.lower()]
    if annotation in (int, float):
        return _number(name, text, annotation)
    return _json_object(name, text)


def _number(name: str, text: str, kind: type) -> float:
    try:
        value: float = kind(text)
    except ValueError:
        if kind is int and _is_whole(text):
            return int(float(text))
        raise ValueError(f"{name} must be {'a whole number' if kind is int else 'a number'}, got {text!r}") from None
    return value


def _is_whole(text: str) -> bool:
    try:
        return float(text).is_integer()
    except ValueError:
        return False


def _json_object(name: str, text: str) -> dict[str, Any]:
    example = f'{name} must be a JSON object such as {{"weight_decay": 0.01}}'
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{example}, got {text!r}: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{example}, got {text!r}")
    return value


def _to_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True) if value else ""
    return repr(value) if isinstance(value, float) else str(value)


def _range_faults(item: "dataclasses.Field[Any]", value: Any) -> list[str]:
    rules = item.metadata
    if rules["choices"] and value not in rules["choices"]:
        near = difflib.get_close_matches(str(value), rules["choices"], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return [f"{item.name} must be one of {', '.join(rules['choices'])}, got {value!r}{hint}"]
    if isinstance(value, str) and not value.strip():
        return [f"{item.name} must not be empty: leave it out for the default"]
    if value is None or isinstance(value, (str, bool, Mapping)):
        return []
    if isinstance(value, float) and not math.isfinite(value):
        return [f"{item.name} must be a finite number, got {value}"]
    low, high, above = rules["minimum"], rules["maximum"], rules["above"]
    if (low is None or value >= low) and (above is None or value > above) and (high is None or value <= high):
        return []
    allowed = f"greater than {above}" if above is not None else f"at least {low}"
    return [f"{item.name} must be {allowed}" + (f" and at most {high}" if high is not None else "") + f", got {value}"]


def _contradictions(spec: JobSpec) -> list[str]:
    faults = []
    if spec.instance_type != "local":
        faults.append(
            f"instance_type must be local, got {spec.instance_type!r}: this version launches on this machine only"
        )
    for name in spec.training_arguments:
        if name in RESERVED_TRAINING_ARGUMENTS:
            faults.append(f"training_arguments must not set {name}: {RESERVED_TRAINING_ARGUMENTS[name]}")
    if spec.entry_script is None and spec.validation_file and spec.dataset.startswith("embedded:"):
        faults.append(
            f"validation_file goes with a data set of your own, got dataset={spec.dataset}: "
            "set dataset to your training rows"
        )
    return faults
