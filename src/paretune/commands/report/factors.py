"""What runs can be told apart by: the cluster's shape, its devices, and every parameter of a job."""

from dataclasses import fields

from paretune.core.errors import did_you_mean
from paretune.specification.job import JobSpec
from paretune.specification.parameters import default_text

SHAPE, DEVICES = "shape", "devices"
DEFAULTS = {item.name: default_text(item) for item in fields(JobSpec)}
"""Parameter of a job to its default, as it would be typed."""
FACTORS = (SHAPE, DEVICES, *DEFAULTS)
OF_THE_CLUSTER = (SHAPE, DEVICES, "instance_type", "instance_count")
"""Factors that are the cluster itself; runs that are compared by another one have the same shape."""
VERSIONS = "versions"
COMPUTING = {
    "per_device_train_batch_size": "per-device batch",
    "precision": "precision",
    VERSIONS: "versions",
    "max_seq_length": "sequence length",
    "strategy": "strategy",
    "compiler": "compiler",
    "fine_tuning": "fine-tuning",
    "spot": "spot",
}
"""What seconds depend on beside the cluster, and what it is called: runs that differ in it are no repeats."""


WAYS = ("study", "month", "user", "team", "tag", "instance_type")
"""What dollars are added up by."""


def way_faults(value: str | None) -> list[str]:
    """What is wrong with the parameter `by` of totals; empty if nothing is."""
    if value is None or value in WAYS:
        return []
    if value in FACTORS:
        return [f"by={value} is for view=compare; of view=runs it is one of {', '.join(WAYS)}: set view=compare"]
    hint = did_you_mean(value, (*WAYS, *FACTORS)) or "leave it out for all of them"
    return [f"by must be one of {', '.join(WAYS)} with view=runs, got {value!r}: {hint}"]


def factor_faults(name: str, value: str | None) -> list[str]:
    """What is wrong with the factor `value` of the parameter `name`; empty if nothing is."""
    if value is None or value in FACTORS:
        return []
    hint = did_you_mean(value, FACTORS, or_longer=True) or "`paretune main --help all` lists all parameters of a job"
    return [f"{name} must be {SHAPE}, {DEVICES} or a parameter of a job, got {value!r}: {hint}"]
