"""The command `study`: find the front for the fewest dollars, within the budget."""

import os
import time

from paretune import joint, split
from paretune.driver import Driver
from paretune.forecast import Forecast
from paretune.interruption import Interruption
from paretune.joint import repeat_front
from paretune.launch import home_folder
from paretune.launchers.choice import clock_for, launcher_for
from paretune.ledger import Ledger
from paretune.study import Study
from paretune.study_file import StudyFile
from paretune.study_record import StudyRecord
from paretune.tracking import Tracking
from paretune.trial_job import Place

MOST_REPEATS = 5
"""Points of the front that are trained again with another seed."""


def run(file: StudyFile) -> int:
    """Run the study, or go on with it; several processes may, on one storage."""
    environment = dict(os.environ)
    home = home_folder(environment)
    some_spec = file.spec_at({name: entry.corners[0] for name, entry in file.search.items()})
    clock = clock_for(some_spec, home)
    storage = file.storage or f"sqlite:///{home / 'studies.db'}"
    interruption = Interruption(watch_parent="MLFLOW_RUN_ID" in environment)
    with interruption.listening():
        tracking = Tracking(environment, clock)
        ledger, study = Ledger(storage, file.name), Study(file, storage)
        record = StudyRecord(file, ledger, tracking)
        place = Place(
            launcher=launcher_for(some_spec, home, clock, environment),
            tracking=tracking,
            forecast=Forecast(tracking, simulated=some_spec.is_simulated),
            home=home,
            clock=clock,
            environment=environment,
            interruption=interruption,
        )
        driver = Driver(
            file,
            study,
            ledger,
            run_id=record.run_id,
            place=place,
            now=time.time,
            on_trial=record.trial_ended,
            say=record.say,
        )
        record.watch(driver)
        try:
            driver.adopt()
            method = split.search if file.method == "split" else joint.search
            reason = method(driver)
            repeats = repeat_front(driver, MOST_REPEATS)
        except BaseException as error:
            driver.stop(error)
            record.interrupted(error)
            raise
        record.finish(reason, repeats)
    return 0
