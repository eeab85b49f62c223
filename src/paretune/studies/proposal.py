"""Proposes a study to a user who has no study file, but a data set or script and a budget in dollars.

For paretune's own training, the study searches

- the global batch size
- the learning rate, in the usual range for the kind of fine-tuning, if the study measures how good a model is
- if the job runs on instances, the instance types on the estimated Pareto front of dollars and hours

For a script, `own_code` says what is searched. A parameter that the request sets is not searched. The exception is
a list of instance types: the study then searches these types.

If a study of this name has begun, the request continues it with the search and the objectives that were proposed when
the study began, and with the limits on time and rows that were proposed for its jobs. The request must repeat the other
parameters of the job.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paretune.core import pareto
from paretune.core.errors import BadInput, collecting, refuse
from paretune.core.shell import command_line, options
from paretune.estimating.estimator import Estimate
from paretune.estimating.workload import data_of, training_rows
from paretune.jobs.plan import admitted
from paretune.jobs.preparation import inputs_of
from paretune.jobs.workplace import Workplace, Workplaces, usual_storage
from paretune.launchers.offers import region_of
from paretune.presentation.text import duration, usd
from paretune.specification import metrics
from paretune.specification.catalog import instances
from paretune.specification.container import JobInputs
from paretune.specification.declaration import spell
from paretune.specification.job import JobSpec, default_learning_rate
from paretune.specification.parallelism import OF_THE_BATCH, REFERENCE_BATCH_SIZE
from paretune.specification.price import Price
from paretune.storage.files import as_yaml
from paretune.studies.definition.file import StudyFile, StudyRequest, paid_with
from paretune.studies.definition.objectives import OBJECTIVES, Objective
from paretune.studies.definition.space import read_entry
from paretune.studies.own_code import LeftOut, search_of_script
from paretune.studies.search.money import refuse_small_budget
from paretune.studies.search.table import stored

_MOST_TYPES = 8
_FEW_CPUS = 4  # of the instance types that a dry run names as an example
_MOST_OFFERED = 12  # a dry run prints at most this many lines that would search more
_FASTER = 1.1  # an instance type must be at least this many times as fast as the next cheaper one that is searched
_BATCHES = (8, 16, 32, 64, 128, 256)
_FEWEST_STEPS = 20  # a batch size is searched only if a run has at least this many steps: in fewer, no model learns
_FEWEST_JOBS = 4  # an instance type is searched only if the budget covers the estimated cost of this many jobs on it
_BELOW, _ABOVE = 4.0, 8.0
"""Learning rates are searched from the default divided by `_BELOW` to the default times `_ABOVE`. `_ABOVE` is larger
because rates that train well grow with the batch."""
_ROOM = 1.25  # time limit of a job as a multiple of the upper end of its estimated time
_PROPOSED = ("max_runtime_minutes", "max_train_samples")  # parameters of the job that `propose` may set
_NO_PRICE, _NO_ESTIMATE, _NO_MEMORY = "without a reliable price", "without an estimate", "with too little memory"
_BILLED = ("confirmed", "single_source", "user")  # a search relies only on prices with one of these confidences


@dataclass(frozen=True, kw_only=True)
class ProposedStudy:
    """The content of a study file, and the reasons for the choices in it, as sentences.

    `left_out` has the parameters of a user's script, and its cluster, that the study does not search.
    """

    values: Mapping[str, Any]
    reasons: Sequence[str]
    left_out: Sequence[LeftOut] = ()

    def text(self, facts: Sequence[str] = ()) -> str:
        """Return the file as YAML. Its comments are `facts`, the reasons, and lines that would search more."""
        lines = [f"# {line}".rstrip() for line in (*facts, *self.reasons)]
        names = list(self.values)
        after = names.index("search") + 1 if "search" in names else len(names)
        first, last = ({name: self.values[name] for name in part} for part in (names[:after], names[after:]))
        lines += [as_yaml(first).rstrip(), *self._lines_to_add()]
        return "\n".join([*lines, *([as_yaml(last).rstrip()] if last else [])])

    def _lines_to_add(self) -> list[str]:
        """Return a comment for each parameter that could be searched, as the line that does it, and for the others."""
        if not self.left_out:
            return []
        lines = ["  # Not searched. To search one, save this text as a file, remove the # of its line, and run"]
        lines.append(f"  # `{command_line('study')} FILE`:")
        offered = [each for each in self.left_out if each.line]
        lines += [f"  # {each.line}  # {each.why}" for each in offered[:_MOST_OFFERED]]
        if more := [each.name for each in offered[_MOST_OFFERED:]]:
            lines.append(f"  # in the same way: {', '.join(more)}")
        by_reason = dict[str, list[str]]()
        for each in self.left_out:
            if not each.line:
                by_reason.setdefault(each.why, []).append(each.name)
        return lines + [f"  # {', '.join(names)}: {why}" for why, names in by_reason.items()]

    def summary(self) -> list[str]:
        """Return one line with what is searched, and one with what is not."""
        searched = "; ".join(
            f"{name} {read_entry(name, entry).in_words}" for name, entry in self.values["search"].items()
        )
        lines = [f"searched: {searched}"]
        if names := [each.name.removeprefix("training_arguments.") for each in self.left_out if each.line]:
            shown = ", ".join(names[:_MOST_OFFERED]) + f" and {len(names) - _MOST_OFFERED} more" * (
                len(names) > _MOST_OFFERED
            )
            lines.append(f"not searched: {shown}; {options(dry_run='true')} prints the line that adds each of them")
        return lines

    def file(self) -> StudyFile:
        """Return the study."""
        return StudyFile.read(self.values)


def propose(request: StudyRequest, workplaces: Workplaces, *, offline: str = "") -> ProposedStudy:
    """Return a study for a request: what to search, and why.

    If a study of this name has begun, return the study that continues it. With `offline`, the reason why no account is
    asked, public prices are used.

    Raises BadInput if nothing is left to search, for example because the budget covers too few jobs.
    """
    job, budget_usd, budget_hours = request.job, *(request.terms.get(name) for name in ("budget_usd", "budget_hours"))
    name = request.terms.get("name") or Path(job.entry_script or job.dataset.partition(":")[2] or job.dataset).stem
    storage = request.terms.get("storage") or usual_storage(workplaces.home, workplaces.environment)
    if (begun := stored(name, storage)) and "search" in begun:
        reason = f"this continues the study {name} with its own search; for a new study, add {options(name='NAME')}"
        return ProposedStudy(values={"name": name, **_continued(begun, request), **request.terms}, reasons=[reason])
    search, left_out = dict[str, Any](), list[LeftOut]()
    has_open_types = request.types is not None and not request.types
    if request.types:
        search["instance_type"] = {"choices": list(request.types)}
    given: dict[str, Any] = dict(job.given())
    paid = paid_with(given, has_types=request.types is not None)
    if job.entry_script is not None:
        assert request.quality is not None
        of_script = search_of_script(job, request.quality, has_types=bool(request.types), terms=request.terms)
        search |= of_script.search
        left_out += [*_of_cluster(request), *of_script.left_out]
        reasons = (
            [f"{Path(job.entry_script).name}: arguments that it declares, around their defaults"]
            if of_script.search
            else []
        )
        objectives = _objectives(paid, request.quality)
        reasons.append(f"{request.quality.metric} is {request.quality.direction}d")
    else:
        workplace = workplaces.offline(job, offline) if offline else workplaces.of(job)
        if not has_open_types:
            refuse_small_budget(budget_usd, budget_hours, [job], workplace)
        inputs = _inputs(job, workplaces)
        if job.is_simulated and inputs.dataset is not None:
            # A simulation does not read the rows; it needs only their number.
            given["max_train_samples"] = round(inputs.dataset.facts["train_rows"])
            job = job.replace(max_train_samples=given["max_train_samples"])
        quality = _quality(job)
        search |= _of_training(job, inputs, is_judged=metrics.JOB_SECONDS not in quality)
        reasons = [_rate_reason(job.fine_tuning)] if "learning_rate" in search else []
        if search.get("global_batch_size", {}).get("choices") == [_BATCHES[0]]:
            few = f"a batch of more than {_BATCHES[0]} rows would leave fewer than {_FEWEST_STEPS} steps"
            reasons.append(f"one batch size: {few}; more rows or epochs would compare several")
        if metrics.JOB_SECONDS in quality:
            measured = metrics.TASKS[job.task].quality
            reasons.append(
                f"a simulation trains nothing: leave launcher out to compare {measured} and learning rates too"
            )
        if has_open_types:
            chosen = _instance_types(job, inputs, workplace, budget_usd)
            search["instance_type"] = {"choices": list(chosen)}
            reasons += [f"{name}: {text}" for name, (text, _) in chosen.items()]
            if "max_runtime_minutes" not in job.model_fields_set:
                longest_s = max(item.time.seconds_high for _, item in chosen.values())
                given["max_runtime_minutes"] = math.ceil(_ROOM * longest_s / 60)
        objectives = {paid: "minimize", **quality}
    if not search:
        raise BadInput(["nothing is left to search: leave learning_rate or the batch size open, or write a study file"])
    if "instance_type" in search:
        given.pop("instance_type", None)
    values = {"name": name, "job": given, "search": search, "objectives": objectives}
    return ProposedStudy(values={**values, **request.terms}, reasons=reasons, left_out=left_out)


def _of_cluster(request: StudyRequest) -> list[LeftOut]:
    """Return the cluster of a script's jobs if the study does not search it."""
    if request.types:
        return []
    small = [name for name, item in instances().items() if item.accelerator_count == 1 and item.vcpus <= _FEW_CPUS]
    example = options(instance_type=",".join(small[:2]))
    if request.job.has_instances:
        return [LeftOut(name="instance_type", why=f"one type was given; {example} would compare two")]
    return [LeftOut(name="instance_type", why=f"jobs run on this machine; {example} would compare these types")]


