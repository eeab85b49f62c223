"""Writes one MLflow run: its parameters, tags, metrics, artifacts and end.

Writing is idempotent, so a run can be filled again from a job's files. A server that becomes unavailable while a job
runs only causes a delay: `Run` or its caller repeats the writes that failed.
"""

import contextlib
import logging
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from alembic.util.exc import CommandError
from mlflow import MlflowClient
from mlflow.entities import DatasetInput, LifecycleStage, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from paretune.core.clock import Clock
from paretune.core.errors import first_line
from paretune.core.secrets import without_named_secrets, without_secrets
from paretune.specification.container import Event
from paretune.specification.metrics import COST_USD, F1, FACTS, PERPLEXITY, THROUGHPUT_SAMPLES
from paretune.tracking import schema
from paretune.tracking.models import address, log_model
from paretune.tracking.recorded_run import facts_by

_ERRORS_OF_CLOUDS = {  # MLflow passes them on if it stores artifacts without a server's help
    "boto3.exceptions": ("Boto3Error",),
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "azure.core.exceptions": ("AzureError",),
    "google.auth.exceptions": ("GoogleAuthError",),
    "google.api_core.exceptions": ("GoogleAPIError",),
}
_AT_ONCE = 100  # values per request; MLflow's limits are 100 params, 100 tags and 1000 metrics
_LONGEST_METRIC = 250  # characters of a name; MLflow's limit
_LONGEST_PARAM = 6000  # characters; MLflow's limit
_DENIED = re.compile(r"not authorized|[Aa]ccess ?[Dd]enied|error code 403")  # from a proxy or IAM
_AWAY = "MLflow does not answer; the job continues"
_CLOUD = "the storage of MLflow cannot be used; the job continues"
_NO_RUN = "MLflow has no such run (it was deleted, or MLFLOW_TRACKING_URI now names another store); the job continues"
_REFUSES = "MLflow refuses a part of the record, which continues without it"

_FIRST = (F1, PERPLEXITY, COST_USD, THROUGHPUT_SAMPLES)  # metrics that come first in MLflow

EndStatus = Literal["FINISHED", "FAILED", "KILLED"]  # of a run that has ended, in MLflow's words
_Value = Param | RunTag | Metric


