"""A trial: its point and its job; after its end, also its metrics, its cost and whether it may be retried."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from paretune.specification import metrics
from paretune.specification.declaration import COMPUTES, spell
from paretune.specification.ending import Cause
from paretune.specification.job import JobSpec, parameters_affecting
from paretune.specification.parallelism import BatchPlan
from paretune.studies.definition.objectives import OBJECTIVES
from paretune.studies.trial_status import TrialStatus

EXPECTED = "estimated"
"""`Trial.origin` of a configuration that has not been trained: its values are what is believed of it."""
FOREIGN = {"project": "optuna"}  # `Trial.given` of a trial that another program ran
AS_RUN = ("global_batch_size", "gradient_accumulation_steps")
"""Parameters that are shown with the values that the job began with, whether or not they are searched."""

_NO_EFFECT_ON_SECONDS = {*parameters_affecting("batch", "noise", "stopping")}
"""Parameters that do not change a job's seconds, and those of the batch, whose resulting sizes are compared instead."""

_NOT_OF_A_CONFIGURATION = {"seed", *parameters_affecting("stopping", without=COMPUTES)}
"""Parameters in which trials of the same configuration may differ, such as the seed and the time limit."""

_SHORT_NAMES = {
    "instance_type": "instance",
    "instance_count": "instances",
    "global_batch_size": "batch",
    "per_device_train_batch_size": "batch per device",
    "gradient_accumulation_steps": "accumulation",
    "learning_rate": "rate",
    "num_train_epochs": "epochs",
    "max_train_samples": "rows",
    "max_seq_length": "tokens",
}

