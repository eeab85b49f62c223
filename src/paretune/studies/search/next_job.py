"""Proposes the next job of a study: from a sampler, from a list of points, or as a repeat of a recommended point."""

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from statistics import fmean, median
from typing import Any

from scipy.special import stdtrit

from paretune.core.errors import BudgetRefused, refuse
from paretune.estimating.forecast import Forecast
from paretune.estimating.workload import PROBE_STEPS
from paretune.jobs.preparation import inputs_of
from paretune.presentation.text import duration, limit_usd, usd
from paretune.pricing import cost_usd
from paretune.specification import metrics
from paretune.specification.declaration import Value
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.objectives import costs
from paretune.studies.definition.space import Range, is_whole
from paretune.studies.results.configurations import Configuration
from paretune.studies.results.front import StudyFront, front_of
from paretune.studies.results.noise import INTERVAL
from paretune.studies.results.recommendation import pick
from paretune.studies.results.trials import EXPECTED, Trial, label
from paretune.studies.sampler.belief import Expected
from paretune.studies.sampler.candidates import PROBE, Candidate
from paretune.studies.sampler.decision import LONGER, ExpectedSeconds
from paretune.studies.sampler.sampler import UNPRICED, SplitSampler
from paretune.studies.search.driver import Driver, Start
from paretune.studies.search.ended_trials import EndedTrials
from paretune.studies.search.limits import LEAST_OF_ALL_S, LEAST_S
from paretune.studies.search.money import MAX_COST
from paretune.studies.trial_status import TRIES, TrialStatus

# With more points than this and no design, or a searched range, points are not listed: `_DRAWN` of them are drawn.
_MOST_POINTS = 5_000
_DRAWN = 300
FIRST_EXPECTED = 1_000_000
"""Configurations that have not been trained are numbered from here, above the numbers of all trials."""
# Number of standard deviations from an expected value to each end of its interval (Student's t, 5 degrees of freedom).
_ENDS = float(stdtrit(5.0, 0.5 + INTERVAL / 2))
RUNS_OF_PICK, RUNS_OF_FRONT, RUNS_OF_NOISY_PICK = 2, 2, 3
"""Runs that the recommended configuration should get, each with its own seed; and if runs are noisy, those of the
others on the front, then of the recommended one. Collapsed runs do not count. On the drawn studies of
benchmarks/search_statements.py, repeats of the whole front cost a third of the search, and these half of that."""
_NOISY = 0.25  # runs are noisy if the noise of one is above this share of the spread: the best less the median quality
_JOBS_FIRST = 4
"""Completed trainings after which the search leaves dollars for a repeat. Before, another configuration shows more."""
_SHARE_OF_FIRST = 1 / 3
"""Share of the budget that the worst case of a job of the user's own code may have while no job has completed. Nothing
is known of its seconds, so its own limit may cost more than the budget although it ends soon."""
_LONGER = 1.25  # a limit that is less than this multiple of one at which a job was cut off would cut off another one
_FIRST_JOBS = 2
"""Trainings that start before one has begun to train: a script that crashes at once costs no more of them."""
MOST_REPEATS = 12  # limit on a study's repeats
_SHARE_OF_BUDGET = 0.1
"""All repeats together may cost as much as the search has or, if that is more, this share of the study's budget."""


