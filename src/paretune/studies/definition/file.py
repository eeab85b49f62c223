"""Study files: the parameters that all jobs share, the search space, objectives and limits.

    name: which cluster
    job: {num_train_epochs: 2}
    search:
      learning_rate: {low: 1e-5, high: 1e-4, log: true}
      global_batch_size: {choices: [16, 64]}
    budget_usd: 20

All faults are reported together, each with its line number in the file. Combinations of searched values are checked
only if there are no other faults. An option of the command line, such as `--n_trials 20`, replaces the file's value.
A user's own script or project is not read here: `own_code` compares it with the study.
Python code may pass the same content as a mapping.
"""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import PrivateAttr, field_validator

from paretune.core.errors import BadInput, collecting, did_you_mean
from paretune.core.shell import command_line
from paretune.specification import metrics
from paretune.specification.declaration import (
    Fault,
    Parameters,
    Plain,
    Rules,
    Value,
    faults_error,
    parameter,
    spell,
    split_list,
    unknown,
)
from paretune.specification.inputs import PATHS
from paretune.specification.job import JobSpec, JobValues
from paretune.specification.launchers import AUTO, LauncherTraits, chosen, known
from paretune.specification.profile import sets_value
from paretune.storage.database import address_fault, redacted
from paretune.storage.files import STUDY, Document, as_yaml, find_file, find_path
from paretune.studies.definition.objectives import (
    Objective,
    bounds_faults,
    default_objectives,
    judged_by,
    objective_faults,
    with_quality,
)
from paretune.studies.definition.points import Design, Points
from paretune.studies.definition.space import (
    INSIDE,
    Choices,
    Range,
    all_points,
    combination_faults,
    is_inside,
    make_spec,
    read_entry,
)
from paretune.studies.definition.spending import Spending, spending_of

_LONGEST_NAME = 80  # characters
TRAINING_KEYS = ("project", "entry_point", "entry_script", "metric", "metric_definitions")
"""Job parameters that describe the user's own training code. A file may have them next to `job` instead of inside it.
"""
OF_OWN_CODE = f"training_arguments{INSIDE}"
"""Begin of the name of a searched parameter of the user's own training code."""
IN_THE_FILE = ("job", "search", "points", "objectives", "constraints")
"""Keys of a study that cannot be set on the command line."""
_CLUSTER_KEYS = ("instance_type", "instance_count", "spot", "region", "max_runtime_minutes")
"""In a study of an MLflow project, a searched name listed here is a parameter of the job; any other is one of the
project."""
_MEASURED_FOR_ANY_JOB = {metrics.COST_USD, metrics.JOB_SECONDS, metrics.BILLABLE_SECONDS}
"""Objectives of seconds and dollars that are measured for any job, even if it runs the user's own code."""


