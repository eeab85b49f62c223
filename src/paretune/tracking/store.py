"""The MLflow tracking server or store: opens and finds runs."""

import logging
import os
import shlex
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import mlflow
from mlflow import MlflowClient
from mlflow.artifacts import load_text
from mlflow.entities import LifecycleStage, ViewType
from mlflow.exceptions import MlflowException
from mlflow.tracking.context.registry import resolve_tags
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from paretune.core.clock import Clock
from paretune.core.connection import connect
from paretune.core.errors import BadInput, TrackingUnavailable, first_line
from paretune.core.file_lock import locked_file
from paretune.core.secrets import without_secrets
from paretune.storage.database import file_fault
from paretune.tracking import schema, ui_view
from paretune.tracking.models import register_model
from paretune.tracking.recorded_run import RecordedRun, facts_by
from paretune.tracking.run_writer import Run, is_refused, lacks_credentials, trouble
from paretune.tracking.ui_view import StudyView

_MOST_RUNS = 100_000
_RUNS_PER_PAGE = 500  # if few runs are read: MLflow's objects for a run need ten times the memory of a `RecordedRun`
_MOST_PER_PAGE = 10_000  # if all are read: MLflow sorts all runs again for each page


class Tracking:
    """The MLflow tracking server or store that MLflow's own settings name.

    MLFLOW_RUN_ID, MLFLOW_EXPERIMENT_ID and MLFLOW_EXPERIMENT_NAME are read from `environment`. Raises
    TrackingUnavailable if the server or store does not answer.
    """

    def __init__(self, environment: Mapping[str, str], clock: Clock) -> None:
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # most of our files are small
        logging.getLogger("alembic").setLevel(logging.WARNING)
        logging.getLogger("alembic.runtime.migration").addFilter(_is_warning)  # MLflow 3.2 resets this logger's level
        # MLflow's module logs a traceback for every error that it raises; `Run` already reports the error.
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
        self.uri = mlflow.get_tracking_uri()
        if without_secrets(self.uri) != self.uri:
            os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # MLflow would print the password
        self._environment = environment
        self._clock = clock
        path = _sqlite_file(self.uri)  # MLflow's migration takes no lock itself
        with self._usable(), nullcontext() if path is None else alone_with(str(path.absolute())):
            require_answer(self.uri)
            self._client = MlflowClient()
            if not self.uri.startswith(("http", "arn:")):
                self._client.search_experiments(max_results=1)  # creates or migrates the tables of a store
            self._experiment = self._experiment_id()
        self._offered = set[str]()  # keys of the views that this object has already offered

    @cached_property
    def store_id(self) -> str:
        """Id and creation time of the first experiment, which distinguish this store from others."""
        with self._usable():
            first = self._client.search_experiments(view_type=ViewType.ALL, max_results=1, order_by=["experiment_id"])
        return " ".join(f"{each.experiment_id} {each.creation_time}" for each in first)

    def begin(self, name: str) -> Run:
        """Return the run that `mlflow run` has opened for this command, renamed to `name`, or a new run `name`."""
        run_id = self.opened_run_id()
        if run_id is None:
            return self.create(name)
        self.offer_view()
        with self._usable():
            self._client.update_run(run_id, name=name)
        return Run(self._client, run_id, self._clock)

    def keep(
        self,
        kind: str,
        note: str,
        files: Mapping[str, str],
        params: Mapping[str, str] | None = None,
        origin: str | None = None,
    ) -> tuple[str, str]:
        """Save a command's results in its run, and end the run.

        `kind` names the run and becomes its tag KIND, and `files` maps names to text. Returns the run's id, and the
        command or address that opens the run in MLflow's UI. Raises TrackingUnavailable if a file cannot be stored; the
        run is then marked as failed.
        """
        run = self.begin(kind)
        try:
            with self._usable():
                for path, text in files.items():
                    self._client.log_text(run.run_id, text, path)
        except TrackingUnavailable:
            run.end("FAILED")
            raise
        run.set_tags({schema.KIND: kind, schema.ORIGIN: origin, schema.NOTE: note})
        run.log_params({name: without_secrets(text) for name, text in (params or {}).items()})
        run.end("FINISHED")
        return run.run_id, self.open_command(run.run_id)

    def opened_run_id(self) -> str | None:
        """Return the id of the run that `mlflow run` has opened for this command, or None without `mlflow run`."""
        return self._environment.get("MLFLOW_RUN_ID")

    def run(self, run_id: str) -> Run:
        """Return an object that writes to an existing run."""
        return Run(self._client, run_id, self._clock)

    def create(self, name: str, tags: Mapping[str, str] | None = None) -> Run:
        """Create a run called `name` with these tags, separate from this command's own run.

        If this thread has started a run with `mlflow.start_run`, that run becomes the parent, unless a tag names
        another one.
        """
        self.offer_view()
        active = mlflow.active_run()
        parent = {} if active is None else {schema.PARENT: active.info.run_id}
        written = {**_context(), **parent, **schema.packed(tags or {}, {})}
        with self._usable():
            run_id = self._client.create_run(self._experiment, run_name=name, tags=written).info.run_id
        return Run(self._client, run_id, self._clock, created_with=written)

    def offer_view(self, study: StudyView | None = None) -> None:
        """Add a saved view to MLflow's UI: all runs, or the trials of a study.

        An existing view is kept, because a user may have changed it. The experiment's description gets links to the
        views, unless a user has written a description. Failures are ignored.
        """
        run_id, name = (study.run_id, study.name) if study else ("", "")
        key = f"{ui_view.TAG_PREFIX}{run_id or ui_view.ALL_RUNS}"
        if key in self._offered:
            return
        self._offered.add(key)
        with suppress(*trouble()):
            tags = self._client.get_experiment(self._experiment).tags
            text = study.value() if study else ui_view.all_runs()
            wanted = {key: text, ui_view.KIND_TAG: ui_view.KIND} | dict(tags)
            wanted[schema.NOTE] = ui_view.note(self._experiment, tags.get(schema.NOTE), run_id, name)
            for tag, text in wanted.items():
                if tags.get(tag) != text:
                    self._client.set_experiment_tag(self._experiment, tag, text)

    def unfinished(self) -> list[RecordedRun]:
        """Return runs whose job was last seen running, then runs with gaps in their record, oldest first in each group.

        All experiments are searched. Deleted runs whose job was last seen running are among them, because such a job is
        paid for whether or not MLflow shows it. Raises TrackingUnavailable.
        """
        with_gaps = self.runs(f"tags.`{schema.GAP}` = 'true'")  # MLflow's search has no OR
        return list({run.run_id: run for run in [*self.running()[::-1], *with_gaps[::-1]]}.values())

    def running(self) -> list[RecordedRun]:
        """Return runs whose job was last seen running, newest first, deleted ones too. Raises TrackingUnavailable."""
        return self.runs(f"tags.`{schema.STATE}` = 'Running'", deleted=True)

    def runs(self, condition: str, newest: int | None = None, *, deleted: bool = False) -> list[RecordedRun]:
        """Return runs of all experiments that meet `condition`, in MLflow's search language, newest first.

        `newest` limits the number of runs; None returns up to 100,000. With `deleted`, deleted runs and runs of deleted
        experiments are among them. Raises BadInput if MLflow refuses the search, usually because `condition` is not in
        that language; otherwise TrackingUnavailable.
        """
        view = ViewType.ALL if deleted else ViewType.ACTIVE_ONLY
        runs, token, most = list[RecordedRun](), None, newest or _MOST_RUNS
        with self._usable(condition):
            experiments = [each.experiment_id for each in mlflow.search_experiments(view_type=view)]
            while experiments and len(runs) < most:
                per_page, order = _RUNS_PER_PAGE if newest else _MOST_PER_PAGE, ["attributes.start_time DESC"]
                size = min(per_page, most - len(runs))
                page = self._client.search_runs(experiments, condition, view, size, order, token)
                runs += map(_recorded, page)
                if not (token := page.token):
                    break
        return runs

    def recorded(self, run_id: str, *, deleted: bool = False) -> RecordedRun | None:
        """Return what is recorded in one run now, or None if there is no such run.

        A deleted run is returned only with `deleted`. Raises TrackingUnavailable.
        """
        with self._usable():
            try:
                run = self._client.get_run(run_id)
            except MlflowException as error:
                if error.error_code in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:  # or an invalid run id
                    return None
                raise
        recorded = _recorded(run)
        return None if recorded.is_deleted and not deleted else recorded

    def recorder_of(self, run_id: str) -> RecordedRun | None:
        """Return the run with this id, even if it is deleted, or else the run that continues its record.

        Returns None if neither exists. Raises TrackingUnavailable.
        """
        if (run := self.recorded(run_id, deleted=True)) is not None:
            return run
        return next(iter(self.runs(f"tags.`{schema.CONTINUES}` = '{run_id}'")), None)

    def artifact_text(self, run_id: str, path: str) -> str | None:
        """Return the text of a top-level artifact of a run, or None if there is none. Raises TrackingUnavailable."""
        with self._usable():
            if path not in [item.path for item in self._client.list_artifacts(run_id)]:
                return None
            return load_text(f"runs:/{run_id}/{path}")

    def register_model(self, name: str, run_id: str) -> str | None:
        """Register the model of a run as a version of `name`; return `NAME/VERSION`, or None without a model."""
        return register_model(self._client, name, run_id)

    def registered(self) -> dict[str, str]:
        """Return `NAME/VERSION` of every registered model version, keyed by its run id and by its files' address.

        Raises TrackingUnavailable.
        """
        with self._usable():
            versions = mlflow.search_model_versions()
        return {str(of): f"{each.name}/{each.version}" for each in versions for of in (each.run_id, each.source) if of}

    def address(self, run_id: str, view: str = "") -> str:
        """Return the web address of a run or a view.

        The address is on the http server that MLflow's settings name, or else on the server that `mlflow ui` starts.
        """
        server = without_secrets(self.uri) if self.uri.startswith("http") else "http://127.0.0.1:5000"
        # Without the workflow type, the UI of MLflow 3.17 shows a run among traces and evaluations.
        page = f"?viewStateShareKey={view}&" if view else f"/{run_id}?"
        return f"{server}/#/experiments/{self._experiment}/runs{page}workflowType=machine_learning"

    def open_command(self, run_id: str, view: str = "") -> str:
        """Return the command or address that shows a run in MLflow's UI, or a view made by `offer_view`."""
        if self.uri.startswith("http"):
            return self.address(run_id, view)
        if self.uri.startswith("arn:"):  # only a presigned URL opens the UI of a managed server
            region, resource = self.uri.split(":", 5)[3::2]
            kind, _, name = resource.partition("/")
            app, server = f"app-url --arn {self.uri}", f"tracking-server-url --tracking-server-name {name}"
            command = f"create-presigned-mlflow-{app if kind == 'mlflow-app' else server}"
            return f"aws sagemaker {command} --region {region}  # then open its URL and the run {run_id}"
        # `mlflow run` starts a command in the project's folder, which need not be the user's current folder.
        is_default = self.uri == f"sqlite:///{Path.cwd() / 'mlflow.db'}" and self.opened_run_id() is None
        store = "" if is_default else f" --backend-store-uri {shlex.quote(without_secrets(self.uri))}"
        return f"mlflow ui{store}  # then open {self.address(run_id, view)}"

    def _experiment_id(self) -> str:
        if "MLFLOW_EXPERIMENT_ID" in self._environment:
            return self._environment["MLFLOW_EXPERIMENT_ID"]
        name = self._environment.get("MLFLOW_EXPERIMENT_NAME", "Default")
        if (experiment := self._client.get_experiment_by_name(name)) is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:
                # Another command may have created it at the same moment.
                if (experiment := self._client.get_experiment_by_name(name)) is None:
                    raise
        return str(experiment.experiment_id)

    @contextmanager
    def _usable(self, condition: str | None = None) -> Iterator[None]:
        """Raise paretune's errors instead of MLflow's, without passwords in addresses, which MLflow's text may contain.

        If `condition` is given and MLflow refuses a request inside the block, this is BadInput. Any other error of
        MLflow is TrackingUnavailable.
        """
        try:
            yield
        except trouble() as error:
            reason = first_line(error)
            remedy = "check MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME"
            if self.uri.startswith("arn:") and lacks_credentials(error):
                remedy = "sign in, for example with `aws sso login` or AWS_PROFILE"
            if condition is not None and is_refused(error):
                safe = without_secrets(condition)  # MLflow's own text would show parts of a password
                raise BadInput([f"MLflow cannot search for {safe!r}{f': {reason}' * (safe == condition)}"]) from None
            raise TrackingUnavailable(
                f"the MLflow store at {without_secrets(self.uri)} cannot be used ({without_secrets(reason)}): {remedy}"
            ) from None