class Sampled:
    """Proposes the jobs of a study whose sampler is not `split`: points from one of Optuna's samplers, or all in turn.

    The rows of a design are listed in their own order. If no range is searched and there are at most 5,000 points, they
    are listed in a random order set by the study's seed. Otherwise points are drawn at random. A trial starts only if
    the budgets cover one of these points. For a design and with the sampler `grid`, the trial gets this point.
    Otherwise one of Optuna's samplers chooses the trial's point, see `StudyTable.ask`.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver, self._money = driver, driver.money
        file, size = driver.file, driver.file.size()
        self._is_exact = file.design is not None or (size is not None and size <= _MOST_POINTS)
        points = file.jobs_at() if self._is_exact else []
        if not file.design:
            random.Random(file.seed).shuffle(points)
        self._left = deque(points)
        self._draw = random.Random(file.seed + len(driver.trials))

    def propose(self) -> Start | str:
        """Return the next job, or the reason why there is none."""
        driver, file = self._driver, self._driver.file
        if reason := driver.why_over():
            return reason
        self._is_affordable = self._money.affordable()
        while self._left and not self._is_open(self._left[0][1]):  # do not recheck points that are done
            self._left.popleft()
        drawn = (_drawn(file, self._draw) for _ in range(_DRAWN))
        too_long, too_expensive = 0, list[JobSpec]()
        for point, spec in self._left if self._is_exact else file.jobs_at(drawn):
            if not self._is_open(spec):
                continue
            if self._can_be_paid(spec):  # create a trial only if the budgets cover some point
                return Start(point, accepts=None if file.tries_all else self._accepts)
            if self._money.limits.exceeds(spec):
                too_long += 1
            else:
                too_expensive.append(self._money.limits.shortest(spec))
        tried = f"every {'other ' * bool(too_long)}point was tried"
        reason = tried if self._is_exact else "no new point was found"
        if too_expensive:
            none_fits = f"none of the {len(too_expensive):,} points drawn has a worst case that fits"
            if self._is_exact:
                none_fits = "no remaining point's worst case fits"
            reason = f"{none_fits} {_with_remedy(self._money.limit_below(too_expensive))}"
        if not too_long:
            return reason
        skipped = "1 point was skipped because its estimate exceeds"
        if too_long > 1:
            skipped = f"{too_long:,} points were skipped because their estimates exceed"
        return f"{reason}; {skipped} {LONGER}"

    def _is_open(self, spec: JobSpec) -> bool:
        return spec.spec_hash() not in self._driver.ended.failed and not self._driver.why_not(spec)

    def _can_be_paid(self, spec: JobSpec) -> bool:
        return not self._money.limits.exceeds(spec) and self._is_affordable(self._money.limits.shortest(spec))

    def _accepts(self, point: Mapping[str, Value]) -> bool:
        """Return whether a point's job may run now and should end in time, and the budgets cover its worst case."""
        jobs = self._driver.file.jobs_at([point])
        return any(self._is_open(job) and self._can_be_paid(job) for _, job in jobs)


def _with_remedy(limit: str) -> str:
    """Return a limit from `Money.limit_below`, followed by what to change so that more jobs start."""
    raised = "it" if limit == MAX_COST else "the budget"
    return f"{limit}: raise {raised}, or lower max_runtime_minutes, which bounds each job"


def some_jobs(file: StudyFile) -> list[JobSpec]:
    """Return the jobs of a design's rows. Without a design, return those of up to `_DRAWN` points.

    The first point has the first value of each parameter; the others are random. A job that is drawn several times is
    returned once. Raises BadInput if none of the points makes a valid job.
    """
    if file.design is not None:
        return [spec for _, spec in file.jobs_at()]
    draw = random.Random(0)
    first: dict[str, Value] = {name: entry.corners[0] for name, entry in file.search.items()}
    points = [first, *(_drawn(file, draw) for _ in range(_DRAWN - 1))]
    different = {repr(point): point for point in points}.values()
    jobs = list({spec.spec_hash(): spec for _, spec in file.jobs_at(different)}.values())
    remedy = "remove the values that contradict each other"
    refuse([] if jobs else [f"search: none of the {_DRAWN} points tried makes a valid job: {remedy}"])
    return jobs


def _drawn(file: StudyFile, draw: random.Random) -> dict[str, Value]:
    point: dict[str, Value] = {}
    for name, entry in file.search.items():
        value = entry.at(draw.random()) if isinstance(entry, Range) else draw.choice(entry.values)
        point[name] = round(value) if isinstance(entry, Range) and is_whole(name, entry) else value
    return point


