"""Runs a study from its file to its answer, within its budget.

The MLflow run of the study has the study's page (pareto.html), its table (pareto.csv) and its note. The runs of the
trials are nested under it. With `once`, a command does what can be done now and ends, so no process waits for the jobs.
The next command continues from what Optuna's storage and the tags of the runs contain.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paretune.core.errors import (
    BadInput,
    BudgetRefused,
    CallAgain,
    Interrupted,
    JobFailed,
    LaunchRefused,
    NoAccount,
    ParetuneError,
    TrackingUnavailable,
    collecting,
    refuse,
)
from paretune.core.result import CommandOutput, csv_text, rows_of
from paretune.jobs.model import register
from paretune.jobs.preparation import inputs_of, known_inputs
from paretune.jobs.preview import ForeseenJob, foreseen, limit_refusal, warnings_of
from paretune.jobs.progress import say_on_stderr
from paretune.jobs.workplace import STORAGE_VARIABLE, Workplace, Workplaces, has_store, usual_storage
from paretune.launchers.processes import is_alive, process_text
from paretune.ledger.lock import locked
from paretune.presentation.text import plain
from paretune.pricing import dates_of, price_remarks
from paretune.specification import metrics
from paretune.specification.container import Event, JobDocument
from paretune.specification.declaration import spell
from paretune.specification.job import JobSpec
from paretune.specification.profile import charged
from paretune.specification.rules import launch_faults
from paretune.specification.script_arguments import script_in_words
from paretune.storage.database import redacted
from paretune.studies.definition.file import StudyFile, full_name
from paretune.studies.definition.space import INSIDE, Range
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.front import StudyFront
from paretune.studies.results.page import live_chart, record_answer, study_name
from paretune.studies.results.result import StudyResult
from paretune.studies.results.trial_status import TrialStatus
from paretune.studies.results.trials import Trial, counted, label
from paretune.studies.sampler.process import Axis
from paretune.studies.search.driver import ROUND_S, Driver
from paretune.studies.search.money import Money
from paretune.studies.search.next_job import Sampled, Split, Verification, some_jobs
from paretune.studies.search.table import StudyTable
from paretune.tracking import schema
from paretune.tracking.store import Tracking

if TYPE_CHECKING:
    from pandas import DataFrame

_MOST_SHOWN = 12  # limit on the jobs that a dry run lists
_MOST_WARNED = 20  # limit on the jobs that are estimated for warnings, in addition to one for each instance type
_FREE = ("budget", "force", "max_cost_usd", "max_runtime_minutes", "metric_definitions", "register", "role", "tags")
"""Parameters of a job that may change when a study is continued."""
_BEAT_S = 60.0  # seconds between two heartbeats of a driver, the process that works on a study
_SILENT_S = 600.0  # a driver on another machine counts as dead after this many seconds without a heartbeat
_PAUSED_S = 86_400.0  # the same with `once`, where nothing sends heartbeats between two commands
_OF_A_DRIVER = (schema.DRIVEN_UNTIL, schema.WATCHED_BY)  # tags of a study that a process works on
_SCHEDULE = "a schedule with --once"  # the driver of a paused study: no process, so `is_alive` cannot call it dead
_BETWEEN_PAGES = 8.0  # pause after writing a page, as a multiple of the time it took to write (seconds in long studies)


def study(
    name: str,
    search: Mapping[str, object],
    *,
    job: JobSpec | Mapping[str, object] | None = None,
    objectives: Mapping[str, object] | None = None,
    quiet: bool = False,
    **terms: object,
) -> StudyResult:
    """Run a study that is described in Python and return its result. See `run_study` for errors and Ctrl-C.

    Args:
        name: name of the study; another call with the same name continues it.
        search: for each searched parameter of a job, the list of its values, or a range such as
            `{"low": 1e-5, "high": 1e-3, "log": True}`.
        job: parameters that all jobs share; if it is a `JobSpec`, its values of searched parameters are ignored.
        objectives: "minimize" or "maximize" for each metric; by default, the study minimizes cost_usd and optimizes the
            quality metric of the task (f1 for classification).
        quiet: as in `run_study`.
        terms: further keys of a study file, such as n_trials, budget_usd or constraints.

    Examples:
        >>> import paretune
        >>> job = paretune.JobSpec(launcher="simulated", max_train_samples=4000, global_batch_size=32)
        >>> types = ["ml.g5.xlarge", "ml.g5.12xlarge"]
        >>> goals = {"cost_usd": "minimize", "job_seconds": "minimize"}
        >>> study = paretune.study("types", {"instance_type": types}, job=job, objectives=goals, n_trials=2, quiet=True)
        >>> len(study.trials_dataframe()), study.best["parameters"]["instance_type"] in types
        (2, True)
    """
    if not isinstance(search, Mapping):
        example = '{"learning_rate": [1e-5, 3e-5]}'
        refuse([f"search must be a dict of parameters to the values to try, such as {example}, got {search!r}"])
    ranges = {key: {"choices": value} if isinstance(value, (list, tuple)) else value for key, value in search.items()}
    common: Any = job
    if isinstance(job, JobSpec):
        common = job.given()
        for key in search:
            outer, _, inner = full_name(common, str(key)).partition(INSIDE)
            if not inner:
                common.pop(outer, None)
            elif isinstance(common.get(outer), dict):
                common[outer].pop(inner, None)
    content = {"name": name, "job": common, "search": ranges, "objectives": objectives, **terms}
    return run_study({key: value for key, value in content.items() if value is not None}, quiet=quiet)


def run_study(study: str | Path | Mapping[str, object], *, quiet: bool = False, **overrides: object) -> StudyResult:
    """Run a study until it has ended, and return its result.

    A notebook shows the chart of the study's page, and this function updates it after each trial. Ctrl-C stops the
    study's jobs (unless `once` is set), records their cost and raises `Interrupted`. If you repeat the call, it
    continues the study and takes over jobs that are still running.

    Args:
        study: path of the study's file, such as studies/smoke.yaml, or a mapping with the content of one.
        quiet: print nothing on standard error, and show no chart in a notebook.
        overrides: keys of the study, such as n_trials or budget_usd, and parameters of a job, which replace those of
            the file. If the study searches a parameter, a single value ends that search, and a list replaces the
            choices. Overrides that are None are ignored.

    Raises:
        BadInput, TrackingUnavailable, LaunchRefused, BudgetRefused: nothing was launched.
        ParetuneError: AWS refuses all further jobs, or MLflow accepts no more runs; the same call continues the study.
        JobFailed: no job has completed and none can; change what the message names, then repeat the call to continue.
        CallAgain: another process is working on the study; or with once=True, the study has not ended and its jobs keep
            running.
        LostContact: the storage or AWS is unavailable; jobs keep running, and the same call continues the study.
        Interrupted: Ctrl-C ended the call.

    Examples:
        >>> import paretune
        >>> found = paretune.run_study("studies/pareto.yaml", n_trials=6, sampler="random", quiet=True)
        >>> {"instance_type", "cost_usd", "f1", "pareto_rank"} <= set(found.to_frame().columns)
        True
        >>> found.to_dict()["origin"]
        'simulated'
    """
    texts = {name: _as_option(value) for name, value in overrides.items() if value is not None}
    file = StudyFile.read(study if isinstance(study, Mapping) else str(study), texts)
    return run_study_file(file, say=(lambda _: None) if quiet else say_on_stderr)


def _as_option(value: object) -> str:
    """Write a value as the user would type it on the command line: a list with commas, a list of mappings as JSON."""
    if not isinstance(value, (list, tuple)) or any(isinstance(item, Mapping) for item in value):
        return spell(value)
    return ",".join(map(spell, value))


def run_or_preview(file: StudyFile) -> StudyResult | CommandOutput:
    """Run a study; with `dry_run`, only return some of its jobs with their worst cases.

    A dry run checks these jobs as the study would, but records and launches nothing.
    """
    if not file.job.dry_run:
        return run_study_file(file)
    workplaces = Workplaces.of_process()
    file = file.replace(job={**charged(file.job.given(), workplaces.environment), "dry_run": None})
    unasked = ""
    try:
        jobs, workplace, _ = _check(file, workplaces, say_on_stderr)
    except NoAccount as error:
        unasked = f"your AWS account was not queried: {error}"
        jobs, workplace = _check_without_account(file, workplaces)
    pattern = file.name.replace("'", "_")  # matches any character, because an apostrophe cannot be searched for
    condition = f"tags.`{schema.TRIAL}` LIKE '%' and tags.`{schema.STUDY}` LIKE '{pattern}'"
    trials = workplace.tracking.runs(condition) if has_store(workplace.environment) else []
    is_new = not any(trial.tags[schema.STUDY] == file.name for trial in trials)
    remarks, common = _remarks(jobs, workplace, is_new=is_new), file.job.changed()
    remarks = [*([unasked] if unasked else []), *remarks]
    listed = [spec for _, spec in file.jobs_at()] if file.tries_all else jobs
    rows, lines = list[dict[str, object]](), list[str]()
    with closing(StudyTable(file, "sqlite://")) as table:  # in memory
        money = Money(file, table, workplace)
        if is_new and file.design is not None:
            _refuse_expensive_rows(file, money)
        for spec in list({spec.spec_hash(): spec for spec in listed}.values())[: file.n_trials][:_MOST_SHOWN]:
            texts = {name: text for name, text in spec.changed().items() if common.get(name) != text}
            try:
                usd = money.worst_usd(money.limited(spec))
                worst = "worst case unknown" if usd is None else f"worst case {plain(usd, 2)} USD"
            except BudgetRefused as refusal:
                usd, worst = None, f"not tried: {refusal}"
            rows.append({**texts, "worst_case_usd": usd})
            lines.append("  " + ", ".join([*map(" ".join, texts.items()), worst]))
    if jobs[0].entry_script:
        words = script_in_words(jobs[0], jobs[0].plan(), [] if file.judged_by is None else [file.judged_by.metric])
        lines += ["", "the first of them:", *(f"  {name}: {text}" for name, text in words.items() if text)]
    count = f"{file.size() or 'any number of'} points, n_trials {file.n_trials or 'not set'}"
    head = f"{file.name}: {count}, budget_usd {file.budget_usd or 'not set'}; some of its jobs:"
    text = "\n".join(["dry run: nothing was launched", "", head, *lines, "", *remarks])
    return CommandOutput(text=text, document={"study": file.name, "jobs": rows, "launched": False, "remarks": remarks})


def run_study_file(file: StudyFile, *, say: Callable[[str], None] = say_on_stderr) -> StudyResult:
    """Start or continue a study, and return its result once it has ended. Raises the errors of `run_study`."""
    if file.job.dry_run:
        raise BadInput(["dry_run is set, but this call launches jobs: `paretune study FILE --dry_run` only shows them"])
    workplaces = Workplaces.of_process()
    uncharged, file = file, file.replace(job=charged(file.job.given(), workplaces.environment))
    with workplaces.interruption.listening():
        jobs, workplace, storage = _check(file, workplaces, say)
        workplaces.home.mkdir(parents=True, exist_ok=True)
        with (
            locked(storage, file.name, process_text()) as lock,
            closing(StudyTable(file, storage, lock, workplace.launcher.origin)) as table,
            table.reachable(),
        ):
            is_new = not any(table.trials())
            if is_new or not file.once:  # otherwise an earlier command has printed them
                for text in _remarks(jobs, workplace, is_new=is_new):
                    say(text)
            show = live_chart() if say is say_on_stderr else None
            return StudyRun(file, table, workplace, given=uncharged, say=say, show=show).work()


def _check(file: StudyFile, workplaces: Workplaces, say: Callable[[str], None]) -> tuple[list[JobSpec], Workplace, str]:
    """Check a study, and return some of its jobs, their workplace and the address of its storage.

    Raises the errors of `run_study` before anything is written or paid.
    """
    jobs = some_jobs(file)
    workplace, storage = workplaces.of(jobs[0]), file.storage or usual_storage(workplaces.home, workplaces.environment)
    budgets = workplace.budget_ledger(file.job.budget)  # raises BadInput if the file of the budgets is faulty
    if file.once and not workplace.launcher.jobs_outlive_submitter:
        ending = f"those of launcher {workplace.launcher.traits.name} end with it"
        text = f"jobs that keep running after the command ends, but {ending}: leave out once, or use another launcher"
        raise BadInput([f"once=true needs {text}"])
    if file.once and budgets is not None and budgets.is_local and storage.startswith("postgresql"):
        text = f"{budgets.file.path} on a server, too, because later commands may run on other machines. It is in "
        text += f"{budgets.shown_address}: set {STORAGE_VARIABLE}, or storage in that file"
        raise BadInput([f"once=true with storage {redacted(storage)} needs the ledger of {text}"])
    if workplace.launcher.reads_inputs and not jobs[0].runs_user_code:
        say("preparing model and data")

    def check(spec: JobSpec) -> None:
        setup = workplace.launcher.check(spec)
        workplace.launcher.check_inputs(setup, inputs_of(spec, workplace))

    _check_jobs(jobs, check)
    _check_quality(file, jobs, workplace)
    return jobs, workplace, storage


def _check_without_account(file: StudyFile, workplaces: Workplaces) -> tuple[list[JobSpec], Workplace]:
    """Check what can be checked without the study's AWS account.

    Returns some of its jobs and their workplace at public prices. Raises BadInput if no job passes.
    """
    jobs, here = some_jobs(file), workplaces.of(JobSpec())

    def check(spec: JobSpec) -> None:
        refuse(launch_faults(spec))
        if spec.runs_user_code:
            inputs_of(spec, here)

    _check_jobs(jobs, check)
    return jobs, workplaces.at_public_prices(jobs[0])


class StudyRun:
    """Runs a study with a `Driver`, and writes the results into the study's MLflow run."""

    def __init__(
        self,
        file: StudyFile,
        table: StudyTable,
        workplace: Workplace,
        *,
        given: StudyFile,  # the study without the owner and budget that the profile adds
        say: Callable[[str], None] = say_on_stderr,
        show: Callable[[StudyAnswer], None] | None = None,  # called with the answer after each trial
    ) -> None:
        self._say, self._show = say, show
        self._table, self._tracking, self._file = table, workplace.tracking, file
        self._workplace = workplace
        self.run_id = open_run(self._tracking, table, given)
        self._run = self._tracking.run(self.run_id)
        self._run.reopen()
        self._drive_alone(sha256(f"{file.name} {_described(given)}".encode()).hexdigest())
        names = {schema.KIND: "study", schema.STUDY: file.name, schema.COMMAND: given.command or None}
        self._run.set_tags({**names, schema.ORIGIN: workplace.launcher.origin})
        self._run.log_params(given.as_text())
        if file.design is not None:
            for line in file.design.findings():
                say(line)
            if not (correlations := file.design.correlations()).empty:
                self._run.log_text(_csv(correlations.rename_axis("").reset_index()), "correlation.csv")
                self._run.log_figure(file.design.picture(), "correlation.png")
        self.driver = Driver(file, table, run_id=self.run_id, workplace=workplace, on_trial=self._trial_ended, say=say)
        self._next_page = math.inf if file.once else 0.0  # with `once`, a page is written only at the end
        self._is_stale = False  # whether a trial has ended since the last page
        self._predicted: Callable[[], Sequence[Trial]] = tuple  # returns predicted points, which have not run
        self._since_growth: Callable[[], str] = str  # describes the dollars spent since the front last grew
        self._beliefs: Callable[[], Sequence[str]] = tuple  # describes what the search assumed and has learned

    def work(self) -> StudyResult:
        """Run the study until it ends; with `once`, do what can be done now. Raises the errors of `run_study`."""
        driver, file = self.driver, self._file
        try:
            with self._table.reachable():
                driver.adopt()
                suggesting = Split(driver) if file.takes_split else Sampled(driver)
                if isinstance(suggesting, Split):
                    self._predicted, self._since_growth = suggesting.predicted, suggesting.since_growth
                    self._beliefs = suggesting.beliefs
                if file.design is not None and not driver.trials and not driver.running:
                    _refuse_expensive_rows(file, driver.money)
                reason = driver.run(suggesting.propose)
                if not driver.trials and (driver.money.has_budget or file.job.max_cost_usd is not None):
                    raise BudgetRefused(f"nothing was launched: {reason}")
                verification = Verification(driver, lambda: self._answer().front)
                if file.judged_by is not None and file.design is None:  # one run is enough for seconds and dollars
                    driver.run(verification.propose)
                driver.finish()
        except CallAgain as error:
            driver.stop(error)
            self._pause()
            raise
        except BaseException as error:
            driver.stop(error)
            self._leave(error)
            if not driver.running and all(it.status is TrialStatus.REFUSED for it in driver.trials.values()):
                raise  # nothing was launched
            if isinstance(error, TrackingUnavailable | LaunchRefused):
                raise ParetuneError(str(error)) from error
            raise
        return self._finish(reason, verification.reasons)

    def _drive_alone(self, digest: str) -> None:
        """Raise CallAgain if another process runs this study with different storage: both would pay for all trials.

        Studies that are not billed are not checked. Each driver sets its own tags before it reads those of others. So
        if two start together, at least one sees the other.
        """
        if self._workplace.launcher.origin != "measured" or not self._workplace.launcher.traits.is_billed:
            return
        self._run.set_tags({schema.SPEC_HASH: digest, schema.WATCHED_BY: process_text()})
        self._mark_driven(_SILENT_S)
        now, same = self._workplace.clock.now(), f"tags.`{schema.SPEC_HASH}` = '{digest}'"
        for run in self._tracking.runs(same):
            driven_until, holder = float(run.tags.get(schema.DRIVEN_UNTIL) or 0.0), run.tags.get(schema.WATCHED_BY, "")
            if run.run_id != self.run_id and driven_until > now and is_alive(holder) is not False:
                self._run.delete_tags(schema.DRIVEN_UNTIL)
                self._run.end("KILLED")
                raise CallAgain(
                    f"{holder} is working on the study {self._file.name}, with different storage: this command "
                    "has done nothing; run it again later, or give both the same storage (storage, or "
                    f"{STORAGE_VARIABLE})"
                )
        self._workplace.interruption.on_check.append(self._beat)

    def _beat(self) -> None:
        if self._workplace.clock.monotonic() - self._marked_at_s >= _BEAT_S:
            self._mark_driven(_SILENT_S)

    def _mark_driven(self, seconds: float) -> None:
        """Mark the study's run as driven for the given number of seconds from now."""
        self._marked_at_s = self._workplace.clock.monotonic()
        self._run.set_tags({schema.DRIVEN_UNTIL: f"{self._workplace.clock.now() + seconds:.0f}"})

    def _trial_ended(self, trial: Trial) -> None:
        """Print how a trial ended and update the chart; if the last page is old enough, write page and table again."""
        result = ", ".join(f"{name} {value:.4g}" for name, value in trial.values.items()) or trial.reason[:120]
        outcome = f"{trial.shown_status}{': ' if result else ''}{result} ({trial.setting()})"
        self._is_stale, balance = True, self._table.balance()
        repeat = "" if trial.repeats is None else f", which repeats trial {trial.repeats}:"
        left = "" if self._file.budget_usd is None else f", left {balance.left_usd(self._file.budget_usd):.4g}"
        committed = f", committed {balance.committed_usd:.4g}" if balance.committed_usd else ""
        progress = f"{counted([*self.driver.trials.values()])}; USD spent {balance.spent_usd:.4g}{committed}{left}"
        since = f"; {text}" if (text := self._since_growth()) else ""
        self._say(f"trial {trial.number}{repeat} {outcome}; {progress}{since}")
        began = time.monotonic()
        if self._show is not None:
            self._show(self._answer())
        if began >= self._next_page:
            self._write(self._answer())
            self._next_page = time.monotonic() + _BETWEEN_PAGES * (time.monotonic() - began)

    def _answer(self) -> StudyAnswer:
        """Return the study's answer so far."""
        file, balance, trials = self._file, self._table.balance(), list(self.driver.trials.values())
        front = StudyFront.of(
            trials,
            file.goals,
            file.constraints,
            predicted=self._predicted(),
            quality=file.judged_by,
            is_floor=file.goals != file.objectives,
            axes=_axes(file),
        )
        levels = {} if file.design is None else {trial.number: file.design.levels_of(trial.point) for trial in trials}
        return StudyAnswer(
            name=file.name,
            levels=levels,
            front=front,
            budget_usd=file.budget_usd,
            committed_usd=balance.committed_usd,
            n_trials=file.n_trials,
            prices=self._doubtful_prices(trials),
            beliefs=self._beliefs(),
            running=tuple(f"trial {job.number} ({job.trial.setting()})" for job in self.driver.running),
        )

    def _doubtful_prices(self, trials: Sequence[Trial]) -> dict[str, str]:
        """Return remarks about prices that are unknown, old or uncertain, by instance type."""
        workplace, remarks = self.driver.workplace, dict[str, str]()
        for spec in {trial.spec.instance_type: trial.spec for trial in trials if trial.spec.has_instances}.values():
            price, region = workplace.launcher.price(spec), workplace.launcher.region(spec)
            today = date.fromtimestamp(workplace.clock.now())
            for remark in price_remarks(price, spec.instance_type, region, today):
                remarks[spec.instance_type] = remark
        return remarks

    def _finish(self, reason: str, unverified: Mapping[int, str]) -> StudyResult:
        """Write the final page, table, ranks and cost, and return the result.

        `unverified` maps the number of a configuration on the front to the reason why it has no more runs.
        """
        final = replace(self._answer(), running=None, unverified=unverified)
        self._write(final, is_last=True)
        if self._show is not None:
            self._show(final)
        best = final.picks[0].point if final.picks else None
        if best is not None:
            usd = best.means.get(metrics.COST_USD, best.trial.cost_usd)
            values = {metrics.PICK_F1: best.means.get(metrics.F1), metrics.PICK_COST_USD: usd}
            known = {name: value for name, value in values.items() if value is not None}
            self._run.log_metrics(metrics.to_known_digits(known))
        self._run.delete_tags(*_OF_A_DRIVER, schema.FAILURE_REASON)  # an earlier command may have set them
        self._run.end("FINISHED" if final.picks else "FAILED")
        repeats = sum(each.repeats is not None and not each.status.is_retryable for each in final.front.trials)
        jobs = f"{repeats} more job{'s' if repeats > 1 else ''}"
        again = f"; configurations on the front were trained again in {jobs}" if repeats else ""
        if (name := self._file.job.register) and best is not None:
            # `sync` does not register it: only the study knows which trial it recommends.
            sentence = register(name, best.trials[0].run_id, self._tracking, again="the same command")
            again += f"; recommended trial {best.number}: {sentence}"
        ended = self.driver.ended
        if not final.front.points and ended.has_enough():
            more = f"--n_trials {ended.counted + (self._file.n_trials or 0)}"
            again += f"; failed trials count toward n_trials: fix the cause, then run the same command with {more}"
        self._tracking.offer_view(self.run_id, f"study {self._file.name}")
        open_command = self._tracking.open_command(self.run_id, view=self.run_id)
        return StudyResult(answer=final, run_id=self.run_id, ending=f"{reason}{again}", open_command=open_command)

    def _pause(self) -> None:
        """Write the results of this round, and leave the run open for the next one."""
        self._run.set_tags({schema.WATCHED_BY: _SCHEDULE})
        self._mark_driven(_PAUSED_S)
        with suppress(ParetuneError), self._table.reachable():
            if self._is_stale:
                self._write(self._answer(), is_last=True)
        if (virtual_clock := self._workplace.launcher.virtual_clock) is not None:
            virtual_clock.sleep(ROUND_S)  # simulates the time until the next command

    def _leave(self, error: BaseException) -> None:
        """Write the results so far and print how to continue; after Ctrl-C, also print the answer so far."""
        is_interrupted, shown = isinstance(error, (Interrupted, KeyboardInterrupt)), ""
        with suppress(ParetuneError), self._table.reachable():  # the storage itself may have failed
            if self.driver.trials:
                answer = replace(self._answer(), running=None)
                shown = f"\n{answer.text()}" if is_interrupted and answer.front.points else ""
                self._write(answer, is_last=True)
                shown += f"\n  {self._tracking.open_command(self.run_id, view=self.run_id)}\n" if shown else ""
            self._run.set_tags({schema.FAILURE_REASON: str(error)})
            self._run.delete_tags(*_OF_A_DRIVER)
            self._run.end("KILLED" if is_interrupted else "FAILED")
        if shown:  # printed last, so that a closed terminal does not leave the run open
            self._say(shown)
        if not isinstance(error, (BudgetRefused, JobFailed)):  # their messages name the next step
            self._say("the same command continues the study")

    def _write(self, current: StudyAnswer, *, is_last: bool = False) -> None:
        """Write the page, the table and the cost; with `is_last` also the ranks of the trials."""
        self._is_stale = False
        self._run.log_metrics(metrics.to_known_digits({metrics.COST_USD: self._table.balance().spent_usd}))
        record_answer(current, self._run, self._tracking, is_last=is_last)
        if is_last and self._run.tags().get(schema.RUN_NAME, "").startswith(f"study {self._file.name}"):
            self._run.set_tags({schema.RUN_NAME: study_name(current)})  # any other name was given by a user
        if self._file.design is not None:
            table = self._file.design.table([(trial.point, _end_of(trial)) for trial in current.front.trials])
            self._run.log_text(_csv(table), "design.csv")
        front, best, done = current.front, current.best, len(current.front.trials)
        counted_trials = sum(trial.counts for trial in front.trials)
        values = {"trials_done": float(counted_trials), "spent_usd": front.spent_usd, "hypervolume": front.hypervolume}
        if best is not None and front.quality is not None:
            values[f"best_{front.quality}"] = best.means[front.quality]
        values = metrics.to_known_digits(values)
        self._run.log_events([Event(time=time.time(), step=done, metrics=values)])


