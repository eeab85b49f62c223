"""The loader in the LoggedModel of a model in S3, with which MLflow loads the model from its address.

MLflow chooses where it stores the files of a LoggedModel, and the weights of a model in S3 are not copied there.
Instead, this file is stored, in `code/` of the LoggedModel. It needs only MLflow, because it may run without paretune.
"""

from typing import Any

ADDRESS = "address"  # in the configuration of the model: where the model is


def _load_pyfunc(_: str, model_config: dict[str, str]) -> Any:
    """Return the model at the address; MLflow calls this function by its name."""
    import mlflow.pyfunc

    return mlflow.pyfunc.load_model(model_config[ADDRESS])
