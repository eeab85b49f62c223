"""One MLflow run.

Writing is idempotent, so that a run can be filled again from a job's files; and a server that goes away while a job
runs costs nothing but a delay, because what could not be written is kept and tried again.
"""

import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT
from sqlalchemy.exc import SQLAlchemyError

from paretune.core.clock import Clock
from paretune.spec.container import Event

_LONGEST_PARAM = 6000  # characters; MLflow's limit
_LONGEST_TAG = 8000
_METRICS, _PARAMS, _TAGS = 500, 100, 100  # per request; MLflow takes 1000, 100 and 100, and 1000 in all
_REFUSED = "INVALID_PARAMETER_VALUE"  # what MLflow calls a value that it will never take

# What MLflow raises when a store is away, unknown, damaged or lacks its driver.
TROUBLE = (MlflowException, SQLAlchemyError, OSError, ValueError, ModuleNotFoundError)


class RunStatus(Enum):
    """How a run ended, in MLflow's words."""

    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"


@dataclass(frozen=True, kw_only=True)
class _Batch:
    """What is written at once."""

    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Sequence[Metric] = ()

    def parts(self) -> "list[_Batch]":
        """Each kind on its own."""
        return [_Batch(params=self.params), _Batch(tags=self.tags), _Batch(metrics=self.metrics)]


