"""The only door to MLflow: one `Run` object per recorded run.

Writing is idempotent, so that a run can be filled again from a job's files; and a server that goes away while a job
runs costs nothing but a delay, because what could not be written is kept and tried again.
"""

import logging
import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT
from sqlalchemy.exc import SQLAlchemyError

from paretune.clock import Clock
from paretune.container import Event
from paretune.errors import TrackingUnavailable

_LONGEST_PARAM = 6000  # characters; MLflow's limit
_LONGEST_TAG = 8000
_BATCH = 500  # metrics per request; MLflow takes 1000
_PROBE_TIMEOUT_S = 5.0


# What MLflow raises when a store is away, unknown, damaged or lacks its driver.
_TROUBLE = (MlflowException, SQLAlchemyError, OSError, ValueError, ModuleNotFoundError)


class RunStatus(Enum):
    """How a run ended, in MLflow's words."""

    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"


@dataclass(frozen=True)
class RecordedRun:
    """A run as MLflow has it: parameters and tags."""

    run_id: str
    params: Mapping[str, str]
    tags: Mapping[str, str]


class Tracking:
    """The MLflow tracking server or store that MLflow's own settings name.

    Args:
        environment: MLFLOW_RUN_ID, MLFLOW_EXPERIMENT_ID and MLFLOW_EXPERIMENT_NAME are read from it.
        clock: for time stamps of late metrics.

    Raises:
        TrackingUnavailable: it does not answer. Nothing has been launched then.
    """

    def __init__(self, environment: Mapping[str, str], clock: Clock) -> None:
        # MLflow retries a dead server for minutes; a job that runs meanwhile wants to be watched.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "15")
        logging.getLogger("alembic").setLevel(logging.WARNING)
        self.uri = mlflow.get_tracking_uri()
        if without_password(self.uri) != self.uri:
            os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # it would print the password with it
        self._environment = environment
        self._clock = clock
        try:
            self._probe()
            self._client = MlflowClient()
            self._experiment = self._experiment_id()
        except _TROUBLE as error:
            raise self._unusable(error) from None  # MLflow's own text may hold the password of the address

    def begin(self, name: str) -> "Run":
        """The run that `mlflow run` has opened for this command, or a new one called `name`."""
        run_id = self.opened_run_id()
        try:
            if run_id is None:
                run_id = self._client.create_run(self._experiment, run_name=name).info.run_id
            else:
                self._client.update_run(run_id, name=name)
        except _TROUBLE as error:
            raise self._unusable(error) from None
        return Run(self._client, run_id, self._clock)

    def opened_run_id(self) -> str | None:
        """The run that `mlflow run` has opened for this command; None when it was started by hand."""
        return self._environment.get("MLFLOW_RUN_ID")

    def run(self, run_id: str) -> "Run":
        """A run that is there already."""
        return Run(self._client, run_id, self._clock)

    def unfinished(self) -> list["RecordedRun"]:
        """Runs of all experiments whose job was running when somebody last looked, oldest first.

        Raises:
            TrackingUnavailable: MLflow does not answer.
        """
        try:
            experiments = [item.experiment_id for item in self._client.search_experiments()]
            pages: list[Any] = []
            token = None
            while True:
                page = self._client.search_runs(
                    experiments,
                    "tags.`paretune.state` = 'Running'",
                    order_by=["attributes.start_time"],
                    page_token=token,
                )
                pages += page
                token = page.token
                if not token:
                    break
        except _TROUBLE as error:
            raise self._unusable(error) from None
        return [RecordedRun(run.info.run_id, dict(run.data.params), dict(run.data.tags)) for run in pages]

    def open_command(self, run_id: str) -> str:
        """What to type or open to look at a run."""
        # Without its workflow type the UI of MLflow 3.17 shows a run among traces and evaluations.
        place = f"#/experiments/{self._experiment}/runs/{run_id}?workflowType=machine_learning"
        if self.uri.startswith("http"):
            return f"{without_password(self.uri)}/{place}"
        is_default = self.uri == f"sqlite:///{Path.cwd() / 'mlflow.db'}"
        store = "" if is_default else f" --backend-store-uri {without_password(self.uri)}"
        return f"mlflow ui{store}    then open http://127.0.0.1:5000/{place}"

    def _experiment_id(self) -> str:
        if "MLFLOW_EXPERIMENT_ID" in self._environment:
            return self._environment["MLFLOW_EXPERIMENT_ID"]
        name = self._environment.get("MLFLOW_EXPERIMENT_NAME", "Default")
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found is not None else self._client.create_experiment(name))

    def _probe(self) -> None:
        address = urlsplit(self.uri)
        if not address.scheme.startswith("http"):
            return
        port = address.port or (443 if address.scheme == "https" else 80)
        try:
            socket.create_connection((address.hostname or "", port), timeout=_PROBE_TIMEOUT_S).close()
        except OSError as error:
            raise TrackingUnavailable(
                f"the MLflow tracking server at {without_password(self.uri)} does not answer ({error}): start it, "
                "or change MLFLOW_TRACKING_URI; nothing was launched"
            ) from error

    def _unusable(self, error: Exception) -> TrackingUnavailable:
        reason = without_password((str(error).strip().splitlines() or [type(error).__name__])[0])
        return TrackingUnavailable(
            f"the MLflow store at {without_password(self.uri)} cannot be used ({reason}): check "
            "MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME; nothing was launched"
        )


