"""What a study consists of, and the rules between its parts."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields
from functools import partial
from typing import Any

from paretune.core.commands import command_line
from paretune.specification import metrics
from paretune.specification.cluster import SIMULATED
from paretune.specification.job import JobSpec
from paretune.specification.parameters import annotations, parameter, parameter_hint, parse, range_faults, spell
from paretune.specification.script import RENAMED
from paretune.storage.address import address_fault
from paretune.studies.definition.objectives import (
    OF_THE_CLUSTER,
    Constraints,
    bounds_faults,
    default_objectives,
    judged_by,
    objective_faults,
    runs_own_training,
    take_faults,
    unmeasured,
)
from paretune.studies.definition.quality import BEST, Quality
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
_OF_ANY_JOB = {metrics.COST_USD, metrics.JOB_SECONDS, metrics.BILLABLE_SECONDS}
"""Objectives that follow from the cluster of any job, whatever it trains."""
DRY = "dry_run"
"""Parameter of a job that no study can have: it would launch nothing."""
_LONGEST_NAME = 80  # characters


@dataclass(frozen=True, kw_only=True)
class StudyTerms:
    """What of a study is one value each, and can be typed. None: nothing is set."""

    budget_usd: float | None = parameter(
        None, "dollars that all jobs of the study may cost together; required where jobs are billed", above=0
    )
    n_trials: int | None = parameter(
        None, "trials at most; by default as many as the budget or the grid has", minimum=1
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
        False, "one round: collect jobs that have ended, launch the next ones, exit with code 75 until the study ends"
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
    """All parts of a study, not checked yet.

    Attributes:
        takes: objective to which value of a run counts, where that is not the last one.
        quality: what the study says of the metric that models are judged by: metric, direction, take.
        changes_quality: searched parameters that change how good a model is, of a training of the user's own.
    """

    name: str
    job: Mapping[str, Any] = field(default_factory=dict)
    search: Search = field(default_factory=dict)
    objectives: Mapping[str, str] = field(default_factory=lambda: default_objectives({}))
    constraints: Constraints = field(default_factory=dict)
    takes: Mapping[str, str] = field(default_factory=dict)
    quality: Mapping[str, str] = field(default_factory=dict)
    changes_quality: tuple[str, ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether its jobs run a training of the user's own."""
        return runs_own_training(self.job)

    @property
    def best_of(self) -> dict[str, str]:
        """Objectives of which the best value over the steps of a run counts, and which way they are better."""
        return {name: self.objectives[name] for name, take in self.takes.items() if take == BEST}

    @property
    def judged_by(self) -> Quality | None:
        """What measures the model; None where seconds and dollars are all that the study is about."""
        factors = self.changes_quality if self.is_own or self.changes_quality else None
        return judged_by(self.objectives, metric=self.quality.get("metric"), takes=self.takes, factors=factors)

    def ranges(self) -> list[str]:
        """Searched parameters of which no list of values is given."""
        return [name for name, entry in self.search.items() if isinstance(entry, Range)]


def can_be_split(draft: Draft) -> bool:
    """Whether quality follows from a part of what is searched, and the other objectives from the cluster."""
    objectives, quality = draft.objectives, draft.judged_by
    if quality is None or len(objectives) < 2:
        return False
    if not draft.is_own:
        return quality.factors is None and set(objectives) <= {quality.metric, *OF_THE_CLUSTER}
    changes = set(draft.changes_quality)
    return bool(changes) and changes < set(draft.search) and set(objectives) <= {quality.metric, *_OF_ANY_JOB}


def faults_of(draft: Draft, broken: Iterable[FaultPath] = ()) -> list[Fault]:
    """Everything that is wrong with a study; what depends on a part that is `broken` already is passed over."""
    known = set(broken)
    alone = [fault for fault in _own_faults(draft) if fault[0] not in known]
    return [*alone, *_faults_between(draft, known | {fault_path for fault_path, _ in alone})]


def _intact(broken: Set[FaultPath], *keys: str) -> bool:
    """Whether these parts have no fault of their own, so that one mistake is reported once."""
    return not any(fault_path[0] in keys for fault_path in broken)