def _continued(begun: Mapping[str, Any], request: StudyRequest) -> dict[str, Any]:
    """Return the requested job with the search, objectives and job limits that were proposed when the study began.

    The request alone decides where the jobs run: without `--launcher simulated`, they are not simulated even if the
    study began as a rehearsal, and if it names neither an instance type nor a launcher, nothing may run on AWS.
    """
    given, search, objectives = request.job.given(), dict(begun["search"]), begun["objectives"]
    if request.types is None:
        search.pop("instance_type", None)
    else:
        given.pop("instance_type", None)
    if request.types:
        search["instance_type"] = {"choices": list(request.types)}
    if request.quality is not None:
        paid = next(name for name in (metrics.COST_USD, metrics.JOB_SECONDS) if name in objectives)
        objectives = _objectives(paid, request.quality)  # a study that has begun with dollars goes on with them
    search = {name: entry for name, entry in search.items() if name not in given}
    proposed = {name: value for name, value in begun.get("job", {}).items() if name in _PROPOSED}
    return {"job": {**proposed, **given}, "search": search, "objectives": objectives}


def _inputs(job: JobSpec, workplaces: Workplaces) -> JobInputs:
    """Prepare the inputs of the job; return empty ones for a simulation if the number of rows is known without them."""
    if job.is_simulated and data_of(job.data_arguments) is not None:
        return JobInputs()
    here = job.replace(launcher="local", instance_type=None, instance_count=None, simulation=None)
    return inputs_of(here, workplaces.of(here))


