"""What a study can optimise or bound, and what is wrong with what it names."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paretune.core.errors import did_you_mean
from paretune.spec import metrics
from paretune.studies.definition.space import Fault


@dataclass(frozen=True)
class _Objective:
    """Which way is better, its name in words, its unit, and between what a bound can lie."""

    direction: str
    label: str
    unit: str = ""
    lowest: float = 0.0
    highest: float = math.inf
    task: str | None = None


OBJECTIVES = {
    metrics.COST_USD: _Objective("minimize", "cost", "USD"),
    metrics.TRAIN_SECONDS: _Objective("minimize", "training time", "s"),
    metrics.JOB_SECONDS: _Objective("minimize", "job time", "s"),
    metrics.BILLABLE_SECONDS: _Objective("minimize", "billed time", "s"),
    metrics.F1: _Objective("maximize", "F1", highest=1.0, task="classification"),
    metrics.THROUGHPUT_SAMPLES: _Objective("maximize", "throughput", "samples/s"),
    metrics.PERPLEXITY: _Objective("minimize", "perplexity", lowest=1.0, task="causal-lm"),
    metrics.EVAL_LOSS: _Objective("minimize", "evaluation loss"),
}
"""What a study can optimise or bound; one that belongs to a task is not measured in another."""
QUALITIES = (metrics.F1, metrics.PERPLEXITY, metrics.EVAL_LOSS)
"""Objectives that measure the model, the most informative first."""
TIMES = (metrics.TRAIN_SECONDS, metrics.JOB_SECONDS, metrics.BILLABLE_SECONDS, metrics.THROUGHPUT_SAMPLES)
"""Objectives that measure how fast a job is."""
OF_THE_CLUSTER = {metrics.COST_USD, *TIMES}
"""Objectives that follow from the cluster a job runs on."""

Constraints = Mapping[str, Mapping[str, float]]
"""Metric to {"min": x}, {"max": y} or both, the ends included."""


def runs_own_training(job: Mapping[str, Any]) -> bool:
    """Whether jobs run a training of the user's own: nobody here knows its metrics, its seconds and its memory."""
    return any(str(job.get(name) or "").strip() for name in ("entry_script", "project"))


def default_objectives(job: Mapping[str, Any]) -> dict[str, str]:
    """Dollars and what the task is judged by."""
    quality = metrics.PERPLEXITY if job.get("task") == "causal-lm" else metrics.F1
    return {metrics.COST_USD: "minimize", quality: OBJECTIVES[quality].direction}


def costs(values: Mapping[str, float], objectives: Mapping[str, str]) -> tuple[float, ...]:
    """The objectives as something to minimise."""
    return tuple(-values[name] if direction == "maximize" else values[name] for name, direction in objectives.items())


def nearest(name: str, known: Collection[str]) -> str:
    """What was probably meant, or all there is, as the end of a sentence."""
    return did_you_mean(name, known, or_longer=True) or f"there are {', '.join(known)}"


def objective_faults(name: str, direction: str, *, is_own: bool = False) -> list[str]:
    """What is wrong with one objective; `is_own`: of a training of the user's own, which may log any metric."""
    if name not in OBJECTIVES and is_own:
        wrong = f"objective {name} must be minimize or maximize, got {direction!r}: say which way it is better"
        return [] if direction in ("minimize", "maximize") else [wrong]
    if name not in OBJECTIVES:
        return [f"unknown objective {name}: {nearest(name, OBJECTIVES)}"]
    right = OBJECTIVES[name].direction
    if direction not in ("minimize", "maximize"):
        return [f"objective {name} must be minimize or maximize, got {direction!r}: {right} it"]
    return [] if direction == right else [f"objective {name} cannot be {direction}d: write {name}: {right}"]


def bounds_faults(name: str, bounds: Mapping[str, float], *, is_own: bool = False) -> list[str]:
    """What is wrong with one constraint; `is_own`: of a training of the user's own, which may log any metric."""
    if name not in OBJECTIVES and is_own:
        return [] if bounds else [f"constraint {name} must have min, max, or both, such as {{min: 0.9}}"]
    if name not in OBJECTIVES:
        return [f"unknown metric {name} in constraints: {nearest(name, OBJECTIVES)}"]
    if not bounds:
        return [f"constraint {name} must have min, max, or both, such as {{min: 0.9}}"]
    low, high = OBJECTIVES[name].lowest, OBJECTIVES[name].highest
    allowed = f"from {low:g} to {high:g}" if high < math.inf else f"a finite number of at least {low:g}"
    outside = [
        f"constraint {name}: {end} must be {allowed}, got {value:g}"
        for end, value in bounds.items()
        if not (math.isfinite(value) and low <= value <= high)
    ]
    if not outside and bounds.get("min", -math.inf) > bounds.get("max", math.inf):
        return [f"constraint {name}: min must be at most max, got {bounds['min']:g} and {bounds['max']:g}: swap them"]
    return outside


def unmeasured(task: str, section: str, names: Iterable[str]) -> Iterator[Fault]:
    """Objectives or constraints that a task does not measure."""
    instead = metrics.F1 if task == "classification" else metrics.PERPLEXITY
    advice = f"is not measured with task {task}: use {instead} or eval_loss, or set task:"
    for name in names:
        if name in OBJECTIVES and OBJECTIVES[name].task not in (None, task):
            yield (section, name), f"{section}: {name} {advice} {OBJECTIVES[name].task} in job"
