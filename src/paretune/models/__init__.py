"""The model of a finished job: its card, its record in MLflow, and its version in the model registry.

card      FinishedJob, card_of   what is known of a job that has completed, and its model card (README.md)
recorded  record_model           lists the model in MLflow
register  register               makes the model a version of a registered model, and moves its aliases
champion  decide, Figures        the rule by which a model becomes the champion
figures   figures_of             the figures that the rule compares, from a run or from the tags of a version
"""

from paretune.models.card import FinishedJob, card_of
from paretune.models.recorded import record_model

__all__ = ["FinishedJob", "card_of", "record_model"]