def _quality(job: JobSpec) -> dict[str, str]:
    """Return the task's quality metric with its direction; for a simulation without a table of runs, job_seconds."""
    if job.is_simulated and job.simulation.runs is None:
        return {metrics.JOB_SECONDS: "minimize"}
    quality = metrics.TASKS[job.task].quality
    return {quality: OBJECTIVES[quality].direction}


def _objectives(paid: str, quality: Objective) -> dict[str, str]:
    return {paid: "minimize", quality.metric: quality.direction}


def _of_training(job: JobSpec, inputs: JobInputs, *, is_judged: bool) -> dict[str, Any]:
    """Return the batch sizes and learning rates to search for paretune's own training, unless the request sets them.

    The learning rate changes only the quality. So it is searched only if the study judges the model (`is_judged`).
    """
    search, given = dict[str, Any](), job.model_fields_set
    if not given.intersection(OF_THE_BATCH):
        rows = training_rows(job.data_arguments, None if inputs.dataset is None else inputs.dataset.facts)
        most = math.inf if rows is None else rows * job.num_train_epochs / _FEWEST_STEPS
        batches = [size for size in _BATCHES if size <= most] or [_BATCHES[0]]
        search["global_batch_size"] = {"choices": batches}
    if is_judged and "learning_rate" not in given:
        rate = default_learning_rate(job.fine_tuning)
        search["learning_rate"] = {"low": rate / _BELOW, "high": rate * _ABOVE, "log": True}
    return search


