"""`SplitSampler`, an Optuna sampler that takes the cost of each job into account.

It chooses the job with the largest expected gain per dollar. The gain is the increase in the hypervolume of the front,
which is the size of the area that the front beats (see `decision`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from threading import Lock
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from paretune.core.errors import BadInput
from paretune.estimating.workload import BUNDLED_ROWS, PROBE_STEPS
from paretune.launchers.offers import usual_price
from paretune.pricing import PriceList
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.price import Price
from paretune.studies.definition.objectives import OBJECTIVES, Constraints, judged_by
from paretune.studies.sampler.belief import Aims, Beliefs, Expected
from paretune.studies.sampler.candidates import (
    CLAIM,
    PROBE,
    Candidate,
    Estimated,
    Space,
    nothing_known,
    own_space,
    rows_of,
)
from paretune.studies.sampler.decision import Accepts, Decision
from paretune.studies.sampler.quality import F1_SPREAD

UNPRICED = Price(usd_per_hour=1.0, region="", as_of="", source="unknown", confidence="missing")
"""The price that is assumed for an instance whose price is unknown."""
_CLAIMING = Lock()  # one lock for all samplers, because a sampler with a lock of its own could not be pickled


class SplitSampler(optuna.samplers.BaseSampler):
    """Suggests the job with the largest expected hypervolume improvement per dollar.

    The hypervolume is the size of the area that the front beats.

    The sampler reads everything that it learns from `study.trials`. So you can continue an interrupted study with a new
    sampler.

    A trial whose `probe_steps` is above 0 is a probe: train for this number of steps only, and report the trial as
    PRUNED. An objective function that does not suggest `probe_steps` gets no probes.

    Report the outcome of a job as user attributes of its trial:

    - `seconds`: billed seconds
    - `startup_seconds`: the part of the billed seconds that is outside the training
    - `step_seconds`: seconds of one optimizer step
    - `train_rows`: training rows of the whole data set
    - `baseline`: quality of a model that predicts one class for every row; a run with a worse quality has collapsed
    - `outcome`, if the job failed: out_of_memory, cut_off (at its time limit), diverged, failed, or interrupted (which
      says nothing about the job's parameters); a trial with an infinite objective has diverged

    Without `seconds`, the sampler uses an objective in seconds, such as job_seconds; without such an objective, it uses
    cost_usd divided by the price; without dollars, the time between the trial's start and end.

    Until a trial reports `startup_seconds`, bounds on train_seconds apply to the billed seconds.

    Args:
        job: parameters that all jobs share, as a `JobSpec` or a mapping.
        searched: the Optuna distribution of each searched parameter, by name.
        objectives: metrics in the order of the study's directions. One measures the model; the others are dollars or
            depend on time, such as cost_usd and job_seconds.
        price_of: returns the price of a job in dollars per second; by default the on-demand price in its region. A
            price of 0 counts as 0.000001 dollars.
        rows: training rows of the whole data set, if known.
        metric: the objective that measures the model; by default the one that is neither dollars nor time.
        constraints: the bounds on each metric, such as `{"f1": {"min": 0.9}}`.
        stop: whether the search ends when no job is expected to add 1 % to the front for the dollars of a median job,
            and either a third of all jobs have run, or 15 median jobs have been spent, the last three of which have
            added less than 0.5 %; or if no job is expected to meet the constraints. If False, the search continues
            until no job is left.
        estimated: returns the expected seconds of a job of the user's own training code and the upper end of their
            interval (80 %), or None if nothing is known of them.

    Attributes:
        space: the distributions to ask for, by name: those of the searched parameters and, for paretune's own training,
            that of `probe_steps`.
        accepts: returns whether a job may start now, for example within a budget. It gets the job and a pair: the job's
            expected seconds and the standard deviation of their logarithm. The pair is None if the seconds cannot be
            predicted. Set this function before you ask for a trial.
    """

    def __init__(
        self,
        job: JobSpec | Mapping[str, Any],
        searched: Mapping[str, BaseDistribution],
        *,
        objectives: Sequence[str] = (metrics.COST_USD, metrics.F1),
        price_of: Callable[[JobSpec], float] | None = None,
        rows: float | None = None,
        metric: str | None = None,
        constraints: Constraints | None = None,
        stop: bool = True,
        estimated: Estimated = nothing_known,
    ) -> None:
        given = job.given() if isinstance(job, JobSpec) else dict(job)
        counted = BUNDLED_ROWS.get(str(given.get("dataset", "")), (None,))[0] if rows is None else rows
        self.price_of = price_of or partial(_usd_per_s, PriceList.read({}))
        self._space = Space(given, searched, counted, self.price_of, estimated)
        judged = judged_by(dict.fromkeys(objectives, ""))
        if metric is None and judged is None:
            raise BadInput([f"objectives: none of {', '.join(objectives)} measures the model: add one, such as f1"])
        metric = metric or (judged.metric if judged is not None else "")
        if others := [name for name in objectives if name not in {metric, *metrics.TIMES, metrics.COST_USD}]:
            raise BadInput([f"objectives: only one may measure the model, got {', '.join([metric, *others])}"])
        is_share = metric in OBJECTIVES and OBJECTIVES[metric].is_share and not self._space.runs_user_code
        spread = F1_SPREAD if is_share else None
        bounds = constraints or {}
        self._aims = Aims(objectives=list(objectives), metric=metric, constraints=bounds, spread=spread, stops=stop)
        self.accepts: Accepts = _accepts_any
        self._last: tuple[Any, Decision] | None = None  # what the last decision was made from, and the decision
        self.space: dict[str, BaseDistribution] = {**searched, **own_space(given)}

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return `space`; if the study's directions do not fit, an empty one, so that `sample_independent` raises."""
        return self.space if self._misfit(study) is None else {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return values for `search_space`: those of the next job, and random ones for parameters that it does not set.

        An enqueued trial keeps its values. If no job should start now, because the next one depends on jobs that are
        running or because the search is over, the trial gets the training job with the most usual settings that has not
        run. If no such job may start either, the trial repeats the last training job that has completed, or if there is
        none, gets the first candidate.
        """
        params = self._claimed(study, trial) if self.space.keys() & search_space.keys() else {}
        return {
            name: params[name]
            if name in params and _is_in(distribution, params[name])
            else self.sample_independent(study, trial, name, distribution)
            for name, distribution in search_space.items()
        }

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Stop `Study.optimize` when the search is over."""
        if getattr(study._thread_local, "in_optimize_loop", False):
            ended = copy(trial)
            ended.state = state
            if values is not None:
                ended.values = list(values)
            if self._misfit(study) is None and self._decision(study, ended=ended).is_over:
                study.stop()

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return a random value for a parameter that the next job does not set.

        Raises ValueError for a parameter of `space` if the study's directions do not fit the objectives.
        """
        if param_name in self.space and (misfit := self._misfit(study)) is not None:
            raise misfit
        at_random = optuna.samplers.RandomSampler(trial.number)
        return at_random.sample_independent(study, trial, param_name, param_distribution)

    def params(self, job: Candidate) -> dict[str, Any]:
        """Return the parameters of a trial that runs this job."""
        return {**job.point, **({PROBE: PROBE_STEPS * job.is_probe} if PROBE in self.space else {})}

    def next_job(self, study: optuna.Study) -> Candidate | None:
        """Return the next job; None if no job should start, either now or ever."""
        return self._decision(study).job

    def is_done(self, study: optuna.Study) -> bool:
        """Return whether no job is running and no further job should start."""
        return self._decision(study).is_over

    def why_done(self, study: optuna.Study) -> str:
        """Explain why `next_job` returns None; empty if it returns a job, or while its reason is unknown."""
        return self._decision(study).why_none

    def since_growth_usd(self, study: optuna.Study) -> float:
        """Return the dollars spent since the front last grew; 0 while no training job has completed."""
        decision = self._decision(study)
        return decision.since_growth_usd if decision.beliefs.has_quality else 0.0

    def beliefs(self, study: optuna.Study) -> dict[str, tuple[float, float, float, float]]:
        """Return what the sampler assumed before any run, and what the runs have taught it, by name.

        Each belief is the weight of a term in the mean of a model: its mean and standard deviation before the runs,
        then after them.
        """
        beliefs = self._decision(study).beliefs
        return beliefs.of_seconds.beliefs() | (beliefs.quality.beliefs() if beliefs.has_quality else {})

    def expected(self, study: optuna.Study) -> list[Expected]:
        """Return what is believed of the candidates that have not been trained, see `Beliefs.expected`."""
        return self._decision(study).beliefs.expected()

    def estimated(self, study: optuna.Study) -> list[Expected]:
        """Return what was believed of the candidates before any job."""
        return Beliefs(self._space, self._aims, (), self._decision(study).beliefs.sign).expected()

    def _claimed(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        """Claim a job for a trial and return its parameters, so that two workers do not start the same job.

        If two workers claim the same job at the same moment, both choose again, up to three times, after pauses that
        depend on their trial numbers.
        """
        with _CLAIMING:
            for pause_s in (0.0, 0.02, 0.1, 0.5):
                time.sleep(pause_s * (1 + trial.number % 5))
                decision = self._decision(study, without=trial.number)
                job, measured = decision.job or decision.first(), decision.beliefs.measured
                params = self.params(job or (measured[-1].job if measured else self._space.candidates[0]))
                if "fixed_params" in trial.system_attrs:  # it was enqueued
                    return {**params, **({PROBE: 0} if PROBE in self.space else {})}
                study._storage.set_trial_system_attr(trial._trial_id, CLAIM, params)
                if job is None or job.identity not in self._decision(study, without=trial.number).beliefs.final():
                    break
            return params

    def _decision(
        self, study: optuna.Study, *, ended: FrozenTrial | None = None, without: int | None = None
    ) -> Decision:
        """Return the decision after all trials but number `without`. `ended` is a trial whose end is not stored yet."""
        if (misfit := self._misfit(study)) is not None:
            raise misfit
        trials = study.get_trials(deepcopy=False)
        trials = [ended if ended is not None and each.number == ended.number else each for each in trials]
        others = [each for each in trials if each.number != without]
        is_more = study.directions[self._aims.objectives.index(self._aims.metric)] == StudyDirection.MAXIMIZE
        sign, can_probe = 1.0 if is_more else -1.0, self._can_probe(study, others)
        rows = rows_of(others, self._space, self._aims.objectives)
        asked = (rows, self._space.rows, sign, self.accepts, can_probe)
        if self._last is None or self._last[0] != asked:
            beliefs = Beliefs(self._space, self._aims, rows, sign)
            self._last = asked, Decision(beliefs, self.accepts, can_probe=can_probe)
        decision = self._last[1]
        decision.forget_job()  # what `accepts` allows may have changed
        return decision

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickle stores: all but the last decision, which follows from the trials."""
        return {**self.__dict__, "_last": None}

    def _misfit(self, study: optuna.Study) -> ValueError | None:
        """Return an error if the study's directions do not fit the objectives, else None."""
        directions, names = study.directions, self._aims.objectives
        if self._aims.metric not in names:
            return ValueError(
                f"the sampler's metric {self._aims.metric} must be one of its objectives: {', '.join(names)}"
            )
        more = (self._aims.metric, metrics.THROUGHPUT_SAMPLES)  # the only ones that may be maximized
        of_costs = [each for each, name in zip(directions, names, strict=False) if name not in more]
        if len(directions) == len(names) and {*of_costs} <= {StudyDirection.MINIMIZE}:
            return None
        return ValueError(
            f"the sampler's objectives are {', '.join(names)}: create the study with as many directions,"
            ' and "minimize" for dollars and seconds'
        )

    def _can_probe(self, study: optuna.Study, trials: Sequence[FrozenTrial]) -> bool:
        """Return whether the objective function suggests `probe_steps`, and so can run probes.

        Until a trial has shown this, `Study.optimize` gets training jobs, which any objective function can run, but a
        loop that calls `Study.ask` gets probes.
        """
        if PROBE not in self.space:
            return False
        suggested = [each for each in trials if PROBE in each.system_attrs.get(CLAIM, {})]
        ended = [
            each for each in suggested if each.state.is_finished() and self._space.searched.keys() <= each.params.keys()
        ]
        if any(PROBE not in each.params for each in ended):
            return False
        is_optimizing = getattr(study._thread_local, "in_optimize_loop", False)
        return not is_optimizing or any(PROBE in each.params for each in trials)


def _is_in(distribution: BaseDistribution, value: Any) -> bool:
    """Return whether a distribution contains a value."""
    with suppress(ValueError, TypeError):
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    return False


def _accepts_any(job: Candidate, expected: tuple[float, float] | None) -> bool:
    return True


def _usd_per_s(prices: PriceList, spec: JobSpec) -> float:
    return (usual_price(spec, prices, {}) or UNPRICED).cost_usd(1.0, spec.instance_count)
