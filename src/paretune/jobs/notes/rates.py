"""How a job's learning rate stands to what is usual for its fine-tuning and its batch."""

from paretune.specification.batch_size import BatchPlan
from paretune.specification.fine_tuning import ADAPTERS, default_learning_rate
from paretune.specification.job import JobSpec

_NEARLY = 0.9  # of a scaled rate: what somebody has rounded is scaled as well
FAR_TOO_HIGH = 30.0
"""Times the default learning rate: a rate above it is the first suspect where nothing was learnt. Not measured."""


def is_far_too_high(spec: JobSpec) -> bool:
    """Whether the rate is far above what such fine-tuning uses."""
    return spec.plan().learning_rate > FAR_TOO_HIGH * default_learning_rate(spec.fine_tuning)


def is_unscaled(spec: JobSpec, plan: BatchPlan) -> bool:
    """Whether a large batch is trained with the rate of a small one, and nobody has raised it by hand."""
    size, reference = plan.global_batch_size, spec.reference_batch_size
    usual = default_learning_rate(spec.fine_tuning) * (size / reference) ** 0.5
    return spec.learning_rate_scaling == "none" and size > reference and plan.learning_rate < _NEARLY * usual


def is_full_rate(spec: JobSpec) -> bool:
    """Whether adapters are trained with a rate that is nearer to that of full fine-tuning than to their own."""
    between = (default_learning_rate("full") * default_learning_rate(spec.fine_tuning)) ** 0.5
    return spec.fine_tuning in ADAPTERS and not spec.runs_own_training and spec.unscaled_learning_rate < between