def _own_faults(draft: Draft) -> Iterator[Fault]:
    """What is wrong with one part, whatever the others are."""
    yield from term_faults(draft, StudyTerms)
    sections: dict[str, Callable[[str, Any], list[str]]] = {
        "job": _parameter_faults,
        "search": _entry_faults,
        "objectives": partial(objective_faults, is_own=draft.is_own),
        "constraints": partial(bounds_faults, is_own=draft.is_own),
        "takes": take_faults,
    }
    for section, faults_in in sections.items():
        for name, part in getattr(draft, section).items():
            section = "objectives" if section == "takes" else section
            yield from (((section, name), text) for text in faults_in(name, part))
    if draft.job.get("probe_steps") is not None:
        yield ("job", "probe_steps"), "probe_steps cannot be in job: a job that is cut off has no F1; leave it out"
    if _is_set(draft.job.get(DRY)):
        text = (
            f"dry_run launches nothing, and this launches jobs: leave it out; `{command_line('main', {DRY: 'true'})}`"
        )
        yield ("job", DRY), f"{text} with the parameters of job checks one of them, launcher=simulated plays all"


def _is_set(value: Any) -> bool:
    """Whether a switch of the job is true; what is neither true nor false is another rule's."""
    with suppress(ValueError):
        return value is not None and bool(parse(DRY, spell(value), bool))
    return False


def term_faults(draft: Any, terms: Any) -> Iterator[Fault]:
    """What is wrong with the name, and with the terms of a study or a design, each by itself."""
    if not draft.name.isprintable() or not draft.name.strip() or len(draft.name) > _LONGEST_NAME:
        yield ("name",), f"name must be one line of 1 to {_LONGEST_NAME} characters, got {draft.name[:90]!r}"
    for item in fields(terms):
        if (value := getattr(draft, item.name)) is not None:
            yield from (((item.name,), text) for text in range_faults(item, value))
    if draft.storage is not None and (fault := address_fault(draft.storage)):
        yield ("storage",), fault


def _parameter_faults(name: str, value: Any) -> list[str]:
    if name not in parameters():
        return [f"unknown parameter {name} of a job: {parameter_hint(name, parameters())}"]
    return value_faults(parameters()[name], annotations(JobSpec)[name], value)


def value_faults(item: "Field[Any]", annotation: Any, value: Any) -> list[str]:
    """What is wrong with the value of one parameter of a job, by its own rules; an empty one is the default."""
    text = spell(value)
    if not text.strip():
        return []
    try:
        return range_faults(item, parse(item.name, text, annotation, item.metadata["example"]))
    except ValueError as error:
        return [str(error)]


def _entry_faults(name: str, entry: Choices | Range) -> list[str]:
    if name not in parameters() and not is_inside(name):
        return _parameter_faults(name, "")
    if (parameter := parameter_of(name)) in NOT_SEARCHED:
        return [f"{name} cannot be searched: {NOT_SEARCHED[parameter]}; set it in job, or leave it out"]
    if found := _values_faults(name, entry):
        return found
    values = entry.corners
    doubles = sorted({spell(value) for value in values if values.count(value) > 1})
    found = [f"{name}: {text} is among the choices twice: take one out" for text in doubles]
    if is_inside(name):
        return found + inside_faults(name, values)
    for value in dict.fromkeys(values):
        found += _parameter_faults(name, value)
    return found


def _values_faults(name: str, entry: Choices | Range) -> list[str]:
    """What is wrong with the ends of a range, or with choices that are none."""
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
    return []


