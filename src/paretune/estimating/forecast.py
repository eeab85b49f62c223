"""The estimate of a job that is about to be launched, and the batch that earlier jobs leave it.

An estimate is an addition: whatever keeps it from being made never keeps a job from running.
"""

import logging
from collections.abc import Mapping
from functools import cached_property

from paretune.core.errors import TrackingUnavailable
from paretune.estimating.architecture import Architecture, config_in, of_config, well_known
from paretune.estimating.estimator import Estimate, Estimator
from paretune.estimating.evidence import Evidence, collect
from paretune.estimating.hardware import machine_name
from paretune.estimating.memory_limits import Footprint
from paretune.estimating.own_training import LearntTimes
from paretune.estimating.time_estimate import TimeEstimate
from paretune.estimating.timing_features import describe
from paretune.estimating.traced_step import TracedSteps
from paretune.pricing.prices import Price
from paretune.specification.batch_size import BatchPlan
from paretune.specification.container import JobInputs
from paretune.specification.job import JobSpec
from paretune.tracking import Tracking


class Forecast:
    """Estimates of the jobs of one process, from the runs that were there when it began.

    `simulated`: the jobs are simulated; only simulated runs say something about them. Without `tracking` nothing was
    run before. `steps` are traced ones; none is traced for a forecast, which must not take seconds.
    """

    def __init__(self, tracking: Tracking | None, *, simulated: bool = False, steps: TracedSteps | None = None) -> None:
        self._tracking = tracking
        self._simulated = simulated
        self._steps = steps

    @cached_property
    def _estimator(self) -> Estimator:
        if self._tracking is None:
            return Estimator(Evidence(), self._steps)
        try:
            simulated, steps = self._simulated, self._steps
            found = collect(self._tracking, simulated=simulated, machine=machine_name(), steps=steps)
            return Estimator(found, steps)
        except TrackingUnavailable:  # the job's own record will say so
            return Estimator(Evidence(), self._steps)
        except (ArithmeticError, ValueError) as error:  # of the fit; LinAlgError is a ValueError
            logging.getLogger(__name__).warning("earlier runs make no estimate, data sheets do: %s", error)
            return Estimator(Evidence(), self._steps)

    @cached_property
    def _learnt(self) -> LearntTimes:
        if self._tracking is None:
            return LearntTimes()
        try:
            return LearntTimes.collect(self._tracking, machine_name())
        except TrackingUnavailable:  # the job's own record will say so
            return LearntTimes()

    def renew(self) -> None:
        """Take the runs into account that have come since."""
        self.__dict__.pop("_learnt", None)
        self.__dict__.pop("_estimator", None)

    def time_of(self, spec: JobSpec, plan: BatchPlan, inputs: JobInputs, price: Price | None) -> TimeEstimate | None:
        """The same of seconds and dollars alone, which finished runs tell of a training of the user's own, too."""
        return self._learnt.predict(spec, price) if spec.runs_own_training else self.of(spec, plan, inputs, price)

    def of(self, spec: JobSpec, plan: BatchPlan, inputs: JobInputs, price: Price | None) -> Estimate | None:
        """The estimate of a job with this batch; None where its model or its rows are not known."""
        built = known_architecture(spec, inputs)
        if built is None or spec.runs_own_training:
            return None
        return self._estimator.estimate(spec, built, price, plan=plan, facts=_facts(inputs))

    def first_plan(self, spec: JobSpec, inputs: JobInputs) -> tuple[BatchPlan, Footprint | None]:
        """The batch to begin with: what was asked for, halved as long as an earlier job shows that it does not fit.

        The global batch size stays. Also the job that shows it; None where nothing stands against what was asked for.
        """
        plan, shown = spec.plan(), None
        built = known_architecture(spec, inputs)
        if built is None or spec.runs_own_training:
            return plan, None
        while (described := describe(spec, plan, built, _facts(inputs), self._steps)) and (
            smaller := plan.with_less_memory()
        ):
            against = self._estimator.that_did_not_fit(spec, plan, described)
            if against is None:
                break
            plan, shown = smaller, against
        return plan, shown


def known_architecture(spec: JobSpec, inputs: JobInputs) -> Architecture | None:
    """The model, from its name or from the configuration that was prepared for the job; nothing is downloaded."""
    known = well_known(spec.model)
    if known is not None or inputs.model is None:
        return known
    config = config_in(inputs.model)
    return None if config is None else of_config(config, spec.task)


def _facts(inputs: JobInputs) -> Mapping[str, float] | None:
    return None if inputs.dataset is None else inputs.dataset.facts
