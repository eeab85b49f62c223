"""Begins the trials of a study, whatever suggests them, until nothing is worth its dollars."""

from collections.abc import Mapping, Sequence

from paretune.ledger.trial_entry import TrialStatus
from paretune.specification.parameters import Value
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.trials import Trial
from paretune.studies.search.default_job import default_point
from paretune.studies.search.driver import MOST_REFUSALS, Driver
from paretune.studies.search.split import Split
from paretune.studies.search.untried import UntriedPoints

FEWEST_WITHOUT = 2  # completed trials that all lack an objective, after which a study ends


def search(driver: Driver, suggesting: "Split | Points") -> str:
    """Try points until the study is over; returns why, in words."""
    reason, judged = "", driver.history.booking_order
    while True:
        if judged != driver.history.booking_order:  # what has ended may have left dollars, or is to be tried again
            reason, judged = "", driver.history.booking_order
        while not reason and driver.has_free_slot():
            driver.workplace.interruption.check()
            if not driver.start_retry():
                reason = _over(driver) or suggesting.begin_next()
        driver.poll()
        if reason and not driver.running and not driver.history.retries and judged == driver.history.booking_order:
            return reason
        driver.wait()
        if driver.history.next_retry(driver.workplace.clock.now()) is not None:
            reason = ""


class Points:
    """Suggests the points of one of Optuna's samplers; every point in turn for `grid` and `points`."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._untried = UntriedPoints(driver)
        self._refused = 0

    def begin_next(self) -> str:
        """Start a trial; returns why none is started, or an empty text."""
        driver, tries_all = self._driver, self._driver.file.tries_all
        point = self._untried.next_point()  # no trial is made before it is known that one can be paid
        if point is None:
            return self._untried.why_exhausted()
        self._is_affordable = driver.admission.affordable()
        if not tries_all and not driver.history.booking_order and not driver.running:
            first = default_point(driver)
            if first is not None and self._can_be_paid(first) and driver.begin(first) is not None:
                return ""
        if not tries_all and self._refused < MOST_REFUSALS:
            number, suggested = driver.study.ask(self._can_be_paid, point)
            self._refused = 0 if driver.start(number, suggested) else self._refused + 1
        elif driver.begin(point) is not None:
            self._refused = MOST_REFUSALS // 2
        return ""

    def _can_be_paid(self, point: Mapping[str, Value]) -> bool:
        """Whether the point makes a job that could run now, and would not be refused for its worst case or limit."""
        driver, worst_case = self._driver, self._driver.admission.worst_case
        jobs = driver.file.jobs_at([dict(point)])
        return bool(jobs) and all(
            driver.is_open(spec)
            and self._is_affordable(worst_case.limited(spec))
            and not worst_case.exceeds_limit(spec)
            for _, spec in jobs
        )


def _over(driver: Driver) -> str:
    """The reason why a study begins no further trial, whatever suggests it; empty while it may."""
    absent = lacks_objective(list(driver.trials.values()), driver.history.measured, driver.file)
    under_way = sum(job.counts for job in driver.running)
    if driver.admission.has_enough(driver.history.counted + under_way):
        return absent or f"{driver.file.n_trials} trials were made"
    return absent


def lacks_objective(trials: Sequence[Trial], measured: Mapping[int, Mapping[str, float]], file: StudyFile) -> str:
    """The reason why no trial will ever have all objectives, in words; empty while one may.

    A training of the user's own that has completed twice without logging a metric will not log it the next time.
    `measured` has the number of a completed trial to all that it has logged.
    """
    if not file.is_own:
        return ""
    done = [trial for trial in trials if trial.status is TrialStatus.COMPLETED and trial.number in measured]
    if len(done) < FEWEST_WITHOUT:
        return ""
    absent = [name for name in file.objectives if not any(name in trial.values for trial in done)]
    if not absent:
        return ""
    logged = ", ".join(sorted({name for trial in done for name in measured[trial.number]} - {*file.objectives}))
    return (
        f"{len(done)} jobs have completed and none has logged {' or '.join(absent)}, which is an objective; what they "
        f"have logged beside the others is {logged or 'nothing'}: name one of these in objectives"
    )
