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
    metrics.RMSE: _Objective("minimize", "RMSE", task="regression"),
    metrics.MAE: _Objective("minimize", "mean absolute error", task="regression"),
    metrics.R2: _Objective("maximize", "R2", lowest=-math.inf, highest=1.0, task="regression"),
    metrics.SPEARMAN: _Objective("maximize", "rank correlation", lowest=-1.0, highest=1.0, task="regression"),
    metrics.F1_MICRO: _Objective("maximize", "micro F1", highest=1.0, task="multi-label"),
    metrics.SUBSET_ACCURACY: _Objective("maximize", "rows all right", highest=1.0, task="multi-label"),
    metrics.THROUGHPUT_SAMPLES: _Objective("maximize", "throughput", "samples/s"),
    metrics.PERPLEXITY: _Objective("minimize", "perplexity", lowest=1.0, task="causal-lm"),
    metrics.EVAL_LOSS: _Objective("minimize", "evaluation loss"),
}
"""What a study can optimise or bound; one that belongs to a task is not measured in another."""
QUALITIES = (
    *(metrics.F1, metrics.RMSE, metrics.R2, metrics.MAE, metrics.SPEARMAN, metrics.F1_MICRO, metrics.SUBSET_ACCURACY),
    *(metrics.PERPLEXITY, metrics.EVAL_LOSS),
)
"""Objectives that measure the model, the most informative first."""
TIMES = (metrics.TRAIN_SECONDS, metrics.JOB_SECONDS, metrics.BILLABLE_SECONDS, metrics.THROUGHPUT_SAMPLES)
"""Objectives that measure how fast a job is."""
OF_THE_CLUSTER = {metrics.COST_USD, *TIMES}
"""Objectives that follow from the cluster a job runs on."""

Constraints = Mapping[str, Mapping[str, float]]
"""Metric to {"min": x}, {"max": y} or both, the ends included."""


def default_objectives(job: Mapping[str, Any]) -> dict[str, str]:
    """Dollars and what the task is judged by."""
    task = metrics.TASKS.get(str(job.get("task") or metrics.CLASSIFICATION))
    quality = metrics.F1 if task is None else task.quality  # an unknown task is a fault of its own
    return {metrics.COST_USD: "minimize", quality: OBJECTIVES[quality].direction}


def costs(values: Mapping[str, float], objectives: Mapping[str, str]) -> tuple[float, ...]:
    """The objectives as something to minimise."""
    return tuple(-values[name] if direction == "maximize" else values[name] for name, direction in objectives.items())


def nearest(name: str, known: Collection[str]) -> str:
    """What was probably meant, or all there is, as the end of a sentence."""
    return did_you_mean(name, known, or_longer=True) or f"there are {', '.join(known)}"


def objective_faults(name: str, direction: str) -> list[str]:
    """What is wrong with one objective."""
    if name not in OBJECTIVES:
        return [f"unknown objective {name}: {nearest(name, OBJECTIVES)}"]
    right = OBJECTIVES[name].direction
    if direction not in ("minimize", "maximize"):
        return [f"objective {name} must be minimize or maximize, got {direction!r}: {right} it"]
    return [] if direction == right else [f"objective {name} cannot be {direction}d: write {name}: {right}"]


def bounds_faults(name: str, bounds: Mapping[str, float]) -> list[str]:
    """What is wrong with one constraint."""
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
    if task not in metrics.TASKS:  # a fault of its own
        return
    instead = metrics.TASKS[task].quality
    advice = f"is not measured with task {task}: use {instead} or eval_loss, or set task:"
    for name in names:
        if name in metrics.TASKS[task].measures:
            continue
        if name in OBJECTIVES and OBJECTIVES[name].task not in (None, task):
            yield (section, name), f"{section}: {name} {advice} {OBJECTIVES[name].task} in job"
