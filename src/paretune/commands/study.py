"""The command `study`: searches for the Pareto front within a budget, or runs the points of a designed experiment.

`paretune.studies` does the work.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from paretune.commands.command import Command
from paretune.core.errors import BadInput, NoAccount, collecting, did_you_mean, refuse
from paretune.core.result import CommandOutput, Result
from paretune.core.untrusted import LARGEST_SCRIPT, at_home, read_text
from paretune.specification.catalog import instances
from paretune.specification.declaration import parameter, split_list
from paretune.specification.inputs import data_faults, missing_files
from paretune.specification.job import JobSpec
from paretune.specification.launchers import known
from paretune.specification.profile import CHARGED, FILE, read_profile, sets_value, with_profile
from paretune.studies.definition.file import IN_THE_FILE, StudyFile
from paretune.studies.definition.wish import Wish
from paretune.user_code.script import Script


class StudyOptions(StudyFile):
    """The options of the command: the study's file, and keys that replace the file's."""

    study: str | None = parameter(None)
    """study file, such as studies/smoke.yaml; or the name of a shipped study; or your own training script"""
    metric: str | None = parameter(None)
    """without a file: the metric of your script that measures its model"""


def _read(texts: Mapping[str, str]) -> StudyFile | Wish:
    """Return the study in the file, changed by the options; without a file, a `Wish`, from which a study is proposed.

    If there is a file, print which parameters of the profile it ignores. Raises BadInput with all faults of the first
    step that fails.
    """
    path, faults = texts.get("study", "").strip(), list[str]()
    if path.endswith(".py"):
        return _wished({**texts, "study": "", "entry_script": path})
    if not path and (texts.get("dataset") or texts.get("entry_script")):
        return _wished(texts)
    if not path:
        raise BadInput(
            [
                "study must name a study file, such as studies/smoke.yaml, or a script; or give a data set and a "
                "budget: `paretune study --dataset reviews.csv --budget_usd 20`"
            ]
        )
    if texts.get("metric", "").strip():
        raise BadInput(["metric is for a study without a file: put it in the file's objectives"])
    with collecting(faults):
        if ignored := sorted(read_profile(os.environ).keys() - set(CHARGED)):
            which, pronoun = ", ".join(ignored), "it" if len(ignored) == 1 else "them"
            note = f"{FILE}: a study file ignores {which}; put {pronoun} under `job` in the study file"
            print(note, file=sys.stderr)
    refuse(faults)
    return StudyFile.read(path, {key: text for key, text in texts.items() if key != "study"})


def _wished(texts: Mapping[str, str]) -> Wish:
    """Return the `Wish` for a study without a file. Raises BadInput with all faults of the first step that fails."""
    typed = {name: text for name, text in texts.items() if sets_value(name, text) and name not in ("study", "metric")}
    of_study = {name: text for name, text in typed.items() if name in StudyFile.model_fields}
    job = {name: text for name, text in typed.items() if name not in of_study}
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
    faults, spec, metric = list[str](), None, texts.get("metric", "").strip()
    terms = dict[str, object]()
    if "budget_usd" not in of_study:
        faults.append("budget_usd is missing: say how many dollars the study may spend, such as --budget_usd 20")
    with collecting(faults):
        spec = JobSpec.read(with_profile(job, os.environ))
        faults += missing_files(spec.as_text()) or data_faults(spec)
    if spec is not None and spec.entry_script is not None and not metric:
        shown = ", ".join(Script.read(at_home(spec.entry_script).resolve()).metrics) or "none"
        name = Path(spec.entry_script).name
        faults.append(
            f"say which metric judges the model of {name}, such as --metric val_f1; found in the script: {shown}"
        )
    if spec is not None and spec.entry_script is not None and metric:
        faults += _metric_faults(at_home(spec.entry_script), metric)
    if spec is not None and spec.entry_script is None and metric:
        faults.append("metric is for a script: paretune's own training is measured by the metric of its task")
    if not faults:
        with collecting(faults):  # check the keys of the study, such as n_trials=abc
            study = StudyFile.read({"name": "x", "search": {"learning_rate": {"choices": [1e-5]}}, **of_study})
            terms = {name: value for name, value in study.given().items() if name in of_study}
    refuse(faults)
    assert spec is not None
    return Wish(job=spec, types=types, terms=terms, metric=metric or None)


def _metric_faults(script: Path, metric: str) -> list[str]:
    """Return a fault if a metric seems misspelled, else an empty list.

    A metric seems misspelled if it resembles a metric that the script reports, and if the script's text lacks one of
    its words. Any other metric may come from a library, for example from autologging.
    """
    reported = Script.read(script.resolve()).metrics
    question = did_you_mean(metric, reported)
    if metric in reported or not question:
        return []
    text = read_text(script, LARGEST_SCRIPT)
    if all(word in text for word in re.findall(r"[A-Za-z0-9]+", metric)):
        return []
    return [f"{script.name} does not report {metric}: {question} It reports {', '.join(reported)}"]


def _run(study: StudyFile | Wish) -> CommandOutput | Result:
    from paretune.jobs.progress import say_on_stderr
    from paretune.jobs.workplace import Workplaces
    from paretune.studies.proposal import propose
    from paretune.studies.run import run_or_preview

    if isinstance(study, StudyFile):
        return run_or_preview(study)
    wants_file = bool(study.job.dry_run)
    wish, workplaces = replace(study, job=study.job.replace(dry_run=None)), Workplaces.of_process()
    try:
        proposed = propose(wish, workplaces)
    except NoAccount as error:
        if not wants_file:
            raise
        proposed = propose(wish, workplaces, has_account=False)
        unasked = f"your AWS account was not queried, so prices are public ones: {error}"
        proposed = replace(proposed, reasons=[*proposed.reasons, unasked])
    if wants_file:
        run_or_preview(proposed.file().replace(job={**proposed.file().job.given(), "dry_run": True}))  # checks its jobs
        return CommandOutput(text=proposed.text(), document={"study": dict(proposed.values), "launched": False})
    for reason in proposed.reasons:
        say_on_stderr(reason)
    return run_or_preview(proposed.file())


STUDY = Command(read=_read, run=_run, options=StudyOptions, takes_jobs=True, excluded=IN_THE_FILE)
