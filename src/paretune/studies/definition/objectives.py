"""The metrics that a study can optimize or constrain.

Has the prior knowledge about each metric, and checks the objectives and constraints of a study.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paretune.core.errors import BadInput, did_you_mean
from paretune.core.noise import F1_NOISE
from paretune.specification import metrics

DIRECTIONS = ("minimize", "maximize")

Constraints = Mapping[str, Mapping[str, float]]  # metric to {"min": x}, {"max": y} or both; reaching a bound meets it


@dataclass(frozen=True)
class Objective:
    """A metric that a study can optimize or constrain."""

    metric: str
    direction: str  # minimize or maximize
    label: str = ""  # its name in words
    unit: str = ""
    task: str | None = None  # a task that measures it, or None if all do; `metrics.TASKS` lists all metrics of a task
    noise: float | None = None  # largest standard deviation seen between runs; None for a metric without such a figure
    is_relative: bool = False  # whether the noise grows with the value
    lowest: float = -math.inf  # smallest possible value
    highest: float = math.inf  # largest possible value

    @property
    def sign(self) -> float:
        """1 if more is better, -1 if less is better."""
        return 1.0 if self.direction == "maximize" else -1.0

    @property
    def is_share(self) -> bool:
        """Whether its values are shares from 0 to 1, like F1."""
        return (self.lowest, self.highest) == (0.0, 1.0)


_OF_THE_CLUSTER: dict[str, Any] = {"is_relative": True, "lowest": 0.0}
_SHARE: dict[str, Any] = {"noise": F1_NOISE, "lowest": 0.0, "highest": 1.0}
# Perplexity is exp(loss), so an absolute difference in loss is a relative difference in perplexity.
_PERPLEXITY: dict[str, Any] = {"noise": F1_NOISE, "is_relative": True, "lowest": 1.0}

_TABLE = (
    Objective(metrics.COST_USD, "minimize", "cost", "USD", **_OF_THE_CLUSTER),
    Objective(metrics.TRAIN_SECONDS, "minimize", "training time", "s", **_OF_THE_CLUSTER),
    Objective(metrics.JOB_SECONDS, "minimize", "job time", "s", **_OF_THE_CLUSTER),
    Objective(metrics.BILLABLE_SECONDS, "minimize", "billed time", "s", **_OF_THE_CLUSTER),
    Objective(metrics.F1, "maximize", "F1", task="classification", **_SHARE),
    Objective(metrics.F1_MICRO, "maximize", "micro F1", task="multi-label", **_SHARE),
    Objective(metrics.SUBSET_ACCURACY, "maximize", "rows with all labels right", task="multi-label", **_SHARE),
    Objective(metrics.THROUGHPUT_SAMPLES, "maximize", "throughput", "samples/s", **_OF_THE_CLUSTER),
    Objective(metrics.PERPLEXITY, "minimize", "perplexity", task="causal-lm", **_PERPLEXITY),
    Objective(metrics.EVAL_LOSS, "minimize", "evaluation loss", noise=F1_NOISE, lowest=0.0),
)
OBJECTIVES = {objective.metric: objective for objective in _TABLE}
"""Maps each known metric to its objective. Among the metrics that measure a model, the most informative comes first. A
user's own code may also log metrics that are not listed here."""

_LESS_IS_BETTER = re.compile(
    r"\w*loss(es)?|(\w*[a-z])?errors?|err|perplexit(y|ies)|ppl|[wct]er|eer|n?r?mse|r?msle|n?mae|[sw]?mape|mase"
    r"|nll|cross_?entropy|brier|ece|bp[bc]|fid|deviance"
)
"""Words of metrics that are better if they are lower, each as a whole word."""
_MORE_IS_BETTER = re.compile(
    r"f1|(macro|micro|weighted)f1|acc\d?|accuracy|precision|recall|auc|auroc|auprc|aupr|map\d*|ap\d*|m?iou|dice|bleu"
    r"|sacrebleu|rouge(\d|l|lsum)?|meteor|chrf|r2|pearsonr?|spearmanr?|kendall|mcc|matthews|kappa|ndcg|mrr|psnr|ssim"
    r"|top[15]|reward|throughput"
)
"""Words of metrics that are better if they are higher, each as a whole word."""
_UNCLEAR = re.compile(
    r"neg(ative)?|minus|inv(erse)?|non|not|std|stdev|stddev|var|variance|deviation|gap|drop|delta|diff|difference"
    r"|change|decrease|increase|ratio|decay|penalty|s|ms|sec|seconds|time|count|num|threshold"
)
"""Words that turn the meaning of the others around, or make the number a different one: `acc_drop`, `f1_std`."""
_NEGATED_BY_SCIKIT_LEARN = re.compile(
    r"neg_(mean_|median_|root_mean_|max_)?(absolute_percentage|absolute|squared_log|squared)?_?error|neg_log_loss"
    r"|neg_brier_score|neg_(mean_poisson|mean_gamma)_deviance"
)
"""scikit-learn's scorers that negate an error, so that more is better."""
_NEGATIVE_LOG_LIKELIHOOD = re.compile(r"neg(ative)?_?log_?likelihood(_loss)?")


