"""The folder of the trained model, as transformers reads it.

Public name: `ReturnedFolder`, which writes a model, and adds adapters to the weights beside which they were trained.
"""

from paretune.training.returned.folder import ReturnedFolder

__all__ = ["ReturnedFolder"]
