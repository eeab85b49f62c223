"""An MLflow store that refuses single operations, as SageMaker's managed MLflow does by the policies of an identity."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore


@contextmanager
def denying(*operations: str, has_code: bool = True) -> Iterator[Counter[str]]:
    """A store that denies these operations, named as its methods are; counts how often each was asked for.

    Without `has_code` the answer is that of IAM, which MLflow's clients take for an internal error.
    """
    asked: Counter[str] = Counter()

    def denial(operation: str) -> Any:
        def deny(*_: object, **__: object) -> None:
            asked[operation] += 1
            text = f"User: ana is not authorized to perform: sagemaker-mlflow:{operation}"
            raise MlflowException(text, **({"error_code": PERMISSION_DENIED} if has_code else {}))

        return deny

    with pytest.MonkeyPatch.context() as patch:
        for operation in operations:
            patch.setattr(SqlAlchemyStore, operation, denial(operation))
        yield asked
