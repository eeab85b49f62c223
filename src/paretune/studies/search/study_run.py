"""Writes a study to MLflow and to the terminal: its run with page and table, the ranks of its trials, its progress."""

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from hashlib import sha256

from paretune.core.errors import BudgetRefused, CallAgain, Interrupted, JobFailed, ParetuneError
from paretune.jobs.model import register
from paretune.jobs.progress import say_on_stderr
from paretune.jobs.workplace import STORAGE_VARIABLE, Workplace
from paretune.launchers.processes import is_alive, process_text
from paretune.pricing import price_remarks
from paretune.specification import metrics
from paretune.specification.catalog import usual_region
from paretune.specification.container import Event
from paretune.specification.parameters import spell
from paretune.studies.definition.file import ROW, StudyFile
from paretune.studies.results.answer import StudyAnswer, StudyResult
from paretune.studies.results.front import StudyFront
from paretune.studies.results.page import record_answer
from paretune.studies.results.trials import Trial, counted
from paretune.studies.search.driver import Driver
from paretune.studies.search.table import StudyTable
from paretune.tracking import schema
from paretune.tracking.store import Tracking

_MAY_CHANGE = (
    "budget",
    "force",
    "max_cost_usd",
    "max_runtime_minutes",
    "metric_definitions",
    "register",
)
"""Parameters of a job that may change while a study goes on."""
_BEAT_S = 60.0  # between two signs of life of a driver
_SILENT_S = 600.0  # a driver on another machine that gives none for so long counts as dead
_PAUSED_S = 86_400.0  # the same for a study that a scheduler drives call by call
_BETWEEN_PAGES = 8.0  # pause before the next page, in times that one takes: pages of long studies take seconds


