"""The command `study`: searches for the Pareto front within a budget, or runs the points of a designed experiment.

`paretune.studies` does the work.
"""

import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paretune.commands.command import Command, names_of
from paretune.core.errors import BadInput, NoAccount, collecting, did_you_mean, refuse
from paretune.core.reading import is_folder
from paretune.core.result import CommandOutput, Result
from paretune.core.shell import options
from paretune.specification import metrics
from paretune.specification.catalog import instances
from paretune.specification.declaration import parameter, split_list, with_own_argument
from paretune.specification.inputs import DATA_FILES, data_faults, missing_files
from paretune.specification.job import JobSpec
from paretune.specification.launchers import known
from paretune.specification.profile import CHARGED, FILE, read_profile, sets_value, with_profile
from paretune.studies.definition.file import (
    IN_THE_FILE,
    StudyFile,
    StudyRequest,
    paid_with,
    skeleton,
    unknown_option,
)
from paretune.studies.definition.objectives import Objective, direction_of, stated_direction
from paretune.user_code.inputs import with_own_options
from paretune.user_code.script import Script


class StudyOptions(StudyFile):
    """The options of the command: the study's file, and keys that replace the file's."""

    study: str | None = parameter(None)
    """study file, such as studies/smoke.yaml; or the name of a shipped study; or your own training script"""
    metric: str | None = parameter(None)
    """without a file: the metric of your script that measures its model, if its name tells the direction"""
    minimize: str | None = parameter(None)
    """without a file: such a metric, less of which is better"""
    maximize: str | None = parameter(None)
    """without a file: such a metric, more of which is better"""


_OF_QUALITY = ("metric", "minimize", "maximize")


def _read(texts: Mapping[str, str]) -> StudyFile | StudyRequest:
    """Return the study in the file, changed by the options; without one, a request from which a study is proposed.

    If there is a file, print which parameters of the profile it ignores. Raises BadInput with all faults of the first
    step that fails.
    """
    path, faults = texts.get("study", "").strip(), list[str]()
    has_quality = any(texts.get(name, "").strip() for name in _OF_QUALITY)
    if path.endswith((".py", ".ipynb")) or (path and has_quality and is_folder(path)):  # the last two are refused there
        return _requested({**texts, "study": "", "entry_script": path})
    if path.lower().endswith(DATA_FILES):
        raise BadInput([f"{path} is a data file, not a study: give it as dataset: {options(dataset=path)}"])
    if not path and (texts.get("dataset") or texts.get("entry_script")):
        return _requested(texts)
    if not path and texts.get("project"):
        option, metric = next(((name, str(texts[name])) for name in _OF_QUALITY if texts.get(name)), ("", "METRIC"))
        direction = option if option in ("minimize", "maximize") else direction_of(metric) or "minimize or maximize"
        of_study = {name: text for name, text in texts.items() if name in StudyFile.model_fields}
        search, quality = {"PARAMETER": {"choices": [1, 2]}}, Objective(metric=metric, direction=direction)
        file = skeleton({"project": str(texts["project"])}, search, quality, _terms(of_study))
        raise BadInput(
            [f"a study of a project needs a study file, which says what to search, with one line such as {file}"]
        )
    if not path:
        raise BadInput(
            [
                "study must name a study file, such as studies/smoke.yaml, or a script; or give a data set and a "
                "budget: `paretune study --dataset reviews.csv --budget_hours 2`"
            ]
        )
    for name in _OF_QUALITY:
        if texts.get(name, "").strip():
            faults.append(f"{name} is for a study without a file: put it in the file's objectives")
    refuse(faults)
    with collecting(faults):
        if ignored := sorted(read_profile(os.environ).keys() - set(CHARGED)):
            which, pronoun = ", ".join(ignored), "it" if len(ignored) == 1 else "them"
            note = f"{FILE}: a study file ignores {which}; put {pronoun} under `job` in the study file"
            print(note, file=sys.stderr)
    refuse(faults)
    return StudyFile.read(path, {key: text for key, text in texts.items() if key != "study"})


