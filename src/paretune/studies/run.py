"""Runs a study from its file to its answer, within its budget.

The MLflow run of the study has the study's page (pareto.html), its table (pareto.csv) and its note. The runs of the
trials are nested under it. With `once`, a command does what can be done now and ends, so no process waits for the jobs.
The next command continues from what Optuna's storage and the tags of the runs contain.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import date
from itertools import starmap
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from paretune.core.errors import (
    BadInput,
    BudgetRefused,
    CallAgain,
    Interrupted,
    JobFailed,
    LaunchRefused,
    ParetuneError,
    TrackingUnavailable,
    refuse,
)
from paretune.core.result import CommandOutput
from paretune.jobs.model import register
from paretune.jobs.remaining import Remaining
from paretune.jobs.terminal import say_on_stderr
from paretune.jobs.workplace import Workplace, Workplaces
from paretune.launchers.offers import region_of
from paretune.launchers.processes import process_text
from paretune.ledger.lock import locked
from paretune.presentation.text import duration, usd
from paretune.pricing import price_remarks
from paretune.specification import metrics
from paretune.specification.declaration import spell
from paretune.specification.job import JobSpec
from paretune.specification.profile import charged
from paretune.studies.definition.file import StudyFile, full_name
from paretune.studies.definition.space import INSIDE
from paretune.studies.own_code import defaults_of, with_own_code
from paretune.studies.preview import check_study, preview_study, refuse_expensive_rows, remarks_on, storage_of
from paretune.studies.record import StudyRecord
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.front import front_of
from paretune.studies.results.page import live_chart
from paretune.studies.results.result import StudyResult
from paretune.studies.results.trials import Trial, counted
from paretune.studies.search.driver import ROUND_S, Driver, Propose
from paretune.studies.search.money import dollars_as_time
from paretune.studies.search.next_job import Sampled, Split, Verification, some_jobs
from paretune.studies.search.table import StudyTable
from paretune.studies.trial_status import TrialStatus

_PROGRESS_EVERY_S = 60.0  # seconds between two pages that only show the progress of running jobs


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
    """Run a study; with `dry_run`, only return some of its jobs with their worst cases."""
    if not file.job.dry_run:
        return run_study_file(file)
    preview = preview_study(file)
    return CommandOutput(text=preview.text(), document=preview.document())


def run_study_file(file: StudyFile, *, say: Callable[[str], None] = say_on_stderr) -> StudyResult:
    """Start or continue a study, and return its result once it has ended. Raises the errors of `run_study`."""
    if file.job.dry_run:
        raise BadInput(["dry_run is set, but this call launches jobs: `paretune study FILE --dry_run` only shows them"])
    workplaces, file = Workplaces.of_process(), with_own_code(file)
    uncharged, file = file, file.replace(job=charged(file.job.given(), workplaces.environment))
    # The matrices of a study are small: threads of BLAS would wait for each other for most of their time.
    with workplaces.interruption.listening(), threadpool_limits(1, user_api="blas"):
        jobs = some_jobs(file)
        workplace, storage = workplaces.of(jobs[0]), storage_of(file, workplaces)
        check_study(file, jobs, workplace, say)
        workplaces.home.mkdir(parents=True, exist_ok=True)
        with (
            locked(storage, file.name, process_text()) as lock,
            closing(StudyTable(file, storage, lock, workplace.launcher.origin)) as table,
            table.reachable(),
        ):
            is_new = not any(table.trials())
            if is_new or not file.once:  # otherwise an earlier command has printed them
                remarks = [dollars_as_time(file, workplace), *remarks_on(jobs, workplace, is_new=is_new)]
                for text in filter(None, remarks):
                    say(text)
            show = live_chart() if say is say_on_stderr else None
            return StudyRun(file, table, workplace, given=uncharged, say=say, show=show).work()


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
        self._defaults = {} if file.design is not None else defaults_of(file)
        self._workplace = workplace
        self.record = StudyRecord(file, given, table, workplace)
        self.run_id = self.record.run.run_id
        for line in () if file.design is None else file.design.findings():
            say(line)
        self.driver = Driver(
            file,
            table,
            run_id=self.run_id,
            workplace=workplace,
            on_trial=self._trial_ended,
            on_wait=self._show_progress,
            say=say,
        )
        self._shown_at, self._shown = 0.0, list[Remaining]()  # progress of running jobs on the page
        self._split: Split | None = None  # the search, if it knows what to expect of configurations

    def work(self) -> StudyResult:
        """Run the study until it ends; with `once`, do what can be done now. Raises the errors of `run_study`."""
        driver, file = self.driver, self._file
        try:
            with self._table.reachable():
                driver.adopt()
                suggesting = Split(driver) if file.takes_split else Sampled(driver)
                self._split = suggesting if isinstance(suggesting, Split) else None
                if file.design is not None and not driver.trials and not driver.running:
                    refuse_expensive_rows(file, driver.money)
                verification = Verification(driver, lambda: self._answer().front)
                reason = self._spend(suggesting.propose, verification.propose)
                driver.finish()
        except CallAgain as error:
            driver.stop(error)
            if file.once:
                self._pause()
            else:
                self._leave(error)
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

    def _spend(self, search: Propose, repeat: Propose) -> str:
        """Search and repeat in turn, until neither starts a job, and return why the search starts none.

        What is left after the repeats may pay for another job of the search. Raises BudgetRefused if nothing could be
        launched, unless an answer for 0 USD is asked for.
        """
        driver, file, before = self.driver, self._file, -1
        while True:
            reason = driver.run(search)
            if not driver.trials and (driver.money.has_budget or file.job.max_cost_usd is not None):
                if file.budget_usd == 0.0 and self._split is not None:
                    return "it was given 0 USD, so nothing was run"
                raise BudgetRefused(f"nothing was launched: {reason}")
            if len(driver.trials) == before:
                return reason
            before = len(driver.trials)
            if file.judged_by is None or file.design is not None:  # one run is enough for seconds and dollars
                return reason
            driver.run(repeat)

    def _trial_ended(self, trial: Trial) -> None:
        """Print how a trial ended and update the chart; if the last page is old enough, write page and table again."""
        result = ", ".join(starmap(_in_words, trial.values.items())) or trial.reason[:120]
        outcome = f"{trial.shown_status}{': ' if result else ''}{result} ({trial.setting()})"
        self.record.is_stale = True
        repeat = "" if trial.repeats is None else f", which repeats trial {trial.repeats}:"
        progress = f"{counted([*self.driver.trials.values()])}; {self._spent()}"
        since = f"; {text}" if self._split is not None and (text := self._split.since_growth()) else ""
        self._say(f"trial {trial.number}{repeat} {outcome}; {progress}{since}")
        began = time.monotonic()
        if self._show is not None:
            self._show(self._answer())
        if self.record.is_page_due:
            self.record.write_in_passing(self._answer(), began)

    def _spent(self) -> str:
        """Return what is spent, reserved and left, in words."""
        file, text, balance = self._file, self._file.spending.text, self._table.balance()
        spent, committed, budget = balance.spent_usd, balance.committed_usd, file.budget_usd
        if file.spending.is_time:
            (spent, committed), budget = self._table.seconds(), self.driver.money.total_s
        reserved = f", reserved {text(committed)}" if committed else ""
        left = "" if budget is None else f", left {text(budget - spent - committed)}"
        return f"spent {text(spent)}{reserved}{left}"

    def _show_progress(self) -> None:
        """Write the page again if jobs have progressed since it was written, at most once a minute."""
        if not self.record.is_page_due or time.monotonic() < self._shown_at + _PROGRESS_EVERY_S:
            return
        began = self._shown_at = time.monotonic()
        progress = [left for job in self.driver.running if (left := job.remaining()) is not None]
        if progress != self._shown:
            self._shown = progress
            self.record.write_in_passing(self._answer(), began)

    def _answer(self) -> StudyAnswer:
        """Return the study's answer so far."""
        file, balance, trials = self._file, self._table.balance(), list(self.driver.trials.values())
        expected = () if self._split is None else self._split.expected()
        front = front_of(file, trials, expected=expected)
        levels = {} if file.design is None else {trial.number: file.design.levels_of(trial.point) for trial in trials}
        return StudyAnswer(
            name=file.name,
            levels=levels,
            front=front,
            budget_usd=file.budget_usd,
            budget_s=self.driver.money.total_s if file.spending.is_time else None,
            committed_usd=balance.committed_usd,
            committed_s=self._table.seconds()[1],
            n_trials=file.n_trials,
            prices=self._doubtful_prices(trials),
            search={} if file.design is not None else file.search,
            defaults=self._defaults,
            beliefs=() if self._split is None else self._split.beliefs(),
            estimated=None if self._split is None else self._split.chosen_for_nothing,
            running=tuple(job.shown() for job in self.driver.running),
        )

    def _doubtful_prices(self, trials: Sequence[Trial]) -> dict[str, str]:
        """Return remarks about prices that are unknown, old or uncertain, by instance type.

        Prices that a user gives to a simulation are not doubted: she chose them, and nobody pays them.
        """
        workplace, remarks = self.driver.workplace, dict[str, str]()
        for spec in {trial.spec.instance_type: trial.spec for trial in trials if trial.spec.has_instances}.values():
            price, region = workplace.launcher.price(spec), region_of(spec, workplace.launcher, workplace.environment)
            if price is not None and price.confidence == "user" and spec.is_simulated:
                continue
            today = date.fromtimestamp(workplace.clock.now())
            for remark in price_remarks(price, spec.instance_type, region, today):
                remarks[spec.instance_type] = remark
        return remarks

    def _finish(self, reason: str, unverified: Mapping[int, str]) -> StudyResult:
        """Write the final page, table, ranks and cost, and return the result.

        `unverified` maps the number of a configuration on the front to the reason why it has no more runs.
        """
        final = replace(self._answer(), running=None, unverified=unverified)
        self.record.write(final, is_last=True)
        if self._show is not None:
            self._show(final)
        best = final.picks[0].point if final.picks and not final.picks[0].point.is_expected else None
        if best is not None:
            usd = best.means.get(metrics.COST_USD, best.trial.cost_usd)
            values = {metrics.PICK_F1: best.means.get(metrics.F1), metrics.PICK_COST_USD: usd}
            known = {name: value for name, value in values.items() if value is not None}
            self.record.run.log_metrics(metrics.to_known_digits(known))
        self.record.end("FINISHED" if final.picks else "FAILED")
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
        open_command = self._tracking.open_command(self.run_id, view=self.run_id)
        return StudyResult(answer=final, run_id=self.run_id, ending=f"{reason}{again}", open_command=open_command)

    def _pause(self) -> None:
        """Write the results of this round, and leave the run open for the next one."""
        self.record.pause()
        with suppress(ParetuneError), self._table.reachable():
            if self.record.is_stale:
                self.record.write(self._answer(), is_last=True)
        if (virtual_clock := self._workplace.launcher.virtual_clock) is not None:
            virtual_clock.sleep(ROUND_S)  # simulates the time until the next command

    def _leave(self, error: BaseException) -> None:
        """Write the results so far and print how to continue; after Ctrl-C, also print the answer so far."""
        is_interrupted, shown = isinstance(error, (Interrupted, KeyboardInterrupt)), ""
        with suppress(ParetuneError), self._table.reachable():  # the storage itself may have failed
            if self.driver.trials:
                answer = replace(self._answer(), running=None)
                shown = f"\n{answer.text()}" if is_interrupted and answer.front.points else ""
                self.record.write(answer, is_last=True)
                shown += f"\n  {self._tracking.open_command(self.run_id, view=self.run_id)}\n" if shown else ""
            self.record.end("KILLED" if is_interrupted else "FAILED", str(error))
        if shown:  # printed last, so that a closed terminal does not leave the run open
            self._say(shown)
        if not isinstance(error, (BudgetRefused, JobFailed)):  # their messages name the next step
            self._say("the same command continues the study")


def _in_words(name: str, value: float) -> str:
    if name == metrics.COST_USD:
        return f"cost {usd(value)}"
    return f"job time {duration(value)}" if name == metrics.JOB_SECONDS else f"{name} {value:.4g}"