class StudyRunWriter:
    """Writes the MLflow run of one study, which the runs of its trials are nested under, and has its `driver`."""

    def __init__(
        self,
        file: StudyFile,
        table: StudyTable,
        workplace: Workplace,
        *,
        given: StudyFile,  # the study without what the profile adds
        say: Callable[[str], None] = say_on_stderr,
        show: Callable[[StudyAnswer], None] | None = None,  # called with the answer after each trial
    ) -> None:
        self._say, self._show = say, show
        self._table, self._tracking, self._file = table, workplace.tracking, file
        self._workplace = workplace
        self.run_id = open_run(self._tracking, table, given)
        self._run = self._tracking.run(self.run_id)
        self._run.reopen()
        names = {schema.KIND: "study", schema.STUDY: file.name, schema.COMMAND: given.command or None}
        self._run.set_tags({**names, schema.ORIGIN: workplace.launcher.origin})
        self._drive_alone(sha256(f"{file.name} {_described(given)}".encode()).hexdigest())
        self._run.log_params(given.as_text())
        if file.design is not None:
            for line in file.design.findings():
                say(line)
            self._run.log_text(file.design.correlations().to_csv(), "correlation.csv")
            self._run.log_figure(file.design.picture(), "correlation.png")
        on_trial = self.trial_ended
        self.driver = Driver(file, table, run_id=self.run_id, workplace=workplace, on_trial=on_trial, say=say)
        self._next_page = math.inf if file.once else 0.0  # with `once` one page, at the end
        self._is_stale = False  # a trial has ended since the last page
        self._unverified: Mapping[int, str] = {}
        self.predicted: Callable[[], Sequence[Trial]] = tuple
        """Points that the search predicts and has not run."""

    def _drive_alone(self, digest: str) -> None:
        """Raise CallAgain if another machine drives this study from a storage of its own: each would pay all trials.

        Both write before they look, so at least one of two that begin together sees the other one.
        """
        if self._workplace.launcher.origin != "measured" or not self._workplace.launcher.is_billed:
            return
        self._run.set_tags({schema.SPEC_HASH: digest, schema.WATCHED_BY: process_text()})
        self._say_driven(_SILENT_S)
        now, same = self._workplace.clock.now(), f"tags.`{schema.SPEC_HASH}` = '{digest}'"
        for run in self._tracking.runs(same):
            driven_until, holder = float(run.tags.get(schema.DRIVEN_UNTIL) or 0.0), run.tags.get(schema.WATCHED_BY, "")
            if run.run_id != self.run_id and driven_until > now and is_alive(holder) is not False:
                self._run.set_tags({schema.DRIVEN_UNTIL: ""})
                self._run.end("KILLED")
                raise CallAgain(
                    f"{holder} works on the study {self._file.name}, with another storage: this command has done "
                    f"nothing; call again, or give both one storage (storage, or {STORAGE_VARIABLE})"
                )
        self._workplace.interruption.on_check.append(self._beat)

    def _beat(self) -> None:
        if self._workplace.clock.monotonic() - self._said_s >= _BEAT_S:
            self._say_driven(_SILENT_S)

    def _say_driven(self, seconds: float) -> None:
        self._said_s = self._workplace.clock.monotonic()
        self._run.set_tags({schema.DRIVEN_UNTIL: f"{self._workplace.clock.now() + seconds:.0f}"})

    def trial_ended(self, trial: Trial) -> None:
        """Print that a trial has ended; now and then write page, table and ranks again."""
        result = ", ".join(f"{name} {value:.4g}" for name, value in trial.values.items()) or trial.reason[:120]
        outcome = f"{trial.shown_status}{': ' if result else ''}{result} ({trial.setting()})"
        self._is_stale, balance = True, self._table.balance()
        repeat = "" if trial.repeats is None else f", which repeats trial {trial.repeats}:"
        left = "" if self._file.budget_usd is None else f", left {balance.left_usd(self._file.budget_usd):.4g}"
        committed = f", committed {balance.committed_usd:.4g}" if balance.committed_usd else ""
        progress = f"{counted([*self.driver.trials.values()])}; USD spent {balance.spent_usd:.4g}{committed}{left}"
        self._say(f"trial {trial.number}{repeat} {outcome}; {progress}")
        began = time.monotonic()
        if self._show is not None:
            self._show(self.answer())
        if began >= self._next_page:
            self._write(self.answer())
            self._next_page = time.monotonic() + _BETWEEN_PAGES * (time.monotonic() - began)

    def answer(self) -> StudyAnswer:
        """The answer so far, of a study that goes on."""
        file, balance, trials = self._file, self._table.balance(), list(self.driver.trials.values())
        goals, quality = file.objectives, file.judged_by
        front = StudyFront.of(trials, goals, file.constraints, predicted=self.predicted(), quality=quality)
        return StudyAnswer(
            name=file.name,
            front=front,
            budget_usd=file.budget_usd,
            committed_usd=balance.committed_usd,
            unverified=self._unverified,
            n_trials=file.n_trials,
            prices=self._doubtful_prices(trials),
            running=tuple(f"trial {job.number} ({job.trial.setting()})" for job in self.driver.running),
        )

    def _doubtful_prices(self, trials: Sequence[Trial]) -> dict[str, str]:
        workplace, remarks = self.driver.workplace, dict[str, str]()
        for spec in {trial.spec.instance_type: trial.spec for trial in trials if trial.spec.has_instances}.values():
            price, region = workplace.launcher.price(spec), usual_region(spec.region, os.environ)
            today = date.fromtimestamp(workplace.clock.now())
            for remark in price_remarks(price, spec.instance_type, price.region if price else region, today):
                remarks[spec.instance_type] = remark
        return remarks

    def finish(self, reason: str, unverified: Mapping[int, str]) -> StudyResult:
        """Write the final page, table, ranks and bill; returns the result. `unverified`: why points lack runs."""
        self._unverified = unverified
        final = replace(self.answer(), running=None)
        self._write(final, is_last=True)
        if self._show is not None:
            self._show(final)
        best = final.picks[0].point if final.picks else None
        if best is not None:
            usd = best.means.get(metrics.COST_USD, best.trial.cost_usd)
            values = {metrics.PICK_F1: best.means.get(metrics.F1), metrics.PICK_COST_USD: usd}
            self._run.log_metrics({name: value for name, value in values.items() if value is not None})
        self._run.set_tags({schema.DRIVEN_UNTIL: ""})
        self._run.end("FINISHED" if final.picks else "FAILED")
        repeats = sum(each.repeats is not None and not each.status.is_retryable for each in final.front.trials)
        times = f"{repeats} more job{'s' if repeats > 1 else ''}"
        again = f"; recommended points were trained again, {times}" if repeats else ""
        if (name := self._file.job.register) and best is not None:
            again += f"; recommended trial {best.number}: {register(name, best.trial.run_id, self._tracking)}"
        history = self.driver.history
        if not final.front.points and history.has_enough():
            more = f"--n_trials {history.counted + (self._file.n_trials or 0)}"
            again += f"; failed trials count: mend the cause, and the same command with {more} continues"
        self._tracking.offer_view(self.run_id, f"study {self._file.name}")
        open_command = self._tracking.open_command(self.run_id, view=self.run_id)
        return StudyResult(answer=final, run_id=self.run_id, ending=f"{reason}{again}", open_command=open_command)

    def paused(self) -> None:
        """Write the results of this round, and leave the run open for the next one."""
        self._say_driven(_PAUSED_S)
        with suppress(ParetuneError), self._table.reachable():
            if self._is_stale:
                self._write(self.answer(), is_last=True)

    def interrupted(self, error: BaseException) -> None:
        """Write the results so far, and say how to go on."""
        with suppress(ParetuneError), self._table.reachable():  # the storage itself may have failed
            if self.driver.trials:
                self._write(replace(self.answer(), running=None), is_last=True)
            self._run.set_tags({schema.FAILURE_REASON: str(error), schema.DRIVEN_UNTIL: ""})
            self._run.end("KILLED" if isinstance(error, (Interrupted, KeyboardInterrupt)) else "FAILED")
        if not isinstance(error, (BudgetRefused, JobFailed)):  # their messages say what helps
            self._say("the same command continues the study")

    def _write(self, current: StudyAnswer, *, is_last: bool = False) -> None:
        """Write page, table and bill; the last time a driver does, ranks, too."""
        self._is_stale = False
        self._run.log_metrics({metrics.COST_USD: self._table.balance().spent_usd})
        record_answer(current, self._run, self._tracking, is_last=is_last)
        if self._file.design is not None:
            ended = {
                int(trial.point[ROW]): {"status": trial.shown_status, "run_id": trial.run_id, "origin": trial.origin}
                | dict(trial.measured)
                for trial in current.front.trials
                if trial.repeats is None
            }
            self._run.log_text(self._file.design.table(ended).to_csv(index=False), "design.csv")
        done, best = len(current.front.trials), current.best
        values = {"trials_done": float(done), "spent_usd": current.front.spent_usd}
        values["hypervolume"] = current.front.hypervolume
        if best is not None and current.front.quality is not None:
            values[f"best_{current.front.quality}"] = best.means[current.front.quality]
        self._run.log_events([Event(time=time.time(), step=done, metrics=values)])


