"""The command `schedule`: an entry for the scheduler that calls the rounds of a study, ready to be pasted.

The entries are the files in `templates/`. A round that exits with 75 ("call again") has done its work, so no entry
counts it as a failure. No entry contains a secret: an address with a password is read from a secret of the scheduler,
or from a file that only its user can read. A round in a container without such an address is refused, because a ledger
of its own would say that nothing was paid yet.
"""

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import jinja2

from paretune.commands.command import command_of, describe_opened_run
from paretune.core.errors import refuse
from paretune.core.result import CommandOutput
from paretune.core.untrusted import at_home, exists
from paretune.jobs.workplace import STORAGE_VARIABLE, home_of
from paretune.specification.inputs import PATHS
from paretune.specification.parameters import check, parameter
from paretune.specification.profile import charged, read_profile
from paretune.specification.regions import region_faults, usual_region
from paretune.storage.address import SERVERS_ONLY, container_faults, redacted
from paretune.storage.shipped import find_file
from paretune.studies.definition.file import StudyFile

_REQUIRED = {
    "kubernetes": ("image_uri",),
    "eventbridge": ("image_uri", "role", "scheduler_role", "secret", "bucket"),
}
"""Kind of scheduler to the parameters that its entry needs."""
_GITHUB_MINUTES = 5
"""The least interval between two runs of a workflow (GitHub's documentation of `schedule`, read 2026-11-22)."""


@dataclass(frozen=True, kw_only=True)
class ScheduleRequest:
    """The scheduler, the study whose rounds it calls, and how often; raises BadInput with all faults."""

    study: str = parameter("", "the study's file, such as studies/pareto.yaml")
    kind: str = parameter(
        "cron",
        "what the entry is for; eventbridge: AWS's scheduler",
        choices=("cron", "kubernetes", "github", "eventbridge"),
    )
    every_minutes: int = parameter(10, "minutes from one round to the next", minimum=1, maximum=1440)
    storage: str | None = parameter(
        None,
        "postgresql://... (a password is not printed); by default the study's, PARETUNE_STORAGE, a file",
        choices=(),
    )
    image_uri: str | None = parameter(None, "container image with paretune, for kubernetes and eventbridge")
    role: str | None = parameter(None, "eventbridge: ARN of the role of SageMaker that the round's job has")
    scheduler_role: str | None = parameter(None, "eventbridge: ARN of the role that may create that job")
    secret: str | None = parameter(None, "eventbridge: name in AWS Secrets Manager of the storage's address")
    bucket: str | None = parameter(None, "eventbridge: bucket of S3 for the study's file")
    region: str | None = parameter(None, "AWS region; by default the profile's, else us-east-1")

    def __post_init__(self) -> None:
        faults = check(self) + region_faults(self.region)
        if not self.study:
            faults.append("study must name a study file, such as studies/pareto.yaml")
        needed = [name for name in _REQUIRED.get(self.kind, ()) if not getattr(self, name)]
        faults += [f"kind={self.kind} needs {name}: its entry would be incomplete" for name in needed]
        for name in ("role", "scheduler_role"):
            if (text := getattr(self, name)) and not re.fullmatch(r"arn:aws[a-z-]*:iam::\d{12}:role/\S+", text):
                faults.append(
                    f"{name} must be the ARN of a role, such as arn:aws:iam::111122223333:role/NAME, got {text}"
                )
        if not any(text.startswith("every_minutes") for text in faults):
            faults += self._interval_faults()
        if self.kind != "cron" and self.storage is not None and self.storage.startswith("sqlite"):
            faults.append("storage must be postgresql://... for rounds in containers: a file ends with its container")
        refuse(faults)

    def _interval_faults(self) -> list[str]:
        """Faults of an interval of 1 to 1,440 minutes with this scheduler."""
        faults = []
        if self.kind == "github" and self.every_minutes < _GITHUB_MINUTES:
            faults.append(f"every_minutes must be {_GITHUB_MINUTES} or more for GitHub, got {self.every_minutes}")
        if self.kind != "eventbridge":
            try:
                cron_expression(self.every_minutes)
            except ValueError:
                faults.append(
                    f"every_minutes must divide an hour or, in whole hours, a day, for cron, got {self.every_minutes}: "
                    "5, 10, 15, 20, 30, 60, 120, 240"
                )
        return faults


