"""The model of a finished job: its card, its record in MLflow, and its version in the model registry.

recorded  record_model, card_of   lists the model of a finished job in MLflow, with its card (README.md)
register  register, overdue       makes the model a version of a registered model
"""

from paretune.models.recorded import FinishedJob, card_of, record_model

__all__ = ["FinishedJob", "card_of", "record_model"]
