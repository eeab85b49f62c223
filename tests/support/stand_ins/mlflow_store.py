"""An MLflow store that denies an operation, as SageMaker's managed MLflow does if a policy does not allow it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore


@contextmanager
def denying_batches(*, has_code: bool = True) -> Iterator[list[str]]:
    """Make the store deny LogBatch while the block runs, and yield the list of its answers.

    Without `has_code`, the answer has no error code, like IAM's. MLflow's clients mistake it for an internal error.
    """
    answers: list[str] = []

    def deny(*_: object, **__: object) -> None:
        answers.append("User: ana is not authorized to perform: sagemaker-mlflow:LogBatch")
        raise MlflowException(answers[-1], **({"error_code": PERMISSION_DENIED} if has_code else {}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlAlchemyStore, "log_batch", deny)
        yield answers
