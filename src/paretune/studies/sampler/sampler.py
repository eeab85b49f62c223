"""An Optuna sampler that knows what a job costs: which cluster, batch and learning rate, for the fewest dollars.

First it pays for two short probes of each instance type, from which it predicts the seconds of every job. Then it
chooses the job with the most expected hypervolume per dollar: for its own place on the front, and for what it reveals
about others.
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
from paretune.pricing import Price, PriceList, usual_price
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.studies.definition.objectives import OBJECTIVES, Constraints, judged_by
from paretune.studies.sampler.candidates import CLAIM, PROBE, Candidate, Space, rows_of
from paretune.studies.sampler.decision import Accepts, Aims, Belief, Decision
from paretune.studies.sampler.quality import F1_SPREAD

UNPRICED = Price(usd_per_hour=1.0, region="", as_of="", source="unknown", confidence="missing")
"""The price of an instance that has no known one."""
_CLAIMING = Lock()  # one lock for all samplers, so that they can be pickled


class SplitSampler(optuna.samplers.BaseSampler):
    """Suggests the job with most expected hypervolume per dollar; `space` holds what a trial is asked for.

    A suggestion follows from `study.trials` alone, so a study goes on where it was left. A trial with `probe_steps`
    trains so many steps only and is reported as PRUNED; an objective that does not suggest `probe_steps` gets trainings
    only. User attributes hold the results of a job: `seconds` billed, `startup_seconds` of them around the training,
    `step_seconds`, and of a failed one `outcome`: out_of_memory, cut_off (at its time limit), diverged, failed, or
    interrupted (its end says nothing of its point). Without `seconds`, an objective in seconds counts, such as
    job_seconds, else cost_usd over the price, else the time between the trial's start and end.

    Args:
        job: what all jobs share, a `JobSpec` or the parameters that are given.
        searched: parameter of a job to the Optuna distribution of its values.
        objectives: metrics in the order of the study's directions: of the cluster such as cost_usd, and one of quality.
        price_of: dollars a second of a job; by default on demand in the job's region.
        rows: training rows of the whole data set, if known.
        metric: the objective that measures the model; by default the first that is not of the cluster.
        constraints: metric to its `min` and `max`.
        stop: whether it ends once ten median jobs were paid, the front has not grown for as many dollars, and a plain
            Gaussian process expects little of the next ten; else it goes on to the last job that may be run.

    Attributes:
        accepts: whether a job may be begun now, such as within a budget, by the job and by what it is expected to take:
            its seconds and the deviation of their logarithm, or None if nobody can know. Set it before a trial is
            asked for.
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
    ) -> None:
        given = job.given() if isinstance(job, JobSpec) else dict(job)
        counted = BUNDLED_ROWS.get(str(given.get("dataset", "")), (None,))[0] if rows is None else rows
        self.price_of = price_of or partial(_usd_per_s, PriceList.read({}))
        self._space = Space(given, searched, counted, self.price_of)
        judged = judged_by(dict.fromkeys(objectives, ""))
        if metric is None and judged is None:
            raise BadInput([f"objectives {', '.join(objectives)} say nothing of the model: name a metric of it, too"])
        metric = metric or (judged.metric if judged is not None else "")
        if others := [name for name in objectives if name not in {metric, *metrics.TIMES, metrics.COST_USD}]:
            raise BadInput([f"objectives: {', '.join(others)} next to {metric}: only one may measure the model"])
        is_share = metric in OBJECTIVES and OBJECTIVES[metric].is_share and not self._space.is_own
        spread = F1_SPREAD if is_share else None
        bounds = constraints or {}
        self._aims = Aims(objectives=list(objectives), metric=metric, constraints=bounds, spread=spread, stops=stop)
        self.accepts: Accepts = _accepts_any
        self._decided: tuple[Any, Decision] | None = None  # after which rows, the last one
        self.space: dict[str, BaseDistribution] = {**searched, **self._space.own}

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return all of `space`; nothing if the study's directions do not fit, so that `sample_independent` refuses."""
        return self.space if self._misfit(study) is None else {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the parameters of the next job that are in `search_space`; others are random.

        What was enqueued is trained as it is. A worker that would have to wait, or for which nothing is worth its
        dollars, gets a job that nobody has begun.
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
        """End `Study.optimize` when the search is over."""
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
        """Return a random value of a parameter outside `space`. Raises ValueError if the directions do not fit."""
        if param_name in self.space and (misfit := self._misfit(study)) is not None:
            raise misfit
        at_random = optuna.samplers.RandomSampler(trial.number)
        return at_random.sample_independent(study, trial, param_name, param_distribution)

    def params(self, job: Candidate) -> dict[str, Any]:
        """Return the parameters of a trial that runs this job."""
        return {**job.point, **({PROBE: PROBE_STEPS * job.is_probe} if PROBE in self.space else {})}

    def next_job(self, study: optuna.Study) -> Candidate | None:
        """Return the job that a trial would get; None if none should start, for now or for good."""
        return self._decision(study).job

    def is_done(self, study: optuna.Study) -> bool:
        """Return whether nothing runs and no further job should start."""
        return self._decision(study).is_over

    def why_done(self, study: optuna.Study) -> str:
        """Explain why `next_job` returns None; empty if it returns a job, or if no training has a quality yet."""
        return self._decision(study).why_none

    def since_growth_usd(self, study: optuna.Study) -> float:
        """Return dollars paid since the front of the trainings last grew; 0 before the first training has ended."""
        decision = self._decision(study)
        return decision.since_growth_usd if decision.has_quality else 0.0

    def predicted(self, study: optuna.Study) -> list[tuple[Candidate, Belief]]:
        """Return candidates that were not run and are as good as known, with their beliefs."""
        return self._decision(study).predicted()

    def _claimed(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        """Claim a job's parameters for a trial before it has them, so that two workers start no equal jobs.

        Both of two that claim one job at the same moment choose again, each after another pause.
        """
        with _CLAIMING:
            for pause_s in (0.0, 0.02, 0.1, 0.5):
                time.sleep(pause_s * (1 + trial.number % 5))
                decision = self._decision(study, without=trial.number)
                job = decision.job or decision.first()
                params = self.params(job or decision.last() or self._space.candidates[0])
                if "fixed_params" in trial.system_attrs:  # somebody has enqueued it
                    return {**params, **({PROBE: 0} if PROBE in self.space else {})}
                study._storage.set_trial_system_attr(trial._trial_id, CLAIM, params)
                if job is None or not self._decision(study, without=trial.number).has(job):
                    break
            return params

    def _decision(
        self, study: optuna.Study, *, ended: FrozenTrial | None = None, without: int | None = None
    ) -> Decision:
        """Return the decision after all trials except `without`; the storage does not know the end of `ended` yet."""
        if (misfit := self._misfit(study)) is not None:
            raise misfit
        trials = study.get_trials(deepcopy=False)
        trials = [ended if ended is not None and each.number == ended.number else each for each in trials]
        others = [each for each in trials if each.number != without]
        is_more = study.directions[self._aims.objectives.index(self._aims.metric)] == StudyDirection.MAXIMIZE
        sign, can_probe = 1.0 if is_more else -1.0, self._can_probe(study, others)
        rows = rows_of(others, self._space, self._aims.objectives)
        return Decision(self._space, self._aims, rows, sign, self.accepts, can_probe=can_probe)

    def _misfit(self, study: optuna.Study) -> ValueError | None:
        """Return the error of a study whose directions are not those of the objectives."""
        directions, names = study.directions, self._aims.objectives
        more = (self._aims.metric, metrics.THROUGHPUT_SAMPLES)  # the only ones that may be better if they are larger
        of_costs = [each for each, name in zip(directions, names, strict=False) if name not in more]
        if len(directions) == len(names) and {*of_costs} <= {StudyDirection.MINIMIZE}:
            return None
        return ValueError(
            f"the sampler's objectives are {', '.join(names)}: create the study with as many directions,"
            ' and "minimize" for dollars and seconds'
        )

    def _can_probe(self, study: optuna.Study, trials: Sequence[FrozenTrial]) -> bool:
        """Return whether trials ask for `probe_steps`, as far as they have shown.

        Until one has, `Study.optimize` gets a training, which any objective can run. A loop of `ask` gets a probe.
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
    """Return whether a value is one of the distribution."""
    with suppress(ValueError, TypeError):
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    return False


def _accepts_any(job: Candidate, expected: tuple[float, float] | None) -> bool:
    return True


def _usd_per_s(prices: PriceList, spec: JobSpec) -> float:
    return (usual_price(spec, prices, {}) or UNPRICED).cost_usd(1.0, spec.instance_count)
