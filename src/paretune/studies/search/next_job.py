"""The next job of a study: suggested by a sampler, a point in turn, or a further run of what is recommended.

Recommended points are trained again with other seeds, until the values of each rest on three runs. The best of many
noisy values is too good by its noise; further runs of the same job are not. They also show how far runs differ, on
which every ± of the study is based. A repeat can change the recommendation: then that is repeated.
"""

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from scipy.special import stdtrit

from paretune.core.errors import BudgetRefused, refuse
from paretune.jobs.preparation import known_inputs
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value
from paretune.specification.script_arguments import takes_seed
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices, Range, is_whole
from paretune.studies.results.points import FEWEST_EQUAL, INTERVAL, Point
from paretune.studies.results.recommendation import Pick
from paretune.studies.results.trials import PREDICTED, Trial, TrialStatus, label
from paretune.studies.sampler.candidates import Job
from paretune.studies.sampler.sampler import UNPRICED, SplitSampler
from paretune.studies.search.driver import Driver

_MOST_POINTS = 5_000  # points that are all listed; of more points, or if a range is searched, `_DRAWN` are drawn
_DRAWN = 300


class Sampled:
    """Begins the trials of a study whose sampler is not `split`.

    Points of choices are all listed if there are at most 5,000, in an order drawn by the study's seed unless the study
    keeps its own. Of others some are drawn.
    """

    is_repeating = False

    def __init__(self, driver: Driver) -> None:
        self._driver, self._money = driver, driver.money
        file, size = driver.file, driver.file.size()
        self._is_exact = size is not None and size <= _MOST_POINTS
        points = file.jobs_at(file.points_in_turn()) if self._is_exact else []
        if not file.design:
            random.Random(file.seed).shuffle(points)
        self._left = deque(points)
        self._draw = random.Random(file.seed + len(driver.trials))

    def begin_next(self) -> str:
        """Start a trial; returns why none is started, or an empty text."""
        driver = self._driver
        if reason := driver.why_over():
            return reason
        self._is_affordable = self._money.affordable()
        too_long, dear = 0, list[JobSpec]()
        for point, spec in self._candidates():
            if not driver.is_open(spec):
                continue
            if self._can_be_paid(spec):  # no trial is made before there is such a point
                if driver.file.tries_all:
                    driver.begin(point)
                else:
                    driver.start(*driver.table.ask(self._accepts, point))
                return ""
            if self._money.exceeds_limit(spec):
                too_long += 1
            else:
                dear.append(self._money.limited(spec))
        return self._why_none(too_long, dear)

    def _candidates(self) -> Iterable[tuple[dict[str, Value], JobSpec]]:
        while self._left and self._driver.history.is_closed(self._left[0][1]):  # that is looked up once
            self._left.popleft()
        file = self._driver.file
        return self._left if self._is_exact else file.jobs_at(_drawn(file, self._draw) for _ in range(_DRAWN))

    def _can_be_paid(self, spec: JobSpec) -> bool:
        return not self._money.exceeds_limit(spec) and self._is_affordable(self._money.limited(spec))

    def _accepts(self, point: Mapping[str, Value]) -> bool:
        """Whether the point makes a job that could run now, and would not be refused for its worst case or limit."""
        jobs = self._driver.file.jobs_at([dict(point)])
        return any(self._driver.is_open(spec) and self._can_be_paid(spec) for _, spec in jobs)

    def _why_none(self, too_long: int, dear: Sequence[JobSpec]) -> str:
        """The reason why there is no point, in words: jobs are too long or too dear, or all have run."""
        reason = "no point was found that was not tried"
        if dear:
            reason = self._why_too_dear(dear)
        elif self._is_exact:
            reason = f"every {'other ' * bool(too_long)}point was tried"
        limit = "that max_runtime_minutes would end by their estimates (raise it, or set force)"
        return f"{reason}; not tried: {too_long:,} {limit}" if too_long else reason

    def _why_too_dear(self, specs: Sequence[JobSpec]) -> str:
        none_fits = "no untried point fits" if self._is_exact else f"none of {len(specs):,} points drawn fits"
        worst_usd = [math.inf]
        for spec in specs:
            with suppress(BudgetRefused):  # above max_cost_usd
                worst_usd.append(self._money.worst_usd(spec) or math.inf)
        left, least_usd = self._money.tightest_budget(), min(worst_usd)
        if not left or math.isinf(least_usd):
            limit = f"{left}, or max_cost_usd," if left else "max_cost_usd"
            return f"{none_fits} {limit} with its worst case, or has a known price"
        mend = "raise that budget, or lower max_runtime_minutes, which bounds each job"
        return f"{none_fits} {left} with its worst case; the least one is {least_usd:.4g} USD: {mend}"


