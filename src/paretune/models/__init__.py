"""The model of a finished job: its card, and its record in MLflow.

Public names: `FinishedJob` (what is known of a job that has completed), `card_of` (its README.md), `record_model`.
"""

from paretune.models.card import FinishedJob, card_of
from paretune.models.recorded import record_model

__all__ = ["FinishedJob", "card_of", "record_model"]
