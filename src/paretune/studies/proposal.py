"""Proposes a study to a user who has no study file, but a data set or script and a budget in dollars.

For paretune's own training, the study searches

- the global batch size
- the learning rate, in the usual range for the kind of fine-tuning, if the study measures how good a model is
- if the job runs on instances, the instance types on the estimated Pareto front of dollars and hours

For a script, the study searches the learning rate and batch size that the script declares, around the script's own
defaults. A parameter that the request sets is not searched. The exception is a list of instance types: the study then
searches these types.

If a study of this name has begun, the request continues it with the search and the objectives that were proposed when
the study began, and with the limits on time and rows that were proposed for its jobs. The request must repeat the other
parameters of the job.
"""

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paretune.core import pareto
from paretune.core.errors import BadInput, collecting, refuse
from paretune.core.shell import command_line, options
from paretune.core.untrusted import LARGEST_SCRIPT, at_home, read_text
from paretune.estimating.estimator import Estimate
from paretune.estimating.workload import data_of, training_rows
from paretune.jobs.preparation import inputs_of
from paretune.jobs.workplace import Workplace, Workplaces, usual_storage
from paretune.presentation.text import duration, plain
from paretune.pricing import Price
from paretune.specification import metrics
from paretune.specification.catalog import instances
from paretune.specification.container import JobInputs
from paretune.specification.declaration import spell
from paretune.specification.job import JobSpec, default_learning_rate
from paretune.specification.parallelism import OF_THE_BATCH, REFERENCE_BATCH_SIZE
from paretune.specification.rules import launch_faults
from paretune.storage.files import as_yaml
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.objectives import OBJECTIVES
from paretune.studies.definition.wish import Wish
from paretune.studies.search.table import stored
from paretune.user_code.binding import argument_of
from paretune.user_code.script import Script

_MOST_TYPES = 8
_FASTER = 1.1  # an instance type must be at least this many times as fast as the next cheaper one that is searched
_BATCHES = (8, 16, 32, 64, 128, 256)
_FEWEST_STEPS = 20  # a batch size is searched only if a run has at least this many steps: in fewer, no model learns
_FEWEST_JOBS = 4  # an instance type is searched only if the budget covers the estimated cost of this many jobs on it
_BELOW, _ABOVE = 4.0, 8.0
"""Learning rates are searched from the default divided by `_BELOW` to the default times `_ABOVE`. `_ABOVE` is larger
because rates that train well grow with the batch."""
_SCRIPT_FACTOR = 8.0  # factor between a script's default and either end of the searched range
_ROOM = 1.25  # time limit of a job as a multiple of the upper end of its estimated time
_LESS_IS_BETTER = re.compile(
    r"loss|error|perplexity|rmse|mae|mse|(?<![a-z])(ppl|wer|cer|ter|s?mape|nll|brier|ece|bpb|bpc|fid)(?![a-z])"
)
"""Finds words for metrics that are better if they are lower. Those in parentheses must stand alone: `answer` contains
`wer`."""
_NEGATED = re.compile(r"(?<![a-z])neg_(log_?loss(?!es)|(?!\w*loss))")
"""Finds errors that are negated so that more is better, as by scikit-learn. Other names with `loss`, such as
`neg_log_likelihood_loss`, are losses."""
_PROPOSED = ("max_runtime_minutes", "max_train_samples")  # parameters of the job that `propose` may set
_NO_PRICE, _NO_ESTIMATE, _NO_MEMORY = "without a reliable price", "without an estimate", "with too little memory"
_BILLED = ("confirmed", "single_source", "user")  # a search relies only on prices with one of these confidences


@dataclass(frozen=True, kw_only=True)
class ProposedStudy:
    """The content of a study file, and the reasons for the choices in it, as sentences."""

    values: Mapping[str, Any]
    reasons: Sequence[str]

    def text(self) -> str:
        """Return the file as YAML, with the reasons as comments."""
        lines = [f"# {reason}" for reason in self.reasons]
        return "\n".join([*lines, as_yaml(self.values).rstrip()])

    def file(self) -> StudyFile:
        """Return the study."""
        return StudyFile.read(self.values)


