"""Entries for the schedulers that call `paretune study --once` every few minutes, ready to be pasted.

A round that exits with 75 ("call again") has done its work, so no entry counts it as a failure. Two rounds at a time do
no harm, the second one exits at once; where a scheduler can be told to begin no second one, it is. No entry has a
secret in it: an address with a password is read from a secret of the scheduler, or a file that only its user can read.
A round in a container that is given no such address is refused: a file of its own would say that nothing was paid yet.
"""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml  # type: ignore[import-untyped]  # comes with MLflow

from paretune.storage.address import SERVERS_ONLY

AGAIN = '{ code=$?; [ "$code" -eq 75 ] || exit "$code"; }'
"""What follows `||` after a round in a shell: only 75 counts as an end without fault."""
_READ_ADDRESS = (
    'import boto3,sys;print(boto3.client("secretsmanager").get_secret_value(SecretId=sys.argv[1])["SecretString"])'
)
_ROUND = (
    's="$(python -c "$1" "$2")" && [ -n "$s" ] || exit 2; export PARETUNE_STORAGE="$s"; '
    'paretune study --study "$3" --once; code=$?; [ $code -eq 0 ] || [ $code -eq 75 ]'
)
_FILE = "study.yaml"
"""Name of the study's file in a pod: a key of a ConfigMap has no spaces and no quotes."""
_INPUT = "/opt/ml/processing/input/study"
_MOST_S = 1800
"""Seconds after which a round in a container is ended; with the start of the container it takes a few minutes."""
_EXECUTION = "<aws.scheduler.execution-id>"
"""EventBridge Scheduler puts the identity of each call in its place (EventBridge Scheduler user guide, "context
attributes"; read 2026-11-22)."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A study and how often a round of it begins.

    Attributes:
        study: path of the study's file.
        name: the study's name.
        every_minutes: between the beginnings of two rounds.
        storage: address without a password, to be typed; empty where it is a secret or the default.
        has_secret: whether the storage's address has a password, so that it is none of what is typed.
        names_storage: whether the study's file, or what is typed, says where the storage is.
        variables: of the environment that a round needs, without a password.
        tracking_uri: of MLflow, without a password; empty where it is the default.
        image_uri: of a container image that has paretune installed.
        role: that the round has in AWS.
        scheduler_role: with which EventBridge Scheduler creates the round's job.
        secret: name of the secret in AWS Secrets Manager that holds the storage's address.
        bucket: of S3, for the study's file.
        region: of AWS.
    """

    study: str
    name: str
    every_minutes: int
    storage: str = ""
    has_secret: bool = False
    names_storage: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    tracking_uri: str = ""
    image_uri: str = ""
    role: str = ""
    scheduler_role: str = ""
    secret: str = ""
    bucket: str = ""
    region: str = ""

    @property
    def slug(self) -> str:
        """The study's name in small letters, digits and hyphens, at most 40, as Kubernetes and AWS want names."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower())[:40].strip("-") or "study"

    @property
    def command(self) -> str:
        """A round, for a shell in the folder from which the study's file was named."""
        return self.command_on(self.study)

    def command_on(self, file: str) -> str:
        """A round, where the study's file is at this path."""
        storage = f" --storage {shlex.quote(self.storage)}" if self.storage else ""
        return f"paretune study --study {shlex.quote(file)} --once{storage}"

    @property
    def in_container(self) -> dict[str, str]:
        """Variables of the environment of a round in a container, none of them a secret."""
        region = {name: self.region for name in ("AWS_REGION", "AWS_DEFAULT_REGION") if self.region}
        known = {name: text for name, text in self.variables.items() if text}
        return {SERVERS_ONLY: "1", **region, **known}