class Run:
    """One MLflow run. Writing never raises because the server is away: `has_gap` tells that something is missing.

    Datasets, params, tags and metrics that could not be written are kept and written with the next ones; artifacts and
    the end must be written again.
    """

    def __init__(self, client: MlflowClient, run_id: str, clock: Clock) -> None:
        self.run_id = run_id
        self._client = client
        self._clock = clock
        self._waiting: list[Metric] = []
        self._datasets: list[DatasetInput] = []  # waiting, as are params and tags
        self._params: dict[str, str] = {}
        self._tags: dict[str, str] = {}
        self._headlines: dict[str, float] = {}
        self._last_step: dict[str, int] = {}
        self.has_gap = False

    def log_params(self, params: Mapping[str, str]) -> None:
        """Record parameters. One that `mlflow run` has recorded, in the user's own spelling, is left as it is."""
        self._params |= params
        self._flush()

    def log_dataset(self, name: str, digest: str, source: str) -> None:
        """Name the data the run was trained on; the UI shows it beside the metrics."""
        dataset = Dataset(name=name, digest=digest, source_type="paretune", source=source)
        self._datasets.append(DatasetInput(dataset, [InputTag(MLFLOW_DATASET_CONTEXT, "train")]))
        self._flush()

    def set_tags(self, tags: Mapping[str, str | None]) -> None:
        """Set tags; None leaves a tag absent."""
        self._tags |= {name: text[:_LONGEST_TAG] for name, text in tags.items() if text is not None}
        self._flush()

    def log_events(self, events: Iterable[Event]) -> None:
        """Add the events' metrics to the curves; a step that a curve has already passed is not written twice."""
        for event in events:
            for name, value in _named_for_mlflow(event.metrics).items():
                if event.step > self._last(name):
                    self._last_step[name] = event.step
                    self._waiting.append(Metric(name, value, int(event.time * 1000), event.step))
        self._flush()

    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        """Record headline values, at step 0; one that this object has recorded already is not written twice."""
        now = int(self._clock.now() * 1000)
        named = _named_for_mlflow(metrics)
        fresh = {name: float(value) for name, value in named.items() if self._headlines.get(name) != float(value)}
        self._headlines |= fresh
        self._waiting += [Metric(name, value, now, 0) for name, value in fresh.items()]
        self._flush()

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
        except _TROUBLE:
            return {}

    def end(self, status: RunStatus) -> None:
        """Close the run."""
        self._try(lambda: self._client.set_terminated(self.run_id, status.value))

    def _log_new_params(self, params: Mapping[str, str]) -> None:
        known = self._client.get_run(self.run_id).data.params
        fresh = [Param(name, text[:_LONGEST_PARAM]) for name, text in params.items() if name not in known]
        for start in range(0, len(fresh), 100):
            self._client.log_batch(self.run_id, params=fresh[start : start + 100])

    def _last(self, name: str) -> int:
        if name not in self._last_step:
            try:
                history = self._client.get_metric_history(self.run_id, name)
            except _TROUBLE:
                history = []
            self._last_step[name] = max((point.step for point in history), default=-1)
        return self._last_step[name]

    def _flush(self) -> None:
        if self._datasets and not self._try(lambda: self._client.log_inputs(self.run_id, datasets=self._datasets)):
            return
        self._datasets = []
        if self._params and not self._try(lambda: self._log_new_params(self._params)):
            return
        self._params = {}
        rows = [RunTag(name, text) for name, text in self._tags.items()]
        if rows and not self._try(lambda: self._client.log_batch(self.run_id, tags=rows)):
            return
        self._tags = {}
        while self._waiting:
            batch = self._waiting[:_BATCH]
            if not self._try(lambda batch=batch: self._client.log_batch(self.run_id, metrics=batch)):
                return
            del self._waiting[: len(batch)]

    def _try(self, write: Any) -> bool:
        try:
            write()
        except _TROUBLE as error:
            if not self.has_gap:
                logging.getLogger(__name__).warning(
                    "MLflow does not answer; the job goes on: %s", without_password(str(error))
                )
            self.has_gap = True
            return False
        return True


def tracking_uri() -> str:
    """Address of the tracking server or store that MLflow's own settings name."""
    return str(mlflow.get_tracking_uri())


def without_password(text: str) -> str:
    """`text` with the user and password taken out of every address in it."""
    return re.sub(r"//[^/@\s]*:[^/@\s]*@", "//", text)


def _named_for_mlflow(metrics: Mapping[str, float]) -> dict[str, float]:
    """A user's script may name a metric `acc@1`; MLflow refuses such a name, and with it all that is sent along."""
    return {re.sub(r"[^\w\-. :/]", "_", name): value for name, value in metrics.items()}
