"""A study from its file to its answer: find the front for the fewest dollars, within the budget."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from paretune.core.errors import BadInput, BudgetRefused, CallAgain, refuse
from paretune.jobs.advice import foreseen, warnings_of, with_history
from paretune.jobs.preparation import inputs_of, known_inputs
from paretune.jobs.progress import say_on_stderr
from paretune.jobs.workplace import STORAGE_VARIABLE, Workplace, Workplaces, usual_storage
from paretune.launchers.base import Launcher
from paretune.ledger.study_ledger import StudyLedger
from paretune.specification.job import JobSpec
from paretune.specification.parameters import spell
from paretune.specification.profile import charged
from paretune.storage.address import SERVERS_ONLY, container_faults, redacted
from paretune.studies.definition.file import StudyFile
from paretune.studies.live import live_front
from paretune.studies.results.answer import StudyAnswer, StudyResult
from paretune.studies.rounds import FINISHED, SEARCHED, in_turn, note_end, noted_end
from paretune.studies.search import joint
from paretune.studies.search.driver import ROUND_S, Driver
from paretune.studies.search.optuna_study import OptunaStudy
from paretune.studies.search.split import search as split
from paretune.studies.search.study_run import StudyRunWriter
from paretune.studies.search.untried import some_jobs
from paretune.studies.verification import Verification, verify

_MOST_CHECKED = 300
"""Jobs that are asked about before a study counts as impossible."""
_MOST_WARNED = 20
"""Jobs whose estimates are made for a warning about all of them, beside one for each instance type."""


def run_study(study: str | Path, *, quiet: bool = False, **overrides: object) -> StudyResult:
    """The front that a study has found, for the fewest dollars, within its budget. Blocks until it has ended.

    The same call goes on with a study that was interrupted, and takes over its running jobs. Ctrl-C stops its jobs,
    books what they have cost and raises `Interrupted`.

    Args:
        study: path of the study's file, such as studies/smoke.yaml.
        quiet: say nothing on standard error, and show no picture of the front while the study runs in a notebook.
        overrides: what wins over the file: a term of the study such as n_trials or budget_usd, or a parameter of a job;
            for a searched one, a value ends its search and a list replaces its choices. None is no override.

    Raises:
        BadInput, TrackingUnavailable, LaunchRefused, BudgetRefused: nothing was launched.
        CallAgain: with once=True, the study has not ended; its jobs go on.
        Interrupted: what this call started has been stopped.

    Examples:
        >>> import paretune
        >>> found = paretune.run_study("studies/pareto.yaml", n_trials=6, method="joint", sampler="random", quiet=True)
        >>> {"instance_type", "cost_usd", "f1", "pareto_rank"} <= set(found.to_frame().columns)
        True
        >>> found.to_dict()["origin"]
        'simulated'
    """
    typed = {
        name: ",".join(map(spell, value)) if isinstance(value, (list, tuple)) else spell(value)
        for name, value in overrides.items()
        if value is not None
    }
    file = StudyFile.read(str(study), typed)
    if quiet:
        return run_study_file(file, say=lambda _: None)
    return run_study_file(file, on_answer=live_front())


def run_study_file(
    file: StudyFile,
    *,
    say: Callable[[str], None] = say_on_stderr,
    on_answer: Callable[[StudyAnswer], None] | None = None,
) -> StudyResult:
    """What the study has found; it is begun, or gone on with. Several processes may work on it, on one storage.

    `on_answer` gets the answer so far each time that the study's page is written anew. With `once` it is one round, and
    CallAgain is raised unless the study has ended.
    """
    workplaces = replace(Workplaces.of_process(), shows_work=say is say_on_stderr)
    own, file = file, replace(file, job=charged(file.job, workplaces.environment))
    jobs = some_jobs(file, _MOST_CHECKED)
    if not jobs:
        raise BadInput([f"search: none of {_MOST_CHECKED} points drawn makes a job: leave out what contradicts itself"])
    storage = file.storage or usual_storage(workplaces.home, workplaces.environment)
    if workplaces.environment.get(SERVERS_ONLY):
        refuse(container_faults(storage, workplaces.environment.get("MLFLOW_TRACKING_URI", "")))
    if workplaces.environment.get(STORAGE_VARIABLE):
        file, own = replace(file, storage=storage), replace(own, storage=storage)
    with workplaces.interruption.listening():
        workplace = workplaces.of(jobs[0])
        _can_be_driven(file, workplace)
        _check_budget_ledger(file, storage, workplace)
        _check(jobs, workplace)
        ledger = StudyLedger(storage, file.name)
        try:
            with in_turn(ledger, time.time) if file.once else nullcontext():
                if ledger.lease.token in {None, 1}:  # else an earlier round has said so
                    for text in _warnings(jobs, workplace):
                        say(f"warning: {text}")
                study = OptunaStudy(file, storage)
                try:
                    record = StudyRunWriter(own, ledger, workplace.tracking, say, on_answer)
                    return _work_on(file, study, ledger, workplace, record, say)
                finally:
                    study.close()
        finally:
            ledger.close()


def _work_on(
    file: StudyFile,
    study: OptunaStudy,
    ledger: StudyLedger,
    workplace: Workplace,
    record: StudyRunWriter,
    say: Callable[[str], None],
) -> StudyResult:
    driver = Driver(
        file,
        study,
        ledger,
        run_id=record.run_id,
        workplace=workplace,
        now=time.time,
        on_trial=record.trial_ended,
        say=say,
    )
    record.watch(driver)
    return drive(driver, record)


def _can_be_driven(file: StudyFile, workplace: Workplace) -> None:
    """Refuse rounds where jobs end with the process that has started them."""
    if file.once and not workplace.launcher.jobs_outlive_submitter:
        raise BadInput(
            [
                "once=true needs jobs that go on when a round has ended, and those of launcher "
                f"{workplace.launcher.name} end with it: leave out once, or take launcher sagemaker "
                "(an instance_type ml.*) or simulated"
            ]
        )


def _check_budget_ledger(file: StudyFile, storage: str, workplace: Workplace) -> None:
    """Refuse a faulty file of budgets before anything is prepared, and rounds whose budgets are in a local file.

    Rounds on several machines must not each have a ledger of their own.
    """
    budgets = workplace.budget_ledger(file.budget)
    if budgets is not None and file.once and budgets.is_local and storage.startswith("postgresql"):
        raise BadInput(
            [
                f"once=true with storage {redacted(storage)} needs the ledger of {budgets.file.path} on a server, too, "
                f"for rounds may run on several machines: it is in {budgets.shown_address}; set {STORAGE_VARIABLE}, or "
                "storage in that file"
            ]
        )


def _warnings(jobs: list[JobSpec], workplace: Workplace) -> list[str]:
    """What is true of all points of the study, and the prices of all types; the rest the search finds out."""
    types = {spec.instance_type: spec for spec in jobs}
    some = {spec.spec_hash(): spec for spec in [*jobs[:_MOST_WARNED], *types.values()]}
    known = [foreseen(spec, known_inputs(spec, workplace), workplace) for spec in some.values()]
    return warnings_of(with_history(known, workplace.tracking), only_common=True)


def drive(driver: Driver, record: StudyRunWriter) -> StudyResult:
    """Work on the study until it ends; a round, as far as can be done now.

    Raises:
        CallAgain: the round is over and the study is not; jobs go on.
        BudgetRefused, LaunchRefused, LostContact, Interrupted: see `run_study`.
    """
    try:
        return _drive(driver, record)
    except CallAgain as error:
        driver.stop(error)
        record.paused()
        pass_virtual_time(driver.workplace.launcher, ROUND_S)
        raise


def pass_virtual_time(launcher: Launcher, seconds: float) -> None:
    """Advance a simulated launcher's clock, as the time between two rounds would; real time passes by itself."""
    if launcher.virtual_clock is not None:
        launcher.virtual_clock.sleep(seconds)


