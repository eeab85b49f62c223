"""An MLflow store in memory, behind the calls of MLflow's client that `paretune.tracking` makes."""

import re
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST
from mlflow.store.entities.paged_list import PagedList

from paretune.tracking import Tracking
from tests.histories.world import Process, World

_TERM = re.compile(r"(tags|params|attributes)\.`?([\w.]+)`? *(=|!=|LIKE) *'([^']*)'")


class Record:
    """One run, in the shape of MLflow's entity."""

    def __init__(self, run_id: str, name: str, tags: dict[str, str], now_ms: int) -> None:
        self.info = SimpleNamespace(run_id=run_id, status="RUNNING", start_time=now_ms, end_time=None)
        self.points: dict[str, dict[tuple[int, float, int], Any]] = {}  # as the SQL store: equal points are kept once
        self.artifacts: dict[str, str] = {}
        self.data = SimpleNamespace(params={}, tags={**tags, "mlflow.runName": name}, metrics={})

    def copy(self) -> Any:
        """What a client gets: later changes of the store do not show in it."""
        data = self.data
        copied = SimpleNamespace(params=dict(data.params), tags=dict(data.tags), metrics=dict(data.metrics))
        return SimpleNamespace(info=SimpleNamespace(**vars(self.info)), data=copied)


class Store:
    """The store of one history."""

    def __init__(self, world: World) -> None:
        self.runs: dict[str, Record] = {}
        self._world = world

    def create_run(self, experiment_id: str, run_name: str = "", tags: dict[str, str] | None = None) -> Any:
        run_id = f"{len(self.runs) + 1:032x}"
        self.runs[run_id] = Record(run_id, run_name, dict(tags or {}), int(self._world.time * 1000))
        return self.runs[run_id].copy()

    def get_run(self, run_id: str) -> Any:
        return self._run(run_id).copy()

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
        run = self._run(run_id)
        for metric in metrics:
            point = (metric.timestamp, metric.value, metric.step)
            run.points.setdefault(metric.key, {})[point] = metric
            last = max(run.points[metric.key].values(), key=lambda each: (each.step, each.timestamp, each.value))
            run.data.metrics[metric.key] = last.value
        for param in params:
            if run.data.params.setdefault(param.key, param.value) != param.value:
                raise MlflowException(f"param {param.key} was logged with another value")
        run.data.tags.update((tag.key, tag.value) for tag in tags)

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        self._run(run_id).data.tags[key] = value

    def log_text(self, run_id: str, text: str, path: str) -> None:
        self._run(run_id).artifacts[path] = text

    def log_figure(self, run_id: str, figure: Any, path: str) -> None:
        self._run(run_id).artifacts[path] = "a figure"

    def log_inputs(self, run_id: str, datasets: Any) -> None:
        self._run(run_id)

    def set_terminated(self, run_id: str, status: str) -> None:
        self.update_run(run_id, status=status)
        self._run(run_id).info.end_time = int(self._world.time * 1000)

    def update_run(self, run_id: str, status: str | None = None, name: str | None = None) -> None:
        run = self._run(run_id)
        run.info.status = status or run.info.status
        run.info.end_time = None if status == "RUNNING" else run.info.end_time

    def get_metric_history(self, run_id: str, key: str) -> list[Any]:
        return list(self._run(run_id).points.get(key, {}).values())

    def search_experiments(self, **page: Any) -> Any:
        return PagedList([SimpleNamespace(experiment_id="0", name="Default", tags={})], None)

    def search_runs(self, experiments: Any, condition: str, **page: Any) -> Any:
        is_match = _filter(condition)
        newest_first = list(self.runs.values())[::-1]
        return PagedList([run.copy() for run in newest_first if is_match(run)][: page["max_results"]], None)

    def _run(self, run_id: str) -> Record:
        if run_id not in self.runs:
            raise MlflowException(f"no run {run_id}", RESOURCE_DOES_NOT_EXIST)
        return self.runs[run_id]


@cache
def _filter(condition: str) -> Callable[[Record], bool]:
    """Whether a run meets a condition of MLflow's search language, of the terms that paretune writes."""
    terms = [match.groups() for match in _TERM.finditer(condition)]
    assert len(terms) == condition.count(" and ") + 1, condition

    def meets(run: Record, kind: str, name: str, operator: str, text: str) -> bool:
        values = {"run_id": run.info.run_id} if kind == "attributes" else getattr(run.data, kind)
        if name not in values:
            return False
        if operator == "LIKE":
            return re.fullmatch(text.replace("%", ".*").replace("_", "."), values[name], re.DOTALL) is not None
        return (values[name] == text) is (operator == "=")

    return lambda run: all(meets(run, *term) for term in terms)


class _Client:
    """The client of one process."""

    def __init__(self, world: World, store: Store) -> None:
        self._world, self._store = world, store

    def __getattr__(self, method: str) -> Any:
        carry_out = getattr(self._store, method)
        return lambda *words, **request: self._world.call("mlflow", method, carry_out, *words, **request)


class MemoryTracking(Tracking):
    """`Tracking` of one process on a store in memory."""

    def __init__(self, process: Process, store: Store) -> None:
        self.uri = "memory:"
        self._environment = {}
        self._clock = process
        self._client: Any = _Client(process.world, store)
        self._experiment = "0"
        self._views = {}

    def keep_view(self, key: str, view: str) -> None:
        """Nothing: a view of the UI is of no account here."""
