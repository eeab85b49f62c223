"""Settings by which runs can be compared: the cluster's shape, its devices, and every parameter of a job."""

from paretune.core.errors import did_you_mean
from paretune.specification.job import JobSpec
from paretune.specification.parameters import spell

SHAPE, DEVICES = "shape", "devices"
DEFAULTS = {name: spell(field.default) for name, field in JobSpec.model_fields.items()}
"""Parameter of a job to its default, as it would be typed."""
FACTORS = (SHAPE, DEVICES, *DEFAULTS)
NESTED = ("training_arguments", "lora")
"""Parameters that hold others, each of which is a factor: training_arguments.torch_compile, lora.r."""
OF_THE_CLUSTER = (SHAPE, DEVICES, "instance_type", "instance_count")
"""Factors of the cluster; runs that are compared by another factor have the same shape."""
VERSIONS = "versions"
COMPUTING = {
    "per_device_train_batch_size": "per-device batch",
    "precision": "precision",
    VERSIONS: "versions",
    "max_seq_length": "sequence length",
    "strategy": "strategy",
    "training_arguments.torch_compile": "torch_compile",
    "fine_tuning": "fine-tuning",
    "spot": "spot",
}
"""Settings that seconds depend on beside the cluster, with their names: runs that differ in one are not repeats."""
TOTAL_KEYS = ("study", "month", "user", "team", "tag", "instance_type")  # keys by which dollars are added up


def total_key_faults(value: str | None) -> list[str]:
    """Return the faults of the parameter `by` of totals."""
    if value is None or value in TOTAL_KEYS:
        return []
    if value in FACTORS or value.partition(".")[0] in NESTED:
        return [f"by={value} is for view=compare; of view=runs it is one of {', '.join(TOTAL_KEYS)}: set view=compare"]
    hint = did_you_mean(value, (*TOTAL_KEYS, *FACTORS)) or "leave it out for all of them"
    return [f"by must be one of {', '.join(TOTAL_KEYS)} with view=runs, got {value!r}: {hint}"]


def factor_faults(name: str, value: str | None) -> list[str]:
    """Return the faults of the factor `value` of the parameter `name`."""
    if value is None or value in FACTORS or value.partition(".")[0] in NESTED:
        return []
    hint = did_you_mean(value, FACTORS, or_longer=True) or "`paretune train --help all` lists all parameters of a job"
    return [f"{name} must be {SHAPE}, {DEVICES} or a parameter of a job, got {value!r}: {hint}"]
