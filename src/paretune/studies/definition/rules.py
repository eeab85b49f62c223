"""The parts of a study, and the rules for them and between them."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from paretune.core.commands import command_line
from paretune.specification import metrics
from paretune.specification.cluster import SIMULATED
from paretune.specification.job import JobSpec
from paretune.specification.parameters import annotations, parameter, parameter_hint, parse, spell
from paretune.studies.definition.file_model import Rule, check, term_faults, value_faults
from paretune.studies.definition.objectives import (
    OF_THE_CLUSTER,
    Constraints,
    bounds_faults,
    default_objectives,
    objective_faults,
    runs_own_training,
    take_faults,
    unmeasured,
)
from paretune.studies.definition.quality import BEST, Quality, judged_by
from paretune.studies.definition.space import (
    INSIDE,
    NOT_SEARCHED,
    Choices,
    Fault,
    FaultPath,
    Range,
    Search,
    combination_faults,
    inside_faults,
    is_inside,
    kind_of,
    mapping_in,
    parameter_of,
    parameters,
)

SAMPLERS = ("tpe", "gp", "nsga2", "random", "grid")
METHODS = ("joint", "split")
_MEASURED_FOR_ANY_JOB = {metrics.COST_USD, metrics.JOB_SECONDS, metrics.BILLABLE_SECONDS}
"""Objectives that follow from the cluster of any job, whatever it trains."""
DRY_RUN = "dry_run"  # parameter of a job that no study can have: it would launch nothing


@dataclass(frozen=True, kw_only=True)
class StudyTerms:
    """The keys of a study with one value; all of them can be typed. None: not set."""

    budget_usd: float | None = parameter(
        None, "dollars that all jobs of the study may cost together; required where jobs are billed", above=0
    )
    n_trials: int | None = parameter(
        None,
        "trials at most, without the repeats of what is recommended; by default as many as the budget or the grid has",
        minimum=1,
    )
    n_parallel: int = parameter(1, "jobs at a time", minimum=1, maximum=1000)
    method: str | None = parameter(
        None,
        "split: learn seconds and quality apart, then verify; joint: all parameters at once; by default split where it "
        "can",
        choices=METHODS,
    )
    sampler: str | None = parameter(
        None, "joint: how points are suggested, as in Optuna (tpe); naming one means joint", choices=SAMPLERS
    )
    seed: int = parameter(42, "seed of the sampler; that of the training stands in job", minimum=0, maximum=2**32 - 1)
    storage: str | None = parameter(
        None,
        "sqlite:///FILE or postgresql://...; by default PARETUNE_STORAGE, else a file in PARETUNE_HOME",
        choices=(),
    )
    once: bool = parameter(
        False, "collect jobs that have ended, launch the next ones, exit with code 75 until the study ends"
    )
    later_runs: int = parameter(0, "how often the winner will be trained again", minimum=0)
    borrow: bool = parameter(
        True, "split: begin with what MLflow holds of earlier studies of the same model; false: from nothing"
    )
    value_of_front_usd: float | None = parameter(
        None, "split: dollars that the whole front is worth; no job is begun that costs more than it may add", above=0
    )


@dataclass(frozen=True, kw_only=True)
class Draft(StudyTerms):
    """All parts of a study, unchecked."""

    name: str
    job: Mapping[str, Any] = field(default_factory=dict)
    search: Search = field(default_factory=dict)
    objectives: Mapping[str, str] = field(default_factory=lambda: default_objectives({}))
    constraints: Constraints = field(default_factory=dict)
    takes: Mapping[str, str] = field(default_factory=dict)  # objective to which value counts, if not the last one
    quality: Mapping[str, str] = field(default_factory=dict)
    """What the study says about the metric that models are judged by: metric, direction, take."""
    changes_quality: tuple[str, ...] = ()  # searched parameters that change quality, of the user's own training

    @property
    def is_own(self) -> bool:
        """Whether its jobs run a training of the user's own."""
        return runs_own_training(self.job)

    @property
    def best_of(self) -> dict[str, str]:
        """Objective to direction, for objectives whose best value over the steps of a run counts."""
        return {name: self.objectives[name] for name, take in self.takes.items() if take == BEST}

    @property
    def judged_by(self) -> Quality | None:
        """The metric that measures the model, or None if the study is about seconds and dollars only."""
        factors = self.changes_quality if self.is_own or self.changes_quality else None
        return judged_by(self.objectives, metric=self.quality.get("metric"), takes=self.takes, factors=factors)

    def ranges(self) -> list[str]:
        """Searched parameters that have a range instead of a list of values."""
        return [name for name, entry in self.search.items() if isinstance(entry, Range)]


def can_be_split(draft: Draft) -> bool:
    """Whether quality depends on a part of the searched parameters, and the other objectives on the cluster."""
    objectives, quality = draft.objectives, draft.judged_by
    if quality is None or len(objectives) < 2:
        return False
    if not draft.is_own:
        return quality.factors is None and set(objectives) <= {quality.metric, *OF_THE_CLUSTER}
    factors = set(draft.changes_quality)
    is_measured = set(objectives) <= {quality.metric, *_MEASURED_FOR_ANY_JOB}
    return bool(factors) and factors < set(draft.search) and is_measured