def cron_expression(every_minutes: int) -> str:
    """The five fields of cron for every so many minutes; ValueError where they divide neither an hour nor a day.

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


def cron_line(schedule: Schedule, folder: Path, home: Path, program: str) -> str:
    """A line for `crontab -e`, with a remark where a file with a secret is needed.

    `folder` is the current one, and `home` that of jobs, which holds the log, and the secret.
    """
    secrets = home / "secrets"
    variables = {**schedule.variables, "MLFLOW_TRACKING_URI": schedule.tracking_uri}
    known = "".join(f"export {name}={shlex.quote(text)}; " for name, text in variables.items() if text)
    if schedule.has_secret:
        known += f'. {shlex.quote(str(secrets))} && [ -n "$PARETUNE_STORAGE" ] || exit 2; '
    words = schedule.command.replace("paretune", program, 1)
    log = shlex.quote(str(home / "rounds.log"))
    places = f"cd {shlex.quote(str(folder))} && mkdir -p {shlex.quote(str(home))}"
    line = f"{places} && {{ {known}{words} || {AGAIN}; }} >> {log} 2>&1"
    remark = [
        f"# write this into {secrets} (chmod 600), with the password: export PARETUNE_STORAGE=postgresql://...",
    ]
    entry = f"{cron_expression(schedule.every_minutes)} {line.replace('%', chr(92) + '%')}"
    return "\n".join([*(remark if schedule.has_secret else []), "# add with `crontab -e`", entry])


def kubernetes_manifest(schedule: Schedule) -> str:
    """A CronJob, with the commands that make what it reads."""
    variables = {**schedule.in_container, "PARETUNE_HOME": "/home-of-paretune"}
    container = {
        "name": "round",
        "image": schedule.image_uri,
        "command": ["sh", "-c", f"cd /study && {{ {schedule.command_on(_FILE)} || {AGAIN}; }}"],
        "envFrom": [{"secretRef": {"name": "paretune"}}],
        "env": [{"name": name, "value": text} for name, text in variables.items()],
        "volumeMounts": [
            {"name": "study", "mountPath": "/study", "readOnly": True},
            {"name": "home", "mountPath": "/home-of-paretune"},
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "study", "configMap": {"name": schedule.slug}}, {"name": "home", "emptyDir": {}}],
    }
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": schedule.slug},
        "spec": {
            "schedule": cron_expression(schedule.every_minutes),
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 60 * schedule.every_minutes,
            "jobTemplate": {
                "spec": {
                    "backoffLimit": 0,
                    "activeDeadlineSeconds": _MOST_S,
                    "template": {"spec": pod},
                }
            },
        },
    }
    needed = ["MLFLOW_TRACKING_URI"] if schedule.names_storage else ["PARETUNE_STORAGE", "MLFLOW_TRACKING_URI"]
    literals = " ".join(f'--from-literal={name}="${{{name}:?}}"' for name in needed)
    remarks = [
        f"# kubectl create configmap {schedule.slug} --from-file={_FILE}={shlex.quote(schedule.study)}",
        f"# kubectl create secret generic paretune {literals}",
        "# the pod needs AWS credentials: a service account with a role (EKS), or AWS_* in the same secret",
    ]
    return "\n".join([*remarks, yaml.safe_dump(manifest, sort_keys=False, width=1000).strip()])


def github_workflow(schedule: Schedule) -> str:
    """A workflow for .github/workflows of the repository that has the study's file."""
    group = f"paretune-{schedule.slug}"
    secrets = ("PARETUNE_STORAGE", "MLFLOW_TRACKING_URI")
    steps = [
        {"uses": "actions/checkout@v4"},
        {"uses": "actions/setup-python@v5", "with": {"python-version": "3.11"}},
        {
            "uses": "aws-actions/configure-aws-credentials@v4",
            "with": {"role-to-assume": "${{ secrets.AWS_ROLE_TO_ASSUME }}", "aws-region": schedule.region},
        },
        {"run": "python -m pip install -r requirements.txt"},
        {
            "run": f"{schedule.command} || {AGAIN}",
            "env": schedule.in_container | {name: f"${{{{ secrets.{name} }}}}" for name in secrets},
        },
    ]
    workflow = {
        "name": group,
        "on": {"schedule": [{"cron": cron_expression(schedule.every_minutes)}], "workflow_dispatch": {}},
        "concurrency": {"group": group, "cancel-in-progress": False},
        "permissions": {"id-token": "write", "contents": "read"},
        "jobs": {"round": {"runs-on": "ubuntu-latest", "timeout-minutes": _MOST_S // 60, "steps": steps}},
    }
    remarks = [
        f"# .github/workflows/{group}.yml; requirements.txt installs paretune with its extra postgresql",
        f"# secrets of the repository: AWS_ROLE_TO_ASSUME (the role of the round itself), {', '.join(secrets)}",
    ]
    return "\n".join([*remarks, yaml.safe_dump(workflow, sort_keys=False, width=1000).strip()])


def eventbridge_command(schedule: Schedule) -> str:
    """Two commands of the AWS CLI: upload the study's file, and create the schedule.

    Each call creates a SageMaker processing job of its own name, on the smallest instance, that plays one round.
    """
    key = f"paretune/schedules/{schedule.slug}/{Path(schedule.study).name}"
    location = f"s3://{schedule.bucket}/{key}"
    request = json.dumps(eventbridge_request(schedule, location), indent=2)
    return "\n".join(
        [
            f"aws s3 cp {shlex.quote(schedule.study)} {shlex.quote(location)}",
            f"aws scheduler create-schedule --region {schedule.region} --cli-input-json file:///dev/stdin <<'JSON'",
            request,
            "JSON",
        ]
    )


def eventbridge_request(schedule: Schedule, location: str) -> dict[str, object]:
    """CreateSchedule of EventBridge Scheduler, whose target is SageMaker's CreateProcessingJob."""
    job = {
        "ProcessingJobName": f"paretune-{schedule.slug[:16].strip('-')}-{_EXECUTION}",
        "AppSpecification": {
            "ImageUri": schedule.image_uri,
            "ContainerEntrypoint": ["sh", "-c", _ROUND],
            "ContainerArguments": ["round", _READ_ADDRESS, schedule.secret, f"{_INPUT}/{Path(schedule.study).name}"],
        },
        "Environment": {"MLFLOW_TRACKING_URI": schedule.tracking_uri, **schedule.in_container},
        "ProcessingInputs": [
            {
                "InputName": "study",
                "S3Input": {
                    "S3Uri": location,
                    "LocalPath": _INPUT,
                    "S3DataType": "S3Prefix",
                    "S3InputMode": "File",
                },
            }
        ],
        "ProcessingResources": {
            "ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.t3.medium", "VolumeSizeInGB": 10}
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": _MOST_S},
        "RoleArn": schedule.role,
    }
    return {
        "Name": f"paretune-{schedule.slug}",
        "ScheduleExpression": f"rate({schedule.every_minutes} minute{'s' if schedule.every_minutes > 1 else ''})",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {
            "Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:createProcessingJob",
            "RoleArn": schedule.scheduler_role,
            "Input": json.dumps(job),
            "RetryPolicy": {"MaximumRetryAttempts": 0},
        },
    }
