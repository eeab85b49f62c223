"""Estimates jobs from the recorded runs: paretune's own training, and users' own scripts and projects."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paretune.core.errors import BadInput, TrackingUnavailable
from paretune.core.machine import machine_name
from paretune.core.noise import Z80, Scatter, posterior_deviation
from paretune.estimating import counting
from paretune.estimating.architecture import Architecture, architecture_in, well_known
from paretune.estimating.estimator import Estimate, Estimator
from paretune.estimating.evidence import Evidence, collect
from paretune.estimating.remedy import with_remedy
from paretune.estimating.timing import Measurement, Prediction
from paretune.estimating.workload import setting_of
from paretune.specification.container import JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import OF_THE_BATCH, TRAINERS_BATCH_SIZE, BatchPlan
from paretune.specification.price import Price
from paretune.specification.rules import RESERVED_TRAINING_ARGUMENTS
from paretune.specification.user_code import MODEL_FOLDER, ScriptTraining

if TYPE_CHECKING:
    from paretune.tracking.kept_runs import KeptRuns
    from paretune.tracking.store import Tracking

_OF_A_JOB = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs")
"""TrainingArguments that are parameters of a job."""
_USUAL = {"per_device_train_batch_size": TRAINERS_BATCH_SIZE, "num_train_epochs": 3.0}
"""Defaults of TrainingArguments that differ from those of a job."""
_HALVES = ("fp16", "bf16")
_PROBED = "the probed script"  # name of the code that trains, in estimates from a probe of a user's script
_SPREAD, _SPREAD_DEGREES = 0.3, 2.0
"""Prior for a user's own code: standard deviation of the logarithm of its seconds, and degrees of freedom. Assumed,
not measured; meant to be too large rather than too small."""


def estimate_user_code(spec: JobSpec, price: Price | None, runs: Sequence[tuple[JobSpec, float]]) -> Estimate | None:
    """Use finished jobs (`runs`), each with its seconds, to estimate a job that runs the user's own code.

    The estimate is the geometric mean over the jobs that compute the same thing, apart from the seed, with an 80 %
    interval for the next job. Returns None if there is no such job.
    """
    key = spec.spec_hash(but=["seed"])
    logs = np.log([seconds for run, seconds in runs if run.spec_hash(but=["seed"]) == key])
    if not (count := len(logs)):
        return None
    middle, scatter = float(np.exp(logs.mean())), Scatter(squares=float(logs.var() * count), degrees=count - 1)
    deviation = posterior_deviation(_SPREAD, _SPREAD_DEGREES, scatter)
    factor = math.exp(Z80 * deviation * math.sqrt(1.0 + 1.0 / count))
    time = Prediction(seconds=middle, seconds_low=middle / factor, seconds_high=middle * factor)
    basis = f"{count} run{'s' if count > 1 else ''} of the same job on this cluster"
    return Estimate(spec=spec, plan=spec.plan(), measured_here=count, time=time, price=price, basis=basis)


class Forecast:
    """Estimates jobs from the recorded runs, which are read at the first estimate and kept until `renew`.

    `simulated` states whether the jobs are simulated, because simulated runs are evidence only for simulated jobs.
    Without `tracking`, there is no evidence.
    """

    def __init__(self, tracking: "Tracking | KeptRuns | None", *, simulated: bool = False) -> None:
        self._tracking = tracking
        self._simulated = simulated

    @cached_property
    def evidence(self) -> Evidence:
        """The measurements of recorded runs."""
        if self._tracking is not None:
            with suppress(TrackingUnavailable):  # the user learns of this when the job is recorded
                return collect(self._tracking, simulated=self._simulated, machine=machine_name())
        return Evidence()

    @cached_property
    def estimator(self) -> Estimator:
        """The estimator of paretune's own training."""
        try:
            return Estimator(self.evidence)
        except (
            ArithmeticError,
            TypeError,
            ValueError,
        ) as error:  # the fit failed; TypeError if a count exceeds 64 bits
            logging.getLogger(__name__).warning("estimates use data sheets only, not earlier runs: %s", error)
        return Estimator(Evidence())

    def renew(self) -> None:
        """Read the runs again at the next estimate."""
        self.__dict__.pop("evidence", None)
        self.__dict__.pop("estimator", None)

    def of(
        self,
        spec: JobSpec,
        inputs: JobInputs,
        price_of: Callable[[JobSpec], Price | None],
        *,
        plan: BatchPlan | None = None,
    ) -> Estimate | None:
        """Estimate a job, by default with the batch plan that `Estimator.fitting_plan` chooses.

        A job that runs the user's own code is estimated from finished jobs that compute the same thing, apart from the
        seed. If there are none, it is estimated from what its script says (`UserCode.training`). Returns None if that
        is unknown, too, and if the model or the number of rows is unknown.
        """
        price = price_of(spec)
        if spec.runs_user_code:
            known = estimate_user_code(spec, price, self.evidence.of_user_code)
            if known is not None or (described := described_by(spec, inputs.training)) is None:
                return known
            built = known_architecture(described.model, described.task, inputs.model)
            return None if built is None else self.of_script(spec, described, built, price)
        architecture = known_architecture(spec.model, spec.task, inputs.model)
        if architecture is None:
            return None
        facts = None if inputs.dataset is None else inputs.dataset.facts
        item = self.estimator.estimate(spec, architecture, price, plan=plan, facts=facts)
        return item and with_remedy(item, self.estimator, architecture, facts, price_of)

    def of_script(
        self,
        spec: JobSpec,
        described: JobSpec,
        built: Architecture,
        price: Price | None,
        probe: Measurement | None = None,
        facts: Mapping[str, float] | None = None,
    ) -> Estimate | None:
        """Estimate a job that runs a script from what the script says of its training, and from a probe of the script.

        `probe` is the result of `measured_script`, and `facts` are those of its rows, if they were counted.
        """
        if probe is None:
            item = self.estimator.estimate(described, built, price, facts=facts)
        else:
            times = [*self.evidence.times, probe]
            item = Estimator(replace(self.evidence, times=times)).estimate(
                described, built, price, stack=_PROBED, facts=facts
            )
        if item is None:
            return None
        read = f"{described.trained_by.title}, read from {Path(spec.entry_script or '').name}"
        here = 0 if probe is None else item.measured_here
        return replace(item, spec=spec, program=described.trained_by, measured_here=here, basis=f"{read}; {item.basis}")