def some_jobs(file: StudyFile, most: int) -> list[JobSpec]:
    """Jobs of at most `most` drawn points, the first with the first value of everything; BadInput if there are none."""
    draw = random.Random(0)
    first: dict[str, Value] = {name: entry.corners[0] for name, entry in file.search.items()}
    jobs = [spec for _, spec in file.jobs_at([first, *(_drawn(file, draw) for _ in range(most - 1))])]
    refuse([] if jobs else [f"search: none of {most} points drawn makes a job: leave out what contradicts itself"])
    return jobs


def _drawn(file: StudyFile, draw: random.Random) -> dict[str, Value]:
    return {name: _value(name, entry, draw) for name, entry in file.search.items()}


def _value(name: str, entry: Choices | Range, draw: random.Random) -> Value:
    if isinstance(entry, Choices):
        return draw.choice(entry.values)
    value = entry.at(draw.random())
    return round(value) if is_whole(name, entry) else value


FIRST_PREDICTED = 1_000_000
"""Numbers of predicted points begin here, above those of all trials."""
_COMFORTABLE, _LEAST_LIMIT_S = 2.0, 900.0
"""Times what a job takes if it goes rather badly: its limit, and the least one."""
_TIGHT, _SLOW_START_S = 1.1, 60.0  # the same, and what a slow start adds at most, where dollars are short
_GUESS = 0.5  # deviation of log seconds, from which on they set no limit
_ENDS = float(stdtrit(5.0, 0.5 + INTERVAL / 2))  # standard deviations from a prediction to either end of its interval
_ENOUGH = "no job would add more to the front than it costs to find out"
_SHIFTED = "depends on the instance type by more than noise, so each type was trained on for its own"