def _axes(file: StudyFile) -> dict[str, Axis] | None:
    """Return the searched parameters of a study, as its search sees them, or None for a designed experiment."""
    if file.design is not None:
        return None
    return {
        name: Axis(values=entry.corners, is_log=isinstance(entry, Range) and entry.log)
        for name, entry in file.search.items()
    }


def _csv(table: "DataFrame") -> str:
    return csv_text([str(name) for name in table.columns], rows_of(table))


def _end_of(trial: Trial) -> dict[str, Any]:
    """Return the columns of design.csv about the end of a trial: its status, bill and metrics."""
    billed = {metrics.COST_USD: trial.cost_usd, metrics.BILLABLE_SECONDS: trial.billed_s}
    known = {name: value for name, value in billed.items() if value is not None}
    end = {"status": trial.shown_status, "run_id": trial.run_id, "origin": trial.origin}
    return end | known | dict(trial.measured)


def _refuse_expensive_rows(file: StudyFile, money: Money) -> None:
    """Raise BudgetRefused if the rows that will run may cost more than the budget: a part of them would show little."""
    specs, budget_usd = [spec for _, spec in file.jobs_at()][: file.n_trials], file.budget_usd
    total_usd = sum(filter(None, (money.worst_usd(money.limited(spec)) for spec in specs)))
    if budget_usd is not None and total_usd > budget_usd:
        raise BudgetRefused(
            f"the {len(specs)} rows cost at worst {total_usd:.4g} USD together, and budget_usd is {budget_usd:g}: "
            "raise it, take rows out, or lower max_runtime_minutes, which bounds each job"
        )


