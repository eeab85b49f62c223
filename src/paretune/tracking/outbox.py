"""What a run still has to be told: values that are sent in order, that wait while a server is away, or are refused."""

import logging
import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice

from alembic.util.exc import CommandError
from mlflow import MlflowClient
from mlflow.entities import DatasetInput, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from paretune.core.untrusted import without_secrets

# What MLflow raises when a store is away, unknown, damaged or lacks its driver.
TROUBLE = (MlflowException, SQLAlchemyError, CommandError, OSError, ValueError, ModuleNotFoundError)
_AT_ONCE = 100  # values per request; MLflow takes as many params or tags, and 1000 metrics
_DENIED = re.compile(r"not authorized|[Aa]ccess ?[Dd]enied|error code 403")  # of a proxy, or of IAM before MLflow
_AWAY = "MLflow does not answer; the job goes on"
_NO_RUN = "MLflow has no such run (deleted, or of another store than MLFLOW_TRACKING_URI names now); the job goes on"
_REFUSES = "MLflow refuses a part of the record, which goes on without it"

Value = Param | RunTag | Metric


class Outbox:
    """Values and datasets of one run. Sending never raises if the server is away or refuses.

    What is not answered waits and is sent with the next values. What is refused, for its form or for want of a
    permission, is dropped with a warning: no later time would bring another answer. Datasets come last, so that a
    server that denies them has all else.
    """

    def __init__(self, client: MlflowClient, run_id: str) -> None:
        self.has_gap = False  # whether the server has not answered since this was last set
        self._client, self._run_id = client, run_id
        self._values: dict[tuple[object, ...], Value] = {}
        self._datasets: list[DatasetInput] = []
        self._warned: set[str] = set()

    def put(self, *values: Value) -> None:
        """Add values; a later param or tag of a name, or metric of a name, step and time, replaces the earlier one."""
        for value in values:
            place = (value.step, value.timestamp) if isinstance(value, Metric) else ()
            self._values[type(value), value.key, *place] = value

    def put_dataset(self, dataset: DatasetInput) -> None:
        """Add a dataset."""
        self._datasets.append(dataset)

    def drop_params(self, names: Iterable[str]) -> None:
        """Leave out parameters that the run has already."""
        for name in names:
            self._values.pop((Param, name), None)

    @property
    def values(self) -> list[Value]:
        """The values that wait."""
        return list(self._values.values())

    def send(self) -> None:
        """Send all that waits, in order, in one request unless that exceeds MLflow's limits."""
        size = _AT_ONCE
        while self._values:
            batch = dict(islice(self._values.items(), size))
            answer = self._ask(partial(self._send, [*batch.values()]), warns=len(batch) == 1)
            if answer is None:
                return
            if not answer and len(batch) > 1:  # one by one, to find the value or the operation that MLflow refuses
                size = 1
                continue
            size = size if answer else _AT_ONCE
            self._values = {key: value for key, value in self._values.items() if key not in batch}
        if self._datasets:
            answer = self._ask(lambda: self._client.log_inputs(self._run_id, datasets=self._datasets))
            self._datasets = self._datasets if answer is None else []

    def attempt(self, write: Callable[[], object]) -> bool:
        """Whether MLflow has done this; if not, a later process must do it again."""
        is_done = bool(self._ask(write))
        self.has_gap = self.has_gap or not is_done
        return is_done

    def _ask(self, write: Callable[[], object], *, warns: bool = True) -> bool | None:
        """Whether MLflow has taken it; None if it has not answered."""
        try:
            write()
        except TROUBLE as error:
            if not is_refused(error):
                self._warn(error)
                self.has_gap = True
                return None
            if warns:
                self._warn(error)
            return False
        return True

    def _send(self, values: list[Value]) -> None:
        """In one request; a single value by the operation of its own, which may be allowed where LogBatch is not."""
        if len(values) > 1:
            metrics = [value for value in values if isinstance(value, Metric)]
            params = [value for value in values if isinstance(value, Param)]
            tags = [value for value in values if isinstance(value, RunTag)]
            self._client.log_batch(self._run_id, metrics, params, tags)
            return
        for value in values:
            if isinstance(value, Metric):
                self._client.log_metric(self._run_id, value.key, value.value, value.timestamp, value.step)
            elif isinstance(value, Param):
                self._client.log_param(self._run_id, value.key, value.value)
            else:
                self._client.set_tag(self._run_id, value.key, value.value)

    def _warn(self, error: Exception) -> None:
        is_unknown = isinstance(error, MlflowException) and error.error_code == "RESOURCE_DOES_NOT_EXIST"
        sentence = _NO_RUN if is_unknown else _REFUSES if is_refused(error) else _AWAY
        if sentence not in self._warned:
            self._warned.add(sentence)
            logging.getLogger(__name__).warning("%s: %s", sentence, without_secrets(str(error)))


def is_refused(error: Exception) -> bool:
    """Whether MLflow has answered that it will not take this: its form is wrong, or this identity may not do so."""
    if not isinstance(error, MlflowException):
        return False
    return error.error_code in {"INVALID_PARAMETER_VALUE", "PERMISSION_DENIED"} or bool(_DENIED.search(str(error)))