class Run:
    """One MLflow run. Writing never raises because the server is away: `has_gap` tells that something is missing.

    Datasets, params, tags and metrics that could not be written are kept and written with the next ones; artifacts and
    the end must be written again.

    `is_new`: it has just been made, by this process: nothing is in it that would have to be read first.
    """

    def __init__(self, client: MlflowClient, run_id: str, clock: Clock, *, is_new: bool = False) -> None:
        self.run_id = run_id
        self._client = client
        self._clock = clock
        self._waiting: list[Metric] = []
        self._datasets: list[DatasetInput] = []  # waiting, as are params and tags
        self._params: dict[str, str] = {}
        self._tags: dict[str, str] = {}
        self._headlines: dict[str, float] = {}
        self._last_step: dict[str, int] = {}
        self._is_new = is_new
        self._known_params: set[str] | None = set() if is_new else None  # None: not asked for yet
        self._is_held = False
        self._is_refused = False
        self.has_gap = False

    @contextmanager
    def later(self) -> Iterator[None]:
        """What is recorded in the block is written together, with whatever is recorded or flushed after it."""
        before, self._is_held = self._is_held, True
        try:
            yield
        finally:
            self._is_held = before

    def log_params(self, params: Mapping[str, str]) -> None:
        """Record parameters. One that `mlflow run` has recorded, in the user's own spelling, is left as it is."""
        self._params |= params
        self._record()

    def log_dataset(self, name: str, digest: str, source: str) -> None:
        """Name the data the run was trained on; the UI shows it beside the metrics."""
        dataset = Dataset(name=name, digest=digest, source_type="paretune", source=source)
        self._datasets.append(DatasetInput(dataset, [InputTag(MLFLOW_DATASET_CONTEXT, "train")]))
        self._record()

    def set_tags(self, tags: Mapping[str, str | None]) -> None:
        """Set tags; None leaves a tag absent."""
        self._tags |= {name: text[:_LONGEST_TAG] for name, text in tags.items() if text is not None}
        self._record()

    def log_events(self, events: Iterable[Event]) -> None:
        """Add the events' metrics to the curves; a step that a curve has already passed is not written twice."""
        for event in events:
            for name, value in _named_for_mlflow(event.metrics).items():
                if event.step > self._last(name):
                    self._last_step[name] = event.step
                    self._waiting.append(Metric(name, value, int(event.time * 1000), event.step))
        self._record()

    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        """Record headline values, at step 0; one that this object has recorded already is not written twice."""
        now = int(self._clock.now() * 1000)
        named = _named_for_mlflow(metrics)
        fresh = {name: float(value) for name, value in named.items() if self._headlines.get(name) != float(value)}
        self._headlines |= fresh
        self._waiting += [Metric(name, value, now, 0) for name, value in fresh.items()]
        self._record()

    def log_text(self, text: str, path: str) -> None:
        """Store a text as an artifact."""
        self._try(lambda: self._client.log_text(self.run_id, text, path))

    def log_figure(self, figure: Any, path: str) -> None:
        """Store a matplotlib figure as an artifact."""
        self._try(lambda: self._client.log_figure(self.run_id, figure, path))

    def metrics(self) -> dict[str, float]:
        """Latest value of each metric that the run has; empty while MLflow does not answer."""
        try:
            return dict(self._client.get_run(self.run_id).data.metrics)
        except TROUBLE:
            return {}

    def tags(self) -> dict[str, str]:
        """Tags that the run has; empty while MLflow does not answer."""
        try:
            return dict(self._client.get_run(self.run_id).data.tags)
        except TROUBLE:
            return {}

    def end(self, status: RunStatus) -> None:
        """Close the run."""
        self._try(lambda: self._client.set_terminated(self.run_id, status.value))

    def reopen(self) -> None:
        """Mark the run as running again."""
        self._try(lambda: self._client.update_run(self.run_id, status="RUNNING"))

    def _last(self, name: str) -> int:
        if name not in self._last_step:
            try:
                history = [] if self._is_new else self._client.get_metric_history(self.run_id, name)
            except TROUBLE:
                history = []
            self._last_step[name] = max((point.step for point in history), default=-1)
        return self._last_step[name]

    def flush(self) -> None:
        """Write what waits: one request, unless there is more of it than MLflow takes at once."""
        if self._datasets and not self._try(lambda: self._client.log_inputs(self.run_id, datasets=self._datasets)):
            return
        self._datasets = []
        if self._params and self._known_params is None and not self._try(self._read_params):
            return
        known = self._known_params or set()
        self._params = {name: text for name, text in self._params.items() if name not in known}
        while self._params or self._tags or self._waiting:
            batch = _Batch(
                params=dict(itertools.islice(self._params.items(), _PARAMS)),
                tags=dict(itertools.islice(self._tags.items(), _TAGS)),
                metrics=self._waiting[:_METRICS],
            )
            if not self._send(batch):
                for part in batch.parts() if self._is_refused else []:  # one bad value must not hold up all others
                    self._send(part)
                return

    def _send(self, batch: "_Batch") -> bool:
        """Write a batch; what has been written no longer waits."""
        params = [Param(name, text[:_LONGEST_PARAM]) for name, text in batch.params.items()]
        tags = [RunTag(name, text) for name, text in batch.tags.items()]
        if not self._try(lambda: self._client.log_batch(self.run_id, batch.metrics, params, tags)):
            return False
        self._params = {name: text for name, text in self._params.items() if name not in batch.params}
        if self._known_params is not None:
            self._known_params |= set(batch.params)
        self._tags = {name: text for name, text in self._tags.items() if name not in batch.tags}
        del self._waiting[: len(batch.metrics)]
        return True

    def _read_params(self) -> None:
        self._known_params = set(self._client.get_run(self.run_id).data.params)

    def _record(self) -> None:
        """Something new waits: write it, unless `later` says that more is coming."""
        if not self._is_held:
            self.flush()

    def _try(self, write: Any) -> bool:
        try:
            write()
        except TROUBLE as error:
            if not self.has_gap:
                text = without_password(str(error))
                logging.getLogger(__name__).warning("MLflow does not answer; the job goes on: %s", text)
            self.has_gap = True
            self._is_refused = isinstance(error, MlflowException) and error.error_code == _REFUSED
            return False
        return True


def without_password(text: str) -> str:
    """`text` with the user and password taken out of every address in it."""
    return re.sub(r"//[^/@\s]*:[^/@\s]*@", "//", text)


def _named_for_mlflow(metrics: Mapping[str, float]) -> dict[str, float]:
    """A user's script may name a metric `acc@1`; MLflow refuses such a name, and with it all that is sent along."""
    return {re.sub(r"[^\w\-. :/]", "_", name): value for name, value in metrics.items()}