class StudyFile(Parameters):
    """A checked study. Raises BadInput with all faults; combinations are checked only if there are no others."""

    name: str = parameter("")
    """name of the study in MLflow"""
    job: JobValues = parameter(JobValues(), example={"num_train_epochs": 2})
    """parameters that all jobs share"""
    search: dict[str, Any] = parameter({}, example={"learning_rate": {"low": 1e-5, "high": 1e-4}})
    """maps each searched parameter to its choices, or to low and high"""
    points: Points | None = parameter(None, example={"full": {"precision": ["fp32", "bf16"]}, "replicates": 3})
    """a designed experiment instead of search: full, d_optimal or table"""
    objectives: dict[str, str] = parameter({}, example={"f1": "maximize"})
    """metrics to minimize or maximize; by default less cost_usd and more f1; where nobody bills, less job_seconds"""
    constraints: dict[str, dict[str, float]] = parameter({}, example={"f1": {"min": 0.9}})
    """maps each metric to its bounds"""
    budget_usd: float | None = parameter(None, ge=0)
    """dollars that all jobs of the study may cost in total; required if jobs are billed"""
    budget_hours: float | None = parameter(None, gt=0)
    """hours that all jobs of the study may take in total, a second limit beside the dollars; the only one that a study
    needs where nobody bills"""
    n_trials: int | None = parameter(None, ge=1)
    """limit on trials, not counting repeats of recommended ones; by default as many as the budget or the grid allows"""
    n_parallel: int = parameter(1, ge=1, le=1000)
    """jobs at a time"""
    sampler: Literal["split", "tpe", "gp", "nsga2", "random", "grid"] | None = parameter(None)
    """how points are suggested (split: by separate models of seconds and quality); by default split if possible,
    otherwise tpe"""
    stop: Literal["auto", "never"] = parameter("auto")
    """auto: end when the front has stopped growing (split sampler); never: spend the budget or run all trials"""
    seed: int = parameter(42, ge=0, le=2**32 - 1)
    """seed of the sampler; the training seed is in job"""
    storage: str | None = parameter(None, repr=False)
    """sqlite:///FILE or postgresql://...; by default PARETUNE_STORAGE, else a file in PARETUNE_HOME"""
    once: bool = parameter(False)
    """collect jobs that have ended, launch the next ones, and exit, with code 75 if the study has not ended"""

    listed_by: ClassVar[str] = "study"
    hidden: ClassVar[str] = "job."
    _command: str = PrivateAttr("")
    _source: "_Source" = PrivateAttr(default_factory=lambda: _Source())

    @classmethod
    def read(cls, values: str | Mapping[str, Any], overrides: Mapping[str, str] | None = None) -> Self:
        """Read a study from a file, or from a mapping with the same content.

        `overrides` maps names to strings, which replace the values of the file; empty strings are ignored, except for
        environment variables. A name is a key of the study or a parameter of its jobs. If the study searches the
        parameter, a single value ends that search, and a comma-separated list replaces the choices. The name `seed`
        means the study's seed, not the training's, which is in `job`. Raises BadInput with all faults and their lines.
        Combinations of searched values are checked only if there are no other faults.
        """
        path, file, faults, located = "", None, list[Fault](), list[tuple[int, str]]()
        if isinstance(values, str):
            path = find_file(values)
            file = Document(path, STUDY, Plain)
            document = _plain(file.values, (), faults, path)
            located = [(line, f"{path}:{line}: {text}") for line, text in file.faults]
        else:
            document = _copied(values)
        typed = {_field_name(name): text for name, text in (overrides or {}).items() if sets_value(name, text)}
        if typed:
            _name_fully(document, typed)
            typed = {_as_in_file(document, name): text for name, text in typed.items()}
        located += [(0, text) for name, text in typed.items() for text in _override(document, name, text)]
        study, of_study = cls.check(document)
        source = _Source(path, file, typed)
        located += [replace(source, typed=()).located(fault) for fault in faults]  # a blank is always in the file
        located += map(source.located, of_study)
        if located or study is None:
            raise _in_order(located)
        study._source = source
        if path:
            shown = {name: redacted(text) if name == "storage" else text for name, text in (overrides or {}).items()}
            study._command = command_line("study", {"study": str(values)} | shown)
        return study

    def refuse(self, faults: Iterable[Fault]) -> None:
        """Raise BadInput with these faults and their lines in the file, if there are any."""
        if located := [*map(self._source.located, faults)]:
            raise _in_order(located)

    @cached_property
    def spending(self) -> Spending:
        """What the study spends: dollars, or the time of jobs that nobody bills."""
        is_billed = any(item.is_billed or item.is_simulated for item in _launchers(self))
        return spending_of(self.objectives, is_billed=is_billed)

    @property
    def command(self) -> str:
        """The command line that starts or continues this study; empty if the study was not read from a file."""
        return self._command

    @classmethod
    def _typed(cls, values: Mapping[Any, Any]) -> dict[str, Any]:
        values = dict(values)
        job = values.get("job") or {}
        if isinstance(job, JobSpec):
            job = job.given()
        if isinstance(job, Mapping):
            job = {**job, **{name: values.pop(name) for name in TRAINING_KEYS if name in values}}
            if not _is_simulated(job):
                job.pop("simulation", None)  # a file may keep the settings of its rehearsal
            values["job"] = job
            if isinstance(values.get("search"), Mapping):
                values["search"] = {full_name(job, str(name)): entry for name, entry in values["search"].items()}
        if not values.get("objectives") and isinstance(job, Mapping):
            searched = values.get("search")
            types = searched.get("instance_type") if isinstance(searched, Mapping) else None
            values["objectives"] = default_objectives(job, paid=paid_with(job, has_types=types is not None))
        return super()._typed(values)

    @field_validator("search", mode="before")
    @classmethod
    def _read_search(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        entries, faults = dict[str, Choices | Range](), list[Fault]()
        for name, raw in value.items():
            with collecting(texts := list[str]()):
                entries[name] = read_entry(name, raw)
            faults += [Fault((name,), text) for text in texts]
        if faults:
            raise faults_error(faults)
        return entries

    @classmethod
    def _fault(cls, error: Any) -> Fault:
        outer, *inner = path = tuple(map(str, error["loc"]))
        if error["type"] != "extra_forbidden" or outer == "points":
            return super()._fault(error)
        if inner and inner[0] in cls.model_fields:
            text = f"unknown parameter {inner[0]} in {outer}: it is a key of the study, move it to the left"
        elif inner:
            text = unknown(JobSpec, ".".join(inner))
        elif outer in JobSpec.model_fields:
            similar = did_you_mean(outer, cls.model_fields, lead="; or ", most=1)
            text = f"unknown key {outer}: it is a parameter of the job, put it under job or search{similar}"
        else:
            hint = did_you_mean(outer, cls.model_fields, or_longer=True) or f"there are {', '.join(cls.model_fields)}"
            text = f"unknown key {outer}: {hint}"
        return Fault(path, text)

    @property
    def judged_by(self) -> Objective | None:
        """The metric that measures the model's quality, or None if the study has only seconds and dollars."""
        return judged_by(self.goals)

    @property
    def goals(self) -> dict[str, str]:
        """The objectives with their directions, plus the quality metric if only a constraint names it."""
        return with_quality(self.objectives, self.constraints)

    @property
    def takes_split(self) -> bool:
        """Whether the split sampler is used, which models seconds and quality separately.

        The split sampler is the default if the objectives allow it and the study has no `points`.
        """
        return can_be_split(self) if self.sampler is None and not self.points else self.sampler == "split"

    @property
    def tries_all(self) -> bool:
        """Whether the study tries every point once: the whole grid, or all rows of `points` in order."""
        return self.sampler == "grid" or bool(self.points)

    @cached_property
    def design(self) -> Design | None:
        """The rows of `points`; None for a search."""
        return Design(self.points, self.seed, self.job.seed) if self.points else None

    def ranges(self) -> list[str]:
        """Return the searched parameters that have a range instead of a list of values."""
        return [name for name, entry in self.search.items() if isinstance(entry, Range)]

    def size(self) -> int | None:
        """Return the number of points, whether or not they are valid jobs; None if a range is searched."""
        if self.design is not None:
            return len(self.design.rows)
        return None if self.ranges() else math.prod(len(entry.corners) for entry in self.search.values())

    def jobs_at(self, points: Iterable[Mapping[str, Value]] | None = None) -> list[tuple[dict[str, Value], JobSpec]]:
        """Return the points that are valid jobs, each with its job.

        By default, these are all combinations of choices and ends of ranges, or the rows of the design.
        """
        return list(self.each_job(points))

    def each_job(
        self, points: Iterable[Mapping[str, Value]] | None = None
    ) -> Iterator[tuple[dict[str, Value], JobSpec]]:
        """Yield what `jobs_at` returns, one after another: a grid may have very many points."""
        every = all_points(self.search) if self.design is None else self.design.rows
        for point in every if points is None else points:
            with suppress(BadInput):
                yield dict(point), self.spec_at(point)

    def spec_at(self, point: Mapping[str, Any]) -> JobSpec:
        """Return the job at a point, whose values need not be among the choices.

        Raises BadInput if the job is invalid: for example, if its batch cannot be divided among the devices.
        """
        names = [name for name in {**self.goals, **self.constraints} if name not in metrics.OF_THE_CLUSTER]
        asked = {"metric": [*self.job.metric, *names]} if self.job.runs_user_code and names else {}
        return make_spec({**self.job.given(), **asked}, point)

    def given(self) -> dict[str, Any]:
        """Return the keys that were given, and the objectives. `read` turns them back into the same study."""
        given = super().given()
        given.pop("search", None)
        search = {name: entry.as_json() for name, entry in self.search.items()}
        return given | ({"search": search} if search else {})

    def as_text(self) -> dict[str, str]:
        """Return the given keys and the defaults derived from them as strings for MLflow.

        Passwords and the key `once` are left out.
        """
        sampler = self.sampler or ("points" if self.points else "split" if self.takes_split else "tpe")
        implied = {"objectives": self.objectives, "sampler": sampler, "storage": redacted(self.storage or "") or None}
        return {
            name: json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else spell(value)
            for name, value in (self.given() | implied).items()
            if name != "once" and value is not None
        }

    rules: ClassVar[Rules] = ()  # set below
    last_rules: ClassVar[Rules] = ()


def can_be_split(study: StudyFile) -> bool:
    """Return whether one objective measures the model and all others, at least one, are dollars or metrics of speed.

    If the training code is the user's own, the others must be in _MEASURED_FOR_ANY_JOB.
    """
    objectives, quality = study.goals, study.judged_by
    if quality is None or len(objectives) < 2:
        return False
    others = _MEASURED_FOR_ANY_JOB if study.job.runs_user_code else metrics.OF_THE_CLUSTER
    return set(objectives) <= {quality.metric, *others}


def _is_simulated(job: Mapping[str, Any]) -> bool:
    """Return whether a job that is not yet checked is only simulated; False if its launcher is unknown."""
    launcher = str(job.get("launcher", AUTO)).strip()
    return launcher in (AUTO, *known()) and chosen(launcher, str(job.get("instance_type", ""))).is_simulated


def full_name(job: Mapping[str, Any], name: str) -> str:
    """Return a searched name as a job spells it.

    Parameters of the job keep their names; with a project, only those in _CLUSTER_KEYS do. Any other name is one of the
    user's own script or project, and gets the prefix `training_arguments.`.
    """
    script, project = job.get("entry_script"), job.get("project")
    if is_inside(name) or not (script or project) or name in (JobSpec.model_fields if script else _CLUSTER_KEYS):
        return name
    return f"{OF_OWN_CODE}{name}"


def _parts(study: StudyFile) -> Iterator[Fault | str]:
    """Yield the faults of storage, `register`, objectives and constraints.

    `register` is checked here because the jobs of trials leave it out.
    """
    if study.storage is not None and (fault := address_fault(study.storage)):
        yield fault
    if study.job.register is not None:
        yield from (Fault(("job", *path), text) for path, text in JobSpec.check({"register": study.job.register})[1])
    task = None if study.job.runs_user_code else study.job.task
    for name, direction in study.objectives.items():
        yield from (Fault(("objectives", name), text) for text in objective_faults(name, direction, task))
    for name, bounds in study.constraints.items():
        yield from (Fault(("constraints", name), text) for text in bounds_faults(name, bounds, task))


def _clashes(study: StudyFile) -> Iterator[Fault]:
    """Yield the faults of job parameters that a study does not allow, or that conflict with searched ones."""
    if study.job.runs_user_code and study.job.is_simulated and study.job.simulation.runs is None:
        text = "your own training code is simulated from a table of recorded runs: set simulation.runs to that table"
        yield Fault(("job", "launcher"), f"{text}, or leave launcher out")
    if study.job.probe_steps is not None:
        text = "probe_steps cannot be in job: a job that is cut off has no F1; leave it out"
        yield Fault(("job", "probe_steps"), text)
    given = study.job.given()
    for name in study.search:
        prefix, _, inner = name.partition(INSIDE)
        if name in given or (inner and inner in (given.get(prefix) or {})):
            yield Fault(("search", name), f"{name} is in job and in search: take it out of one of them")
    if "max_train_samples" in study.search and study.job.max_eval_samples is None and not study.job.runs_user_code:
        # F1 must be compared on the same rows, but by default their number depends on the number of training rows.
        text = "max_train_samples also changes the rows that F1 is measured on (a ninth of it): set max_eval_samples in"
        yield Fault(("search", "max_train_samples"), f"{text} job")
    if "instance_type" in study.search and study.job.fallback_instance_types:
        text = "fallback_instance_types cannot be combined with a searched instance_type: a trial could be measured on"
        yield Fault(("job", "fallback_instance_types"), f"{text} a type other than its own; leave it out")


def _points(study: StudyFile) -> Iterator[Fault | str]:
    if not study.search and not study.points:
        yield f"search is missing: a study without it is one job, which `{command_line('train')}` runs; add search"
    if study.points and study.search:
        yield "points and search cannot be combined: remove one"
    if not study.points or study.search:
        return
    rows, given, faults = list[dict[str, Any]](), study.job.given(), list[str]()
    with collecting(faults):
        rows = study.design.rows if study.design is not None else []
    for name in dict.fromkeys(name for row in rows for name in row if name in given and name != "seed"):
        yield Fault(("job", name), f"{name} is in job and in points: take it out of one of them")
    by_job = defaultdict[str, list[dict[str, Any]]](list)
    for row in rows:
        with collecting(of_row := list[str]()):
            by_job[make_spec(given, row).spec_hash()].append(row)
        faults += [f"points: {text}" for text in of_row]
    for same in by_job.values():
        names = dict.fromkeys(name for row in same for name in row)
        if differing := ", ".join(name for name in names if len({spell(row.get(name)) for row in same}) > 1):
            text = f"points: rows that differ only in {differing} are the same job, which a study runs once"
            faults.append(f"{text}: take {differing} out, or keep one of these rows")
    yield from dict.fromkeys(faults)


def _name(study: StudyFile) -> Iterator[str]:
    if not (study.name.strip() and study.name.isprintable() and len(study.name) <= _LONGEST_NAME):
        got = f"must be one line of 1 to {_LONGEST_NAME} characters, got {study.name[:90]!r}"
        yield f"name {got if study.name.strip() else 'is missing: add name: and a few words for its study in MLflow'}"


def _launchers(study: StudyFile) -> list[LauncherTraits]:
    """Return the different launchers that the study's jobs would have."""
    points: list[dict[str, Any]] = [{}]
    if "instance_type" in study.search:
        points = [{"instance_type": name} for name in study.search["instance_type"].corners]
    with suppress(BadInput):
        points = points if study.design is None else study.design.rows
    shared = {"launcher": study.job.launcher, "instance_type": study.job.instance_type}
    jobs = [{**shared, **point} for point in points]
    each = [chosen(job["launcher"], str(job["instance_type"])) for job in jobs if job["launcher"] in (AUTO, *known())]
    return list({launcher.name: launcher for launcher in each}.values())


def _one_launcher(study: StudyFile) -> Iterator[Fault]:
    titles = sorted(launcher.title for launcher in _launchers(study))
    if len(titles) > 1:
        got = f"{' and '.join(titles)}: make a study for each, and compare their runs with `{command_line('report')}`"
        path = ("points",) if study.points else ("search", "instance_type")
        yield Fault(path, f"all jobs of a study must have the same launcher, got {got}")


def paid_with(job: Mapping[str, Any], *, has_types: bool = False) -> str:
    """Return the metric that quality is traded against by default: dollars, or the job's seconds where nobody bills.

    `has_types` says whether the study searches instance types, all of which are billed with launcher=auto.
    """
    launcher = str(job.get("launcher") or AUTO)
    if launcher != AUTO and launcher not in known():  # another rule refuses it
        return metrics.COST_USD
    traits = chosen(launcher, str(job.get("instance_type") or ""))
    is_free = not (traits.is_billed or traits.is_simulated or (has_types and launcher == AUTO))
    return metrics.JOB_SECONDS if is_free else metrics.COST_USD


def _limits(study: StudyFile) -> Iterator[str]:
    if study.budget_usd is not None:
        return
    if billed := next((item for item in _launchers(study) if item.is_billed and not item.is_simulated), None):
        yield f"budget_usd is missing: jobs on {billed.title} are billed, so their study needs it; add budget_usd: 20"
    # Without a budget, n_trials limits a study whose dollars are notional (local jobs) or simulated.
    elif study.n_trials is None and study.budget_hours is None and not study.tries_all:
        other = "budget_usd" if any(item.is_simulated for item in _launchers(study)) else "budget_hours"
        yield f"n_trials is missing: without {other}, this study needs that limit; add n_trials: 20, or {other}"


def _sampler(study: StudyFile) -> Iterator[str]:
    if study.sampler is not None and study.points:
        yield f"sampler {study.sampler} is not for points, all of which run: leave it out"
    elif study.sampler == "grid" and (ranges := study.ranges()):
        text = f"sampler grid takes only choices, and there are ranges: {', '.join(ranges)}"
        yield f"{text}: write {{choices: [...]}}, or use another sampler"
    elif study.sampler == "split" and not can_be_split(study):
        times = ", ".join(sorted(_MEASURED_FOR_ANY_JOB if study.job.runs_user_code else metrics.OF_THE_CLUSTER))
        metric = metrics.TASKS[study.job.task].quality if study.judged_by is None else study.judged_by.metric
        yield f"sampler split needs the objective {metric} and at least one of {times}, and no others: change them"


StudyFile.rules = (_name, _parts, _clashes, _limits, _one_launcher, _sampler, _points)
StudyFile.last_rules = (lambda study: [] if study.points else combination_faults(study.job.given(), study.search),)


@dataclass(frozen=True)
class _Source:
    """Where the values of a study come from: a file, and the names of the options that replace values in it."""

    path: str = ""
    file: Document | None = None
    typed: Collection[str] = ()

    def located(self, fault: Fault) -> tuple[int, str]:
        """Return the line and the text of a fault; the line is 0 if no line of the file is at fault."""
        keys = tuple(map(str, fault.path))
        spelled = (*keys[:2], INSIDE.join(keys[1:3]))
        is_typed = any(name in spelled for name in self.typed if name != "seed" or keys[:1] == ("seed",))
        if is_typed or self.file is None:
            return 0, fault.text
        as_written = tuple(key.removeprefix(OF_OWN_CODE) for key in keys)
        lines = self.file.line_at(keys), self.file.line_at(as_written)  # that of the mapping around an unknown key
        return max(lines), f"{self.path}:{max(lines)}: {fault.text}"


def _in_order(located: Iterable[tuple[int, str]]) -> BadInput:
    return BadInput(list(dict.fromkeys(text for _, text in sorted(located, key=lambda item: item[0]))))


def _copied(value: Any) -> Any:
    """Return a copy of the value, with nested mappings copied too. A job becomes the mapping of what was given."""
    if isinstance(value, JobSpec):
        value = value.given()
    return {name: _copied(item) for name, item in value.items()} if isinstance(value, Mapping) else value


_NO_PATHS = ("job.environment.", "job.tags.")
_MAY_BE_EMPTY = (*_NO_PATHS, "job.training_arguments.")


def _plain(value: Any, keys: tuple[str, ...], faults: list[Fault], path: str) -> Any:
    """Return a value of the file with its paths resolved, and add a fault to `faults` for each key without a value.

    Text in `environment`, `tags` and `training_arguments` may be empty. Text in `environment` and `tags` is no path.
    """
    if isinstance(value, dict):
        return {name: _plain(item, (*keys, name), faults, path) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, (*keys, str(number)), faults, path) for number, item in enumerate(value)]
    name_in_full = ".".join(keys)
    is_blank = isinstance(value, str) and not value.strip() and not name_in_full.startswith(_MAY_BE_EMPTY)
    if value is None or is_blank:
        of_no_index = (key for key in reversed(keys) if not key.isdecimal())  # not the index of an item in a list
        name = next(of_no_index, keys[0])
        rest = ", or take the line out for the default" if len(keys) < 3 else ""
        faults.append(Fault(keys, f"{name} has no value: give one{rest}"))
        return ""
    names_file = any(key in PATHS for key in keys) or keys[-2:] in (("simulation", "runs"), ("points", "table"))
    may_be_path = keys[0] in ("job", "search", "points", *TRAINING_KEYS) and not name_in_full.startswith(_NO_PATHS)
    if names_file and may_be_path:
        return type(value)(resolve(path, value))
    return value


