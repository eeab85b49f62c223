"""The loader that travels with the record of a model in S3: MLflow loads the model from where it is.

MLflow chooses where the files of a LoggedModel lie, and the weights of a model in S3 are not copied there. This file
lies in `code/` of the LoggedModel, where paretune may be missing, so it needs MLflow only.
"""

from typing import Any

ADDRESS = "address"  # in the configuration of the model: where the model is


def _load_pyfunc(_: str, model_config: dict[str, str]) -> Any:
    """Return the model at the address; MLflow calls this function by its name."""
    import mlflow.pyfunc

    return mlflow.pyfunc.load_model(model_config[ADDRESS])
