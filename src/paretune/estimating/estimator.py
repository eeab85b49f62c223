"""Predicted seconds, dollars and memory of a job before it is paid for, and the basis of the prediction."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from paretune.estimating.architecture import Architecture
from paretune.estimating.evidence import Evidence
from paretune.estimating.memory import MemoryModel, MemoryPrediction
from paretune.estimating.memory_limits import Footprint
from paretune.estimating.phases import Seconds, phases_of
from paretune.estimating.time_estimate import TimeEstimate
from paretune.estimating.timing import Measurement, Prediction, TimeModel
from paretune.estimating.timing_features import JobFeatures, describe
from paretune.estimating.workload import training_rows
from paretune.pricing.prices import Price
from paretune.specification import metrics
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec


@dataclass(frozen=True, kw_only=True)
class Estimate(TimeEstimate):
    """Predicted time, dollars and memory of one job with paretune's own training."""

    plan: BatchPlan
    time: Prediction
    memory: MemoryPrediction
    usable_gib: float  # memory of one device that the job may use
    did_not_fit: Footprint | None = None  # an earlier job that ran out of memory, needing no more than this one
    tokens: float | None = None  # of the whole training of a causal language model; None for other tasks
    largest_batch: int | None = None  # power of two of rows per device that is said to fit; 0 if none, None if unknown

    @property
    def phases(self) -> Mapping[str, Seconds]:
        """Seconds of each phase, by what earlier jobs took around their steps and the bytes of the model."""
        time = self.time
        return phases_of(time, self.spec, factor=time.startup_factor, uploaded_bytes=time.uploaded_bytes)

    @property
    def usd_per_billion_tokens(self) -> float | None:
        """Predicted dollars of the whole job per billion tokens, or None without a price or tokens."""
        return None if self.cost_usd is None or not self.tokens else self.cost_usd / self.tokens * 1e9

    @property
    def fits(self) -> str:
        """`yes`, `no`, or `unsure` if the memory of the device is inside the predicted interval."""
        if self.did_not_fit is not None or self.memory.gib_low > self.usable_gib:
            return "no"
        return "yes" if self.memory.gib_high <= self.usable_gib else "unsure"

    def as_metrics(self) -> dict[str, float]:
        """Return what a job's run records of its estimate, memory included."""
        return super().as_metrics() | {metrics.ESTIMATED_MEMORY_GIB: self.memory.gib}


_MOST_POWERS = 15  # of two: up to 16,384 rows


class Estimator:
    """Predicts jobs from the evidence of earlier jobs."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self._time = TimeModel(evidence.times)
        self._memory = MemoryModel(evidence.peaks)

    def estimate(
        self,
        spec: JobSpec,
        built: Architecture,
        price: Price | None,
        *,
        plan: BatchPlan | None = None,
        facts: Mapping[str, float] | None = None,
    ) -> Estimate | None:
        """Return the estimate of one job, or None if the number of its training rows is unknown.

        `plan` is given if it differs from that of the specification; `facts` are known facts of its prepared data.
        """
        plan = plan or spec.plan()
        described = describe(spec, plan, built, facts)
        if described is None:
            return None
        (time,) = self._time.predict([described.time])
        return Estimate(
            spec=spec,
            plan=plan,
            measured_here=len(self.evidence.runs_like(described)[0]),
            time=time,
            memory=self._memory.predict(described.memory),
            usable_gib=described.usable_gib,
            price=price,
            basis=self._basis(described) + _uncounted(spec),
            did_not_fit=self.job_that_did_not_fit(spec, plan, described),
            tokens=described.tokens if spec.task == metrics.CAUSAL_LM else None,
        )

    def largest_batch(self, item: Estimate, built: Architecture, facts: Mapping[str, float] | None = None) -> int:
        """Return the largest power of two of rows per device that fits, up to an epoch's; 0 if none does."""
        rows = training_rows(item.spec, facts) or 1
        sizes = [2**power for power in range(max(1, math.ceil(rows / item.plan.devices)).bit_length())]

        def is_too_large(size: int) -> bool:
            plan = replace(item.plan, per_device_train_batch_size=size)
            features = describe(item.spec, plan, built, facts)
            if features is None:
                return True
            peak = self._memory.predict(features.memory)
            return peak.gib_high > features.usable_gib or bool(self.job_that_did_not_fit(item.spec, plan, features))

        fitting = bisect_left(sizes[:_MOST_POWERS], True, key=is_too_large)  # a larger batch never needs less
        return sizes[fitting - 1] if fitting else 0

    def job_that_did_not_fit(self, spec: JobSpec, plan: BatchPlan, described: JobFeatures) -> Footprint | None:
        """Return an earlier job that ran out of memory although it needed no more and had no less, or None."""
        return Footprint.of(spec, plan, described.memory).why_full(self.evidence.did_not_fit)

    def _basis(self, described: JobFeatures) -> str:
        here, of_model, of_chip = self.evidence.runs_like(described)
        device = "machine" if described.time.is_local else "accelerator"
        if here:
            return f"{_count(here)} of this model on this cluster"
        known = [f"{_count(of_model)} of this model on other clusters"] if of_model else []
        known += [f"{_count(of_chip)} on this {device}"] if of_chip else []
        return f"{' and '.join(known)}: not measured here" if known else "data sheets: nothing like it was measured"


def _uncounted(spec: JobSpec) -> str:
    return "; the time of offloading is not counted" if spec.cpu_offload or spec.activation_offloading else ""


def _count(runs: Sequence[Measurement]) -> str:
    """Return the number of runs in words, and how many of them are published or simulated."""
    plural = "s" if len(runs) > 1 else ""
    foreign = {origin: sum(run.origin == origin for run in runs) for origin in ("published", "simulated")}
    for origin, count in foreign.items():
        if count == len(runs):
            return f"{count} {origin} run{plural}"
    words = ", ".join(f"{count} {origin}" for origin, count in foreign.items() if count)
    return f"{len(runs)} run{plural}{f' ({words})' if words else ''}"