class Split:
    """Proposes jobs that a `SplitSampler` suggests and the budgets cover, and sets their time limits."""

    def __init__(self, driver: Driver) -> None:
        self._driver, file, launcher = driver, driver.file, driver.workplace.launcher
        self._forecast = Forecast(None)  # without recorded runs: the search itself learns from those of the study
        rows = None  # of the whole data set, if it was prepared
        if not file.job.runs_user_code and file.job.max_train_samples is None:
            dataset = inputs_of(file.job, driver.workplace, prepare=False).dataset
            rows = None if dataset is None else float(dataset.facts["train_rows"])
        self.sampler = SplitSampler(
            file.job,
            driver.table.distributions,
            objectives=driver.table.objectives,
            price_of=lambda spec: (launcher.price(spec) or UNPRICED).cost_usd(1.0, spec.instance_count),
            rows=rows,
            metric=file.judged_by.metric if file.judged_by is not None else None,
            constraints=file.constraints,
            stop=file.stop == "auto",
            estimated=self._estimated_s,
        )
        self.sampler.accepts = self._accepts
        self._limited: dict[Any, JobSpec] = {}  # accepted jobs with their time limits, by identity
        self._too_expensive = list[JobSpec]()  # training jobs that were too expensive, with their shortest limits
        self._left_usd = math.inf  # of the study's own budget
        self._cut_off_minutes = 0.0  # the longest limit at which a job of the study was cut off
        self._is_too_long = False  # whether the estimate of a job exceeded its own time limit

    def _estimated_s(self, job: Candidate) -> tuple[float, float] | None:
        """Return what is estimated of a script from its text: its seconds, and the upper end of their interval."""
        workplace = self._driver.workplace
        inputs = inputs_of(job.spec, workplace, prepare=False)
        estimate = self._forecast.of(job.spec, inputs, workplace.launcher.price)
        return None if estimate is None else (estimate.time.seconds, estimate.time.seconds_high)

    def propose(self) -> Start | str:
        """Return the next job, or the reason why there is none."""
        driver = self._driver
        if reason := driver.why_over():
            return reason
        self._limited.clear()
        if (budget_usd := driver.money.total_usd) is not None:
            self._left_usd = driver.table.balance().left_usd(budget_usd)
        cut_off = (trial for trial in driver.trials.values() if trial.status is TrialStatus.CUT_OFF)
        self._cut_off_minutes = max((trial.spec.max_runtime_minutes for trial in cut_off), default=0.0)
        self._too_expensive.clear()
        self._is_too_long = False
        self._keep_usd = self._usd_of_repeat() if len(driver.ended.completed) >= _JOBS_FIRST else 0.0
        self._is_affordable = driver.money.affordable(keep_usd=self._keep_usd)
        job = self.sampler.next_job(driver.table.study)
        if job is None:
            return self._why_none()
        limit, changes = self._limited[job.identity], dict[str, Any]({PROBE: PROBE_STEPS} if job.is_probe else {})
        if driver.money.has_budget:  # overrides the limit from the estimate, because jobs have measured the speed
            changes["max_runtime_minutes"] = limit.max_runtime_minutes
        remark = ""
        if limit in self._within_share(job):
            own, given = (duration(60 * each.max_runtime_minutes) for each in (job.spec, limit))
            takes = "take" if driver.file.spending.is_time else "cost"
            remark = (
                f"it gets {given}, not {own}, because no job of this code has completed, and one of {own} could "
                f"{takes} more than the budget; if it is cut off, the next one gets more"
            )
        return Start(job.point, changes, remark=remark)

    def _usd_of_repeat(self) -> float:
        """Return the worst case of a repeat of the recommended configuration; 0 if it has enough runs, or none fits."""
        file, money = self._driver.file, self._driver.money
        front = front_of(file, [*self._driver.trials.values()])
        if not front.feasible or (taken := pick(front)).trained >= RUNS_OF_PICK:
            return 0.0
        with suppress(BudgetRefused):
            spec = file.spec_at(taken.trial.point).replace(**_changes_of_repeat(taken.trial))
            shortest = money.limits.shortest(spec)
            return (money.worst_usd(shortest) or 0.0) if money.affordable()(shortest) else 0.0
        return 0.0

    def since_growth(self) -> str:
        """Say what was spent since the front last grew; return an empty string if that is nothing, or unknown."""
        driver, spent_usd = self._driver, self.sampler.since_growth_usd(self._driver.table.study)
        if not spent_usd or not driver.file.spending.is_time:
            return f"the front has not grown for {usd(spent_usd)}" if spent_usd else ""
        per_second = cost_usd(driver.workplace.launcher.price(driver.file.job), 1.0, 1)
        return f"the front has not grown for {duration(spent_usd / per_second)} of job time" if per_second else ""

    def beliefs(self) -> list[str]:
        """Describe each belief of the search: the weight that was assumed before any run, and the learned one."""
        beliefs = self.sampler.beliefs(self._driver.table.study).items()
        return [f"{name}: assumed {a:.3g} ± {b:.2g}, learned {c:.3g} ± {d:.2g}" for name, (a, b, c, d) in beliefs]

    def expected(self) -> list[Configuration]:
        """Return the configurations that have not been trained, with what the search believes of them."""
        expected = self.sampler.expected(self._driver.table.study)
        return [self._expected(each, number) for number, each in enumerate(expected, start=FIRST_EXPECTED)]

    @cached_property
    def chosen_for_nothing(self) -> Mapping[str, Value] | None:
        """The point that the answer for 0 USD recommends: that of the estimate; None if nothing was known."""
        estimated = self.sampler.estimated(self._driver.table.study)
        expected = [self._expected(each, number) for number, each in enumerate(estimated, start=FIRST_EXPECTED)]
        front = front_of(self._driver.file, (), expected=expected)
        return pick(front).trial.point if front.expected_best else None

    def _accepts(self, job: Candidate, expected: ExpectedSeconds) -> bool:
        """Return whether a job may start now: `Driver.why_not` has no reason, and the budgets cover its worst case.

        The worst case depends on the time limit. The first limit in `_limits` that the budgets cover is stored.
        """
        if self._driver.why_not(job.spec) or (not job.is_probe and self._waits):
            return False
        limits = self._limits(job, expected)
        limited = next(filter(self._is_affordable, limits), None)
        if limited is None:
            if not job.is_probe:  # without a probe, the search continues with training jobs
                self._too_expensive += limits[-1:]
                self._is_too_long |= not limits
            return False
        self._limited[job.identity] = limited
        return True

    def _limits(self, job: Candidate, expected: ExpectedSeconds) -> list[JobSpec]:
        """Return the job with each time limit to try, see `Limits.of`; none if its estimate exceeds its own limit."""
        limits = self._driver.money.limits
        found = [] if limits.exceeds(job.spec, expected) else limits.of(job.spec, expected)
        return found + self._within_share(job) if found else []

    def _within_share(self, job: Candidate) -> list[JobSpec]:
        """Return a job of the user's own code with the limits that a share of the budget, then all that is left, cover.

        The share is `_SHARE_OF_FIRST`, but its limit is at least `LEAST_S`, and at least twice that of a job that was
        cut off. Return nothing if any job has completed.
        """
        money, spec, budget_usd = self._driver.money, job.spec, self._driver.money.total_usd
        minutes, cut_off = spec.max_runtime_minutes, self._cut_off_minutes
        if budget_usd is None or not spec.runs_user_code or self._driver.ended.completed:
            return []
        with suppress(BudgetRefused):
            whole_usd, half_usd = (money.worst_usd(spec.replace(max_runtime_minutes=m)) for m in (minutes, minutes / 2))
            if whole_usd is None or half_usd is None or whole_usd <= half_usd:
                return []
            dollars = _SHARE_OF_FIRST * budget_usd, self._left_usd
            shorter = ((whole_usd - each) / (whole_usd - half_usd) * minutes / 2 for each in dollars)
            share, most = (math.floor(10 * (minutes - each)) / 10 for each in shorter)
            least = max(LEAST_OF_ALL_S / 60, _LONGER * cut_off)
            limits = dict.fromkeys((max(share, LEAST_S / 60, 2 * cut_off), most))
            return [spec.replace(max_runtime_minutes=limit) for limit in limits if least <= limit < minutes]
        return []

    @property
    def _waits(self) -> bool:
        """Whether no further training starts until one has begun to train, see `_FIRST_JOBS`."""
        trainings = [job for job in self._driver.running if not job.trial.is_probe]
        is_known = bool(self._driver.ended.completed) or any(job.has_begun for job in trainings)
        return not is_known and len(trainings) >= _FIRST_JOBS

    def _why_none(self) -> str:
        driver = self._driver
        if limit := driver.money.limit_below(self._too_expensive):
            has_completed = bool(driver.ended.completed)
            shown = limit if has_completed and limit != MAX_COST else _with_remedy(limit)
            if driver.file.spending.is_time:
                return f"no {'worthwhile ' * has_completed}job, up to its time limit, fits {shown}"
            text = f"no {'worthwhile ' * has_completed}job's worst case fits {shown}"
            if self._keep_usd and limit != MAX_COST:
                text += f", which must also cover a repeat of the recommended one ({usd(self._keep_usd)})"
            least_usd = self._least_usd()
            return text if least_usd is None else f"{text}; the cheapest may cost {limit_usd(least_usd)}"
        if self._is_too_long:
            return f"the estimates of all {'worthwhile ' * bool(driver.ended.completed)}jobs exceed {LONGER}"
        quality = driver.file.judged_by
        name = quality.metric if quality is not None else ""
        if reason := self.sampler.why_done(driver.table.study):
            return reason
        if driver.running or any(name in trial.values for trial in driver.trials.values()):
            return "the next job depends on those that are running"
        return f"no training run has measured {label(name)}"

    def _expected(self, believed: Expected, number: int) -> Configuration:
        ran = [(trial.measured.get(metrics.JOB_SECONDS), trial.billed_s) for trial in self._driver.ended.completed]
        waited = [whole_s - billed_s for whole_s, billed_s in ran if whole_s is not None and billed_s is not None]
        waited_s = max(fmean(waited), 0.0) if waited else 0.0  # for instances, which is not billed
        quality = self._driver.file.judged_by
        assert quality is not None  # the split sampler needs a quality metric

        def values(deviations: float) -> dict[str, float]:
            slower = math.exp(deviations * believed.log_deviation)
            seconds = believed.seconds * slower
            measured = {metrics.JOB_SECONDS: seconds + waited_s, metrics.BILLABLE_SECONDS: seconds}
            measured[metrics.TRAIN_SECONDS] = believed.train_seconds * slower
            measured[metrics.COST_USD] = seconds * self.sampler.price_of(believed.job.spec)
            if believed.is_absolute:
                reached = quality.sign * (believed.mean + deviations * believed.deviation)
                measured[quality.metric] = min(max(reached, quality.lowest), quality.highest)
            wanted = self._driver.table.values(measured)
            return {name: measured[name] for name in (metrics.COST_USD, metrics.JOB_SECONDS)} | wanted

        low, high = values(-_ENDS), values(_ENDS)
        trial = Trial(
            number=number,
            point=believed.job.point,
            given=believed.job.spec.given_text(),
            status=TrialStatus.COMPLETED,
            values=values(0.0),
            origin=EXPECTED,
            intervals={name: (min(low[name], high[name]), max(low[name], high[name])) for name in low},
            collapse_probability=round(believed.collapse, 4),
        )
        return Configuration(
            trial=trial,
            trials=(),
            means=trial.values,
            errors={},
            evidence=believed.evidence,
            believed=quality.sign * believed.cautious,
        )

    def _least_usd(self) -> float | None:
        """Return the lowest worst case of the trainings that were too expensive; None if it is unknown."""
        known = list[float]()
        for spec in self._too_expensive:
            with suppress(BudgetRefused):
                known.append(self._driver.money.worst_usd(spec) or math.inf)
        least_usd = min(known, default=math.inf)
        return None if math.isinf(least_usd) else least_usd