def _described(file: StudyFile) -> str:
    """The jobs, the search and the objectives of a study as JSON, by which two studies are the same."""
    given = file.given() | {"objectives": file.objectives}
    described = {
        f"{section} {name}": value
        for section in ("job", "search", "points", "objectives")
        for name, value in given.get(section, {}).items()
        if section != "job" or name not in _MAY_CHANGE
    }
    if file.design is not None:  # its trials know their rows by number only
        digest = sha256(spell(file.design.rows).encode()).hexdigest()[:12]
        described |= {"points seed": file.seed, "points rows": f"{len(file.design.rows)}, digest {digest}"}
    return json.dumps(described, ensure_ascii=False)


def open_run(tracking: Tracking, table: StudyTable, file: StudyFile) -> str:
    """Id of the study's run: that of `mlflow run`, the one of an earlier driver, or a new one."""
    mark, title = table.open(_described(file)), f"study {file.name}"
    marked = tracking.runs(f"tags.`{schema.STUDY_MARK}` = '{mark}'")
    command_run = tracking.begin(title) if tracking.opened_run_id() else None  # `mlflow run` opens one per command
    if not marked and command_run is None:
        return tracking.create(title, {schema.STUDY_MARK: mark}).run_id
    run_id = marked[-1].run_id if marked else tracking.opened_run_id() or ""
    if command_run is not None:
        tags = {schema.KIND: "study driver", schema.STUDY_RUN: run_id}
        command_run.set_tags({schema.STUDY_MARK: mark} if command_run.run_id == run_id else tags)
    return run_id