def _drive(driver: Driver, record: StudyRunWriter) -> StudyResult:
    file, ledger = driver.file, driver.ledger
    try:
        with driver.study.reachable():
            driver.adopt()
            stage, ending = noted_end(ledger, file) if file.once else ("", "")
            searching = split.Split(driver) if file.takes_split else None
            if searching is not None:
                record.forecast, record.borrowed = searching.forecast, searching.borrowed
            if stage == FINISHED and not driver.running:
                driver.finish()
                return record.finished(ending)
            reason = ending if stage else joint.search(driver) if searching is None else searching.search()
            if not driver.trials and driver.admission.has_budget:
                raise BudgetRefused(f"nothing was launched: {reason}")
            if file.once and not stage and not driver.admission.is_waiting:
                note_end(ledger, file, SEARCHED, reason)
            found = verify(driver, lambda: record.answer().picks) if _has_quality(file) else Verification()
    except CallAgain:
        raise
    except BaseException as error:
        driver.stop(error)
        record.interrupted(error)
        raise
    driver.finish()
    result = record.finish(reason, found.repeats, found.reasons)
    if file.once and not driver.admission.is_waiting:
        note_end(ledger, file, FINISHED, result.ending)
    return result


def _has_quality(file: StudyFile) -> bool:
    """Whether the study is about models: seconds and dollars alone are known from one run."""
    return file.judged_by is not None


def _check(jobs: list[JobSpec], workplace: Workplace) -> None:
    """Refuse a study none of whose jobs could run, before anything is written or paid: BadInput of the first job."""
    refused = []
    for spec in jobs:
        try:
            workplace.launcher.check(spec)
        except BadInput as error:
            refused.append(error)
        else:
            inputs_of(spec, workplace)
            return
    raise refused[0]
