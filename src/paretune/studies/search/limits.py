"""The time limits of a study's jobs, from which their worst cases follow.

A limit is a multiple of the longest that a job should take (`_TIMES`), plus a slow start. It is generous, because a job
that is cut off costs money and shows nothing. It is at least twice a limit at which an equal job was cut off, and never
above the job's own limit, `max_runtime_minutes`.
"""

import math
from typing import NamedTuple

from paretune.jobs.preparation import inputs_of
from paretune.jobs.workplace import Workplace
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.studies.results.trials import Trial
from paretune.studies.sampler.decision import ExpectedSeconds
from paretune.studies.trial_status import TrialStatus


class _Times(NamedTuple):
    """A limit as a multiple of a job's seconds."""

    usual: float
    shortest: float  # if the budgets do not cover the worst case of the usual one


_TIMES = {
    "measured": _Times(2.0, 1.15),  # of the longest equal job
    "predicted": _Times(2.0, 1.0),  # of the sampler's prediction plus two standard deviations; at last, plus one
    "estimated": _Times(4.0, 4.0),  # of the upper end of the estimate, whether or not the model has run on that cluster
    "probe": _Times(1.0, 1.0),  # of `_PROBE_S`, if the sampler does not predict it
}
"""What a job's seconds are known from, to their multiples."""
_AGAIN = 2.0  # times the last limit, after a job was cut off at it
_MOST_ABOVE = 4.0  # times a prediction: limit on its two standard deviations
_GUESS = 0.5  # a prediction for paretune's own training with a larger deviation of its log seconds sets no limit
_PROBE_S = 600.0  # with a slow start, a quarter of an hour
_SLOW_START_S = 300.0  # added for an exceptionally slow start, but at most as many seconds as the job itself takes
_PROBES = "probes"  # stands for the hash of every probe
LEAST_S = 900.0
"""The shortest limit in seconds, if the budgets cover it. A shorter one saves few dollars, and a machine that is busy
for a moment would exceed it."""


LEAST_OF_ALL_S = 30.0
"""No limit is shorter, whatever is known: five times the six seconds that a process needs to import torch."""


class Limits:
    """Sets the time limits of jobs from what is known of their seconds. Without a budget, a job keeps its own limit.

    Jobs are equal if they differ at most in the seed. All probes count as equal if one was cut off.
    """

    def __init__(self, workplace: Workplace, *, has_budget: bool) -> None:
        self._workplace, self._has_budget = workplace, has_budget
        self._longest_s: dict[str, float] = {}  # hash of equal jobs to the seconds of the longest that completed
        self._cut_off_s: dict[str, float] = {}  # the same to the longest limit at which one was cut off
        self._estimates: dict[str, tuple[float, bool]] = {}
        self._ended = 0
        self._slower = 1.0  # factor on limits from estimates, above 1 after a job was cut off

    def add(self, trial: Trial) -> None:
        """Learn from an ended trial how long later jobs may take.

        If it was cut off, all later limits from estimates are longer. Estimates are renewed when the number of ended
        trials reaches a power of two.
        """
        self._ended += 1
        if self._ended & (self._ended - 1) == 0:
            self._workplace.forecast.renew()
            self._estimates.clear()
        spec, limit_s = trial.spec, 60.0 * trial.spec.max_runtime_minutes
        key = _PROBES if trial.is_probe else spec.spec_hash(but=["seed"])
        seconds = trial.measured.get(metrics.JOB_SECONDS)
        if seconds is not None and not trial.ran_on and not trial.is_probe:
            self._longest_s[key] = max(self._longest_s.get(key, 0.0), seconds)
        if trial.status is TrialStatus.CUT_OFF and not trial.ran_on:
            self._cut_off_s[key] = max(self._cut_off_s.get(key, 0.0), limit_s)
        if trial.status is TrialStatus.CUT_OFF and not trial.is_probe:
            # Twice this job's own factor: several jobs cut off by the same wrong estimate raise it only once.
            usual_s = _limit_s(_TIMES["estimated"].usual, self._estimate(spec)[0])
            self._slower = max(self._slower, _AGAIN * limit_s / usual_s)

    def of(self, spec: JobSpec, expected: ExpectedSeconds = None) -> list[JobSpec]:
        """Return the job with each time limit to try, the longest one first.

        `expected` is what the sampler predicts of the job, if it does.
        """
        if not self._has_budget:
            return [spec]
        known_from, seconds, cut_off_s = self._known(spec, expected)
        slower = self._slower if known_from == "estimated" else 1.0
        limits_s = [_limit_s(slower * times, seconds) for times in _TIMES[known_from]]
        if known_from == "predicted" and expected is not None:  # better a bold limit than a budget that lies idle
            limits_s.append(_limit_s(1.0, expected[0] * min(math.exp(expected[1]), _MOST_ABOVE)))
        own, least = spec.max_runtime_minutes, (LEAST_S, *[LEAST_OF_ALL_S] * 2)
        minutes = [
            min(own, _minutes(max(shortest_s, _AGAIN * cut_off_s, limit_s)))
            for shortest_s, limit_s in zip(least, limits_s, strict=False)
        ]
        return [spec if each == own else spec.replace(max_runtime_minutes=each) for each in dict.fromkeys(minutes)]

    def shortest(self, spec: JobSpec) -> JobSpec:
        """Return the job with its shortest time limit, so that it reserves the fewest dollars."""
        return self.of(spec)[-1]

    def exceeds(self, spec: JobSpec, expected: ExpectedSeconds = None) -> bool:
        """Return whether the estimate exceeds the job's own time limit.

        False if more than the estimate is known of its seconds, and for a user's own training code.
        """
        return self._known(spec, expected)[0] == "estimated" and self._estimate(spec)[1]

    def _known(self, spec: JobSpec, expected: ExpectedSeconds) -> tuple[str, float, float]:
        """Return what a job's seconds are known from (a key of `_TIMES`), and the longest that it should take.

        The last value is the longest limit in seconds at which an equal job was cut off, or 0.
        """
        key = _PROBES if spec.probe_steps is not None else spec.spec_hash(but=["seed"])
        cut_off_s = self._cut_off_s.get(key, 0.0)
        if expected is not None and (expected[1] <= _GUESS or spec.runs_user_code):
            seconds, log_deviation = expected
            return "predicted", seconds * min(math.exp(2.0 * log_deviation), _MOST_ABOVE), cut_off_s
        if longest_s := self._longest_s.get(key):
            return "measured", longest_s, cut_off_s
        if key == _PROBES:
            return "probe", _PROBE_S, cut_off_s
        return "estimated", self._estimate(spec)[0], cut_off_s

    def _estimate(self, spec: JobSpec) -> tuple[float, bool]:
        """Return the upper end of a job's estimate in seconds, and whether the estimate exceeds the job's own limit.

        Without an estimate, the seconds are infinite.
        """
        computation = spec.spec_hash()
        if computation not in self._estimates:
            estimate = self._workplace.estimate(spec, inputs_of(spec, self._workplace, prepare=False))
            high_s = math.inf if estimate is None or estimate.is_of_text else estimate.time.seconds_high
            exceeds = estimate is not None and estimate.memory is not None and estimate.exceeds_limit
            self._estimates[computation] = high_s, exceeds
        return self._estimates[computation]


def _limit_s(times: float, seconds: float) -> float:
    return times * seconds + min(_SLOW_START_S, seconds)


def _minutes(limit_s: float) -> float:
    """Return a limit in minutes, rounded up to a tenth."""
    return math.inf if math.isinf(limit_s) else math.ceil(limit_s / 6) / 10
