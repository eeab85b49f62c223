"""The command `schedule`: a ready entry for the scheduler that is to call the rounds of a study."""

import os
import shlex
import sys
from pathlib import Path
from urllib.parse import urlsplit

from paretune.cli.output.answer import Answer
from paretune.cli.requests.own_parameters import ScheduleRequest
from paretune.core.clock import SystemClock
from paretune.core.errors import refuse
from paretune.database.address import shown
from paretune.jobs.workplace import STORAGE_VARIABLE, home_of
from paretune.spec.profile import charged, read_profile
from paretune.spec.regions import usual_region
from paretune.studies.definition.file import StudyFile
from paretune.studies.scheduling import (
    Schedule,
    cron_line,
    eventbridge_command,
    github_workflow,
    kubernetes_manifest,
)

_CARRIED = ("PARETUNE_HOME", "PARETUNE_PROFILE", "PARETUNE_PRICES", "PARETUNE_ROLE", "PARETUNE_BUCKET")
"""Variables of this command's environment that the rounds on its machine get, too."""
_SERVERS = ("http://", "https://", "arn:", "postgresql")


def run(request: ScheduleRequest) -> Answer:
    """The entry, to be pasted; BadInput where the study cannot be driven in rounds."""
    environment = dict(os.environ)
    overrides = {} if request.storage is None else {"storage": request.storage}
    file = StudyFile.read(request.study, {**overrides, "once": "true"})
    tracking_uri = environment.get("MLFLOW_TRACKING_URI", "")
    budget = str(charged(file.job, environment).get("budget") or "")
    refuse([*_faults(request, file, tracking_uri), *_budget_faults(request, file, budget)])
    usual = environment.get(STORAGE_VARIABLE, "")
    storage = file.storage or usual
    addresses = (storage, usual) if budget else (storage,)  # accounts of budgets lie in the usual one
    has_secret = any(shown(address) != address for address in addresses)
    carried = {name: environment.get(name, "") for name in _CARRIED}
    carried[STORAGE_VARIABLE] = usual if shown(usual) == usual and not has_secret else ""
    schedule = Schedule(
        study=request.study,
        name=file.name,
        every_minutes=request.every_minutes,
        storage=request.storage if request.storage and shown(request.storage) == request.storage else "",
        has_secret=has_secret,
        variables=carried,
        tracking_uri=tracking_uri,
        image_uri=request.image_uri or "",
        role=request.role or "",
        scheduler_role=request.scheduler_role or "",
        secret=request.secret or "",
        bucket=request.bucket or "",
        region=request.region or usual_region(read_profile(environment).get("region"), environment),
    )
    if "MLFLOW_RUN_ID" in environment:
        from paretune.tracking import Tracking, schema  # MLflow takes a second to import

        opened = Tracking(environment, SystemClock()).begin("schedule")
        opened.set_tags({schema.KIND: "schedule"})
    text = _entry(request.kind, schedule, home_of(environment))
    return Answer(text=text, document={"kind": request.kind, "study": file.name, "entry": text})


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


def _faults(request: ScheduleRequest, file: StudyFile, tracking_uri: str) -> list[str]:
    faults = []
    if request.kind != "cron" and not tracking_uri.startswith(_SERVERS):
        faults.append(
            "MLFLOW_TRACKING_URI must name a server for rounds in containers, such as https://... or the ARN of a "
            f"managed MLflow, got {shown(tracking_uri) or 'nothing'}: a file ends with its container"
        )
    if request.kind in {"cron", "eventbridge"} and (urlsplit(tracking_uri).password or "@" in tracking_uri):
        faults.append(
            "MLFLOW_TRACKING_URI must have no password in it, for it would be printed: "
            "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD where the round runs"
        )
    if request.kind != "cron" and (file.storage or "").startswith("sqlite"):
        faults.append("storage must be postgresql://... for rounds in containers: a file ends with its container")
    spec = next((spec for _, spec in file.jobs_at([{n: e.corners[0] for n, e in file.search.items()}])), None)
    if spec is not None and not (spec.on_sagemaker or spec.is_simulated):
        faults.append(
            "rounds need jobs that go on when they have ended: launcher sagemaker, with an instance_type ml.*"
        )
    return faults
