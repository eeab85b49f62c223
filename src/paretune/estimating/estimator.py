"""Predicts the seconds, dollars and memory of a job before it is paid for, and names the evidence for the prediction.

An estimate is optional: a job runs even if it cannot be estimated.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from paretune.core.shell import options
from paretune.estimating import counting, memory, timing
from paretune.estimating.architecture import Architecture
from paretune.estimating.counting import UNMEASURED, Work
from paretune.estimating.evidence import Evidence
from paretune.estimating.memory import Footprint, MemoryModel, MemoryPrediction
from paretune.estimating.phases import Seconds, phases_of
from paretune.estimating.timing import Measurement, Prediction
from paretune.estimating.workload import Setting, setting_of, training_rows
from paretune.presentation.text import duration, usd
from paretune.pricing import cost_usd
from paretune.specification import metrics
from paretune.specification.declaration import spell
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import BatchPlan
from paretune.specification.price import Price
from paretune.specification.program import Program

_MOST_POWERS = 15  # powers of two that are tried as the largest batch: 1 to 16,384 rows


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The predicted time and dollars of one job, and its memory if it runs paretune's own training."""

    spec: JobSpec
    plan: BatchPlan
    measured_here: int  # number of similar jobs that have run on this cluster
    time: Prediction
    price: Price | None  # price of one instance; None if unknown, and then all dollars are None, too
    basis: str  # a phrase that names the evidence for the prediction
    memory: MemoryPrediction | None = None  # None for a user's own code
    did_not_fit: Footprint | None = None  # an earlier job that ran out of memory, but needed no more than this one
    tokens: float | None = None  # tokens of the whole job for a causal language model; None for other tasks
    program: Program = field(default_factory=Program)  # the program that trains, as given or as a script's text says
    changes: Mapping[str, Any] = field(default_factory=dict)  # changed parameters, if it is a remedy for another job
    largest_batch: int | None = None  # largest per-device batch that fits, a power of two; 0 if none, None if unknown
    find_remedy: Callable[[], "Estimate | None"] | None = field(default=None, compare=False, repr=False)
    find_unsaved: Callable[[], "Estimate | None"] | None = field(default=None, compare=False, repr=False)

    def usd(self, seconds: float) -> float | None:
        """Return the dollars of this many billable seconds."""
        return cost_usd(self.price, seconds, self.spec.instance_count)

    @property
    def samples_per_second(self) -> float:
        """Training rows per second during the training, of all devices together."""
        return self.plan.global_batch_size / self.time.step_seconds

    @cached_property
    def unsaved(self) -> "Estimate | None":
        """The same job without checkpoints; None if it leaves none."""
        return None if self.find_unsaved is None else self.find_unsaved()

    @property
    def cost_usd(self) -> float | None:
        """Predicted dollars, or None without a price."""
        return self.usd(self.time.seconds)

    @property
    def usd_per_billion_tokens(self) -> float | None:
        """Predicted dollars of the whole job per billion tokens, or None without a price or tokens."""
        return None if self.cost_usd is None or not self.tokens else self.cost_usd / self.tokens * 1e9

    @property
    def phases(self) -> Mapping[str, Seconds]:
        """Seconds of each phase in `PHASES`; only of `training` if the launcher uploads no files."""
        time, instance = self.time, self.spec.instance() if self.spec.has_instances else None
        return phases_of(time, instance, factor=time.startup_factor, upload_seconds=time.upload_seconds)

    @property
    def is_of_text(self) -> bool:
        """Whether it is for a user's script that has never run, from what its text says."""
        return self.spec.runs_user_code and not self.measured_here

    @property
    def exceeds_limit(self) -> bool:
        """Whether the whole 80 % interval is above max_runtime_minutes.

        Always False for a probe, with force=limit, for a script that has never run, and for a simulation that replays
        recorded runs, whose seconds may differ from the estimate.
        """
        spec = self.spec
        is_exempt = (
            self.is_of_text or "limit" in spec.force or spec.probe_steps is not None or spec.simulation.runs is not None
        )
        return not is_exempt and self.time.seconds_low > spec.max_runtime_minutes * 60

    @property
    def fits(self) -> str:
        """Whether the job fits in memory: `yes`, `no`, or `unsure`.

        `no`: the whole interval of the predicted peak is above the device's memory, or an earlier job that needed no
        more memory ran out of it. `unsure`: the device's memory lies inside the interval, or one of the two is unknown.
        """
        return _fits(self.memory, self.did_not_fit)

    @cached_property
    def remedy(self) -> "Estimate | None":
        """The same training with changes with which it fits; None if it fits, or if nothing is known to help.

        Finding it takes many estimates, and only who reads it waits for them.
        """
        return None if self.fits == "yes" or self.find_remedy is None else self.find_remedy()

    def remedy_in_words(self) -> str:
        """Return what fits instead, with its time and dollars; "" if nothing is known."""
        if self.remedy is None:
            return ""
        remedy, changes = self.remedy, {name: spell(value) for name, value in self.remedy.changes.items()}
        dollars = "" if remedy.cost_usd is None else f", {usd(remedy.cost_usd)}"
        return f"{options(**changes)} fits ({duration(remedy.time.seconds)}{dollars})"

    def sentence(self) -> str:
        """Return the estimate as one line: time with its interval, dollars, and the evidence."""
        time = self.time
        dollars = "" if self.cost_usd is None else f", {usd(self.cost_usd)}"
        between = f"{duration(time.seconds_low)} to {duration(time.seconds_high)}"
        billed = " billed, without the wait for instances" if self.spec.has_instances else ""
        return f"{duration(time.seconds)}{billed} ({between} in 80 % of such jobs){dollars}; from {self.basis}"

    def as_metrics(self) -> dict[str, float]:
        """Return the estimate as metrics, which are recorded in the job's run."""
        values = {
            metrics.ESTIMATED_SECONDS: self.time.seconds,
            f"{metrics.ESTIMATED_SECONDS}_low": self.time.seconds_low,
            f"{metrics.ESTIMATED_SECONDS}_high": self.time.seconds_high,
            metrics.ESTIMATED_COST_USD: self.cost_usd,
            metrics.ESTIMATED_MEMORY_GIB: None if self.memory is None else self.memory.gib,
        }
        return {name: value for name, value in values.items() if value is not None}