def faults_of(draft: Draft, broken: Iterable[FaultPath] = ()) -> list[Fault]:
    """All faults of a study; rules that depend on a part that is already `broken` are not applied."""
    return check(draft, _part_faults, _RULES, broken)


def _part_faults(draft: Draft) -> Iterator[Fault]:
    yield from term_faults(draft, StudyTerms)
    sections: list[tuple[str, Mapping[str, Any], Callable[[str, Any], list[str]]]] = [
        ("job", draft.job, _parameter_faults),
        ("search", draft.search, _entry_faults),
        ("objectives", draft.objectives, partial(objective_faults, is_own=draft.is_own)),
        ("constraints", draft.constraints, partial(bounds_faults, is_own=draft.is_own)),
        ("objectives", draft.takes, take_faults),
    ]
    for section, entries, faults in sections:
        for name, entry in entries.items():
            yield from (((section, name), text) for text in faults(name, entry))
    if draft.job.get("probe_steps") is not None:
        yield ("job", "probe_steps"), "probe_steps cannot be in job: a job that is cut off has no F1; leave it out"
    if _is_true(draft.job.get(DRY_RUN)):
        one_job = command_line("main", {DRY_RUN: "true"})
        text = f"dry_run launches nothing, and this launches jobs: leave it out; `{one_job}`"
        yield ("job", DRY_RUN), f"{text} with the parameters of job checks one of them, launcher=simulated plays all"


def _is_true(value: Any) -> bool:
    """Whether a switch of the job is true; another rule refuses values that are neither true nor false."""
    with suppress(ValueError):
        return value is not None and bool(parse(DRY_RUN, spell(value), bool))
    return False


def _parameter_faults(name: str, value: Any) -> list[str]:
    if name not in parameters():
        return [f"unknown parameter {name} of a job: {parameter_hint(name, parameters())}"]
    return value_faults(parameters()[name], annotations(JobSpec)[name], value)


def _entry_faults(name: str, entry: Choices | Range) -> list[str]:
    if name not in parameters() and not is_inside(name):
        return _parameter_faults(name, "")
    if (parameter := parameter_of(name)) in NOT_SEARCHED:
        return [f"{name} cannot be searched: {NOT_SEARCHED[parameter]}; set it in job, or leave it out"]
    if isinstance(entry, Range):
        if not is_inside(name) and kind_of(name) not in (int, float):
            return [f"{name} is no number and has no range: write {{choices: [...]}}"]
        if not all(math.isfinite(value) for value in (entry.low, entry.high)):
            return [f"{name} must have finite low and high, got {entry.low} and {entry.high}"]
        if entry.low >= entry.high:
            return [f"{name}: low must be less than high, got {entry.low} and {entry.high}: one value belongs in job"]
        if entry.log and entry.low <= 0:
            return [f"{name}: low must be greater than 0 with log: true, got {entry.low}: raise it, or leave log out"]
    elif not entry.corners:
        return [f"{name}: choices must be at least one value, got none"]
    values = entry.corners
    doubles = sorted({spell(value) for value in values if values.count(value) > 1})
    faults = [f"{name}: {text} is among the choices twice: take one out" for text in doubles]
    if is_inside(name):
        return faults + inside_faults(name, values)
    return faults + [text for value in dict.fromkeys(values) for text in _parameter_faults(name, value)]


def _fixed_and_searched(draft: Draft) -> list[str]:
    def is_fixed(name: str) -> bool:
        prefix, _, inner = name.partition(INSIDE)
        return name in draft.job or (bool(inner) and inner in mapping_in(draft.job, prefix))

    return [name for name in draft.search if is_fixed(name)]


def _clashes(draft: Draft) -> Iterator[Fault]:
    """Faults of parameters of the job that cannot be with what is searched, or with an objective."""
    for name in _fixed_and_searched(draft):
        yield ("search", name), f"{name} is in job and in search: take it out of one of them"
    if "max_train_samples" in draft.search and draft.job.get("max_eval_samples") is None:
        # F1 is compared on the same rows, and by default their number follows that of the training rows.
        text = "max_train_samples also changes the rows that F1 is measured on (a ninth of it): set max_eval_samples in"
        yield ("search", "max_train_samples"), f"{text} job"
    if "instance_type" in draft.search and draft.job.get("fallback_instance_types"):
        text = "fallback_instance_types cannot be with a searched instance_type: a trial would be measured on another "
        yield ("job", "fallback_instance_types"), f"{text}one than it says; leave it out"


def _missing_search(draft: Draft) -> Iterator[Fault]:
    if not draft.search:
        text = f"search is missing: a study without it is one job, which `{command_line('main')}` runs; "
        yield ("search",), f"{text}add search: {{learning_rate: {{low: 1e-5, high: 1e-4, log: true}}}}"


def _job_faults(draft: Draft) -> Iterator[Fault]:
    if draft.search and not _fixed_and_searched(draft):
        yield from combination_faults(draft.job, draft.search)