_BATCH = ("global_batch_size", "per_device_train_batch_size", "gradient_accumulation_steps")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial of a study."""

    number: int  # from 0, in the order of suggestion
    run_id: str = ""  # id of its MLflow run
    point: Mapping[str, str | int | float]  # searched parameter to value
    status: TrialStatus
    given: Mapping[str, str] = field(default_factory=dict)  # the parameters of its job that were set, as strings
    values: Mapping[str, float] = field(default_factory=dict)  # measured finite values of objectives and constraints
    cost_usd: float | None = None  # dollars of its job, even if it failed or was stopped; None if the price is unknown
    origin: str = "measured"  # measured or simulated; EXPECTED for a configuration that has not been trained
    repeats: int | None = None  # number of the trial that it repeats with another seed, or None
    reason: str = ""  # why it has no result, for people
    cause: Cause | None = None  # why it has no result; None if it has one, or if it was stopped on request
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Of a configuration that was not trained, metric to the ends of its interval (probability `noise.INTERVAL`)."""
    collapse_probability: float | None = None  # of a configuration that has not been trained
    verdicts: tuple[str, ...] = ()  # sentences about its training, such as that it is worse than TF-IDF
    changes: Mapping[str, Any] = field(default_factory=dict)  # parameters of its job that differ from its point
    measured: Mapping[str, float] = field(default_factory=dict)  # all metrics of its run, if it completed
    worst_usd: float | None = None  # dollars reserved for its job; None if the price is unknown
    chosen_batch: int | None = None  # per-device batch that paretune chose because the default might not fit
    ran_on: str = ""  # instance type of its last attempt, if that is one of its fallback types
    takes_seed: bool = True  # whether its training gets the seed of its job
    kept_usd: float | None = None  # limit on the cost of the warm pool that is kept after its job; None without a pool
    billed_s: float | None = None  # billed seconds; None if unknown
    ended_at: float = 0.0  # when it ended by the launcher's clock, in seconds since the epoch
    running_when_refused: int | None = None  # if the launcher refused its job: number of the study's jobs running then

    @property
    def is_probe(self) -> bool:
        """Whether it trains only a few steps, to measure seconds."""
        return "probe_steps" in self.given

    @property
    def counts(self) -> bool:
        """Whether it counts toward n_trials of the study. Repeats, probes, and interrupted or refused trials do not."""
        return self.repeats is None and not self.is_probe and not self.status.is_retryable

    @property
    def qualities(self) -> dict[str, float]:
        """The metrics of its model that are in OBJECTIVES or are limited or optimized by its study, including its loss.

        Another seed gives exactly the same values only if training is deterministic.
        """
        of_models = {*OBJECTIVES, *self.values} - set(metrics.OF_THE_CLUSTER)
        return {name: value for name, value in {**self.measured, **self.values}.items() if name in of_models}

    @cached_property
    def spec(self) -> JobSpec:
        """The specification of its job."""
        return JobSpec.read(self.given)

    @cached_property
    def computation(self) -> str:
        """The computation of its job (`JobIdentity.computation`): the same for all trials with the same job."""
        return self.spec.spec_hash()

    @cached_property
    def plan(self) -> BatchPlan | None:
        """The batch sizes and the learning rate of its job; None for the job of a project."""
        if self.spec.project or self.chosen_batch is None:
            return None if self.spec.project else self.spec.plan()
        return self.spec.plan().in_parts(self.chosen_batch)

    @cached_property
    def seconds_key(self) -> str | None:
        """A key that trials share if their jobs should take equally long: the same cluster, batch and rows.

        Their learning rates may differ. It is None for the user's own training code, whose seconds may depend on any
        parameter.
        """
        if self.plan is None or self.spec.runs_user_code:
            return None
        texts = {name: text for name, text in self.spec.as_text().items() if name not in _NO_EFFECT_ON_SECONDS}
        batch = self.plan.per_device_train_batch_size, self.plan.gradient_accumulation_steps, self.plan.devices
        return json.dumps([self.origin, batch, sorted(texts.items())])

    def value(self, name: str) -> str | int | float | None:
        """Return the value of a parameter, or None if it is unknown.

        The value comes from the trial's point; for parameters in AS_RUN, it is what the job began with, if known.
        """
        # A script may choose its own batch if none was given.
        given = _BATCH if name == "global_batch_size" else _BATCH[2:]
        is_known = self.spec.entry_script is None or any(getattr(self.spec, parameter) for parameter in given)
        if name in AS_RUN and self.plan is not None and is_known:
            return int(getattr(self.plan, name))
        return self.point.get(name)

    @property
    def shown_status(self) -> str:
        """Its status as text; `Probe` for a completed probe, which has no F1."""
        return "Probe" if self.is_probe and self.status is TrialStatus.COMPLETED else self.status.value

    def shown(self, name: str) -> str:
        """Return `value` as text: 3, 0.15, 5.08e-5 (three digits for floats below 1,000); empty for None."""
        value = self.value(name)
        if not isinstance(value, float):
            return spell(value)
        if abs(value) >= 1000:
            return f"{value:.15g}"
        text = f"{value:.3g}"
        return np.format_float_scientific(float(text), trim="-", exp_digits=1) if 0 < abs(value) < 1e-3 else text

    def setting(self) -> str:
        """Return the searched parameters and the batch of the job, in words: 4 x ml.g5.xlarge, batch 64, rate 5e-5."""
        return ", ".join(self.settings())

    def settings(self) -> list[str]:
        """Return the parts of `setting`: the cluster, then one part for each other parameter."""
        accumulates = self.plan is not None and self.plan.gradient_accumulation_steps > 1
        names = dict.fromkeys([*self.point, "global_batch_size", *["gradient_accumulation_steps"] * accumulates])
        names = {name: None for name in names if name not in _NOT_OF_A_CONFIGURATION}
        texts, cluster = {name: text for name in names if (text := self.shown(name))}, list[str]()
        if kind := texts.pop("instance_type", ""):
            count = texts.pop("instance_count", "1")
            cluster = [kind if count == "1" else f"{count} x {kind}"]
        if "global_batch_size" in texts and texts["global_batch_size"] == texts.get("per_device_train_batch_size"):
            del texts["per_device_train_batch_size"]
        return [*cluster, *(f"{_short_name(name)} {text}" for name, text in texts.items())]


def label(objective: str) -> str:
    """Return the name of an objective in words, such as training time."""
    return OBJECTIVES[objective].label if objective in OBJECTIVES else objective


def _short_name(parameter: str) -> str:
    prefix, _, inner = parameter.partition(".")
    if inner and prefix == "training_arguments":
        return inner  # the name in the user's own code
    return _SHORT_NAMES.get(parameter, parameter.replace("_", " "))


def counted(trials: Sequence[Trial]) -> str:
    """Return the numbers of trials, probes and repeats in words, such as `4 trials, 2 probes and 1 repeat`."""
    repeats, probes = sum(trial.repeats is not None for trial in trials), sum(trial.is_probe for trial in trials)
    counts = {"trial": len(trials) - repeats - probes, "probe": probes, "repeat": repeats}
    *parts, last = [f"{n} {word}{'s' * (n != 1)}" for word, n in counts.items() if n or word == "trial"]
    return " and ".join(filter(None, [", ".join(parts), last]))