class Run:
    """One MLflow run. Its methods raise nothing if the server is unavailable or refuses a write.

    If MLflow does not answer, `has_gap` becomes true. Params, tags, metrics and inputs are then kept, and are sent
    together with the next ones. The caller must repeat every other write, such as artifacts and the end of the run. If
    MLflow refuses a write because of its form or a missing permission, the write is dropped with a warning, because
    retrying would not help. A refusal makes `has_gap` true only if it concerns something other than params, tags,
    metrics and inputs.

    `created_with` are the tags with which this process has just created the run, which need not be read first then.
    """

    def __init__(
        self, client: MlflowClient, run_id: str, clock: Clock, *, created_with: Mapping[str, str] | None = None
    ) -> None:
        self.run_id = run_id
        self.has_gap = False  # whether a write has failed; callers may set it to False again
        self._client = client
        self._clock = clock
        self._waiting: dict[tuple[object, ...], _Value] = {}
        self._inputs: list[DatasetInput] = []  # these wait, too
        self._warned: set[str] = set()
        self._steps: dict[str, set[int]] = {}
        self._is_new = self._has_read = created_with is not None
        self._recorded = dict(created_with or {})  # tags as last read, with the documents that this process has written
        self._known_params: dict[str, str] = {}
        self._headlines: dict[str, float] = {}
        self._is_held = False

    @property
    def is_waiting(self) -> bool:
        """Whether values wait to be written, because MLflow did not answer."""
        return bool(self._waiting)

    @contextlib.contextmanager
    def later(self) -> Iterator[None]:
        """Hold back the params, tags, metrics and inputs that are recorded in the block.

        `flush`, or the next such value that is recorded after the block, sends them all together.
        """
        before, self._is_held = self._is_held, True
        try:
            yield
        finally:
            self._is_held = before

    def log_params(self, params: Mapping[str, str]) -> None:
        """Record parameters. Empty values, which mean the default, and parameters that the run has are left out.

        `mlflow run` records a value with spaces in the quotes that a shell needs. The value that is used then gets a
        tag beside it.
        """
        self._put(*(Param(name, text[:_LONGEST_PARAM]) for name, text in params.items() if text))

    def log_inputs(self, inputs: Sequence[DatasetInput]) -> None:
        """Record the data sets of the run; MLflow does not record one twice."""
        self._inputs += inputs
        self._put()

    def set_tags(self, tags: Mapping[str, str | None]) -> None:
        """Set tags; a tag with the value None is not written."""
        masks = {schema.FAILURE_REASON: without_named_secrets}  # it is for people, and a job may have worded it
        texts = {
            name: masks.get(name, without_secrets)(text)[: schema.LONGEST_TAG]
            for name, text in tags.items()
            if text is not None
        }
        written = schema.packed(texts, self._known_tags(schema.documents_of(texts)))
        self._put(*(RunTag(name, text) for name, text in written.items()))

    def _known_tags(self, documents: Collection[str]) -> dict[str, str]:
        """Return the tags of the run, as far as `documents` need them, and those that wait to be written.

        The run is read for a document that other processes may have written, unless a new one waits. Only the process
        that created a run writes the facts of its job.
        """
        waiting = {value.key: value.value for value in self._waiting.values() if isinstance(value, RunTag)}
        unknown = {*documents} - waiting.keys() - ({schema.FACTS} if self._is_new else set())
        if unknown:
            self._recorded = {**(self._all_tags() or self._recorded), **waiting}
        return {**self._recorded, **waiting}

    def delete_tags(self, *names: str) -> None:
        """Remove tags, if they are there."""
        for name in names:
            self._waiting.pop((RunTag, name), None)

        left = schema.without(names, self._known_tags(schema.documents_of(names)))
        self._put(*(RunTag(document, text) for document, text in left.items()))

        def delete() -> None:
            recorded = self._client.get_run(self.run_id).data.tags
            for name in names:
                if name in recorded:
                    self._client.delete_tag(self.run_id, name)

        self._attempt(delete)

    def log_events(self, events: Iterable[Event]) -> None:
        """Add the events' metrics to the curves. Events may come in any order; no step of a curve is written twice."""
        points = []
        for event in events:
            for name, value in _named_for_mlflow(event.metrics).items():
                if event.step not in self._steps_of(name):
                    self._steps[name].add(event.step)
                    points.append(Metric(name, value, int(event.time * 1000), event.step))
        self._put(*points)

    def log_results(self, values: Mapping[str, float]) -> None:
        """Record the numbers of a job of our own training: its facts as tags, see `FACTS`, and its metrics."""
        self.log_facts({name: value for name, value in values.items() if name in FACTS})
        self.log_metrics({name: value for name, value in values.items() if name not in FACTS})

    def log_facts(self, facts: Mapping[str, float]) -> None:
        """Record numbers that are known before the training as tags: sizes, estimates and baselines."""
        self.set_tags({f"{schema.PREFIX}{name}": f"{value:.15g}" for name, value in facts.items()})

    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        """Record the headline values of metrics, those that MLflow shows in its table of runs.

        A value that the run has already is not written again. A new value is logged at the last step of its metric's
        curve, or at step 0 without a curve, because MLflow shows the latest value of the last step.
        """
        is_read, points = self._read(), []
        for name, value in _named_for_mlflow(metrics).items():
            if self._headlines.get(name) != value:
                time_ms, step = self._place_of_headline(name, name in self._headlines or not is_read)
                points.append(Metric(name, float(value), time_ms, step))
                self._headlines[name] = value
        self._put(*points)

    def _place_of_headline(self, name: str, may_be_there: bool) -> tuple[int, int]:
        """Return a time in milliseconds and a step that make a new headline value the latest one of its metric.

        `may_be_there` is False if the run definitely has no value of the metric, so the metric's history need not be
        read.
        """
        points = [point for point in self._waiting.values() if isinstance(point, Metric) and point.key == name]
        if may_be_there or self._steps.get(name):
            with contextlib.suppress(*trouble()):
                points += self._client.get_metric_history(self.run_id, name)
        times = [int(self._clock.now() * 1000), *(point.timestamp + 1 for point in points)]
        return max(times), max((point.step for point in points), default=0)

    def log_text(self, text: str, path: str) -> None:
        """Store text as an artifact."""
        self._attempt(lambda: self._client.log_text(self.run_id, text, path))

    def log_files(self, files: Mapping[str, bytes], folder: str) -> None:
        """Store files as artifacts in `folder`; `files` maps their names to their content."""
        with tempfile.TemporaryDirectory() as scratch:
            for name, content in files.items():
                (Path(scratch) / Path(name).name).write_bytes(content)
            self._attempt(lambda: self._client.log_artifacts(self.run_id, scratch, folder))

    def log_texts(self, texts: Mapping[str, str], folder: str = "") -> None:
        """Store texts as artifacts in `folder`; `texts` maps their names, which may have folders, to their content."""
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch).resolve()
            for name, text in texts.items():
                path = (root / name).resolve()
                if path.is_relative_to(root):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text, encoding="utf-8", errors="replace")
            if texts:
                self._attempt(lambda: self._client.log_artifacts(self.run_id, scratch, folder or None))

    def log_model(self, name: str, location: str, model_type: str | None = None) -> str:
        """Record the job's model; return the address from which MLflow loads it, or "" if it could not be recorded."""
        uris: list[str] = []
        self._attempt(lambda: uris.append(address(log_model(self._client, self.run_id, name, location, model_type))))
        return "".join(uris)

    def log_figure(self, figure: Any, path: str) -> None:
        """Store a matplotlib figure as an artifact."""
        self._attempt(lambda: self._client.log_figure(self.run_id, figure, path))

    def metrics(self) -> dict[str, float]:
        """Return the run's facts, and the latest value of each of its metrics; empty if MLflow does not answer."""
        with contextlib.suppress(*trouble()):
            data = self._client.get_run(self.run_id).data
            return {**facts_by(schema.unpacked(data.tags)), **data.metrics}
        return {}

    def params(self) -> dict[str, str]:
        """Return the parameters of the run; empty if MLflow does not answer."""
        with contextlib.suppress(*trouble()):
            return dict(self._client.get_run(self.run_id).data.params)
        return {}

    def tags(self) -> dict[str, str]:
        """Return the tags of the run; empty if MLflow does not answer."""
        return schema.unpacked(self._all_tags())

    def _all_tags(self) -> dict[str, str]:
        with contextlib.suppress(*trouble()):
            return dict(self._client.get_run(self.run_id).data.tags)
        return {}

    def end(self, status: EndStatus, ended_at: float | None = None) -> bool:
        """Close the run at `ended_at`, in seconds since the epoch, or now; return whether MLflow has done so."""
        end_ms = None if ended_at is None else int(ended_at * 1000)
        return self._attempt(lambda: self._client.set_terminated(self.run_id, status, end_ms))

    def undelete(self) -> bool:
        """Restore the run if it was deleted in MLflow, where a deleted run cannot be written; return whether it was."""
        with contextlib.suppress(*trouble()):
            if self._client.get_run(self.run_id).info.lifecycle_stage == LifecycleStage.DELETED:
                self._client.restore_run(self.run_id)
                return True
        return False

    def delete(self) -> None:
        """Delete the run in MLflow, which can restore it until `mlflow gc` removes it for good."""
        self._attempt(lambda: self._client.delete_run(self.run_id))

    def reopen(self) -> None:
        """Mark the run as running again."""
        self._attempt(lambda: self._client.update_run(self.run_id, status="RUNNING"))

    def flush(self) -> None:
        """Write all waiting values in their order, in requests of up to 100 values, and the inputs last."""
        if any(isinstance(value, Param) for value in self._waiting.values()) and not self._read():
            return
        for name, recorded in self._known_params.items():
            used = self._waiting.pop((Param, name), None)
            if isinstance(used, Param) and used.value != recorded == shlex.quote(used.value):
                tag = RunTag(f"{schema.PREFIX}used_{name}", without_secrets(used.value))
                self._waiting[RunTag, tag.key] = tag
        size = _AT_ONCE
        while self._waiting:
            batch = dict(islice(self._waiting.items(), size))
            answer = self._ask(partial(self._send, [*batch.values()]), warns=len(batch) == 1)
            if answer is None:
                return
            if not answer and len(batch) > 1:  # one by one, to find the value or operation that MLflow refuses
                size = 1
                continue
            size = size if answer else _AT_ONCE
            self._known_params |= {value.key: value.value for value in batch.values() if isinstance(value, Param)}
            self._waiting = {key: value for key, value in self._waiting.items() if key not in batch}
        if self._inputs and self._ask(self._send_inputs) is not None:
            self._inputs = []

    def _send_inputs(self) -> None:
        try:
            self._client.log_inputs(self.run_id, self._inputs)
        except trouble() as error:
            if "unique" not in str(error).lower():
                raise
            # Another process has registered the same data set at the same time, so now it exists.
            self._client.log_inputs(self.run_id, self._inputs)

    def _steps_of(self, name: str) -> set[int]:
        if name not in self._steps:
            history = []
            with contextlib.suppress(*trouble()):
                history = [] if self._is_new else self._client.get_metric_history(self.run_id, name)
            self._steps[name] = {point.step for point in history}
        return self._steps[name]

    def reread(self) -> None:
        """Read the run again before the next write, because another client has written into it."""
        self._is_new = self._has_read = False
        self._steps.clear()
        self._headlines.clear()

    def _read(self) -> bool:
        """Read the run once, unless this process has just created it; return whether MLflow has answered."""

        def read() -> None:
            data = self._client.get_run(self.run_id).data
            self._known_params |= data.params
            self._headlines = dict(data.metrics) | self._headlines
            self._has_read = True

        return self._has_read or self._attempt(read)

    def _put(self, *values: _Value) -> None:
        """Queue values. Each replaces a queued one with the same name and, for a metric, the same step and time."""
        for value in values:
            if isinstance(value, RunTag) and schema.is_document(value.key):
                self._recorded[value.key] = value.value
            place = (value.step, value.timestamp) if isinstance(value, Metric) else ()
            self._waiting[type(value), value.key, *place] = value
        if not self._is_held:
            self.flush()

    def _attempt(self, write: Callable[[], object]) -> bool:
        """Call `write`, and return whether MLflow accepted it; if not, the run has a gap, which `sync` fills later."""
        is_done = bool(self._ask(write))
        self.has_gap = self.has_gap or not is_done
        return is_done

    def _ask(self, write: Callable[[], object], *, warns: bool = True) -> bool | None:
        """Call `write`, and return whether MLflow accepted it, or None if MLflow did not answer."""
        try:
            write()
        except trouble() as error:
            has_answered = is_refused(error)
            self.has_gap = self.has_gap or not has_answered
            if warns or not has_answered:
                self._warn(error)
            return False if has_answered else None
        return True

    def _send(self, values: list[_Value]) -> None:
        """Send values in one request, or a single value by its own call, which may be allowed where LogBatch is not."""
        if len(values) > 1:
            metrics = sorted((value for value in values if isinstance(value, Metric)), key=_rank)
            params = [value for value in values if isinstance(value, Param)]
            tags = [value for value in values if isinstance(value, RunTag)]
            self._client.log_batch(self.run_id, metrics, params, tags)
            return
        for value in values:
            if isinstance(value, Metric):
                self._client.log_metric(self.run_id, value.key, value.value, value.timestamp, value.step)
            elif isinstance(value, Param):
                self._client.log_param(self.run_id, value.key, value.value)
            else:
                self._client.set_tag(self.run_id, value.key, value.value)

    def _warn(self, error: Exception) -> None:
        is_unknown = isinstance(error, MlflowException) and error.error_code == "RESOURCE_DOES_NOT_EXIST"
        away = _CLOUD if isinstance(error, _errors_of_clouds()) else _AWAY
        sentence = _NO_RUN if is_unknown else _REFUSES if is_refused(error) else away
        if sentence not in self._warned:
            self._warned.add(sentence)
            logging.getLogger(__name__).warning("%s: %s", sentence, without_secrets(first_line(error)))


