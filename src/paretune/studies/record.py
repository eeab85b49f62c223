"""The MLflow run of a study: who works on it, its page and table, its cost, and how it ended."""

import json
import math
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from paretune.core.errors import CallAgain
from paretune.core.result import csv_text, rows_of
from paretune.core.shell import command_line
from paretune.jobs.workplace import STORAGE_VARIABLE, Workplace
from paretune.launchers.processes import is_alive, process_text
from paretune.presentation.text import duration
from paretune.specification import metrics
from paretune.specification.container import Event
from paretune.specification.declaration import spell
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import INSIDE
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.page import record_answer, study_name
from paretune.studies.results.trials import Trial
from paretune.studies.search.table import StudyTable
from paretune.tracking import schema
from paretune.tracking.run_writer import EndStatus
from paretune.tracking.store import Tracking
from paretune.tracking.ui_view import StudyView

if TYPE_CHECKING:
    from pandas import DataFrame

_FREE = (
    *("budget", "force", "max_cost_usd", "max_runtime_minutes", "metric", "metric_definitions"),
    *("register", "role", "tags"),
)
"""Parameters of a job that may change when a study is continued."""
_BEAT_S = 60.0  # seconds between two heartbeats of a driver, the process that works on a study
_SILENT_S = 600.0  # a driver on another machine counts as dead after this many seconds without a heartbeat
_PAUSED_S = 86_400.0  # the same with `once`, where nothing sends heartbeats between two commands
_OF_A_DRIVER = (schema.DRIVEN_UNTIL, schema.WATCHED_BY)  # tags of a study that a process works on
_SCHEDULE = "a schedule with --once"  # the driver of a paused study: no process, so `is_alive` cannot call it dead
_SAME_STORAGE = f"give both the same storage (storage, or {STORAGE_VARIABLE})"
_BETWEEN_PAGES = 8.0  # pause after writing a page, as a multiple of the time it took to write (seconds in long studies)


class StudyRecord:
    """The run of a study, which this process drives alone.

    Args:
        file: the study.
        given: the study without the owner and budget that the profile adds.
        table: its trials.

    Raises:
        CallAgain: another process drives the study with different storage.
    """

    def __init__(self, file: StudyFile, given: StudyFile, table: StudyTable, workplace: Workplace) -> None:
        self._file, self._table, self._workplace = file, table, workplace
        self._tracking = workplace.tracking
        self.run = self._tracking.run(open_run(self._tracking, table, given))
        self.run.reopen()
        self._drive_alone(sha256(f"{file.name} {_described(given)}".encode()).hexdigest())
        names = {schema.KIND: "study", schema.STUDY: file.name, schema.COMMAND: given.command or None}
        self.run.set_tags({**names, schema.ORIGIN: workplace.launcher.origin})
        self.run.log_params(given.as_text())
        self._tracking.offer_view(_view_of(file, self.run.run_id))
        if file.design is not None and not (correlations := file.design.correlations()).empty:
            self.run.log_text(_csv(correlations.rename_axis("").reset_index()), "correlation.csv")
        self.is_stale = False  # whether a trial has ended since the last page
        self._next_page = math.inf if file.once else 0.0  # with `once`, a page is written only at the end

    @property
    def is_page_due(self) -> bool:
        """Whether the last page is so old that another one may be written."""
        return time.monotonic() >= self._next_page

    def _drive_alone(self, digest: str) -> None:
        """Raise CallAgain if another process runs this study with different storage: both would pay for all trials.

        Studies that are not billed are not checked. Each driver sets its own tags before it reads those of others. So
        if two start together, at least one sees the other.
        """
        if self._workplace.launcher.origin != "measured" or not self._workplace.launcher.traits.is_billed:
            return
        self.run.set_tags({schema.STUDY_DIGEST: digest})
        if holder := self._other_driver(digest):
            self.run.delete_tags(schema.DRIVEN_UNTIL)
            self.run.end("KILLED")
            raise CallAgain(
                f"{holder} is working on the study {self._file.name}, with different storage: this command has done "
                f"nothing; run it again later, or {_SAME_STORAGE}"
            )
        self._workplace.interruption.on_check.append(lambda: self._beat(digest))

    def _other_driver(self, digest: str) -> str:
        """Mark this process as the study's driver; return another live driver with different storage, or "" if none."""
        self.run.set_tags({schema.WATCHED_BY: process_text()})
        self._mark_driven(_SILENT_S)
        now = self._workplace.clock.now()
        for run in self._tracking.runs(f"tags.`{schema.STUDY_DIGEST}` = '{digest}'"):
            driven_until, holder = float(run.tags.get(schema.DRIVEN_UNTIL) or 0.0), run.tags.get(schema.WATCHED_BY, "")
            if run.run_id != self.run.run_id and driven_until > now and is_alive(holder) is not False:
                return holder
        return ""

    def _beat(self, digest: str) -> None:
        """Send a heartbeat if one is due. Raises CallAgain if another driver took over while this process slept."""
        silent_s = self._workplace.clock.now() - self._marked_at
        if silent_s < _BEAT_S:
            return
        if silent_s < _SILENT_S:
            self._mark_driven(_SILENT_S)
        elif holder := self._other_driver(digest):
            raise CallAgain(
                f"this process was asleep for {duration(silent_s)}, and {holder} has taken over the study "
                f"{self._file.name}, with different storage: this command starts no more jobs; its running jobs "
                f"continue, and `{command_line('sync')}` collects them. To let one process continue what another one "
                f"began, {_SAME_STORAGE}"
            )

    def _mark_driven(self, seconds: float) -> None:
        """Mark the study's run as driven for the given number of seconds from now."""
        # Not the monotonic clock, which on Linux stands still while a laptop is suspended.
        self._marked_at = self._workplace.clock.now()
        self.run.set_tags({schema.DRIVEN_UNTIL: f"{self._marked_at + seconds:.0f}"})

    def write(self, current: StudyAnswer, *, is_last: bool = False) -> None:
        """Write the page, the table and the cost; with `is_last` also the ranks of the trials."""
        self.is_stale = False
        self.run.log_metrics(metrics.to_known_digits({metrics.COST_USD: self._table.balance().spent_usd}))
        record_answer(current, self.run, self._tracking, is_last=is_last)
        if is_last:
            tags, name = self.run.tags(), study_name(current)
            if tags.get(schema.RUN_NAME) in (f"study {self._file.name}", tags.get(schema.NAMED)):
                self.run.set_tags({schema.RUN_NAME: name, schema.NAMED: name})  # any other name was given by a user
        if self._file.design is not None:
            table = self._file.design.table([(trial.point, _end_of(trial)) for trial in current.front.trials])
            self.run.log_text(_csv(table), "design.csv")
        front, best, done = current.front, current.best, len(current.front.trials)
        counted_trials = sum(trial.counts for trial in front.trials)
        values = {"trials_done": float(counted_trials), "spent_usd": front.spent_usd, "hypervolume": front.hypervolume}
        if best is not None and front.quality is not None:
            values[f"best_{front.quality}"] = best.means[front.quality]
        values = metrics.to_known_digits(values)
        self.run.log_events([Event(time=time.time(), step=done, metrics=values)])

    def write_in_passing(self, current: StudyAnswer, began: float) -> None:
        """Write page and table while the study goes on. `began` is when their making began, by `time.monotonic`."""
        self.write(current)
        self._next_page = time.monotonic() + _BETWEEN_PAGES * (time.monotonic() - began)

    def pause(self) -> None:
        """Record that the next command with `once` continues the study."""
        self.run.set_tags({schema.WATCHED_BY: _SCHEDULE})
        self._mark_driven(_PAUSED_S)

    def end(self, status: EndStatus, reason: str = "") -> None:
        """Record that nobody drives the study any more, and why, if it has not ended by itself."""
        if reason:
            self.run.set_tags({schema.FAILURE_REASON: reason})
            self.run.delete_tags(*_OF_A_DRIVER)
        else:
            self.run.delete_tags(*_OF_A_DRIVER, schema.FAILURE_REASON)  # an earlier command may have set them
        self.run.end(status)