def _changes_of_repeat(trial: Trial) -> dict[str, Any]:
    """Return the changes to a trial's parameters that its repeats share.

    They leave out the time limit: `Limits` sets another from the trial's seconds.
    """
    return {name: value for name, value in trial.changes.items() if name != "max_runtime_minutes"}


def wanted(front: StudyFront) -> list[tuple[Configuration, int]]:
    """Return the configurations to repeat and how many runs each should have, the most important first.

    The recommended configuration gets a second run. One of the front whose runs have all collapsed is run until one
    does not. If runs are noisy (`_NOISY`), all others on the front get a second run, those with the best quality first,
    and then the recommended one a third.
    """
    if not front.feasible:
        return []
    taken, name = pick(front), front.quality
    first = [(taken, RUNS_OF_PICK), *((point, 1) for point in front.best)]
    if name is None or taken.trained < RUNS_OF_PICK or name not in front.noises or len(front.feasible) < 2:
        return first
    goal = {name: front.objectives[name]}
    best_first = sorted(front.best, key=lambda point: (costs(point.means, goal), point.number))
    losses = [costs(point.means, goal)[0] for point in front.feasible]
    if front.noises[name].of_one_run(taken.means[name]) <= _NOISY * (median(losses) - min(losses)):
        return first
    return [*first, *((point, RUNS_OF_FRONT) for point in best_first), (taken, RUNS_OF_NOISY_PICK)]


