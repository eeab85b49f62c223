"""Copies what a user's own training code recorded in its job to the tracking server. Copying twice changes nothing.

Three things are copied: the runs that the code opened with MLflow, the curves from its other loggers and printed lines,
and the model files that `model_files` has kept.

MLflow reads the job's store, and upgrades the store's tables if an older MLflow wrote them. A store that a newer MLflow
wrote cannot be read here. Such a store stays in the job's results.

The job wrote the store, so the store may contain any path and any link. No other file on this machine may be uploaded.
"""

import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME

from paretune.core.errors import first_line
from paretune.core.reading import exists, is_file
from paretune.core.secrets import masked, printable, without_secrets
from paretune.specification.metrics import may_be_of_a_job
from paretune.tracking import schema
from paretune.tracking.run_writer import EndStatus, name_for_mlflow
from paretune.user_code.model_files import FOLDER
from paretune.user_code.script_metrics import CURVES, read_curves

_MOST_RUNS = 50_000  # MLflow's limit for one search
_BATCHES = {"params": 100, "tags": 100, "metrics": 500}  # entries per request; MLflow allows 100, 100 and 1000
_NOT_COPIED = (  # prefixes of tags that MLflow sets, and of paretune's own tags, which `sync` trusts
    *("mlflow.user", "mlflow.source.", "mlflow.project.", MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME),
    schema.PREFIX,
)


def collect(store: Path, run_id: str, client: MlflowClient | None = None, *, status: EndStatus) -> list[str]:
    """Copy what a user's code recorded in `store` into the run `run_id`; return a sentence for each problem.

    The first run that the code opened is copied into the run `run_id` itself. Each other run becomes a new run under
    the run `run_id`, or under the copy of its own parent. If the code did not end that run, it ends with `status`,
    the status of the job. Secrets in parameters and tags are masked, and metrics that only bills or paretune have are
    left out. A parameter is reported if its value in the first run differs from that in the run `run_id`. Files outside
    of `store` are left out. Raises the errors of MLflow's client if the tracking server does not answer or refuses.
    """
    client = client or MlflowClient()
    remarks = []
    try:
        if _is_inside(store, store / CURVES):
            _copy_curves(store, run_id, client)
    except (OSError, ValueError) as error:
        remarks.append(problem(error))
    for folder, file in _files_in(store / FOLDER, store):
        client.log_artifact(run_id, str(file), artifact_path="/".join(filter(None, (FOLDER, folder))))
    if not (_is_inside(store, store / "mlflow.db") and is_file(store / "mlflow.db")):
        return remarks
    try:
        inner, runs = read_runs(store)
    except Exception as error:  # the job has written the store, so MLflow may raise anything
        return [*remarks, problem(error)]
    copies: dict[str, str] = {}  # id in the store to id of its copy
    outer = client.get_run(run_id)
    experiment = outer.info.experiment_id
    if runs and (differing := _differing(outer.data.params, runs[0].data.params)):
        remarks.append(f"parameters that it logged to MLflow differ from the given ones: {differing}")
    for run in runs:
        inner_id, parent = run.info.run_id, copies.get(run.data.tags.get(MLFLOW_PARENT_RUN_ID, ""), run_id)
        copies[inner_id] = _find_or_create_copy(run, experiment, parent, client) if copies else run_id
        names = set(filter(may_be_of_a_job, run.data.metrics))
        points = [point for name in names for point in inner.get_metric_history(inner_id, name)]
        _copy(run, points, copies[inner_id], client)
        for folder, file in artifacts_of(run, store, inner):
            client.log_artifact(copies[inner_id], str(file), artifact_path=folder or None)
        if copies[inner_id] == run_id:
            continue
        if run.info.end_time:
            client.set_terminated(copies[inner_id], run.info.status, run.info.end_time)
        elif not client.get_run(copies[inner_id]).info.end_time:
            client.set_terminated(copies[inner_id], status)
    return remarks


def read_runs(store: Path) -> tuple[MlflowClient, Sequence[Run]]:
    """Return a client of a store, and the store's runs, oldest first. Deleted runs are left out."""
    with closing(sqlite3.connect(store / "mlflow.db")) as database:  # MLflow would retry a damaged file for 100 seconds
        database.execute("SELECT version_num FROM alembic_version")
    client = MlflowClient(f"sqlite:///{store / 'mlflow.db'}")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, max_results=_MOST_RUNS)
    return client, sorted(runs, key=lambda run: (run.info.start_time, MLFLOW_PARENT_RUN_ID in run.data.tags))


def artifacts_of(run: Run, store: Path, client: MlflowClient) -> Iterator[tuple[str, Path]]:
    """Yield each file of a run and of its models, after the folder that has the file among the run's artifacts.

    The folder is "" for files that are in no folder. Files outside of `store` are left out, and so are linked folders.
    """
    experiment = store / "mlruns" / run.info.experiment_id
    models = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run.info.run_id}'")
    roots = [("", experiment / run.info.run_id / "artifacts")]
    roots += [(model.name, experiment / "models" / model.model_id / "artifacts") for model in models]
    for name, root in roots:
        yield from (("/".join(filter(None, (name, folder))), file) for folder, file in _files_in(root, store))