def propose(wish: Wish, workplaces: Workplaces, *, has_account: bool = True) -> ProposedStudy:
    """Return a study for a request: what to search, and why.

    If a study of this name has begun, return the study that continues it. Without `has_account`, public prices are used
    and no AWS account is asked.

    Raises BadInput if nothing is left to search, for example because the budget covers too few jobs.
    """
    job, budget_usd = wish.job, wish.terms["budget_usd"]
    name = wish.terms.get("name") or _title(job)
    storage = wish.terms.get("storage") or usual_storage(workplaces.home, workplaces.environment)
    if (begun := stored(name, storage)) and "search" in begun:
        reason = f"this continues the study {name} with its own search; for a new study, add {options(name='NAME')}"
        return ProposedStudy(values={"name": name, **_continued(begun, wish), **wish.terms}, reasons=[reason])
    search = dict[str, Any]()
    if wish.types:
        search["instance_type"] = {"choices": list(wish.types)}
    given: dict[str, Any] = dict(job.given())
    if job.entry_script is not None:
        of_script = _of_script(job, has_types=bool(wish.types))
        search |= of_script
        reasons = (
            [f"{Path(job.entry_script).name}: arguments that it declares, around their defaults"] if of_script else []
        )
        metric, direction = str(wish.metric), _direction(str(wish.metric))
        objectives = {metrics.COST_USD: "minimize", metric: direction}
        reasons.append(f"{metric} is {direction}d")
    else:
        workplace = workplaces.of(job) if has_account else workplaces.at_public_prices(job)
        inputs = _inputs(job, workplaces)
        if job.is_simulated and inputs.dataset is not None:
            # A simulation does not read the rows; it needs only their number.
            given["max_train_samples"] = round(inputs.dataset.facts["train_rows"])
            job = job.replace(max_train_samples=given["max_train_samples"])
        quality = _quality(job)
        search |= _of_training(job, inputs, is_judged=metrics.JOB_SECONDS not in quality)
        reasons = [_rate_reason(job)] if "learning_rate" in search else []
        if metrics.JOB_SECONDS in quality:
            measured = metrics.TASKS[job.task].quality
            reasons.append(
                f"a simulation trains nothing: leave launcher out to compare {measured} and learning rates too"
            )
        if wish.types is not None and not wish.types:
            chosen = _instance_types(job, inputs, workplace, budget_usd)
            search["instance_type"] = {"choices": list(chosen)}
            reasons += [f"{name}: {text}" for name, (text, _) in chosen.items()]
            if "max_runtime_minutes" not in job.model_fields_set:
                longest_s = max(item.time.seconds_high for _, item in chosen.values())
                given["max_runtime_minutes"] = math.ceil(_ROOM * longest_s / 60)
        objectives = {metrics.COST_USD: "minimize", **quality}
    if not search:
        raise BadInput(["nothing is left to search: leave learning_rate or the batch size open, or write a study file"])
    if "instance_type" in search:
        given.pop("instance_type", None)
    values = {"name": name, "job": given, "search": search, "objectives": objectives}
    return ProposedStudy(values={**values, **wish.terms}, reasons=reasons)


def _continued(begun: Mapping[str, Any], wish: Wish) -> dict[str, Any]:
    """Return the requested job with the search, objectives and job limits that were proposed when the study began.

    The request alone decides where the jobs run: without `--launcher simulated`, they are not simulated even if the
    study began as a rehearsal, and if it names neither an instance type nor a launcher, nothing may run on AWS.
    """
    given, search, objectives = wish.job.given(), dict(begun["search"]), begun["objectives"]
    if wish.types is None:
        search.pop("instance_type", None)
    else:
        given.pop("instance_type", None)
    if wish.types:
        search["instance_type"] = {"choices": list(wish.types)}
    if wish.metric is not None:
        objectives = {metrics.COST_USD: "minimize", wish.metric: _direction(wish.metric)}
    search = {name: entry for name, entry in search.items() if name not in given}
    proposed = {name: value for name, value in begun.get("job", {}).items() if name in _PROPOSED}
    return {"job": {**proposed, **given}, "search": search, "objectives": objectives}