def direction_of(metric: str) -> str | None:
    """Return the direction of a metric if its name leaves no doubt, or None if the user must say it.

    A wrong guess would pay for a search for the worst model. So a name has no direction if it has words of both lists
    or a word that may turn their meaning around. But a name that ends with `loss` or `error`, such as `dice_loss` or
    `top1_err`, is a loss.
    """
    if metric in OBJECTIVES:
        return OBJECTIVES[metric].direction
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", metric)  # valAccuracy
    words = re.findall(r"[a-z0-9]+", spaced.lower())
    plain = re.findall(r"[a-z0-9]+", metric.lower())  # mIoU
    name = "_".join(words)
    if _NEGATED_BY_SCIKIT_LEARN.search(name):
        return "maximize"
    if _NEGATIVE_LOG_LIKELIHOOD.search(name):
        return "minimize"
    less, more, unclear = (
        any(pattern.fullmatch(word) for word in (*words, *plain))
        for pattern in (_LESS_IS_BETTER, _MORE_IS_BETTER, _UNCLEAR)
    )
    less |= name.endswith("cross_entropy") or re.search(r"(^|_)bits_per_[a-z]+$", name) is not None
    if unclear or words[:1] in (["1"], ["one"]) or not (less or more):  # 1 - accuracy
        return None
    if less and more:
        return "minimize" if re.fullmatch(r"\w*(loss|errors?|err)", words[-1]) else None
    return "minimize" if less else "maximize"


def stated_direction(metric: str, stated: str) -> str:
    """Return the direction of a metric; `stated` is what the user says, or empty.

    Raises BadInput if the user says nothing and the name leaves doubt, or if both contradict each other.
    """
    usual = direction_of(metric)
    if not stated and usual is None:
        raise BadInput([f"{metric}: say --minimize {metric} or --maximize {metric}"])
    if stated and usual not in (None, stated):
        better = "lower" if usual == "minimize" else "higher"
        file = (
            ""
            if metric in OBJECTIVES
            else f"; if its name misleads, write {metric}: {stated} in the objectives of a study file"
        )
        raise BadInput([f"{metric} is better when it is {better}: say --{usual} {metric}{file}"])
    return stated or str(usual)


def with_quality(objectives: Mapping[str, str], constraints: Constraints) -> dict[str, str]:
    """Return the objectives, plus the metric of the model's quality if only a constraint names it.

    "The cheapest model with an F1 of at least 0.9" is a question about dollars and F1. A metric that is not in
    OBJECTIVES is maximized if its first bound is a `min`, and minimized if its first bound is a `max`.
    """
    if judged_by(objectives) is not None:
        return dict(objectives)
    directions = {"min": "maximize", "max": "minimize"}
    firsts = {name: next(iter(bounds), "") for name, bounds in constraints.items()}
    ends = {name: directions[first] for name, first in firsts.items() if first in directions}  # others are refused
    quality = judged_by({name: direction for name, direction in ends.items() if name not in metrics.OF_THE_CLUSTER})
    return {**objectives, **({quality.metric: quality.direction} if quality is not None else {})}


def recorded_goals(params: Mapping[str, str]) -> dict[str, str]:
    """Return the objectives (`with_quality`) of a recorded study, from the parameters of its run."""
    return with_quality(json.loads(params["objectives"]), json.loads(params.get("constraints", "{}")))


