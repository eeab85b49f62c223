"""The most that a trial's job can cost, which is reserved before the job is created."""

import math
from collections.abc import Mapping

from paretune.estimating.estimator import Estimate
from paretune.jobs.preparation import known_inputs
from paretune.jobs.workplace import Workplace
from paretune.pricing.budget import ROUNDING_USD, cost_usd
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.studies.results.trials import Trial, TrialStatus

# A job that is cut off was paid for and shows nothing, so these are generous.
_OF_EQUAL_JOBS = 2.0  # times the seconds of the slowest equal job with another seed
_OF_ESTIMATES = 4.0  # times the upper end of the estimate's interval, whether or not the model has run there
_SLOW_START_S = 300.0  # added for an exceptionally slow start; no more than the job itself takes


class WorstCase:
    """Gives jobs a maximum runtime if there is a budget, and their cost at their maximum runtime."""

    def __init__(self, workplace: Workplace, *, has_budget: bool) -> None:
        self._workplace = workplace
        self._longest_s: Mapping[str, float] = {}
        self._has_budget = has_budget
        self._minutes: dict[str, tuple[float, bool]] = {}
        self._doublings = 0

    def learn(self, trials: int, longest_s: Mapping[str, float]) -> None:
        """Renew the estimates each time the number of trials has doubled: reading their runs takes a while.

        `longest_s` has the hash of a job without its seed to the longest seconds that such a job of the study took.
        """
        self._longest_s = longest_s
        if trials.bit_length() != self._doublings:
            self._doublings = trials.bit_length()
            self._workplace.forecast.renew()
            self._minutes.clear()

    def add(self, trial: Trial) -> str:
        """Raise later worst cases if this trial exceeded its own; returns what to tell the user, or an empty text."""
        launcher = self._workplace.launcher
        if trial.cost_usd is None or trial.worst_usd is None or not launcher.is_billed:
            return ""
        over_usd, spec = trial.cost_usd - trial.worst_usd, trial.spec
        per_second = cost_usd(launcher.price(spec), spec, 1.0)
        if trial.status is TrialStatus.COMPLETED:
            launcher.has_seen_upload = True
            uploaded_s = trial.measured.get(metrics.UPLOADING_SECONDS, 0.0)
            self._exceeded_by(uploaded_s - launcher.upload_bound_s(spec))
        if over_usd <= ROUNDING_USD or not per_second:
            return ""
        usual_usd = (launcher.worst_case_usd(spec.replace(max_cost_usd=None)) or 0.0) - launcher.exceeded_s * per_second
        self._exceeded_by((trial.cost_usd - usual_usd) / per_second)
        return (
            f"trial {trial.number} cost {trial.cost_usd:.4g} USD, {over_usd:.4g} USD more than its worst case: it is "
            "booked in full, and later jobs reserve as much more"
        )

    def _exceeded_by(self, seconds: float) -> None:
        """Reserve so many seconds more for later jobs: one was billed as much beyond its worst case."""
        if seconds > self._workplace.launcher.exceeded_s:
            self._workplace.launcher.exceeded_s = seconds

    def limited(self, spec: JobSpec) -> JobSpec:
        """The job with a maximum runtime from an equal job or its estimate, to reserve fewer dollars.

        The job is unchanged if its study has no budget, or without such a job or an estimate.
        """
        minutes = self._minutes_of(spec) if self._has_budget else math.inf
        return spec.replace(max_runtime_minutes=minutes) if minutes < spec.max_runtime_minutes else spec

    def reserved_usd(self, spec: JobSpec) -> float | None:
        """Dollars at its limit on its dearest instance type, or None; raises BudgetRefused above max_cost_usd.

        With an upload of unknown length until one has been seen.
        """
        launcher = self._workplace.launcher
        usd = launcher.worst_case_usd(spec)
        if usd is None or launcher.has_seen_upload or not (seconds := launcher.unknown_upload_s(spec)):
            return usd
        return usd + max(cost_usd(launcher.price(each), each, seconds) or 0.0 for each in spec.clusters())

    def exceeds_limit(self, spec: JobSpec) -> bool:
        """Whether the limit of a job would end it, by its estimate; never if an equal job has been measured."""
        return hash_without_seed(spec) not in self._longest_s and self._estimated(spec)[1]

    def _minutes_of(self, spec: JobSpec) -> float:
        if (longest := self._longest_s.get(hash_without_seed(spec))) is not None:
            return _minutes(_OF_EQUAL_JOBS, longest)
        return self._estimated(spec)[0]

    def _estimated(self, spec: JobSpec) -> tuple[float, bool]:
        """Minutes that bound a job by its estimate, and whether they begin above its own limit."""
        identity = spec.spec_hash()
        if identity not in self._minutes:
            price = self._workplace.launcher.price(spec)
            inputs = known_inputs(spec, self._workplace)
            estimate = self._workplace.forecast.of(spec, spec.plan(), inputs, price)
            seconds = math.inf if estimate is None else estimate.time.seconds_high
            exceeds_limit = isinstance(estimate, Estimate) and estimate.exceeds_limit
            self._minutes[identity] = _minutes(_OF_ESTIMATES, seconds), exceeds_limit
        return self._minutes[identity]


def _minutes(times: float, seconds: float) -> float:
    """So many times the seconds of a job, and a slow start; in minutes, to a tenth."""
    limit_s = times * seconds + min(_SLOW_START_S, seconds)
    return math.inf if math.isinf(limit_s) else math.ceil(limit_s / 6) / 10


def hash_without_seed(spec: JobSpec) -> str:
    """A hash that is equal for jobs that differ only in their seed."""
    return spec.spec_hash(but=["seed"])