def _inputs(job: JobSpec, workplaces: Workplaces) -> JobInputs:
    """Prepare the inputs of the job; return empty ones for a simulation if the number of rows is known without them."""
    if job.is_simulated and data_of(job, None) is not None:
        return JobInputs()
    here = job.replace(launcher="local", instance_type=None, instance_count=None, simulation=None)
    return inputs_of(here, workplaces.of(here))


def _title(job: JobSpec) -> str:
    return Path(job.entry_script or job.dataset.partition(":")[2] or job.dataset).stem


def _quality(job: JobSpec) -> dict[str, str]:
    """Return the task's quality metric with its direction; for a simulation without a table of runs, job_seconds."""
    if job.is_simulated and job.simulation.runs is None:
        return {metrics.JOB_SECONDS: "minimize"}
    quality = metrics.TASKS[job.task].quality
    return {quality: OBJECTIVES[quality].direction}


def _direction(metric: str) -> str:
    if metric in OBJECTIVES:
        return OBJECTIVES[metric].direction
    is_less_better = _LESS_IS_BETTER.search(metric.lower()) and not _NEGATED.search(metric.lower())
    return "minimize" if is_less_better else "maximize"


def _of_training(job: JobSpec, inputs: JobInputs, *, is_judged: bool) -> dict[str, Any]:
    """Return the batch sizes and learning rates to search for paretune's own training, unless the request sets them.

    The learning rate changes only the quality. So it is searched only if the study judges the model (`is_judged`).
    """
    search, given = dict[str, Any](), job.model_fields_set
    if not given.intersection(OF_THE_BATCH):
        rows = training_rows(job, None if inputs.dataset is None else inputs.dataset.facts)
        most = math.inf if rows is None else rows * job.num_train_epochs / _FEWEST_STEPS
        batches = [size for size in _BATCHES if size <= most] or [_BATCHES[0]]
        search["global_batch_size"] = {"choices": batches}
    if is_judged and "learning_rate" not in given:
        rate = default_learning_rate(job.fine_tuning)
        search["learning_rate"] = {"low": rate / _BELOW, "high": rate * _ABOVE, "log": True}
    return search


def _rate_reason(job: JobSpec) -> str:
    rate = default_learning_rate(job.fine_tuning)
    return f"rates around {spell(rate)}, the default of {job.fine_tuning} fine-tuning with batch {REFERENCE_BATCH_SIZE}"