def _files_in(root: Path, store: Path) -> Iterator[tuple[str, Path]]:
    """Yield each file below `root`, after the name of its folder there. Files outside of `store` are left out."""
    for file in sorted(root.rglob("*")) if _is_inside(store, root) else ():
        if _is_inside(store, file) and is_file(file):  # MLflow would follow a link
            yield "/".join(file.parent.relative_to(root).parts), file


def problem(error: Exception) -> str:
    """Return a sentence that says why records could not be copied."""
    return f"the records of the command could not be copied ({without_secrets(first_line(error))})"


def _is_inside(store: Path, path: Path) -> bool:
    """Return whether `path` exists and is in `store` itself, even after links are followed."""
    return exists(path) and path.resolve().is_relative_to(store.parent.resolve() / store.name)


def _find_or_create_copy(run: Run, experiment: str, parent: str, client: MlflowClient) -> str:
    """Return the id of the copy of a run other than the first; create the copy if no earlier call has done so."""
    copies = client.search_runs([experiment], f"tags.`{schema.COPIED_FROM}` = '{run.info.run_id}'", max_results=1)
    if copies:
        return str(copies[0].info.run_id)
    tags = {schema.COPIED_FROM: run.info.run_id, MLFLOW_PARENT_RUN_ID: parent}
    copy = client.create_run(
        experiment, start_time=run.info.start_time, tags=tags, run_name=without_secrets(run.info.run_name or "")
    )
    return str(copy.info.run_id)


def _differing(given: Mapping[str, str], used: Mapping[str, str]) -> str:
    """Return the parameters whose logged value differs from the given value, each with both values."""
    plain = {
        name.removeprefix("training_arguments.").replace("-", "_"): masked(name, text) for name, text in given.items()
    }
    if "learning_rate_scaling" in plain:
        plain.pop("learning_rate", None)  # the user's code gets the scaled learning rate
    names = {name.replace("-", "_"): masked(name, text) for name, text in used.items()}  # masked like the given values
    differing = [name for name in plain.keys() & names.keys() if not _is_same(plain[name], names[name])]
    return printable(", ".join(f"{name}={names[name]} (given: {plain[name]})" for name in sorted(differing)))


def _is_same(one: str, other: str) -> bool:
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-6)
    except ValueError:
        return one.lower() == other.lower() or "/" in one + other  # two spellings of a path may differ


def _copy_curves(store: Path, run_id: str, client: MlflowClient) -> None:
    """Log the points of the job's curves that the run lacks, in their order.

    Of a curve whose steps are all different, events of the running job, or its last value, may already be in the run,
    with other times: a point at a step that is there is left out.
    """
    curves = {name: points for name, points in read_curves(store).items() if may_be_of_a_job(name)}
    points = list[Metric]()
    for name, curve in curves.items():
        key = name_for_mlflow(name)
        own = [Metric(key, point.value, point.time_ms, point.step) for point in curve]
        known = {_point(point) for point in own}
        others = [point for point in client.get_metric_history(run_id, key) if _point(point) not in known]
        is_single = len({point.step for point in curve}) == len(curve)
        steps = {point.step for point in others} if is_single else set[int]()
        points += [point for point in own if point.step not in steps]
    _log_points(points, run_id, client)


def _log_points(points: Sequence[Metric], run_id: str, client: MlflowClient) -> None:
    """Log the points that the run lacks. MLflow would store the others twice."""
    names = {point.key for point in points}
    existing = {_point(point) for name in names for point in client.get_metric_history(run_id, name)}
    _log(run_id, client, metrics=[point for point in points if _point(point) not in existing])


def _log(run_id: str, client: MlflowClient, **items: Sequence[Any]) -> None:
    """Log metrics, params or tags in batches that MLflow accepts."""
    for kind, entities in items.items():
        for start in range(0, len(entities), _BATCHES[kind]):
            batch = {kind: entities[start : start + _BATCHES[kind]]}
            client.log_batch(run_id, **batch)  # type: ignore[arg-type]  # the keys are names of its lists


def _copy(run: Run, points: Sequence[Metric], run_id: str, client: MlflowClient) -> None:
    """Copy points, and the parameters and tags of `run`, into the run `run_id`.

    Parameters that the run `run_id` already has are left out, because MLflow refuses to change them.
    """
    _log_points(points, run_id, client)
    own, tags = client.get_run(run_id).data.params, run.data.tags
    params = [Param(name, masked(name, text)) for name, text in run.data.params.items() if name not in own]
    copied = [RunTag(name, masked(name, tags[name])) for name in tags if not name.startswith(_NOT_COPIED)]
    _log(run_id, client, params=params, tags=copied)


def _point(metric: Metric) -> tuple[Any, ...]:
    return metric.key, metric.step, metric.timestamp, str(metric.value)
