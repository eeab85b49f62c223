"""Objectives and constraints of a study: the metrics that it can optimise or bound, and their faults."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paretune.core.errors import did_you_mean
from paretune.specification import metrics
from paretune.specification.parameters import Fault
from paretune.studies.definition.quality import BEST, DIRECTIONS, KNOWN, LAST, TAKES


@dataclass(frozen=True)
class _Objective:
    """The better direction, the name in words, the unit, and the task that measures it, None for all."""

    direction: str
    label: str
    unit: str = ""
    task: str | None = None


OBJECTIVES = {
    metrics.COST_USD: _Objective("minimize", "cost", "USD"),
    metrics.TRAIN_SECONDS: _Objective("minimize", "training time", "s"),
    metrics.JOB_SECONDS: _Objective("minimize", "job time", "s"),
    metrics.BILLABLE_SECONDS: _Objective("minimize", "billed time", "s"),
    metrics.F1: _Objective("maximize", "F1", task="classification"),
    metrics.F1_MICRO: _Objective("maximize", "micro F1", task="multi-label"),
    metrics.SUBSET_ACCURACY: _Objective("maximize", "rows all right", task="multi-label"),
    metrics.THROUGHPUT_SAMPLES: _Objective("maximize", "throughput", "samples/s"),
    metrics.PERPLEXITY: _Objective("minimize", "perplexity", task="causal-lm"),
    metrics.EVAL_LOSS: _Objective("minimize", "evaluation loss"),
}
"""Metrics that a study can optimise or bound; one with a task is measured in that task only. A training of the user's
own may log any other metric too."""
TIMES = metrics.TIMES
OF_THE_CLUSTER = metrics.OF_THE_CLUSTER

Constraints = Mapping[str, Mapping[str, float]]  # metric to {"min": x}, {"max": y} or both, the ends included


def default_objectives(job: Mapping[str, Any], quality: Mapping[str, str] | None = None) -> dict[str, str]:
    """Dollars and the quality metric of the study, by default that of the task."""
    task = metrics.TASKS.get(str(job.get("task") or metrics.CLASSIFICATION))
    name = metrics.F1 if task is None else task.quality  # another rule refuses unknown tasks
    if not quality or not quality.get("metric"):
        return {metrics.COST_USD: "minimize", name: OBJECTIVES[name].direction}
    name = quality["metric"]
    usual = OBJECTIVES[name].direction if name in OBJECTIVES else "maximize"
    return {metrics.COST_USD: "minimize", name: quality.get("direction") or usual}


def spelled(objectives: Mapping[str, str], takes: Mapping[str, str]) -> dict[str, Any]:
    """Objectives as a file spells them, with `take` if it is not the last value of a run."""
    return {
        name: direction if takes.get(name, LAST) == LAST else {"direction": direction, "take": takes[name]}
        for name, direction in objectives.items()
    }


def costs(values: Mapping[str, float], objectives: Mapping[str, str]) -> tuple[float, ...]:
    """The values of the objectives with signs such that less is better."""
    return tuple(-values[name] if direction == "maximize" else values[name] for name, direction in objectives.items())


def violations(measured: Mapping[str, float], constraints: Constraints) -> dict[str, float]:
    """Distance by which each constraint is missed; 0 or less means met. Unmeasured metrics count as missed by 1."""
    signs = {"min": -1.0, "max": 1.0}
    return {
        f"{name} {end}": signs[end] * (measured[name] - bounds[end]) if name in measured else 1.0
        for name, bounds in constraints.items()
        for end in signs
        if end in bounds
    }


def nearest(name: str, allowed: Collection[str]) -> str:
    """Suffix of a message that suggests the closest allowed name, or lists all of them."""
    return did_you_mean(name, allowed, or_longer=True) or f"there are {', '.join(allowed)}"


def objective_faults(name: str, direction: str, *, is_own: bool = False) -> list[str]:
    """Faults of one objective. With `is_own`, the user's own training may log any metric."""
    if name not in OBJECTIVES and (unknown := _unknown(name, is_own)):
        return [f"unknown objective {name}: {unknown}"]
    usual = OBJECTIVES[name].direction if name in OBJECTIVES else direction
    if direction not in DIRECTIONS:
        advice = f"{usual} it" if name in OBJECTIVES else "say which way it is better"
        return [f"objective {name} must be minimize or maximize, got {direction!r}: {advice}"]
    return [] if direction == usual else [f"objective {name} cannot be {direction}d: write {name}: {usual}"]


def take_faults(name: str, take: str) -> list[str]:
    """Faults of the choice which value of a metric counts."""
    if take not in TAKES:
        return [f"objective {name}: take must be {' or '.join(TAKES)}, got {take!r}: which value of a run counts"]
    return [f"objective {name} has one value a run: leave take out"] if name in OF_THE_CLUSTER and take == BEST else []


def _unknown(name: str, is_own: bool) -> str:
    """Reason why a metric outside OBJECTIVES cannot be an objective; empty if it can."""
    if not is_own:
        return f"any other one must be logged by a training of your own (entry_script); {nearest(name, OBJECTIVES)}"
    if name in _COLUMNS:
        return "pareto.csv has a column of that name: log the metric under another one"
    return "" if name.isprintable() and name.strip() == name != "" else "a name is one line without spaces around it"


_COLUMNS = {"trial", "run_id", "status", "origin", "pareto_rank", "spent_usd"}


def bounds_faults(name: str, bounds: Mapping[str, float], *, is_own: bool = False) -> list[str]:
    """Faults of one constraint. With `is_own`, the user's own training may log any metric."""
    if name not in OBJECTIVES and (unknown := _unknown(name, is_own)):
        return [f"unknown metric {name} in constraints: {unknown}"]
    if not bounds:
        return [f"constraint {name} must have min, max, or both, such as {{min: 0.9}}"]
    low, high = (0.0, math.inf) if name in OF_THE_CLUSTER else (-math.inf, math.inf)
    if name in KNOWN:
        low, high = KNOWN[name].lowest, KNOWN[name].highest
    allowed = f"from {low:g} to {high:g}" if high < math.inf else f"a finite number of at least {low:g}"
    allowed = "a finite number" if low == -math.inf else allowed
    outside = [
        f"constraint {name}: {end} must be {allowed}, got {value:g}"
        for end, value in bounds.items()
        if not (math.isfinite(value) and low <= value <= high)
    ]
    if not outside and bounds.get("min", -math.inf) > bounds.get("max", math.inf):
        return [f"constraint {name}: min must be at most max, got {bounds['min']:g} and {bounds['max']:g}: swap them"]
    return outside


def unmeasured(task: str, section: str, names: Iterable[str]) -> Iterator[Fault]:
    """Faults of objectives or constraints that a task does not measure."""
    if task not in metrics.TASKS:  # another rule refuses unknown tasks
        return
    instead = metrics.TASKS[task].quality
    for name in names:
        if name in metrics.TASKS[task].measures:
            continue
        if name in OBJECTIVES and (other := OBJECTIVES[name].task) not in (None, task):
            advice = f"use {instead} or eval_loss, or set task: {other} in job"
            yield Fault((section, name), f"{section}: {name} is not measured with task {task}: {advice}")