def _instance_types(
    job: JobSpec, inputs: JobInputs, workplace: Workplace, budget_usd: float
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
        elif _FEWEST_JOBS * estimate.cost_usd > budget_usd:
            too_expensive.append((estimate.cost_usd, name))
        else:
            estimates[name] = estimate
    if not estimates and too_expensive:
        usd, cheapest = min(too_expensive)
        few = (
            f"budget_usd {budget_usd:g} pays for fewer than {_FEWEST_JOBS} of these jobs on any suitable instance type"
        )
        least = f"the cheapest, on {cheapest}, costs about {plain(usd, 2)} USD"
        raise BadInput([f"{few}: {least}; raise budget_usd, or lower max_train_samples or num_train_epochs"])
    if not estimates:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        region = workplace.launcher.region(job)
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
    return f"about {duration(estimate.time.seconds)} and {plain(estimate.cost_usd or 0.0, 2)} USD a job"


def _able_to_run(job: JobSpec, workplace: Workplace) -> Iterator[tuple[str, JobSpec, Price | None]]:
    """Yield each instance type that may run the job, with the job on this type and its price, None if it is unknown.

    Raises BadInput with the faults of the first type if no type may run the job.
    """
    # The simulation that stands for an account at public prices does not know the number of rows.
    knows_rows = job.is_simulated or workplace.launcher.virtual_clock is None
    first, may_run = list[str](), False
    for name in instances():
        with collecting(faults := list[str]()):
            spec = JobSpec.read({**job.given(), "instance_type": name})
            if knows_rows:
                workplace.launcher.check(spec)
            else:
                refuse(launch_faults(spec))
        first, may_run = first or faults, may_run or not faults
        if not faults:
            yield name, spec, workplace.launcher.price(spec)
    refuse([] if may_run else first)


def _of_script(job: JobSpec, *, has_types: bool) -> dict[str, Any]:
    """Return what to search for a script: a range of learning rates and choices of batch sizes, around its defaults.

    The result is empty if the request sets both. Raises BadInput if neither can be searched, unless the request sets
    one of them or the study has instance types to search.
    """
    path, search = at_home(str(job.entry_script)).resolve(), dict[str, Any]()
    script = Script.read(path, may_ask=job.ask_script)
    rate = argument_of(script, "learning_rate")
    batch = next((name for name in OF_THE_BATCH if name not in OF_THE_BATCH[1:2] and argument_of(script, name)), None)
    lacking = list[str]()
    if rate is not None and "learning_rate" not in job.model_fields_set:
        if (default := _default_of(script, rate)) is None:
            lacking.append("learning_rate")
        else:
            low, high = default / _SCRIPT_FACTOR, default * _SCRIPT_FACTOR
            search["learning_rate"] = {"low": low, "high": high, "log": True}
    if batch is not None and not job.model_fields_set.intersection(OF_THE_BATCH):
        if (default := _default_of(script, str(argument_of(script, batch)))) is None:
            lacking.append(batch)
        else:
            choices = sorted({max(1, round(default * factor)) for factor in (0.25, 0.5, 1, 2, 4)})
            search[batch] = {"choices": choices}
    is_given = job.model_fields_set.intersection(("learning_rate", *OF_THE_BATCH))
    if not (search or is_given or has_types):
        declared = ", ".join(script.arguments) or "none"
        why = (
            f"no default of its {' and '.join(lacking)} can be read"
            if lacking
            else "it declares no learning rate and no batch size"
        )
        text = f"{path.name}: {why} (its arguments: {declared}): list what to search in a study file"
        raise BadInput([script.syntax_fault or text])
    return search


def _default_of(script: Script, argument: str) -> float | None:
    """Return the default of a script's argument, or None unless the source code shows it as a positive number.

    The default is the keyword argument `default` of a call that declares the argument, such as argparse's, or the
    default value of an annotated field or a function parameter with that name. A call counts before the others, because
    a helper function may have a parameter of the same name.
    """
    plain_name = argument.replace("-", "_")
    if (known := script.defaults.get(argument)) is not None:  # in a configuration file
        return known if known > 0 else None
    nodes = list[ast.AST]()
    with suppress(SyntaxError):
        nodes += ast.walk(ast.parse(read_text(script.path, LARGEST_SCRIPT)))
    for node in sorted(nodes, key=lambda node: not isinstance(node, ast.Call)):
        value: ast.expr | None = None
        if isinstance(node, ast.Call):
            names = {w.value.lstrip("-").replace("-", "_") for w in node.args if _is_text(w)}  # type: ignore[attr-defined]
            if plain_name in names:
                value = next((word.value for word in node.keywords if word.arg == "default"), None)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == plain_name:
            value = node.value
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            positional = [*given.posonlyargs, *given.args]
            last = positional[len(positional) - len(given.defaults) :]  # only these have a default
            pairs = zip([*last, *given.kwonlyargs], [*given.defaults, *given.kw_defaults], strict=True)
            value = next((default for name, default in pairs if name.arg == plain_name), None)
        if isinstance(value, ast.Constant) and isinstance(value.value, int | float) and value.value > 0:
            return float(value.value)
    return None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
