"""`sampler: split` at work on a study: which of its suggestions can be paid, with which limit, and what it predicts."""

import math
from collections.abc import Sequence
from typing import Any

from scipy.special import stdtrit

from paretune.jobs.preparation import known_inputs
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.run_noise import INTERVAL
from paretune.studies.results.trials import PREDICTED, Trial, TrialStatus, label
from paretune.studies.sampler.candidates import Job
from paretune.studies.sampler.sampler import UNPRICED, SplitSampler
from paretune.studies.search.driver import Driver

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
