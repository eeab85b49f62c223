"""Trains recommended points again with other seeds, until the values of each rest on three runs.

The best of many noisy values is too good by its noise; further runs of the same job are not. They also show how far
runs differ, on which every ± of the study is based. A repeat can change the recommendation: then that is repeated.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from paretune.specification.script_arguments import takes_seed
from paretune.studies.results.points import Point
from paretune.studies.results.recommendation import Pick
from paretune.studies.results.run_noise import FEWEST_EQUAL
from paretune.studies.results.trials import Trial
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

    def _ended(self) -> list[Trial]:
        """Repeats that have ended and are not tried again."""
        retries, trials = self._driver.history.retries, self._driver.trials.values()
        return [trial for trial in trials if trial.repeats is not None and trial.identity not in retries]

    def _begin(self, point: Point) -> bool:
        """Start a repeat of a point's job, with its changes and the next seed, or record why not."""
        driver = self._driver
        repeats = sum(trial.repeats == point.number for trial in self._ended()) + self._under_way()[point.number]
        changes = {**driver.trials[point.number].changes, "seed": point.trial.spec.seed + repeats + 1}
        reason = self._why_not(point, changes, repeats)
        if not reason:
            if driver.begin(point.trial.point, changes, point.number) is not None:
                self.repeats += 1
                return True
            reason = "its job could not be started again"
        self.reasons[point.number] = reason
        return False

    def _why_not(self, point: Point, changes: Mapping[str, object], repeats: int) -> str:
        """The reason why the point is not repeated, in words; empty if it is."""
        driver = self._driver
        spec = driver.file.spec_at(point.trial.point).replace(**changes)
        if driver.money.has_budget and not driver.money.fits(spec):
            return f"another does not fit {driver.money.tightest_budget()} at its worst"
        if repeats >= RUNS:
            collapsed = f", {point.collapses} runs collapsed" if point.collapses else ""
            return f"of {repeats} repeats {len(point.trials) - 1} completed{collapsed}"
        count = self._under_way().total()
        if len(self._ended()) + count >= MOST_REPEATS:
            return f"a study makes {MOST_REPEATS} repeats at most"
        if self._is_without_chance(point):
            return "the training does not depend on the seed: all repeats gave exactly the same value"
        search_usd = sum(trial.cost_usd or 0.0 for trial in driver.trials.values() if trial.repeats is None)
        spent_usd = sum(trial.cost_usd or 0.0 for trial in driver.trials.values() if trial.repeats is not None)
        if spent_usd + (count + 1) * (point.usd_per_run or 0.0) > MOST_SHARE * search_usd:
            return f"repeats would cost more than the search has cost ({search_usd:.4g} USD)"
        return ""

    def _is_without_chance(self, point: Point) -> bool:
        """Whether all repeats (one, if it was the same command) have exactly the quality of the trial they repeat."""
        driver = self._driver
        spec = driver.file.spec_at(point.trial.point)
        fewest = 1 if spec.entry_script is not None and not takes_seed(spec) else FEWEST_EQUAL
        metric = driver.file.judged_by.metric if driver.file.judged_by else ""
        pairs = [
            (trial.values[metric], driver.trials[trial.repeats].values.get(metric))
            for trial in driver.trials.values()
            if trial.repeats is not None and metric in trial.values
        ]
        return len(pairs) >= fewest and all(value == first for value, first in pairs)
