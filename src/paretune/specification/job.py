"""The specification of a job: one frozen, checked value from everything that the user typed.

Names, meanings and defaults of the parameters are defined in the sections; the command line and `mlflow run -P` read
them from here.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypeVar

from paretune.core.commands import command_line
from paretune.core.errors import collecting, refuse
from paretune.core.script_metrics import finite_numbers
from paretune.core.untrusted import without_secrets
from paretune.specification import metrics
from paretune.specification.batch_size import Batch, BatchPlan, plan_batch
from paretune.specification.fine_tuning import ADAPTERS, FineTuning, default_learning_rate, fine_tuning_faults
from paretune.specification.inputs import BUNDLED, INPUT_FILES, Data, Model, current_name
from paretune.specification.parallelism import DEVICE_MAP, Parallelism
from paretune.specification.parameters import (
    COMPUTES,
    Effect,
    affecting,
    check,
    convert,
    default_text,
    parameter,
    parameter_hint,
    read,
    spell,
    split_list,
)
from paretune.specification.placement import Placement, placement_faults, unsupported
from paretune.specification.program import ONLY_PROJECT, Program, program_faults

_REGISTERED_NAME = re.compile("[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
"""ModelPackageGroupName of SageMaker's CreateModelPackageGroup (botocore 1.44.5)."""
LONGEST_REGISTERED_NAME = 57
"""Characters; a SageMaker managed MLflow server appends some of its own to the name of the Model Package Group."""
MOST_PROFILED_STEPS = 300  # a trace of more steps is too large to view


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Section of a job: what it measures, records and registers."""

    probe_steps: int | None = parameter(
        None,
        "only measure time and memory: train this many optimiser steps and evaluate nothing",
        minimum=10,
        affects={"quality"},
        not_searched="a job that is cut off has no F1",
    )
    profile_steps: int | None = parameter(
        None,
        "profile this many optimiser steps after the warm-up: trace.json.gz, profile.json, profile.md",
        minimum=1,
        maximum=MOST_PROFILED_STEPS,
        affects={"launcher"},
        not_searched="it measures a job and changes no result",
    )
    merge: bool = parameter(
        True,
        "lora, qlora: merge the adapters into the weights at the end; false: save the adapters and the name of their "
        "base model",
        affects={"launcher"},
        not_searched="it is another form of the same model",
    )
    log_model: bool = parameter(
        True,
        "record the model in MLflow, for mlflow.transformers.load_model; false: leave it where the job wrote it",
        affects={"launcher"},
        not_searched="it changes no result",
    )
    register: str | None = parameter(
        None,
        "name in MLflow's model registry: the model becomes a version with alias candidate",
        affects={"launcher"},
        not_searched="it changes no result; a study registers the model that it recommends",
    )
    again: bool = parameter(
        False,
        "start another job even if an identical one is running; by default the running one is followed",
        affects={"launcher"},
        not_searched="a study starts no job twice",
    )
    allow_timeout: bool = parameter(
        False,
        "launch the job although its estimate, with its whole 80 % interval, is above max_runtime_minutes",
        affects={"launcher"},
        not_searched="it changes no result",
    )
    dry_run: bool = parameter(
        False,
        "check everything, print the job and its worst-case dollars, launch nothing",
        affects={"launcher"},
        not_searched="a job that is not run has no result",
        basic=True,
    )


@dataclass(frozen=True, kw_only=True)
class JobSpec(RunOptions, Program, FineTuning, Batch, Data, Model, Placement):
    """One training on one cluster; every field is optional, and `None` means "off" or "derived".

    Functions take the section that they need (`def steps(batch: Batch)`), so that a type checker knows what they use.
    Fields are in the order of the bases, the last one first. Rules between sections are here; those between the
    sections of `Placement` are there.

    Raises:
        BadInput: all faults at once, if values are out of range or contradict each other.
    """

    def __new__(cls, **values: Any) -> Self:
        """Refuse unknown parameters as the command line does, before `__init__` would with a TypeError."""
        names = [item.name for item in fields(cls)]
        refuse([f"unknown parameter {name}: {parameter_hint(name, names)}" for name in values if name not in names])
        return super().__new__(cls)

    def __post_init__(self) -> None:
        refuse(convert(self))
        for name in INPUT_FILES:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, current_name(getattr(self, name)))
        faults = check(self) + placement_faults(self) + fine_tuning_faults(self) + program_faults(self)
        faults += _contradictions(self) + _input_faults(self) + _secret_faults(self)
        if not faults:
            with collecting(faults):
                self.plan()
                faults += self._fallback_faults()
        refuse(faults)

    @classmethod
    def from_text(cls, texts: Mapping[str, str]) -> "JobSpec":
        """A specification from what the user typed: parameter name to text; an empty text means the default.

        Raises:
            BadInput: all unknown names, wrong types, out-of-range values and contradictions at once.
        """
        return read(cls, texts)

    def plan(self) -> BatchPlan:
        """The batch sizes and the learning rate that this job trains with."""
        return plan_batch(self, devices=self.data_parallel_devices, learning_rate=self.unscaled_learning_rate)

    @property
    def unscaled_learning_rate(self) -> float:
        """The learning rate at the reference batch size: the given one, or the default of `fine_tuning`."""
        return self.learning_rate or default_learning_rate(self.fine_tuning)

    def sizes(self) -> dict[str, float]:
        """The numbers that `size` names: parameters of a project, training arguments, or parameters of the job."""
        values: dict[str, Any] = self.as_text() | dict(self.training_arguments) | dict(self.project_parameters)
        return finite_numbers({name: values[name] for name in split_list(self.size) if name in values})

    def replace(self, **changes: Any) -> "JobSpec":
        """The same specification with some fields changed, checked again."""
        return replace(self, **changes)

    def on_instance_type(self, instance_type: str) -> Self:
        """The same training on another instance type: the global batch size stays, the per-device batch if possible.

        The number of instances stays too.

        Raises:
            BadInput: the devices cannot share the global batch size evenly.
        """
        if self.project is not None:  # its command chooses its own batches
            return super().on_instance_type(instance_type)
        plan = self.plan()
        changes = self._changes_for(instance_type) | {"global_batch_size": None, "gradient_accumulation_steps": None}
        moved: Self = replace(self, **changes)  # type: ignore[arg-type]  # names of fields
        batch, total = plan.per_device_train_batch_size, plan.global_batch_size
        fits = total % (batch * moved.data_parallel_devices) == 0
        return replace(moved, global_batch_size=total, per_device_train_batch_size=batch if fits else None)

    def _fallback_faults(self) -> list[str]:
        all_faults = []
        for name in self.instance_types()[1:]:
            faults: list[str] = []
            with collecting(faults):
                self.on_instance_type(name)
            all_faults += [f"fallback_instance_types: on {name} {fault}" for fault in faults]
        return all_faults

    def as_text(self) -> dict[str, str]:
        """Every field as the user would type it; `from_text` reads it back."""
        return {item.name: spell(getattr(self, item.name)) for item in fields(self)}

    def changed(self) -> dict[str, str]:
        """The fields that differ from their default, as the user would type them."""
        values = ((item, getattr(self, item.name)) for item in fields(self))
        texts = {  # equal values of one type are spelled alike
            item: spell(value)
            for item, value in values
            if type(value) is not type(item.default) or value != item.default
        }
        return {item.name: text for item, text in texts.items() if text != default_text(item)}

    def spec_hash(self, *, but: Collection[str] = ()) -> str:
        """Twelve hexadecimal digits that are equal for jobs which compute the same, ignoring the parameters `but`."""
        changed = self.changed()
        values = {name: changed[name] for name in affecting(type(self), *COMPUTES) if name in changed}
        values["learning_rate"] = spell(self.unscaled_learning_rate)
        values = {name: text for name, text in values.items() if name not in but}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]

    def key_of(self, *effects: Effect, but: str = "") -> tuple[str, ...]:
        """The texts of the parameters that have any of `effects`, except batch plan, cluster and the parameter `but`.

        Equal keys mean that two jobs agree in all of them; batch plans and clusters are compared by their numbers.
        """
        names = affecting(type(self), *effects, without=("batch", "cluster"))
        return tuple(spell(getattr(self, name)) for name in names if name != but)

    def command(self) -> str:
        """The command line that repeats this job."""
        return command_line("main", self.changed())


_Spec = TypeVar("_Spec", bound=JobSpec)


_WITH_A_PROJECT = {
    *(item.name for item in fields(Placement)),
    *ONLY_PROJECT,
    *("project", "size", "metric_definitions", "seed", "again", "dry_run"),
} - {item.name for item in fields(Parallelism)}
"""Parameters that apply to the command of a project."""


def _contradictions(spec: JobSpec) -> list[str]:
    faults = _fit_faults(spec) + _profile_faults(spec) + _task_faults(spec)
    if spec.init == "random" and spec.fine_tuning != "full":
        rule = f"fine_tuning must be full with init=random, got {spec.fine_tuning}"
        faults.append(f"{rule}: it keeps weights as they are, and random ones know nothing; or set init=pretrained")
    if spec.register is not None:
        faults += _register_faults(spec, spec.register)
    if spec.warmup_ratio and (spec.entry_script is not None or "warmup_steps" in spec.training_arguments):
        other = "training_arguments with warmup_steps" if spec.entry_script is None else "entry_script"
        faults.append(f"warmup_ratio goes without {other}: set the warm-up in training_arguments, or leave it out")
    if spec.project is not None:
        faults += _project_faults(spec)
    if not spec.runs_own_training and spec.validation_file and spec.dataset.startswith(BUNDLED):
        rule = "validation_file goes with a data set of your own"
        faults.append(f"{rule}, got dataset={spec.dataset}: set dataset to your training rows")
    return faults


def _input_faults(spec: JobSpec) -> list[str]:
    if spec.runs_own_training:  # it may read what it likes
        return []
    faults = []
    for name in INPUT_FILES:
        address = getattr(spec, name)
        if address is None or not address.lower().startswith(("http://", "https://")):
            continue
        hub_id = re.match(r"https://huggingface\.co/(?:datasets/)?([\w.-]+(?:/[\w.-]+)?)/?$", address)
        way = f"write {name}={hub_id[1]}" if hub_id else "download it with `curl -LO`, and name the file"
        faults.append(f"{name} must be a hub id, a path or s3://..., got {without_secrets(address)}: {way}")
    if spec.task != metrics.CAUSAL_LM and spec.text_column == spec.label_column:
        rule = "text_column and label_column must be two columns"
        faults.append(f"{rule}, got {spec.text_column!r} for both: set text_column to the one with the texts")
    return faults


def _secret_faults(spec: JobSpec) -> list[str]:
    texts = {name: spell(value) for name, value in vars(spec).items() if value and isinstance(value, (str, Mapping))}
    return [
        f"{name} must hold no password or key, and its value looks like one: parameters are recorded"
        for name, text in texts.items()
        if name not in {"tags", "package_index"} and without_secrets(text) != text  # these have rules of their own
    ]


def _project_faults(spec: JobSpec) -> list[str]:
    rule, changed = f"project={spec.project}", spec.changed()
    faults = []
    for item in fields(JobSpec):
        if item.name in changed and item.name not in _WITH_A_PROJECT:
            remedy = f"it is for paretune's own training; use project_parameters ({{{item.name}: ...}})"
            if item.name == "entry_script":
                remedy = "the job runs the project's command; leave one of them out"
            faults.append(f"{rule} goes without {item.name}: {remedy}")
    if spec.is_simulated:
        faults.append(f"{rule} needs a real job, got launcher=simulated: paretune cannot simulate its command")
    if not spec.has_instances and spec.instance_count > 1:
        count = f"got {spec.instance_count}: its command starts its own processes"
        faults.append(f"instance_count must be 1 for a project on this machine, {count}")
    return faults


def _fit_faults(spec: JobSpec) -> list[str]:
    faults = []
    if spec.fine_tuning == "qlora" and spec.strategy not in {"ddp", "smddp", DEVICE_MAP}:
        faults.append(
            f"fine_tuning=qlora goes with strategy ddp, or device_map on one instance, got {spec.strategy}: 4-bit "
            f"weights cannot be sharded; use one of these, or fine_tuning={ADAPTERS[0]}"
        )
    if spec.strategy == DEVICE_MAP and spec.fine_tuning not in ADAPTERS and not spec.runs_own_training:
        faults.append(
            f"strategy=device_map goes with fine_tuning={' or '.join(ADAPTERS)}, got {spec.fine_tuning}: one device "
            "works at a time; use strategy=fsdp"
        )
    if spec.fine_tuning == "qlora" and spec.compiler == "inductor" and spec.entry_script is None:
        faults.append("fine_tuning=qlora goes with compiler none, got inductor: no training has run with both")
    batch, parts = spec.per_device_train_batch_size, spec.micro_batches
    if batch and parts and batch % parts:
        faults.append(f"micro_batches must divide per_device_train_batch_size {batch}, got {parts}")
    return faults


def _task_faults(spec: JobSpec) -> list[str]:
    if spec.entry_script is not None or spec.task in {metrics.CLASSIFICATION, metrics.CAUSAL_LM}:
        return []
    rule, faults = f"task={spec.task}", []
    if (spec.pipeline_parallel_degree or 1) > 1:
        faults.append(f"{rule} goes without pipeline_parallel_degree: leave it out")
    if spec.training_arguments.get("label_smoothing_factor"):
        faults.append(f"training_arguments must not set label_smoothing_factor with {rule}: leave it out")
    return faults


def _register_faults(options: RunOptions, name: str) -> list[str]:
    faults = []
    if not _REGISTERED_NAME.fullmatch(name) or len(name) > LONGEST_REGISTERED_NAME:
        faults.append(
            f"register must be at most {LONGEST_REGISTERED_NAME} letters, digits and hyphens, with no hyphen at either "
            f"end, as AWS names Model Package Groups, got {name!r}: take one such as sentiment-en"
        )
    if options.probe_steps is not None:
        faults.append(f"register={name} needs a model, and a job with probe_steps leaves none: leave one of them out")
    if not options.log_model:
        faults.append(f"register={name} needs the model in MLflow, got log_model=false: leave one of them out")
    return faults


def _profile_faults(spec: JobSpec) -> list[str]:
    if spec.profile_steps is None:
        return []
    rule, faults = f"profile_steps={spec.profile_steps}", []
    if spec.is_simulated:
        faults.append(f"{rule} goes with a job that really trains, got launcher=simulated: leave one of them out")
    if spec.entry_script is not None:
        script = f"entry_script={spec.entry_script}"
        faults.append(f"{rule} goes with paretune's own training, got {script}: call torch.profiler in your script")
    return faults


def launch_faults(spec: JobSpec) -> list[str]:
    """The reasons why a valid specification cannot be run, estimated or simulated; empty if it can.

    Recorded jobs may have such a specification, so it is no fault of the specification itself.
    """
    faults = unsupported(spec) if spec.has_instances else []
    if spec.strategy == "smp" and spec.degrees.tensor > 1 and not spec.runs_own_training:
        faults.append(
            "tensor_parallel_degree above 1 with strategy=smp needs a training script of your own that uses "
            "torch.sagemaker, because paretune's own training would evaluate and save such a model wrongly: give "
            "an entry_script, or take strategy=fsdp, which trains with tensor_parallel_degree"
        )
    return faults
