"""The command `schedule`: a ready entry for the scheduler that is to call the rounds of a study."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from paretune.commands.schedule.entries import (
    Schedule,
    cron_line,
    eventbridge_command,
    github_workflow,
    kubernetes_manifest,
)
from paretune.commands.schedule.request import ScheduleRequest
from paretune.core.clock import SystemClock
from paretune.core.errors import refuse
from paretune.core.result import CommandOutput
from paretune.core.untrusted import at_home, exists
from paretune.jobs.workplace import STORAGE_VARIABLE, home_of
from paretune.specification.command import Command, reader_of
from paretune.specification.parameters import help_lines, switches_of
from paretune.specification.profile import charged, read_profile
from paretune.specification.regions import usual_region
from paretune.storage.address import file_faults, shown
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.file_model import PATHS

_OF_JOBS = ("PARETUNE_ROLE", "PARETUNE_BUCKET", "MLFLOW_EXPERIMENT_NAME")
"""Variables of this command's environment that rounds get wherever they run: they decide where jobs are looked for."""
_OF_THIS_MACHINE = (
    *("PARETUNE_HOME", "PARETUNE_PROFILE", "PARETUNE_PRICES"),
    *("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"),
    *("SAGEMAKER_USER_CONFIG_OVERRIDE", "SAGEMAKER_ADMIN_CONFIG_OVERRIDE"),
)
"""Those that the rounds on its machine get, too: files, and names of what stands in them."""


def run(request: ScheduleRequest) -> CommandOutput:
    """The entry, to be pasted; BadInput where the study cannot be driven in rounds."""
    environment = dict(os.environ)
    overrides = {} if request.storage is None else {"storage": request.storage}
    file = StudyFile.read(request.study, {**overrides, "once": "true"})
    budget = str(charged(file.job, environment).get("budget") or "")
    faults = [*_faults(request, file, environment), *_budget_faults(request, file, budget)]
    refuse([*faults, *_file_faults(request, file)])
    if "MLFLOW_RUN_ID" in environment:
        from paretune.tracking import Tracking, schema  # MLflow takes a second to import

        opened = Tracking(environment, SystemClock()).begin("schedule")
        opened.set_tags({schema.KIND: "schedule"})
    text = _entry(request.kind, _schedule(request, file, environment, budget), home_of(environment))
    return CommandOutput(text=text, document={"kind": request.kind, "study": file.name, "entry": text})


def _schedule(request: ScheduleRequest, file: StudyFile, environment: Mapping[str, str], budget: str) -> Schedule:
    usual = environment.get(STORAGE_VARIABLE, "")
    storage = file.storage or usual
    addresses = (storage, usual) if budget else (storage,)  # accounts of budgets lie in the usual one
    has_secret = any(shown(address) != address for address in addresses)
    names = (*_OF_JOBS, *_OF_THIS_MACHINE) if request.kind == "cron" else _OF_JOBS
    carried = {name: environment.get(name, "") for name in names}
    if request.kind == "cron":
        carried[STORAGE_VARIABLE] = usual if shown(usual) == usual and not has_secret else ""
    else:
        carried["PARETUNE_ROLE"] = carried["PARETUNE_ROLE"] or request.role or ""
    typed = request.storage if request.storage and shown(request.storage) == request.storage else ""
    return Schedule(
        study=request.study,
        name=file.name,
        every_minutes=request.every_minutes,
        storage=typed,
        has_secret=has_secret,
        names_storage=bool(typed or (file.storage and not request.storage)),
        variables=carried,
        tracking_uri=environment.get("MLFLOW_TRACKING_URI", ""),
        image_uri=request.image_uri or "",
        role=request.role or "",
        scheduler_role=request.scheduler_role or "",
        secret=request.secret or "",
        bucket=request.bucket or "",
        region=request.region or usual_region(read_profile(environment).get("region"), environment),
    )


def _entry(kind: str, schedule: Schedule, home: Path) -> str:
    if kind == "cron":
        return cron_line(schedule, Path.cwd(), Path.cwd() / home, f"{shlex.quote(sys.executable)} -m paretune")
    make = {"kubernetes": kubernetes_manifest, "github": github_workflow, "eventbridge": eventbridge_command}
    return make[kind](schedule)


def _budget_faults(request: ScheduleRequest, file: StudyFile, budget: str) -> list[str]:
    """Why rounds in containers cannot count against the budgets that rounds on this machine count against."""
    if request.kind == "cron" or not budget:
        return []
    where = "the study" if file.budget else "the profile"
    return [
        f"budget: {budget}, of {where}, does not travel into containers, where rounds would run without it: take it "
        f"out of {where} and give the study a budget_usd, or take kind=cron"
    ]


def _file_faults(request: ScheduleRequest, file: StudyFile) -> list[str]:
    """Why rounds in containers would not have the files or folders of this machine that the study names."""
    if request.kind == "cron":
        return []
    job = {name: [value] for name, value in file.job.items()}
    asked = job | {name: list(entry.corners) for name, entry in file.search.items()}
    named = [(name, str(value)) for name in (*PATHS, "project") for value in asked.get(name, ()) if value]
    local = [(name, text) for name, text in named if name != "budget" and exists(text.partition("#")[0])]
    if request.kind == "github":
        top = Path.cwd().resolve()
        outside = [(name, text) for name, text in local if not at_home(text).resolve().is_relative_to(top)]
        if at_home(request.study).is_absolute() or not Path(request.study).resolve().is_relative_to(top):
            outside.insert(0, ("study", request.study))
        why = (
            "is not in the folder that GitHub checks out: call this command there, with relative paths of what is in it"
        )
        return [f"{name} {text} {why}" for name, text in outside]
    why = "does not travel into containers, only the study's file does"
    return [
        f"{name} {text} {why}: put it into S3 or git where it may be there, or take kind=cron" for name, text in local
    ]


def _faults(request: ScheduleRequest, file: StudyFile, environment: Mapping[str, str]) -> list[str]:
    tracking_uri = environment.get("MLFLOW_TRACKING_URI", "")
    faults = []
    if request.kind != "cron":  # where the storage is not said, it is the scheduler's secret
        faults += file_faults(file.storage or "postgresql://", tracking_uri)
    if request.kind in {"cron", "eventbridge"} and (urlsplit(tracking_uri).password or "@" in tracking_uri):
        faults.append(
            "MLFLOW_TRACKING_URI must have no password in it, for it would be printed: "
            "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD where the round runs"
        )
    spec = next((spec for _, spec in file.jobs_at([{n: e.corners[0] for n, e in file.search.items()}])), None)
    if spec is not None and not (spec.on_sagemaker or spec.is_simulated):
        faults.append(
            "rounds need jobs that go on when they have ended: launcher sagemaker, with an instance_type ml.*"
        )
    has_role = request.role or environment.get("PARETUNE_ROLE")
    if request.kind != "cron" and spec is not None and spec.on_sagemaker and not (spec.role or has_role):
        faults.append(
            "role must be set for jobs that are launched from containers, which have no configuration of yours: add it "
            "to job in the study, or set PARETUNE_ROLE, an IAM role that SageMaker may assume, by name or ARN"
        )
    return faults


COMMAND = Command(
    read=reader_of(ScheduleRequest, "schedule"),
    run=run,
    parameters=help_lines(ScheduleRequest),
    switches=switches_of(ScheduleRequest),
)