def cron_expression(every_minutes: int) -> str:
    """The five fields of cron for this interval; ValueError if it divides neither an hour nor a day.

    >>> cron_expression(10), cron_expression(60), cron_expression(240), cron_expression(1440)
    ('*/10 * * * *', '0 * * * *', '0 */4 * * *', '0 0 * * *')
    """
    if every_minutes == 1:
        return "* * * * *"
    if every_minutes < 60 and 60 % every_minutes == 0:
        return f"*/{every_minutes} * * * *"
    hours, rest = divmod(every_minutes, 60)
    if rest or not hours or 24 % hours:
        raise ValueError(f"{every_minutes} minutes divide neither an hour nor a day")
    return "0 * * * *" if hours == 1 else "0 0 * * *" if hours == 24 else f"0 */{hours} * * *"


_JOB_VARIABLES = ("PARETUNE_ROLE", "PARETUNE_BUCKET", "MLFLOW_EXPERIMENT_NAME")
"""Environment variables that every round gets: they decide where jobs are found again."""
_MACHINE_VARIABLES = (
    *("PARETUNE_HOME", "PARETUNE_PROFILE", "PARETUNE_PRICES"),
    *("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"),
    *("SAGEMAKER_USER_CONFIG_OVERRIDE", "SAGEMAKER_ADMIN_CONFIG_OVERRIDE"),
)
"""Environment variables that rounds on this machine get as well: files of this machine, and names inside them."""
_AGAIN = '{ code=$?; [ "$code" -eq 75 ] || exit "$code"; }'
"""Follows `||` after a round in a shell: exit code 75 is no failure."""
_LONGEST_S = 1800
"""Seconds after which a round in a container is ended; with the start of the container it takes a few minutes."""


def run(request: ScheduleRequest) -> CommandOutput:
    """The entry for the scheduler; raises BadInput with all reasons why it cannot drive the study in rounds."""
    request = replace(request, study=find_file(request.study))
    environment = dict(os.environ)
    overrides = {} if request.storage is None else {"storage": request.storage}
    file = StudyFile.read(request.study, {**overrides, "once": "true"})
    budget = str(charged(file.job, environment).get("budget") or "")
    faults = [*_server_faults(request, file, environment), *_budget_faults(request, file, budget)]
    refuse([*faults, *_path_faults(request, file)])
    text = _entry(request, file, environment, budget)
    describe_opened_run("schedule", f"The entry of {request.kind} for the study {file.name}; nothing runs yet.")
    return CommandOutput(text=text, document={"kind": request.kind, "study": file.name, "entry": text})


