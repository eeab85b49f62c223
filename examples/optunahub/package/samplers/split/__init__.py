"""The sampler as OptunaHub loads it."""

from paretune import SplitSampler

__all__ = ["SplitSampler"]