class Estimator:
    """Predicts jobs from the evidence of earlier jobs."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self._time = timing.fit(evidence.times)
        self._memory = MemoryModel(evidence.peaks)

    def estimate(
        self,
        spec: JobSpec,
        built: Architecture,
        price: Price | None,
        *,
        plan: BatchPlan | None = None,
        facts: Mapping[str, float] | None = None,
        stack: str | None = None,
    ) -> Estimate | None:
        """Estimate one job, or return None if the number of its training rows is unknown.

        plan: the batch plan; by default the one that `fitting_plan` chooses.
        facts: known facts of the prepared data.
        stack: name of the code that trains, by default that of the job's program.
        """
        plan = plan or self.fitting_plan(spec, built, facts)
        setting = setting_of(spec, plan, built, facts)
        if setting is None:
            return None
        work = counting.describe(setting, stack=stack)
        (time,) = self._time.predict([work])
        peak, did_not_fit = self._memory_of(setting)
        offloads = ["the time of offloading is not counted"] if spec.cpu_offload else []
        loses = ["bf16-true loses updates below 1/512 of a weight"] if spec.precision == "bf16-true" else []
        return Estimate(
            spec=spec,
            plan=plan,
            measured_here=len(self.evidence.runs_like(work)[0]),
            time=time,
            memory=peak,
            price=price,
            basis="; ".join([self._basis(setting, work), *offloads, *loses, *_unmeasured(work)]),
            program=spec.trained_by,
            did_not_fit=did_not_fit,
            tokens=work.tokens if spec.task == metrics.CAUSAL_LM else None,
        )

    def _memory_of(self, setting: Setting | None) -> tuple[MemoryPrediction | None, Footprint | None]:
        """Return a device's peak memory, and an earlier job that ran out of memory but needed no more, or None."""
        if setting is None:
            return None, None
        described = memory.describe(setting)
        if not self.evidence.did_not_fit:
            return self._memory.predict(described), None
        footprint = Footprint.of(setting.spec, setting.plan, described, setting.share)
        return self._memory.predict(described), footprint.why_full(self.evidence.did_not_fit)

    def fits(self, setting: Setting | None) -> str:
        """Return `Estimate.fits` of a job with this setting. It takes less time than an estimate."""
        return _fits(*self._memory_of(setting))

    def fitting_plan(self, spec: JobSpec, built: Architecture, facts: Mapping[str, float] | None = None) -> BatchPlan:
        """Return the batch plan of a job whose micro-batches fit in memory, if the job `leaves_batch_open`.

        It is the plan that the parameters imply if `fits` is `yes` for it or if the device's memory is unknown.
        Otherwise, its micro-batches have at most the largest power of two of rows that fits, or one row if none does.
        """
        plan = spec.plan()
        setting = setting_of(spec, plan, built, facts) if spec.leaves_batch_open else None
        if setting is None or math.isnan(setting.share.usable_gib) or self.fits(setting) == "yes":
            return plan
        parts = plan.in_parts(max(1, self.largest_batch(spec, built, facts)))
        # Parts of a step may need more memory than a step of as many rows: their gradients are summed.
        while self.fits(setting_of(spec, parts, built, facts)) != "yes":
            smaller = parts.with_less_memory()
            if smaller is None:
                break
            parts = smaller
        return parts

    def largest_batch(self, spec: JobSpec, built: Architecture, facts: Mapping[str, float] | None = None) -> int:
        """Return the largest per-device batch, a power of two, for which `fits` is `yes`; 0 if there is none.

        Batches with more rows than a device's share of an epoch, or with more than 16,384 rows, are not tried.
        """
        rows, plan = training_rows(spec.data_arguments, facts) or 1, spec.plan()
        sizes = [2**power for power in range(max(1, math.ceil(rows / plan.devices)).bit_length())]

        def is_too_large(size: int) -> bool:
            larger = replace(plan, per_device_train_batch_size=size, global_batch_size=0)
            return self.fits(setting_of(spec, larger, built, facts)) != "yes"

        fitting = bisect_left(sizes[:_MOST_POWERS], True, key=is_too_large)  # a larger batch never needs less memory
        return sizes[fitting - 1] if fitting else 0

    def _basis(self, setting: Setting, work: Work) -> str:
        here, of_model, of_chip = self.evidence.runs_like(work)
        machine = "accelerator" if setting.spec.has_instances else "machine"
        if here:
            return f"{_count(here)} of this model on this cluster"
        others = [f"{_count(of_model)} of this model on other clusters"] if of_model else []
        others += [f"{_count(of_chip)} on this {machine}"] if of_chip else []
        basis = f"{' and '.join(others)}: not measured here" if others else "data sheets: nothing similar was measured"
        device = setting.share.device
        if not device.is_listed:
            return f"no data sheet for {device.name}, so its speed is a guess; {basis}"
        if not (device.is_measured or of_chip):
            basis = f"no training rate on {device.name} is known; {basis}"
        if work.instances == 1 or self.evidence.has_network(work):
            return basis
        is_tcp = work.constants["network"] == counting.TCP
        network = "without EFA, and without it a job may take several times as long" if is_tcp else "with EFA"
        return f"no job of yours has used several machines {network}; {basis}"


def _fits(peak: MemoryPrediction | None, did_not_fit: Footprint | None) -> str:
    if did_not_fit is not None:
        return "no"
    return "unsure" if peak is None else peak.fits


def _unmeasured(work: Work) -> list[str]:
    """Return what to know of a kind of job that nobody has measured; empty for other kinds."""
    name = UNMEASURED.get(work.kind)
    return [f"no published rate of {name} is known, so the interval is half as wide again"] if name else []


def _count(runs: Sequence[Measurement]) -> str:
    """Describe how many runs there are, and how many of them are published or simulated."""
    plural = "s" if len(runs) > 1 else ""
    foreign = {origin: sum(run.origin == origin for run in runs) for origin in ("published", "simulated")}
    for origin, count in foreign.items():
        if count == len(runs):
            return f"{count} {origin} run{plural}"
    words = ", ".join(f"{count} {origin}" for origin, count in foreign.items() if count)
    return f"{len(runs)} run{plural}{f' ({words})' if words else ''}"