def _entry(request: ScheduleRequest, file: StudyFile, environment: Mapping[str, str], budget: str) -> str:
    default_storage = environment.get(STORAGE_VARIABLE, "")
    storage = file.storage or default_storage
    addresses = (storage, default_storage) if budget else (storage,)  # accounts of budgets lie in the default storage
    has_secret = any(redacted(address) != address for address in addresses)
    typed_storage = request.storage if request.storage and redacted(request.storage) == request.storage else ""
    region = request.region or usual_region(read_profile(environment).get("region"), environment)
    public_storage = "" if has_secret or redacted(default_storage) != default_storage else default_storage
    # Kubernetes has the study as a key in a ConfigMap, which takes no spaces and no quotes.
    study = "study.yaml" if request.kind == "kubernetes" else request.study
    option = f" --storage {shlex.quote(typed_storage)}" if typed_storage else ""
    cron = ""
    with suppress(ValueError):  # EventBridge takes intervals that cron has not
        cron = cron_expression(request.every_minutes)
    templates = jinja2.Environment(  # noqa: S701  # the entries are no HTML; shell and JSON are quoted by the filters
        loader=jinja2.PackageLoader("paretune.commands.schedule", "templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters |= {"sh": shlex.quote, "json": json.dumps}
    return templates.get_template(f"{request.kind}.txt").render(
        **{name: getattr(request, name) or "" for name in ("image_uri", "role", "scheduler_role", "secret", "bucket")},
        study=request.study,
        # Kubernetes and AWS take names of small letters, digits and hyphens; 40 leave room for what they add.
        slug=re.sub(r"[^a-z0-9]+", "-", file.name.lower())[:40].strip("-") or "study",
        every_minutes=request.every_minutes,
        cron=cron,
        command=f"paretune study --study {shlex.quote(study)} --once{option}",
        again=_AGAIN,
        longest_s=_LONGEST_S,
        has_secret=has_secret,
        names_storage=bool(typed_storage or (file.storage and not request.storage)),
        variables=_variables(request, environment, storage=public_storage, region=region),
        region=region,
        folder=str(Path.cwd()),
        home=str(Path.cwd() / home_of(environment)),
        python=sys.executable,
    )


def _variables(
    request: ScheduleRequest, environment: Mapping[str, str], *, storage: str, region: str
) -> dict[str, str]:
    """The environment of the scheduled command; secrets are not in it."""
    names = (*_JOB_VARIABLES, *_MACHINE_VARIABLES) if request.kind == "cron" else _JOB_VARIABLES
    variables = {name: environment.get(name, "") for name in names}
    if request.kind == "cron":
        variables[STORAGE_VARIABLE] = storage
    else:
        variables["PARETUNE_ROLE"] = variables["PARETUNE_ROLE"] or request.role or ""
        variables |= {SERVERS_ONLY: "1", "AWS_REGION": region, "AWS_DEFAULT_REGION": region}
    if request.kind in {"cron", "eventbridge"}:
        variables["MLFLOW_TRACKING_URI"] = environment.get("MLFLOW_TRACKING_URI", "")
    return {name: text for name, text in variables.items() if text}


def _budget_faults(request: ScheduleRequest, file: StudyFile, budget: str) -> list[str]:
    """Rounds in containers could not count against the budgets of this machine."""
    if request.kind == "cron" or not budget:
        return []
    owner = "the study" if file.budget else "the profile"
    return [
        f"budget: {budget}, of {owner}, does not travel into containers, where rounds would run without it: take it "
        f"out of {owner} and give the study a budget_usd, or take kind=cron"
    ]


def _path_faults(request: ScheduleRequest, file: StudyFile) -> list[str]:
    """Rounds in containers would not have the files or folders of this machine that the study names."""
    if request.kind == "cron":
        return []
    fixed = {name: [value] for name, value in file.job.items()}
    values = fixed | {name: list(entry.corners) for name, entry in file.search.items()}
    named = [(name, str(value)) for name in (*PATHS, "project") for value in values.get(name, ()) if value]
    local = [(name, text) for name, text in named if name != "budget" and exists(text.partition("#")[0])]
    if request.kind == "github":
        top = Path.cwd().resolve()
        outside = [(name, text) for name, text in local if not at_home(text).resolve().is_relative_to(top)]
        if at_home(request.study).is_absolute() or not Path(request.study).resolve().is_relative_to(top):
            outside.insert(0, ("study", request.study))
        rule = "is not in the folder that GitHub checks out: call this command there, with relative paths inside it"
        return [f"{name} {text} {rule}" for name, text in outside]
    rule = "does not travel into containers, only the study's file does: put it into S3 or git where it may be there"
    return [f"{name} {text} {rule}, or take kind=cron" for name, text in local]


def _server_faults(request: ScheduleRequest, file: StudyFile, environment: Mapping[str, str]) -> list[str]:
    tracking_uri = environment.get("MLFLOW_TRACKING_URI", "")
    faults = []
    if request.kind != "cron":  # without a storage here, it is the scheduler's secret
        faults += container_faults(file.storage or "postgresql://", tracking_uri)
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


COMMAND = command_of(ScheduleRequest, "schedule", run)
