"""Trains recommended points again with other seeds, until the values of each rest on three runs.

The best of many noisy values is too good by its noise; further runs of the same job are not. They also show how far
runs differ, on which every ± of the study is based. A repeat can change the recommendation: then that is repeated.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from paretune.specification.job import JobSpec
from paretune.specification.script_arguments import takes_seed
from paretune.studies.results.points import Point
from paretune.studies.results.recommendation import Pick
from paretune.studies.results.run_noise import FEWEST_EQUAL
from paretune.studies.search.driver import Driver

RUNS = 3  # runs of a recommended point that trained, each with its own seed; a run that collapsed does not count
MOST_REPEATS = 12  # of a study: twice what three recommended points need, as repeats may change the recommendation
MOST_SHARE = 1.0  # most dollars of all repeats, as a share of the dollars of the search


class Verification:
    """Begins the repeats of a study's `recommended` points, within the budget, as long as they are worth it."""

    is_repeating = True

    def __init__(self, driver: Driver, recommended: Callable[[], Sequence[Pick]]) -> None:
        self._driver = driver
        self._recommended = recommended
        self._judged, self._points = -1, list[Point]()  # bookings that the recommended points follow from, and these
        self.repeats = 0  # number of repeats that this process has begun
        self.reasons: dict[int, str] = {}  # why recommended points, by number, have fewer than three runs, in words

    def begin_next(self) -> str:
        """Start the next repeat; returns why none is started, or an empty text."""
        if self._judged != self._driver.bookings:
            self._judged, self._points = self._driver.bookings, [pick.point for pick in self._recommended()]
            self.reasons.clear()
        for point in self._points:  # the most important first
            is_lacking = point.trained + self._under_way()[point.number] < RUNS
            if is_lacking and point.number not in self.reasons and self._begin(point):
                return ""
        return "no recommended point lacks runs"

    def _under_way(self) -> Counter[int]:
        """Numbers of repeated trials to the repeats that run or are to be tried again."""
        return Counter(trial.repeats for trial in self._driver.under_way if trial.repeats is not None)

    def _begin(self, point: Point) -> bool:
        """Start a repeat of a point's job, with its changes and the next seed, or record why not."""
        driver = self._driver
        retries, trials = driver.history.retries, driver.trials.values()
        ended = [each.repeats for each in trials if each.repeats is not None and each.identity not in retries]
        repeats = ended.count(point.number) + self._under_way()[point.number]
        changes = {**driver.trials[point.number].changes, "seed": point.trial.spec.seed + repeats + 1}
        spec = driver.file.spec_at(point.trial.point).replace(**changes)
        reason = self._why_not(point, spec, repeats, len(ended))
        if not reason and driver.begin(point.trial.point, changes, point.number) is None:
            reason = "its job could not be started again"
        if reason:
            self.reasons[point.number] = reason
        self.repeats += not reason
        return not reason

    def _why_not(self, point: Point, spec: JobSpec, repeats: int, ended: int) -> str:
        """The reason why the point is not repeated as this job, in words; empty if it is."""
        driver, count = self._driver, self._under_way().total()
        if driver.money.has_budget and not driver.money.fits(spec):
            return f"another does not fit {driver.money.tightest_budget()} at its worst"
        if repeats >= RUNS:
            collapsed = f", {point.collapses} runs collapsed" if point.collapses else ""
            return f"of {repeats} repeats {len(point.trials) - 1} completed{collapsed}"
        if ended + count >= MOST_REPEATS:
            return f"a study makes {MOST_REPEATS} repeats at most"
        if self._is_without_chance(spec):
            return "the training does not depend on the seed: all repeats gave exactly the same values"
        usd = {False: 0.0, True: 0.0}  # of the search, of repeats
        for trial in driver.trials.values():
            usd[trial.repeats is not None] += trial.cost_usd or 0.0
        if usd[True] + (count + 1) * (point.usd_per_run or 0.0) > MOST_SHARE * usd[False]:
            return f"repeats would cost more than the search has cost ({usd[False]:.4g} USD)"
        return ""

    def _is_without_chance(self, spec: JobSpec) -> bool:
        """Whether all repeats (one, if it was the same command) have exactly the quality of the trial they repeat."""
        trials, quality = self._driver.trials, self._driver.file.judged_by
        metric = "" if quality is None else quality.metric
        same = [
            trial.qualities == trials[trial.repeats].qualities  # its loss, too: F1 of few rows is often the same
            for trial in trials.values()
            if trial.repeats is not None and metric in trial.values
        ]
        has_no_seed = spec.entry_script is not None and not takes_seed(spec)
        return len(same) >= (1 if has_no_seed else FEWEST_EQUAL) and all(same)