def resolve(file: str, text: str) -> str:
    """Return the path of the file that `text` names in a study file, or `text` itself if there is none.

    `text` is looked up in the current folder, then in the folder of the study file, then in the project around it (the
    nearest folder above with an MLproject), then among the files that come with paretune.
    """
    folder = Path(file).resolve().parent
    project = next((above for above in (folder, *folder.parents) if (above / "MLproject").is_file()), folder)
    return find_path(text, folder, project)


def _name_fully(document: dict[str, Any], typed: Mapping[str, str]) -> None:
    """Rename the searched names in the document as jobs spell them, so that options of the same name replace them."""
    search, job = document.get("search"), document.get("job") or {}
    if isinstance(search, dict) and isinstance(job, dict):
        own_code = {name: each[name] for each in (document, typed) for name in TRAINING_KEYS if name in each}
        document["search"] = {full_name({**job, **own_code}, str(name)): entry for name, entry in search.items()}


def _field_name(name: str) -> str:
    """Return an option's name with - replaced by _, except inside a mapping: there, both are different names."""
    outer, dot, inner = name.partition(INSIDE)
    return outer.replace("-", "_") + dot + inner


def _as_in_file(document: Mapping[str, Any], name: str) -> str:
    """Return a typed name as the file spells a searched parameter or an argument of a script, with - or _."""
    search, job = (document.get(key) for key in ("search", "job"))
    names = [*map(str, search)] if isinstance(search, dict) else []
    if isinstance(job, dict):
        arguments = job.get("training_arguments")
        names += [key for key in map(str, job) if key.startswith(OF_OWN_CODE)]
        names += [f"{OF_OWN_CODE}{key}" for key in arguments] if isinstance(arguments, dict) else []
    return next((known for known in names if known.replace("-", "_") == name.replace("-", "_")), name)


