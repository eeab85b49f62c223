"""The sampler in the form that OptunaHub loads."""

from paretune import SplitSampler

__all__ = ["SplitSampler"]