def _check_quality(file: StudyFile, jobs: list[JobSpec], workplace: Workplace) -> None:
    """Raise BadInput if a simulated study needs a quality metric that the simulation does not know."""
    launcher, quality = workplace.launcher, file.judged_by
    if launcher.virtual_clock is None or file.design is not None or quality is None:
        return
    for spec in jobs[:_MOST_WARNED]:
        document = JobDocument.first("paretune-check", spec)
        with suppress(BadInput):
            if quality.metric in launcher.preview(document, known_inputs(spec, workplace))["metrics"]:
                return
    text = f"{label(quality.metric)} of these jobs is unknown: a simulation takes it from a table of recorded runs. "
    raise BadInput([f"{text}Set simulation.runs, or take {quality.metric} out of objectives and constraints"])


def _check_jobs(jobs: list[JobSpec], check: Callable[[JobSpec], None]) -> None:
    """Raise BadInput with the faults that `check` raises for the first job, unless some job passes the check."""
    first = list[str]()
    for spec in jobs:
        with collecting(faults := list[str]()):
            check(spec)
        if not faults:
            return
        first = first or faults
    refuse(first)


def _remarks(jobs: list[JobSpec], workplace: Workplace, *, is_new: bool) -> list[str]:
    """Return lines to print: warnings that all points share, how many points will not be tried, and prices.

    Raises BadInput if a new study has no job that can be launched.
    """

    def foresee(specs: Iterable[JobSpec]) -> list[ForeseenJob]:
        return [foreseen(spec, known_inputs(spec, workplace), workplace) for spec in specs]

    types = {spec.instance_type: spec for spec in jobs}
    estimated = foresee({spec.spec_hash(): spec for spec in [*jobs[:_MOST_WARNED], *types.values()]}.values())
    refusals = [text for job in estimated if (text := limit_refusal(job))]
    if is_new and len(refusals) == len(estimated) and all(map(limit_refusal, foresee(jobs))):
        raise BadInput([f"none of the study's jobs can be launched: {refusals[0]}"])
    count = f"{len(refusals)} of the {len(estimated)} points checked will not be tried; the first one because: "
    warnings = [*warnings_of(estimated, only_common=True), *(f"{count}{text}" for text in refusals[:1])]
    prices = {job.spec.instance_type: job.price for job in estimated if job.spec.has_instances and job.price}
    hourly = ", ".join(f"{name} {price.usd_per_hour:g}" for name, price in prices.items())
    line = [f"prices in USD per hour {dates_of(prices.values())}: {hourly}"] if prices else []
    return [*(f"warning: {text}" for text in warnings), *line]


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