def _missing_objectives(draft: Draft) -> Iterator[Fault]:
    if not draft.objectives:
        yield ("objectives",), "objectives must name at least one, such as cost_usd: minimize"


def _unmeasured_faults(draft: Draft) -> Iterator[Fault]:
    if not draft.is_own:
        task = draft.job.get("task") or metrics.CLASSIFICATION
        yield from unmeasured(task, "objectives", draft.objectives)
        yield from unmeasured(task, "constraints", draft.constraints)


def _missing_budget(draft: Draft) -> Iterator[Fault]:
    if draft.budget_usd is None and _is_billed_study(draft):
        text = "budget_usd is missing: jobs on SageMaker are billed, so their study needs a limit in dollars; add "
        yield ("budget_usd",), f"{text}budget_usd: 20"


def _missing_end(draft: Draft) -> Iterator[Fault]:
    """Dollars of local jobs are notional and simulated ones virtual: only trials end such a study."""
    has_end = draft.budget_usd is not None or draft.n_trials is not None or draft.sampler == "grid"
    if not has_end and not _is_billed_study(draft):
        yield ("n_trials",), "n_trials is missing: nothing else ends this study; add n_trials: 20, or budget_usd"


def _is_billed_study(draft: Draft) -> bool:
    searched = draft.search.get("instance_type")
    types = searched.corners if searched is not None else (draft.job.get("instance_type"),)
    return is_billed(draft.job.get("launcher"), types)


def is_billed(launcher: str | None, instance_types: Iterable[Any]) -> bool:
    """Whether jobs of this launcher run in an AWS account on any of these types. None means the default."""
    is_ml = any(str(name).startswith("ml.") for name in instance_types)
    return launcher == "sagemaker" or (launcher in (None, "", "auto") and is_ml)


def _own_training_faults(draft: Draft) -> Iterator[Fault]:
    if not draft.is_own:
        if draft.changes_quality:
            text = "changes_quality is for a training of your own (entry_script): of paretune's it is known"
            yield ("changes_quality",), f"{text}; leave it out"
        return
    if draft.job.get("launcher") == SIMULATED:
        text = "a training of your own cannot be simulated, for no recorded run tells what it does"
        yield ("job", "launcher"), f"{text}: leave launcher out"


def _quality_faults(draft: Draft) -> Iterator[Fault]:
    metric, direction = draft.quality.get("metric"), draft.quality.get("direction")
    if draft.quality and not metric:
        yield ("quality",), "quality must name its metric, such as {metric: val_ndcg, direction: maximize}"
    elif metric and metric not in draft.objectives:
        text = f"quality: {metric} is no objective: add {metric}: {direction or 'maximize'} to objectives"
        yield ("quality", "metric"), f"{text}, or leave objectives out for it and cost_usd"
    elif metric and metric in OF_THE_CLUSTER:
        yield ("quality", "metric"), f"quality: {metric} says nothing about a model: name a metric of the model"
    elif metric and direction not in (None, draft.objectives[metric]):
        text = f"quality: {metric} is to be {draft.objectives[metric]}d by objectives, got {direction!r}"
        yield ("quality", "direction"), f"{text}: write the same in both, or leave direction out"
    unknown = [name for name in draft.changes_quality if name not in draft.search]
    for name in unknown:
        text = f"changes_quality: {name} is not searched; searched are {', '.join(draft.search) or 'none'}"
        yield ("changes_quality",), f"{text}: name only these"


def _method_faults(draft: Draft) -> Iterator[Fault]:
    if draft.sampler == "grid" and (ranges := draft.ranges()):
        are = "is a range" if len(ranges) == 1 else "are ranges"
        text = f"sampler grid takes only choices, and {', '.join(ranges)} {are}"
        yield ("sampler",), f"{text}: write {{choices: [...]}}, or take another sampler"
    if draft.method != "split":
        return
    if draft.sampler is not None:
        yield ("sampler",), f"sampler {draft.sampler} is for method joint: leave one of the two out"
    if can_be_split(draft):
        return
    if draft.is_own and draft.judged_by is not None:
        times = ", ".join(sorted(_MEASURED_FOR_ANY_JOB))
        text = "method split needs changes_quality, which names some of what is searched and not all, for a training of"
        text += f" your own, and the objectives {draft.judged_by.metric} and one of {times}, and no others: set it"
    else:
        times = ", ".join(sorted(OF_THE_CLUSTER))
        text = f"method split needs the objective f1 and one of {times}, and takes no others: change them"
    yield ("method",), f"{text}, or take joint"


_RULES: tuple[Rule[Draft], ...] = (
    Rule(_clashes),
    Rule(_missing_search, needs=("search",)),
    Rule(_job_faults, needs=("job", "search")),
    Rule(_missing_objectives, needs=("objectives",)),
    Rule(_unmeasured_faults, needs=("job.task",)),
    Rule(_missing_budget, needs=("budget_usd",)),
    Rule(_missing_end, needs=("budget_usd", "n_trials", "sampler")),
    Rule(_own_training_faults, needs=("job",)),
    Rule(_quality_faults, needs=("objectives", "quality")),
    Rule(_method_faults),
)