class Verification:
    """Proposes repeats of the configurations in `wanted` with other seeds, within the budget.

    The best of many noisy results is best partly by luck. Repeats of its job are not chosen by their results, so they
    are not biased. Repeats also show how much runs differ, and every ± of the study is based on that. After each
    repeat, the front and the configuration to take are determined again.
    """

    def __init__(self, driver: Driver, front: Callable[[], StudyFront]) -> None:
        self._driver = driver
        self._front = front
        self._judged: EndedTrials | None = None  # the ended trials that `_wanted` follows from
        self._wanted = list[tuple[Configuration, int]]()
        self.reasons: dict[int, str] = {}  # number of a configuration to the reason why it has fewer runs than wanted

    def propose(self) -> Start | str:
        """Return the next repeat, or the reason why there is none."""
        driver = self._driver
        if self._judged is not driver.ended:
            self._judged, self._wanted = driver.ended, wanted(self._front())
            self.reasons.clear()
        under_way = Counter(trial.repeats for trial in driver.under_way if trial.repeats is not None)
        for point, runs in self._wanted:
            if point.trained + under_way[point.number] >= runs or point.number in self.reasons:
                continue
            proposal = self._repeat(point, under_way[point.number], under_way.total())
            if isinstance(proposal, Start):
                return proposal
            self.reasons[point.number] = proposal
        return "no configuration on the front needs, or can get, another run"

    def _repeat(self, point: Configuration, under_way: int, all_under_way: int) -> Start | str:
        """Return a repeat of a point's job with the next seed, or the reason why there is none.

        `under_way` counts the repeats of this point that are running or wait for a retry, `all_under_way` those of all
        points.
        """
        driver, trials, quality = self._driver, self._driver.trials.values(), self._driver.file.judged_by
        repeating = [trial for trial in trials if trial.repeats is not None]
        ended = [trial.repeats for trial in repeating if trial.computation not in driver.ended.retries]
        repeats = ended.count(point.number) + under_way
        seed = (point.trial.spec.seed + repeats + 1) % 2**32
        changes = {**_changes_of_repeat(driver.trials[point.number]), "seed": seed}
        spec, is_affordable = driver.file.spec_at(point.trial.point).replace(**changes), driver.money.affordable()
        repeats_usd = sum(trial.cost_usd or 0.0 for trial in repeating)
        search_usd = sum(trial.cost_usd or 0.0 for trial in trials) - repeats_usd
        most_usd = max(search_usd, _SHARE_OF_BUDGET * (driver.money.total_usd or 0.0))
        limits = driver.money.limits.of(spec)
        limited = next(filter(is_affordable, limits), None)
        if limited is None:
            return f"the worst case of another run does not fit {driver.money.limit_below(limits[-1:])}"
        if 1 + repeats >= TRIES.repeated:
            collapsed = f", {point.collapses} run{'s' * (point.collapses != 1)} collapsed" if point.collapses else ""
            return f"{len(point.trials) - 1} of {repeats} repeats completed{collapsed}"
        if len(ended) + all_under_way >= MOST_REPEATS:
            return f"a study runs at most {MOST_REPEATS} repeats"
        if quality is not None and point.errors.get(quality.metric) == 0:
            same = "all repeats gave exactly the same values"
            return (
                f"the training does not depend on the seed: {same}"
                if point.trial.takes_seed
                else f"it gets no seed, and {same}"
            )
        if repeats_usd + (all_under_way + 1) * point.means.get(metrics.COST_USD, 0.0) > most_usd:
            return f"all repeats together may not cost more than {usd(most_usd)}"
        if reason := driver.why_not(spec):
            return reason
        if driver.money.has_budget:
            changes["max_runtime_minutes"] = limited.max_runtime_minutes
        return Start(point.trial.point, changes, point.number)