def described_by(spec: JobSpec, training: ScriptTraining | None) -> JobSpec | None:
    """Return a job that runs a script, with what the script's text says of its training as parameters of the job.

    What the user gave goes first. Returns None if the text does not show a training or its model, or if an option of
    the script has the name of a job's parameter but another meaning.
    """
    if training is None:
        return None
    given, read, arguments = spec.model_fields_set, training.arguments, dict(training.arguments)
    if "model" not in given and training.model is None:
        return None
    values: dict[str, Any] = {"model": training.model, "program": training.program, "task": training.task}
    values |= {"fine_tuning": training.fine_tuning, "lora.r": training.lora_rank}
    values |= {"max_seq_length": training.max_seq_length, "precision": _precision(training)}
    values |= _USUAL | {name: read[name] for name in _OF_A_JOB if name in read}
    keeps_batch = training.gets_plan or spec.gives(*OF_THE_BATCH)
    kept = {*given, *(OF_THE_BATCH if keeps_batch else ()), *(("num_train_epochs",) if training.gets_plan else ())}
    values = {name: value for name, value in values.items() if value is not None and name.partition(".")[0] not in kept}
    if not str(read.get("output_dir", MODEL_FOLDER)).startswith(MODEL_FOLDER):
        arguments["save_strategy"] = "no"  # what is outside the model folder is not uploaded
    arguments = {name: value for name, value in arguments.items() if name not in RESERVED_TRAINING_ARGUMENTS}
    with suppress(BadInput):
        return spec.replace(**values, training_arguments=arguments)
    return None


def _precision(training: ScriptTraining) -> str | None:
    """Return the precision of a job. With adapters, only frozen weights have the format in which a model is loaded."""
    half = next((name for name in _HALVES if training.arguments.get(name) is True), None)
    is_pure = training.loads_bf16 and (half is None or (half == "bf16" and training.fine_tuning == "full"))
    return "bf16-true" if is_pure and training.fine_tuning != "qlora" else half


def measured_script(
    described: JobSpec, built: Architecture, seconds: float | None, step_seconds: float, origin: str
) -> Measurement | None:
    """Return what a probe of a script has measured, with what the script says; None if its rows are unknown."""
    setting = setting_of(described, described.plan(), built)
    if setting is None:
        return None
    work = counting.describe(setting, stack=_PROBED)
    return Measurement(work=work, seconds=seconds, step_seconds=step_seconds, origin=origin)


def known_architecture(model: str, task: str, folder: Path | None) -> Architecture | None:
    """Return the architecture from the model's name or the config.json in `folder`, or None. Nothing is downloaded."""
    architecture = well_known(model, task)
    return architecture if architecture is not None or folder is None else architecture_in(folder, task)