def _requested(texts: Mapping[str, str]) -> StudyRequest:
    """Return the request for a study without a file. Raises BadInput with all faults of the first step that fails."""
    own = ("study", *_OF_QUALITY)
    typed = {name: text for name, text in texts.items() if sets_value(name, text) and name not in own}
    of_study = {name: text for name, text in typed.items() if name in StudyFile.model_fields}
    job = {name: text for name, text in typed.items() if name not in of_study}
    job = with_own_options(job, names_of(JobSpec, StudyFile, StudyOptions), listed_by="study")
    strange = [name for name in job if name.partition(".")[0] not in JobSpec.model_fields]
    types: Sequence[str] | None = None
    kind, launcher = job.get("instance_type", ""), known().get(job.get("launcher", ""))
    if "," in kind:
        types = split_list(kind)
        if not types:
            raise BadInput([f"instance_type must name at least one type, got {kind!r}"])
        job["instance_type"] = str(types[0])
    elif not kind and launcher is not None and launcher.has_instances and not job.get("entry_script"):
        types = []
        of_launcher = (name for name, item in instances().items() if item.launcher == launcher.name)
        job["instance_type"] = next(of_launcher, next(iter(instances())))  # any type, until the types are chosen
    script = job.get("entry_script")
    faults = [with_own_argument(unknown_option(name, StudyOptions), name, script) for name in strange]
    spec, quality = None, None
    terms: Mapping[str, Any] = {}
    with collecting(faults):
        spec = JobSpec.read(with_profile({name: job[name] for name in job if name not in strange}, os.environ))
        faults += missing_files(spec.as_text()) or ([] if spec.runs_user_code else data_faults(spec.data_arguments))
    with collecting(faults):
        quality = None if spec is None else _quality(spec, texts)
    if spec is not None and (missing := _missing_budget(spec, of_study, has_types=types is not None)):
        faults.insert(0, missing)
    if not faults:
        with collecting(faults):  # check the keys of the study, such as n_trials=abc
            terms = _terms(of_study)
    refuse(faults)
    assert spec is not None
    return StudyRequest(job=spec, types=types, terms=terms, quality=quality)


def _missing_budget(spec: JobSpec, of_study: Collection[str], *, has_types: bool) -> str:
    """Return a fault if no limit of the study was typed: hours or dollars where nobody bills, else dollars."""
    if "budget_usd" in of_study:
        return ""
    if paid_with(spec.given(), has_types=has_types) != metrics.JOB_SECONDS:
        return "budget_usd is missing: say how many dollars the study may spend, such as --budget_usd 20"
    if "budget_hours" in of_study:
        return ""
    return "budget_hours is missing: say how long the study's jobs may take together, such as --budget_hours 2"