@contextmanager
def alone_with(what: str) -> Iterator[None]:
    """Allow only one process or thread of this user at a time to run the block with the same `what`.

    The lock is a file in a temporary folder that only this user can write to, and is removed after the block. Raises
    OSError if another user has taken the folder's name.
    """
    folder = Path(tempfile.gettempdir()) / f"paretune-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise PermissionError(f"{folder} must be a folder that only you can write to: remove it, or set TMPDIR")
    with locked_file(folder / f"{sha256(what.encode()).hexdigest()[:16]}.lock", is_removed=True):
        yield


@cache
def _context() -> dict[str, str]:
    """Return the user, source and git commit tags that MLflow's fluent API sets and MlflowClient does not."""
    with suppress(Exception):  # any plug-in that provides context tags may raise
        return {name: without_secrets(text) for name, text in resolve_tags().items()}
    return {}


def _is_warning(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING


def _sqlite_file(uri: str) -> Path | None:
    with suppress(SQLAlchemyError):
        database = (make_url(uri).database or "") if uri.startswith("sqlite") else ""
        return None if database in ("", ":memory:") or database.startswith("file:") else Path(database)
    return None


def is_absent_file(uri: str) -> bool:
    """Return whether this is the address of an SQLite file that MLflow would create."""
    path = _sqlite_file(uri)
    try:
        return path is not None and not path.exists()
    except OSError:  # a folder above the file cannot be entered, which `require_answer` reports
        return False


def require_answer(uri: str) -> None:
    """Connect once to the server of an http address, or check the SQLite file; other stores are not checked.

    A server behind a proxy is not checked either (see `connect`). Without this check, MLflow would keep trying for 100
    seconds to open a file that it cannot open (`create_sqlalchemy_engine_with_retry`, 3.17). Raises TrackingUnavailable
    if the server does not answer or the file cannot be opened.
    """
    if (path := _sqlite_file(uri)) and (fault := file_fault(path)):
        raise TrackingUnavailable(
            f"the MLflow store at {without_secrets(uri)} cannot be used: {fault}; fix the file or its folder, or "
            "change MLFLOW_TRACKING_URI; nothing was launched"
        )
    try:
        if uri.startswith("http"):
            connect(without_secrets(uri))  # a password may contain characters that would end the host name
    except (OSError, ValueError) as error:
        raise TrackingUnavailable(
            f"the MLflow tracking server at {without_secrets(uri)} does not answer ({error}): start it, "
            "or change MLFLOW_TRACKING_URI; nothing was launched"
        ) from error


def _recorded(run: Any) -> RecordedRun:
    tags = schema.unpacked(run.data.tags)
    return RecordedRun(
        run_id=run.info.run_id,
        params=run.data.params,
        tags=tags,
        metrics={**facts_by(tags), **run.data.metrics},
        started=(run.info.start_time or 0) / 1000,
        ended_at=(run.info.end_time or 0) / 1000,
        is_deleted=run.info.lifecycle_stage == LifecycleStage.DELETED,
    )


def tracking_uri() -> str:
    """Return the address of the tracking server or store that MLflow's own settings name."""
    return str(mlflow.get_tracking_uri())
