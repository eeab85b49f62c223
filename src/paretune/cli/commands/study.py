"""The command `study`: find the front for the fewest dollars, within the budget."""

import time

from paretune.core.errors import BadInput, BudgetRefused
from paretune.jobs.preparation import inputs_of
from paretune.jobs.workplace import Workplace, Workplaces
from paretune.spec.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.search import joint
from paretune.studies.search.driver import Driver
from paretune.studies.search.joint import repeat_front
from paretune.studies.search.ledger import Ledger
from paretune.studies.search.optuna_study import OptunaStudy
from paretune.studies.search.split import search as split
from paretune.studies.search.study_run import StudyRunWriter
from paretune.studies.search.untried import some_jobs

MOST_REPEATS = 5
"""Points of the front that are trained again with another seed."""
_MOST_CHECKED = 300
"""Jobs that are asked about before a study counts as impossible."""


def run(file: StudyFile) -> int:
    """Run the study, or go on with it; several processes may, on one storage."""
    workplaces = Workplaces.of_process()
    jobs = some_jobs(file, _MOST_CHECKED)
    if not jobs:
        raise BadInput([f"search: none of {_MOST_CHECKED} points drawn makes a job: leave out what contradicts itself"])
    storage = file.storage or f"sqlite:///{workplaces.home / 'studies.db'}"
    with workplaces.interruption.listening():
        workplace = workplaces.of(jobs[0])
        tracking = workplace.tracking
        _check(jobs, workplace)
        ledger, study = Ledger(storage, file.name), OptunaStudy(file, storage)
        record = StudyRunWriter(file, ledger, tracking)
        driver = Driver(
            file,
            study,
            ledger,
            run_id=record.run_id,
            workplace=workplace,
            now=time.time,
            on_trial=record.trial_ended,
            say=record.say,
        )
        record.watch(driver)
        try:
            _drive(driver, record)
        finally:
            ledger.close()
            study.close()
    return 0


def _drive(driver: Driver, record: StudyRunWriter) -> None:
    try:
        driver.adopt()
        method = split.search if driver.file.takes_split else joint.search
        reason = method(driver)
        if not driver.trials and driver.file.budget_usd is not None:
            raise BudgetRefused(f"nothing was launched: {reason}")
        repeats = repeat_front(driver, MOST_REPEATS)
    except BaseException as error:
        driver.stop(error)
        record.interrupted(error)
        raise
    driver.finish()
    record.finish(reason, repeats)


def _check(jobs: list[JobSpec], workplace: Workplace) -> None:
    """Refuse a study none of whose jobs could run, before anything is written or paid.

    Raises:
        BadInput: what stands against the first of its jobs, or against the data that they read.
    """
    refused: BadInput | None = None
    for spec in jobs:
        try:
            workplace.launcher.check(spec)
        except BadInput as error:
            refused = refused or error
            continue
        inputs_of(spec, workplace)
        return
    if refused is not None:
        raise refused
