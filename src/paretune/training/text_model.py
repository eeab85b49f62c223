"""Loads a model in MLflow so that it accepts data frames with the text column that it was trained with.

MLflow's own loader accepts only a column named `text`. This file is copied into the folder `code/` of the model. It
imports only MLflow, because paretune may be missing where the model is loaded. The signature in MLmodel names the
column.
"""

from typing import Any


class TextModel:
    """Passes the texts in the first column of a data frame to a pipeline that `mlflow.transformers` has wrapped."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline

    def predict(self, data: Any, params: dict[str, Any] | None = None) -> Any:
        """Return the pipeline's prediction for each of N rows."""
        texts = data.iloc[:, 0].tolist() if hasattr(data, "iloc") else data
        return self._pipeline.predict(texts, params=params)


def _load_pyfunc(path: str, model_config: dict[str, Any] | None = None) -> TextModel:
    """Load the model in the folder `path`. MLflow calls this function by its name."""
    from mlflow import transformers

    return TextModel(transformers._load_pyfunc(path, model_config))