def _rate_reason(fine_tuning: str) -> str:
    rate = default_learning_rate(fine_tuning)
    return f"rates around {spell(rate)}, the default of {fine_tuning} fine-tuning with batch {REFERENCE_BATCH_SIZE}"


def _instance_types(
    job: JobSpec, inputs: JobInputs, workplace: Workplace, budget_usd: float | None
) -> dict[str, tuple[str, Estimate]]:
    """Return the instance types to search: the estimated Pareto front of dollars and hours.

    Each name maps to a few words about the type and to the job's estimate on it. A type is left out if the job cannot
    run on it, does not fit in its memory or cannot be estimated, if its price is unreliable, if the budget covers
    fewer than `_FEWEST_JOBS` jobs on it, or if it is hardly faster than a cheaper type. At most `_MOST_TYPES` are
    returned, evenly spread over the front. Raises BadInput with the reasons if no type is left.
    """
    estimates, too_expensive, left_out = dict[str, Estimate](), list[tuple[float, str]](), Counter[str]()
    for name, spec, price in _able_to_run(job, workplace):
        if price is None or price.confidence not in _BILLED:
            left_out[_NO_PRICE] += 1
            continue
        estimate = workplace.estimate(spec, inputs)
        if estimate is None or estimate.cost_usd is None:
            left_out[_NO_ESTIMATE] += 1
        elif estimate.fits == "no":
            left_out[_NO_MEMORY] += 1
        elif budget_usd is not None and _FEWEST_JOBS * estimate.cost_usd > budget_usd:
            too_expensive.append((estimate.cost_usd, name))
        else:
            estimates[name] = estimate
    if not estimates and too_expensive:
        least_usd, cheapest = min(too_expensive)
        fewer = f"pays for fewer than {_FEWEST_JOBS} of these jobs on any suitable type"
        few = f"budget_usd, {usd(budget_usd or 0.0)}, {fewer}"
        least = f"the cheapest, on {cheapest}, costs about {usd(least_usd)}"
        raise BadInput([f"{few}: {least}; raise budget_usd, or lower max_train_samples or num_train_epochs"])
    if not estimates:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        region = region_of(job, workplace.launcher, workplace.environment)
        refresh = f"run `{command_line('prices', {'refresh': 'true', 'region': region})}`"
        fixes = {
            _NO_PRICE: refresh if region else "add prices to the launcher's table of instance types",
            _NO_ESTIMATE: "name the types to search in instance_type",
            _NO_MEMORY: "choose a smaller model or fine_tuning=lora",
        }
        raise BadInput(
            [f"no instance type can be searched ({reasons}): {', or '.join(fixes[each] for each in left_out)}"]
        )
    points = {name: (item.cost_usd or 0.0, item.time.seconds) for name, item in estimates.items()}
    marks = pareto.front(list(points.values()), [False, False])
    front = sorted(
        (name for name, is_best in zip(points, marks, strict=True) if is_best), key=lambda name: points[name]
    )
    front = _apart(front, {name: seconds for name, (_, seconds) in points.items()})
    spread = sorted({round(index * (len(front) - 1) / (_MOST_TYPES - 1)) for index in range(_MOST_TYPES)})
    chosen = [front[index] for index in spread] if len(front) > _MOST_TYPES else front
    return {name: (_in_words(estimates[name]), estimates[name]) for name in chosen}


def _apart(names: Sequence[str], seconds: Mapping[str, float]) -> list[str]:
    """Return, cheapest first, the types that are at least `_FASTER` times as fast as the one returned before them."""
    kept = list[str]()
    for name in names:
        if not kept or seconds[name] * _FASTER <= seconds[kept[-1]]:
            kept.append(name)
    return kept


def _in_words(estimate: Estimate) -> str:
    return f"about {duration(estimate.time.seconds)} and {usd(estimate.cost_usd or 0.0)} a job"


def _able_to_run(job: JobSpec, workplace: Workplace) -> Iterator[tuple[str, JobSpec, Price | None]]:
    """Yield each instance type that may run the job, with the job on this type and its price, None if it is unknown.

    Raises BadInput with the faults of the first type if no type may run the job.
    """
    first, may_run = list[str](), False
    for name in instances():
        with collecting(faults := list[str]()):
            spec = JobSpec.read({**job.given(), "instance_type": name})
            admitted(spec, workplace)
        first, may_run = first or faults, may_run or not faults
        if not faults:
            yield name, spec, workplace.launcher.price(spec)
    refuse([] if may_run else first)
