"""The runs that tests read by plain SQL are those that MLflow reads."""

import math

import pytest
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.tracking._tracking_service.utils import _get_store

from tests.support.quick_databases import PLAIN


@pytest.mark.skipif(PLAIN, reason="MLflow reads its runs itself")
def test_a_run_that_is_read_directly_is_what_mlflow_reads(client: MlflowClient) -> None:
    run_id = client.create_run("0", run_name="one").info.run_id
    metrics = [Metric("a", math.inf, 1, 0), Metric("b", 2.0, 1, 3), Metric("b", math.nan, 2, 4)]
    client.log_batch(run_id, metrics, [Param("p", "v")], [RunTag("t", "é")])
    data = Dataset("d", "1", "local", "{}"), Dataset("d", "2", "local", "{}")
    client.log_inputs(
        run_id, [DatasetInput(data[0], [InputTag("mlflow.data.context", "train")]), DatasetInput(data[1])]
    )

    directly, by_mlflow = client.get_run(run_id), SqlAlchemyStore.get_run.__wrapped__(_get_store(), run_id)

    assert str(directly.to_dictionary()) == str(by_mlflow.to_dictionary())
    assert vars(directly.info) == vars(by_mlflow.info)
    with pytest.raises(MlflowException, match="not found"):
        client.get_run("0" * 32)