class Split:
    """Begins the jobs that a `SplitSampler` suggests."""

    is_repeating = False

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.sampler = sampler_of(driver)
        self.sampler.accepts = self._accepts
        self._limited: dict[Any, JobSpec] = {}
        self._is_short = False  # a job was too dear

    def begin_next(self) -> str:
        """Start the next job; returns why none is started, or an empty text."""
        driver = self._driver
        if reason := driver.why_over():
            return reason
        self._limited.clear()
        self._is_short = False
        self._is_affordable = driver.money.affordable(keep_usd=self._repeats_usd())
        job = self.sampler.next_job(driver.table.study)
        if job is None:
            return self._why_none()
        limit, changes = self._limited[job.identity], dict[str, Any](job.changes)
        if limit.max_runtime_minutes < job.spec.max_runtime_minutes:
            changes["max_runtime_minutes"] = limit.max_runtime_minutes
        driver.begin(job.point, changes)
        return ""

    def forecast(self) -> list[Trial]:
        """Points that are predicted and were not run, as trials."""
        predicted = self.sampler.predicted(self._driver.table.study)
        return [self._predicted(*each, number=number) for number, each in enumerate(predicted, start=FIRST_PREDICTED)]

    def _accepts(self, job: Job) -> bool:
        """Whether a job may be begun now: its outcome is open, and the budgets cover a limit that lets it end."""
        history, taken = self._driver.history, {trial.identity for trial in self._driver.under_way}
        if job.spec.spec_hash() in taken | {*history.settled} | history.impossible:
            return False
        for limited in self._limits(job):
            if self._is_affordable(limited):
                self._limited[job.identity] = limited
                return True
        self._is_short = True
        return False

    def _limits(self, job: Job) -> list[JobSpec]:
        """The job with a comfortable limit, and with one that it will probably keep; with that of its estimate."""
        money, expected = self._driver.money, self.sampler.seconds_of(job)
        if not money.has_budget:
            return [job.spec]
        if job.is_probe and expected is None:  # one that was cut off gets twice as long
            cut_off = sum(trial.is_probe and trial.is_cut_off for trial in self._driver.trials.values())
            return self._with_limits(job, [_LEAST_LIMIT_S * 2.0**cut_off])
        if expected is None or expected[1] > _GUESS:
            return [] if money.exceeds_limit(job.spec) else [money.limited(job.spec)]
        slow_s = expected[0] * math.exp(2.0 * expected[1])
        tight_s = _TIGHT * slow_s + min(_SLOW_START_S, slow_s)
        return self._with_limits(job, [max(_LEAST_LIMIT_S, _COMFORTABLE * slow_s), tight_s])

    @staticmethod
    def _with_limits(job: Job, seconds: Sequence[float]) -> list[JobSpec]:
        most = job.spec.max_runtime_minutes
        return [job.spec.replace(max_runtime_minutes=min(most, math.ceil(each / 6) / 10)) for each in seconds]

    def _repeats_usd(self) -> float:
        """Dollars that the search leaves for two further runs of the dearest trial of the front so far."""
        front = self._driver.history.front
        return 2.0 * max((trial.cost_usd or 0.0 for trial in front), default=0.0)

    def _why_none(self) -> str:
        driver = self._driver
        if self._is_short and (left := driver.money.tightest_budget()):
            return f"no worthwhile job fits {left} with its worst case and the repeats of what is recommended"
        quality = driver.file.judged_by
        name = quality.metric if quality is not None else ""
        if driver.running or any(name in trial.values for trial in driver.trials.values()):
            return _ENOUGH + (f"; {label(name)} {_SHIFTED}" if self.sampler.depends_on_type else "")
        return f"no training has measured {label(name)}"

    def _predicted(self, job: Job, belief: Any, *, number: int) -> Trial:
        """A candidate as a trial that was only predicted."""
        quality = self._driver.file.judged_by
        assert quality is not None  # else nothing is split

        def values(deviations: float) -> dict[str, float]:
            seconds = belief.seconds * math.exp(deviations * belief.log_deviation)
            reached = quality.sign * (belief.mean + deviations * belief.deviation)
            measured = dict.fromkeys((metrics.JOB_SECONDS, metrics.BILLABLE_SECONDS, metrics.TRAIN_SECONDS), seconds)
            measured[metrics.COST_USD] = seconds * self.sampler.price_of(job.spec)
            measured[quality.metric] = min(max(reached, quality.lowest), quality.highest)
            return self._driver.table.values({name: float(value) for name, value in measured.items()})

        low, high = values(-_ENDS), values(_ENDS)
        return Trial(
            number=number,
            point=job.point,
            given=job.spec.changed(),
            status=TrialStatus.COMPLETED,
            values=values(0.0),
            origin=PREDICTED,
            intervals={name: (min(low[name], high[name]), max(low[name], high[name])) for name in low},
            collapse_probability=round(1.0 - float(belief.chance), 4),
        )


def sampler_of(driver: Driver) -> SplitSampler:
    """The sampler of a study, with the prices of its launcher and the rows of its data as far as they are known."""
    file, workplace = driver.file, driver.workplace

    def price_of(spec: JobSpec) -> float:
        return (workplace.launcher.price(spec) or UNPRICED).cost_usd(1.0, spec.instance_count)

    return SplitSampler(
        file.job,
        driver.table.distributions,
        objectives=list(file.objectives),
        price_of=price_of,
        rows=_rows(file, driver),
        metric=file.judged_by.metric if file.judged_by is not None else None,
        constraints=file.constraints,
    )


def _rows(file: StudyFile, driver: Driver) -> float | None:
    """Training rows of the whole data set, as it was prepared; None if nobody has counted them."""
    if file.is_own or file.job.max_train_samples is not None:
        return None
    prepared = known_inputs(file.job, driver.workplace).dataset
    return None if prepared is None else float(prepared.facts["train_rows"])


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