def _faults_between(draft: Draft, broken: Set[FaultPath]) -> Iterator[Fault]:
    """What parts that are right on their own have against each other."""
    both = [name for name in draft.search if _is_in_job(name, draft.job)]
    yield from ((("search", name), f"{name} is in job and in search: take it out of one of them") for name in both)
    if not draft.search and _intact(broken, "search"):
        text = f"search is missing: a study without it is one job, which `{command_line('main')}` runs; "
        yield ("search",), f"{text}add search: {{learning_rate: {{low: 1e-5, high: 1e-4, log: true}}}}"
    elif _intact(broken, "job", "search") and not both:
        yield from combination_faults(draft.job, draft.search)
    if not draft.objectives and _intact(broken, "objectives"):
        yield ("objectives",), "objectives must name at least one, such as cost_usd: minimize"
    if not draft.is_own and not broken & {("job",), ("job", "task")}:
        for section in ("objectives", "constraints"):
            yield from unmeasured(draft.job.get("task") or "classification", section, getattr(draft, section))
    if _intact(broken, "budget_usd") and draft.budget_usd is None:
        yield from _ending_faults(draft, broken)
    if draft.sampler == "grid" and (ranges := draft.ranges()):
        are = "is a range" if len(ranges) == 1 else "are ranges"
        text = f"sampler grid takes only choices, and {', '.join(ranges)} {are}"
        yield ("sampler",), f"{text}: write {{choices: [...]}}, or take another sampler"
    if "max_train_samples" in draft.search and draft.job.get("max_eval_samples") is None:
        # F1 is compared on the same rows, and by default their number follows that of the training rows.
        text = "max_train_samples also changes the rows that F1 is measured on (a ninth of it): set max_eval_samples in"
        yield ("search", "max_train_samples"), f"{text} job"
    if draft.method == "split" and draft.sampler is not None:
        yield ("sampler",), f"sampler {draft.sampler} is for method joint: leave one of the two out"
    if _intact(broken, "job"):
        yield from _own_training_faults(draft)
    if _intact(broken, "objectives", "quality"):
        yield from _quality_faults(draft)
    if draft.method == "split" and not can_be_split(draft):
        yield ("method",), _why_not_split(draft)
    if draft.job.get("training_plan") and "cost_usd" in draft.objectives:
        text = "training_plan makes cost_usd of every trial 0, for its fee is paid already: take billable_seconds as"
        yield ("job", "training_plan"), f"{text} objective in place of cost_usd, or leave it out"
    if "instance_type" in draft.search and draft.job.get("fallback_instance_types"):
        text = "fallback_instance_types cannot be with a searched instance_type: a trial would be measured on another "
        yield ("job", "fallback_instance_types"), f"{text}one than it says; leave it out"


def _is_in_job(name: str, job: Mapping[str, Any]) -> bool:
    """Whether the job has a value for a searched name."""
    prefix, _, inner = name.partition(INSIDE)
    return name in job or (bool(inner) and inner in mapping_in(job, prefix))


def _why_not_split(draft: Draft) -> str:
    if draft.is_own and draft.judged_by is not None:
        text = f"and the objectives {draft.judged_by.metric} and one of {', '.join(sorted(_OF_ANY_JOB))}, and no others"
        return (
            "method split needs changes_quality, which names some of what is searched and not all, for a training of "
            f"your own, {text}: set it, or take joint"
        )
    needed = f"method split needs the objective f1 and one of {', '.join(sorted(OF_THE_CLUSTER))}, and takes no others"
    return f"{needed}: change them, or take joint"


def _own_training_faults(draft: Draft) -> Iterator[Fault]:
    """What does not go with a training of the user's own, or without one."""
    if not draft.is_own:
        if draft.changes_quality:
            text = "changes_quality is for a training of your own (entry_script): of paretune's it is known"
            yield ("changes_quality",), f"{text}; leave it out"
        return
    if draft.job.get("launcher") == SIMULATED:
        text = "a training of your own cannot be simulated, for no recorded run tells what it does"
        yield ("job", "launcher"), f"{text}: leave launcher out"
    if str(draft.job.get("entry_script") or "").strip():
        for name in draft.objectives:
            if name in RENAMED:
                text = f"objective {name} is recorded as {RENAMED[name]}: write {RENAMED[name]}"
                yield ("objectives", name), text


def _quality_faults(draft: Draft) -> Iterator[Fault]:
    """What is wrong with the metric that models are judged by."""
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


def _ending_faults(draft: Draft, broken: Set[FaultPath]) -> Iterator[Fault]:
    """What keeps a study without a budget from spending without end: trials, unless its jobs are billed.

    They are where any runs in an AWS account; local costs are notional, simulated ones virtual.
    """
    searched = draft.search.get("instance_type")
    types = searched.corners if searched is not None else (draft.job.get("instance_type"),)
    if is_billed(draft.job.get("launcher"), types):
        text = "budget_usd is missing: jobs on SageMaker are billed, so their study needs a limit in dollars; add "
        yield ("budget_usd",), f"{text}budget_usd: 20"
    elif draft.n_trials is None and draft.sampler != "grid" and _intact(broken, "n_trials", "sampler"):
        yield ("n_trials",), "n_trials is missing: nothing else ends this study; add n_trials: 20, or budget_usd"


def is_billed(launcher: str | None, instance_types: Iterable[Any]) -> bool:
    """Whether jobs of this launcher run in an AWS account on any of these types; None is the default of either."""
    is_ml = any(str(name).startswith("ml.") for name in instance_types)
    return launcher == "sagemaker" or (launcher in (None, "", "auto") and is_ml)
