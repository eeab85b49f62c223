"""The estimate of a job that is about to be launched, and the batch to start it with.

An estimate is optional: if it cannot be made, the job runs all the same.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from paretune.core.errors import BadInput, TrackingUnavailable
from paretune.estimating.architecture import Architecture, config_in, of_config, well_known
from paretune.estimating.estimator import Estimator
from paretune.estimating.evidence import Evidence, collect
from paretune.estimating.hardware import machine_name
from paretune.estimating.noise import Z80
from paretune.estimating.phases import Seconds
from paretune.estimating.time_estimate import TimeEstimate
from paretune.pricing.prices import Price
from paretune.specification.batch_size import BatchPlan
from paretune.specification.container import JobInputs
from paretune.specification.job import JobSpec
from paretune.tracking import RecordedJob, schema

if TYPE_CHECKING:
    from paretune.tracking import Tracking

NEWEST = 200  # number of runs of projects, and of scripts, that are read
# Assumed for a training that has run once; not measured, rather too large than too small.
_SPREAD, _SPREAD_DEGREES = 0.3, 2.0
"""Standard deviation of the logarithm of seconds, and with how many degrees of freedom it is known."""


@dataclass(frozen=True, kw_only=True)
class OwnTrainingTimes:
    """Predicts the seconds of trainings of the user's own from completed jobs and their seconds."""

    runs: Sequence[tuple[JobSpec, float]] = ()

    @classmethod
    def collect(cls, tracking: "Tracking", machine: str) -> "OwnTrainingTimes":
        """Read the newest measured whole jobs, local ones of `machine` only; raises TrackingUnavailable."""
        completed = f"tags.`{schema.ORIGIN}` = 'measured' and tags.`{schema.STATE}` = 'Completed'"
        runs = list[tuple[JobSpec, float]]()
        for name in ("project", "entry_script"):
            for job in map(RecordedJob, tracking.runs(f"{completed} and params.{name} LIKE '_%'", newest=NEWEST)):
                with suppress(BadInput, ValueError, KeyError):
                    spec = job.spec_as_run()
                    is_elsewhere = not spec.has_instances and (job.machine or machine) != machine
                    if job.billable_seconds and not (is_elsewhere or job.was_retried or job.is_spot):
                        runs.append((spec, job.billable_seconds))
        return cls(runs=runs)

    def predict(self, spec: JobSpec, price: Price | None) -> TimeEstimate | None:
        """Return the estimate of a job, or None if no job that is equal but for the seed has run on its cluster.

        Of N measured seconds the geometric mean, with an 80 % interval of the next run.
        """
        key = spec.spec_hash(but=["seed"])
        logs = np.log([seconds for run, seconds in self.runs if run.spec_hash(but=["seed"]) == key])
        if not (count := len(logs)):
            return None
        middle, squares = float(np.exp(logs.mean())), float(((logs - logs.mean()) ** 2).sum())
        variance = (_SPREAD_DEGREES * _SPREAD**2 + squares) / (_SPREAD_DEGREES + count - 1)
        factor = float(np.exp(Z80 * np.sqrt(variance * (1.0 + 1.0 / count))))
        time = Seconds(seconds=middle, seconds_low=middle / factor, seconds_high=middle * factor)
        basis = f"{count} run{'s' if count > 1 else ''} of this training on this cluster: equal ones"
        return TimeEstimate(spec=spec, measured_here=count, time=time, price=price, basis=basis)


class Forecast:
    """Estimates of the jobs of one process, from the runs recorded when it began.

    `simulated` is whether the jobs are simulated; simulated runs are evidence for no others. Without `tracking` there
    is no evidence.
    """

    def __init__(self, tracking: "Tracking | None", *, simulated: bool = False) -> None:
        self._tracking = tracking
        self._simulated = simulated

    @cached_property
    def estimator(self) -> Estimator:
        """The estimator of paretune's own training."""
        if self._tracking is not None:
            try:
                return Estimator(collect(self._tracking, simulated=self._simulated, machine=machine_name()))
            except TrackingUnavailable:  # recording the job will report this
                pass
            except (ArithmeticError, ValueError) as error:  # from the fit; LinAlgError is a ValueError
                logging.getLogger(__name__).warning("earlier runs make no estimate, data sheets do: %s", error)
        return Estimator(Evidence())

    @cached_property
    def own_training(self) -> OwnTrainingTimes:
        """What finished trainings of the user's own took."""
        if self._tracking is not None:
            with suppress(TrackingUnavailable):  # recording the job will report this
                return OwnTrainingTimes.collect(self._tracking, machine_name())
        return OwnTrainingTimes()

    def renew(self) -> None:
        """Read the runs again at the next estimate."""
        self.__dict__.pop("own_training", None)
        self.__dict__.pop("estimator", None)

    def of(self, spec: JobSpec, plan: BatchPlan, inputs: JobInputs, price: Price | None) -> TimeEstimate | None:
        """Return the estimate of a job with this batch; of a training of the user's own from its finished runs.

        Returns None if its model or its rows are unknown, or no training like it has run there.
        """
        if spec.runs_own_training:
            return self.own_training.predict(spec, price)
        architecture = known_architecture(spec, inputs)
        if architecture is None:
            return None
        facts = None if inputs.dataset is None else inputs.dataset.facts
        return self.estimator.estimate(spec, architecture, price, plan=plan, facts=facts)


def known_architecture(spec: JobSpec, inputs: JobInputs) -> Architecture | None:
    """Return the model from its name or from the configuration prepared for the job; nothing is downloaded."""
    architecture = well_known(spec.model)
    if architecture is not None or inputs.model is None:
        return architecture
    config = config_in(inputs.model)
    return None if config is None else of_config(config, spec.task)