def judged_by(objectives: Mapping[str, str]) -> Objective | None:
    """Return the objective that measures the model, or None if all objectives are dollars or metrics of speed.

    If several objectives measure the model, return the one that OBJECTIVES lists first; if OBJECTIVES has none of them,
    return the first one.
    """
    names = [name for name in [*OBJECTIVES, *objectives] if name in objectives and name not in metrics.OF_THE_CLUSTER]
    if not names:
        return None
    return OBJECTIVES.get(names[0]) or Objective(metric=names[0], direction=objectives[names[0]])


def default_objectives(job: Mapping[str, Any], *, paid: str = metrics.COST_USD) -> dict[str, str]:
    """Return the objectives of a study that gives none: dollars, or what is `paid`, and its task's quality metric."""
    task = metrics.TASKS.get(str(job.get("task") or metrics.CLASSIFICATION))
    name = metrics.F1 if task is None else task.quality  # another rule refuses unknown tasks
    return {paid: "minimize", name: OBJECTIVES[name].direction}


def costs(values: Mapping[str, float], objectives: Mapping[str, str]) -> tuple[float, ...]:
    """Return the values of the objectives, with the sign of maximized ones flipped so that less is always better."""
    return tuple(-values[name] if direction == "maximize" else values[name] for name, direction in objectives.items())


def violations(measured: Mapping[str, float], constraints: Constraints) -> dict[str, float]:
    """Return by how much each bound, such as `f1 min`, is missed: 0 or less if it is met, 1 if its metric is absent."""
    signs = {"min": -1.0, "max": 1.0}
    return {
        f"{name} {end}": signs[end] * (measured[name] - bounds[end]) if name in measured else 1.0
        for name, bounds in constraints.items()
        for end in signs
        if end in bounds
    }


def objective_faults(name: str, direction: str, task: str | None) -> list[str]:
    """Return the faults of one objective. `task` is None for the user's own code, which may log any metric."""
    usual = OBJECTIVES[name].direction if name in OBJECTIVES else direction
    if fault := _unmeasured(name, task):
        return [f"objectives: {fault}"]
    if direction not in DIRECTIONS:
        return [f"objective {name} must be minimize or maximize, got {direction!r}"]
    return [] if direction == usual else [f"objective {name} cannot be {direction}d: write {name}: {usual}"]


def bounds_faults(name: str, bounds: Mapping[str, float], task: str | None) -> list[str]:
    """Return the faults of one constraint. `task` is None for the user's own code, which may log any metric."""
    if fault := _unmeasured(name, task):
        return [f"constraints: {fault}"]
    if not bounds or bounds.keys() - {"min", "max"}:
        got = ", ".join(bounds) or "no bound"
        return [f"constraint {name} must have min, max, or both, such as {{min: 0.9}}, got {got}"]
    metric = OBJECTIVES.get(name) or Objective(metric=name, direction="")
    low, high = metric.lowest, metric.highest
    allowed = f"from {low:g} to {high:g}" if high < math.inf else f"at least {low:g}"
    wrong = [(end, value) for end, value in bounds.items() if not low <= value <= high]
    faults = [f"constraint {name}: {end} must be {allowed}, got {value:g}" for end, value in wrong]
    if "min" in bounds and "max" in bounds and bounds["min"] > bounds["max"]:
        faults.append(f"constraint {name}: min must be at most max, got {bounds['min']:g} and {bounds['max']:g}")
    return faults


def _unmeasured(name: str, task: str | None) -> str:
    """Return the reason why jobs of this task do not measure a metric, or an empty string if they do."""
    if task is None:
        return ""
    if name not in OBJECTIVES:
        if task in metrics.TASKS and name in metrics.TASKS[task].measures:
            usual = metrics.TASKS[task].quality
            return f"{name} is recorded, but cannot be optimized or limited: use {usual} or eval_loss"
        measured = [each for each in OBJECTIVES if not _unmeasured(each, task)]
        hint = did_you_mean(name, measured, or_longer=True) or f"there are {', '.join(measured)}"
        return f"unknown metric {name}: {hint}; any other must be logged by your own training code (entry_script)"
    if task not in metrics.TASKS or name in metrics.TASKS[task].measures or OBJECTIVES[name].task in (None, task):
        return ""  # another rule refuses unknown tasks
    advice = f"use {metrics.TASKS[task].quality} or eval_loss, or set task: {OBJECTIVES[name].task} in job"
    return f"{name} is not measured with task {task}: {advice}"
