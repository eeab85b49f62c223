"""The program of a job that runs a training of the user's own: a script, or the command of a project."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paretune.core.errors import did_you_mean
from paretune.core.untrusted import parse_json
from paretune.specification.parameters import TRAINING, parameter

PROJECT = "MLproject"  # `entry_script` of a job that runs the command of an MLflow project
OWN_TRAINING = ("entry_script", "project")  # parameters that replace paretune's training by one of the user's own
ONLY_PROJECT = ("entry_point", "project_parameters")  # parameters that only a project accepts
MAPPED = (
    *("model", "dataset", "dataset_config_name", "validation_file", "test_file", "max_seq_length"),
    *("max_train_samples", "max_eval_samples", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("global_batch_size", "learning_rate", "num_train_epochs", "seed"),
)
"""Parameters of a job that `argument_names` may map to arguments of a script."""
_ONE_TRAINING = "a study compares settings of one training"
_MOST_DEFINITIONS, _LONGEST_NAME, _LONGEST_REGEX = 40, 255, 500
"""MetricDefinitions of SageMaker's CreateTrainingJob (botocore 1.44.5)."""
_METRIC_NAME = re.compile(r"[\w\-. :/]+")  # the names of metrics that MLflow allows


@dataclass(frozen=True, kw_only=True)
class Program:
    """Section of a job: the user's own training, if any."""

    entry_script: str | None = parameter(
        None,
        "your own training script, run instead of paretune's training",
        affects=TRAINING,
        not_searched=_ONE_TRAINING,
        group="your own script, probes and dry runs",
    )
    project: str | None = parameter(
        None,
        "MLflow project or folder with scripts, run instead of paretune's training: folder or git URI",
        affects=TRAINING,
        not_searched=_ONE_TRAINING,
    )
    entry_point: str = parameter(
        "main",
        "project: its entry point, or one of its scripts such as train.py or run.sh",
        affects=TRAINING,
        not_searched=_ONE_TRAINING,
    )
    project_parameters: Mapping[str, Any] = parameter(
        {}, "project: JSON object with the parameters of the entry point", affects=TRAINING, example='{"alpha": 0.1}'
    )
    size: str | None = parameter(
        None,
        "project, entry_script: comma-separated parameters that its run time grows with, such as max_rows",
        affects={"launcher"},
        not_searched="it says how seconds are estimated",
    )

    argument_names: Mapping[str, Any] = parameter(
        {},
        "entry_script: JSON object, parameter of a job to the script's own name of it",
        affects=TRAINING,
        example='{"learning_rate": "lr"}',
        not_searched=_ONE_TRAINING,
    )
    metric_definitions: str | None = parameter(
        None,
        "project, entry_script: JSON list of Name and Regex, as SageMaker's, for numbers in printed lines",
        affects={"launcher"},
        not_searched="it says which numbers are read",
    )

    @property
    def runs_project(self) -> bool:
        """Whether the job runs the command of an MLflow project instead of paretune's training."""
        return self.project is not None or self.entry_script == PROJECT

    @property
    def runs_own_training(self) -> bool:
        """Whether the job runs a script or project of the user's own, of which paretune knows nothing beforehand."""
        return self.entry_script is not None or self.project is not None

    def definitions(self) -> list[dict[str, str]]:
        """The `metric_definitions`, checked when the job was specified."""
        return json.loads(self.metric_definitions) if self.metric_definitions else []


def program_faults(section: Program) -> list[str]:
    """Parameters of a project without one, a size of paretune's own training, and wrong metric definitions."""
    faults = _definition_faults(section)
    if section.project is not None:
        return faults
    defaults = Program()
    if section.argument_names and section.entry_script is None:
        faults.append("argument_names goes with entry_script: leave it out, or name your script as entry_script")
    faults += [
        f"argument_names maps parameters of a job to the script's arguments, and {name} is not one that it maps: "
        + (did_you_mean(name, MAPPED) or f"it maps {', '.join(MAPPED)}")
        for name in section.argument_names
        if name not in MAPPED
    ]
    faults += [
        f"{name} goes with project: give the folder or git URI of one, or leave it out"
        for name in ONLY_PROJECT
        if getattr(section, name) != getattr(defaults, name)
    ]
    if section.size is not None and not section.runs_own_training:
        faults.append("size goes with project or entry_script: paretune knows its own training; leave it out")
    return faults


def _definition_faults(section: Program) -> list[str]:
    if section.metric_definitions is None:
        return []
    if not section.runs_own_training:
        return ["metric_definitions goes with project or entry_script: paretune's own training reports by itself"]
    rule = 'metric_definitions must be a list such as [{"Name": "f1", "Regex": "f1: ([0-9.]+)"}]'
    try:
        items = parse_json(section.metric_definitions)
    except ValueError as error:
        return [f"{rule}: {error}"]
    if not isinstance(items, list) or not 1 <= len(items) <= _MOST_DEFINITIONS:
        return [f"{rule}, with 1 to {_MOST_DEFINITIONS} entries"]
    return [f"{rule}: entry {number} {fault}" for number, item in enumerate(items, 1) if (fault := _fault_in(item))]


def _fault_in(item: Any) -> str:
    """The fault of one metric definition, as the end of a sentence; empty if it has none."""
    is_pair = isinstance(item, dict) and set(item) == {"Name", "Regex"}
    if not is_pair or not all(isinstance(text, str) for text in item.values()):
        return f"has to have the texts Name and Regex, got {str(item)[:80]}"
    name, expression = item["Name"], item["Regex"]
    if not _METRIC_NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        return f"has a Name that MLflow does not take: letters, digits, spaces and _-.:/ only, got {name[:80]!r}"
    if len(expression) > _LONGEST_REGEX:
        return f"has a Regex of {len(expression)} characters: at most {_LONGEST_REGEX}"
    try:
        groups = re.compile(expression).groups
    except (re.error, RecursionError, OverflowError) as error:
        return f"has a Regex that Python cannot read ({error}): {expression}"
    return "" if groups else f"has a Regex without parentheses around the number: {expression}"