def _view_of(file: StudyFile, run_id: str) -> StudyView:
    """Return what MLflow's view of a study shows: its metrics, the quality first, and what differs between trials."""
    names = [*file.goals, *file.constraints]
    names.sort(key=lambda name: (name in metrics.OF_THE_CLUSTER, name != metrics.COST_USD))
    varied = dict.fromkeys(name for row in file.design.rows for name in row) if file.design else file.search
    settings = [
        name if name.startswith(f"training_arguments{INSIDE}") else name.partition(INSIDE)[0] for name in varied
    ]
    return StudyView(
        run_id=run_id,
        name=f"study {file.name}",
        metrics=list(dict.fromkeys(names)),
        settings=list(dict.fromkeys(settings)),
        paid=file.spending.metric,
    )


def _csv(table: "DataFrame") -> str:
    return csv_text([str(name) for name in table.columns], rows_of(table))


def _end_of(trial: Trial) -> dict[str, Any]:
    """Return the columns of design.csv about the end of a trial: its status, bill and metrics."""
    billed = {metrics.COST_USD: trial.cost_usd, metrics.BILLABLE_SECONDS: trial.billed_s}
    known = {name: value for name, value in billed.items() if value is not None}
    end = {"status": trial.shown_status, "run_id": trial.run_id, "origin": trial.origin}
    return end | known | dict(trial.measured)


def _described(file: StudyFile) -> str:
    """Return what must stay the same when a study is continued, as JSON: job, search space or rows, and objectives."""
    given = file.given() | {"objectives": file.goals}
    described = {
        f"{section} {name}": value
        for section in ("job", "search", "points", "objectives")
        for name, value in given.get(section, {}).items()
        if section != "job" or name not in _FREE
    }
    if file.design is not None:  # a table may have changed, so compare its rows, too
        digest = sha256(spell(file.design.rows).encode()).hexdigest()[:12]
        described |= {"points seed": file.seed, "points rows": f"{len(file.design.rows)}, digest {digest}"}
    return json.dumps(described, ensure_ascii=False)


def open_run(tracking: Tracking, table: StudyTable, file: StudyFile) -> str:
    """Return the id of the study's run: one from an earlier driver, the one that `mlflow run` opened, or a new one."""
    given = {key: value for key, value in file.given().items() if key in ("job", "search", "objectives")}
    mark, title = table.open(_described(file), given), f"study {file.name}"
    marked = tracking.runs(f"tags.`{schema.STUDY_MARK}` = '{mark}'")
    command_run = tracking.begin(title) if tracking.opened_run_id() else None  # `mlflow run` opens one for each command
    if not marked and command_run is None:
        return tracking.create(title, {schema.STUDY_MARK: mark}).run_id
    run_id = marked[-1].run_id if marked else tracking.opened_run_id() or ""
    if command_run is not None:
        tags = {schema.KIND: "study driver", schema.STUDY_RUN: run_id}
        command_run.set_tags({schema.STUDY_MARK: mark} if command_run.run_id == run_id else tags)
    return run_id