def _rank(metric: Metric) -> int:
    """Return the place of a metric in a request. MLflow compares runs by the metric that they recorded first."""
    return _FIRST.index(metric.key) if metric.key in _FIRST else len(_FIRST) + ("/" in metric.key)  # curves last


def trouble(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return `others` and the errors that MLflow raises if a store or its artifacts are unavailable, damaged or denied.

    A store of an unknown kind and a missing database driver raise them, too. The errors of a cloud's client are among
    them only once MLflow has imported the client, so an `except` clause must call this function itself.
    """
    own = (MlflowException, SQLAlchemyError, CommandError, OSError, ValueError, ModuleNotFoundError)
    return own + _errors_of_clouds() + others


_NO_CREDENTIALS = (  # errors of botocore if there are no valid keys
    *("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError"),
    *("SSOTokenLoadError", "UnauthorizedSSOTokenError", "ProfileNotFound", "LoginError"),
)


def lacks_credentials(error: BaseException | None) -> bool:
    """Return whether an error, or one that caused it, says that AWS credentials are missing or have expired."""
    kinds = vars(sys.modules["botocore.exceptions"]) if "botocore.exceptions" in sys.modules else {}
    known = tuple(kinds[name] for name in _NO_CREDENTIALS if name in kinds)
    seen = set[int]()
    while error is not None and id(error) not in seen:
        if isinstance(error, known):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _errors_of_clouds() -> tuple[type[Exception], ...]:
    errors = list[type[Exception]]()
    for module, names in _ERRORS_OF_CLOUDS.items():
        loaded = vars(sys.modules[module]) if module in sys.modules else {}  # another thread may still be importing it
        errors += [loaded[name] for name in names if name in loaded]
    return tuple(errors)


def is_refused(error: Exception) -> bool:
    """Return whether the error means that MLflow refused a request: its form is wrong, or a permission is missing."""
    if not isinstance(error, MlflowException):
        return False
    return error.error_code in {"INVALID_PARAMETER_VALUE", "PERMISSION_DENIED"} or bool(_DENIED.search(str(error)))


def name_for_mlflow(metric: str) -> str:
    """Return the name of a metric, changed so that MLflow accepts it; otherwise, MLflow would not store the metric.

    A user's script may name a metric `acc@1` or `=HYPERLINK("http://h")`. MLflow accepts letters, digits and some
    punctuation, at most 250 characters, and no name that changes when it is read as a path: `a//b`, `../a`, `a/`.
    """
    plain = re.sub(r"[^\w\-. :/]", "_", metric).replace("..", "__")[:_LONGEST_METRIC]
    parts = ["_" if part == "." else part for part in plain.split("/") if part]
    return "/".join(parts) or "_"


def _named_for_mlflow(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name_for_mlflow(name): value for name, value in metrics.items()}