def skeleton(job: Mapping[str, Any], search: Mapping[str, Any], quality: "Objective", terms: Mapping[str, Any]) -> str:
    """Return a study file in one line, for a message to a user who has none: she changes it and saves it.

    `terms` has the keys of the study that were typed, such as budget_usd. Without a budget, the file has a usual one.
    """
    paid = paid_with(job)
    if not {"budget_usd", "budget_hours"} & terms.keys():
        terms = {"budget_hours": 2, **terms} if paid == metrics.JOB_SECONDS else {"budget_usd": 20, **terms}
    objectives = {paid: "minimize", quality.metric: quality.direction}
    values = {"name": "my study", "job": dict(job), "search": dict(search), "objectives": objectives, **terms}
    return as_yaml(values, in_one_line=True).strip()


def unknown_option(name: str, options: type[Parameters]) -> str:
    """Return the message for an option that is neither one of `options`, the study's keys, nor a parameter of a job."""
    near = did_you_mean(name, [key for key in options.model_fields if key not in IN_THE_FILE])
    return f"unknown parameter {name}: {near}" if near else unknown(JobSpec, name, listed_by="study")


def _override(document: dict[str, Any], name: str, text: str) -> list[str]:
    """Write one option of the command line into the document, and return its faults."""
    if name in IN_THE_FILE:
        return [f"{name} can be set only in the file"]
    if name in StudyFile.model_fields:
        document[name] = Plain(text)
        return []
    if name.partition(INSIDE)[0] not in JobSpec.model_fields:
        return [unknown_option(name, StudyFile)]
    search, job = document.get("search"), document.get("job") or {}
    entry = search.get(name) if isinstance(search, dict) else None
    if isinstance(entry, dict) and "choices" in entry and "," in text and not text.lstrip().startswith("{"):
        entry["choices"] = [Plain(part) for part in split_list(text)]
        return []
    if isinstance(search, dict):
        search.pop(name, None)
    document.pop(name, None)  # TRAINING_KEYS may be next to job
    if isinstance(job, dict):
        document["job"] = {**job, name: Plain(text)}
    return []


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """The request for a study that has no file, from which `proposal.propose` makes a study.

    Attributes:
        job: the specification that all jobs of the study share.
        types: instance types to search. If empty, `propose` chooses them by their estimates. If None, the study does
            not search instance types.
        terms: keys of the study from the command line, such as budget_usd and n_trials, with checked values.
        quality: the metric by which a user's own script measures its model, with its direction; None for paretune's own
            training.
    """

    job: JobSpec
    types: Sequence[str] | None = None
    terms: Mapping[str, Any]
    quality: Objective | None = None
