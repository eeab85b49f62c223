"""The loader that travels with a model: MLflow's own, for a frame with the training's text column.

MLflow's pipelines of texts take no column of another name than `text`. This file lies in `code/` of the model, where
paretune may be missing, so it needs MLflow only. The signature in MLmodel names the column.
"""

from typing import Any


class TextModel:
    """A pipeline of transformers as `mlflow.transformers` wraps it, which gets the texts of a frame's only column."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline

    def predict(self, data: Any, params: dict[str, Any] | None = None) -> Any:
        """Answer each of N rows with the pipeline, as `mlflow.transformers` does."""
        texts = data.iloc[:, 0].tolist() if hasattr(data, "iloc") else data
        return self._pipeline.predict(texts, params=params)


def _load_pyfunc(path: str, model_config: dict[str, Any] | None = None) -> TextModel:
    """Load the model in the folder `path`. MLflow calls this function by its name."""
    from mlflow import transformers

    return TextModel(transformers._load_pyfunc(path, model_config))