def _terms(of_study: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a study's keys that were typed. Raises BadInput for values such as n_trials=abc."""
    study = StudyFile.read({"name": "x", "search": {"learning_rate": {"choices": [1e-5]}}, **of_study})
    return {name: value for name, value in study.given().items() if name in of_study}


def _quality(spec: JobSpec, texts: Mapping[str, str]) -> Objective | None:
    """Return the metric that judges the model of a script, with its direction; None for paretune's own training.

    Raises BadInput if the options name no metric, several ones, one that the script does not report, or one whose
    direction is unknown or wrong.
    """
    given = {name: text for name in _OF_QUALITY if (text := texts.get(name, "").strip())}
    if spec.entry_script is None:
        refuse(
            [f"{name} is for a script: paretune's own training is measured by the metric of its task" for name in given]
        )
        return None
    if not given:
        script = Script.of(spec.code_source)
        shown = ", ".join(script.reported.metrics) or "none"
        ask = f"say which metric judges the model of {script.path.name}, such as --metric val_f1"
        raise BadInput([f"{ask}; found in the script: {shown}"])
    if len(set(given.values())) > 1 or {"minimize", "maximize"} <= given.keys():
        listed = " and ".join(f"--{name} {text}" for name, text in given.items())
        rule = "a study without a file has one metric besides dollars"
        raise BadInput([f"{rule}, got {listed}: keep one, or list them in the objectives of a study file"])
    metric = next(iter(given.values()))
    if metric == metrics.COST_USD:
        raise BadInput(["cost_usd is always minimized: name a metric that the script reports"])
    stated = next((name for name in ("minimize", "maximize") if name in given), "")
    refuse(_metric_faults(spec, metric))
    return Objective(metric=metric, direction=stated_direction(metric, stated))


def _metric_faults(spec: JobSpec, metric: str) -> list[str]:
    """Return a fault if a script does not report a metric, else an empty list.

    A metric counts as reported if the script's text shows it, if it has a regex in `metric_definitions`, or if all of
    its words are somewhere in the text, which may put the name together. If the script uses a logger, or shows no
    metric at all, its metrics may come from a library, so only a name that resembles a reported one is refused.
    """
    script = Script.of(spec.code_source)
    reported = [*script.reported.metrics, *(item["Name"] for item in spec.metric_definitions)]
    known_as = {*reported, *(metrics.SCRIPT_METRICS.get(name) for name in reported)}
    same = [name for name in reported if name.lower() == metric.lower()]
    question = f"did you mean {same[0]}?" if same else did_you_mean(metric, reported)
    comes_from_elsewhere = not script.reported.metrics or script.reported.loggers
    if metric in known_as or metric in metrics.OF_THE_CLUSTER or (comes_from_elsewhere and not question):
        return []
    if not re.fullmatch(r"[\w\-. :/@]*\w[\w\-. :/@]*", metric):
        return [f"{metric} is not the name of a metric: name one, such as val_f1"]
    words = {word.lower() for word in re.findall(r"[A-Za-z0-9]+", script.text)}
    if not same and words.issuperset(word.lower() for word in re.findall(r"[A-Za-z0-9]+", metric)):
        return []
    shown = f"{question} Its" if question else "its"
    remedy = f"if it reports {metric}, too, set metric_definitions, or name it in the objectives of a study file"
    return [f"{script.path.name} does not report {metric}: {shown} text shows {', '.join(reported)}; {remedy}"]


def _run(study: StudyFile | StudyRequest) -> CommandOutput | Result:
    from paretune.jobs.terminal import say_on_stderr
    from paretune.jobs.workplace import Workplaces
    from paretune.studies.preview import preview_study
    from paretune.studies.proposal import propose
    from paretune.studies.run import run_or_preview

    if isinstance(study, StudyFile):
        return run_or_preview(study)
    wants_file = bool(study.job.dry_run)
    request, workplaces = replace(study, job=study.job.replace(dry_run=None)), Workplaces.of_process()
    try:
        proposed = propose(request, workplaces)
    except NoAccount as error:
        if not wants_file:
            raise
        proposed = propose(request, workplaces, offline=str(error))
        unasked = f"your AWS account was not queried, so prices are public ones: {error}"
        proposed = replace(proposed, reasons=[*proposed.reasons, unasked])
    if wants_file:
        preview = preview_study(proposed.file())
        left_out = [{"name": each.name, "why": each.why, "line": each.line} for each in proposed.left_out]
        document = {**preview.document(), "study": dict(proposed.values), "not_searched": left_out}
        words = {**preview.words, **preview.script}
        words.pop("its own defaults", None)  # each has a line of its own
        if "passes" in words:
            words["one of its jobs passes"] = words.pop("passes")
        facts = [preview.title, *(f"{name}: {text}" for name, text in words.items() if text), *preview.remarks]
        return CommandOutput(text=proposed.text(facts), document=document)
    for reason in (*proposed.reasons, *proposed.summary()):
        say_on_stderr(reason)
    return run_or_preview(proposed.file())


STUDY = Command(read=_read, run=_run, options=StudyOptions, takes_jobs=True, excluded=IN_THE_FILE)
