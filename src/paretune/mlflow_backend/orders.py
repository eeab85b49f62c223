"""One training job made of a project: code, command, files, image, environment."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput, LaunchRefused
from paretune.jobs.recording import job_name
from paretune.launchers.sagemaker import archive, images
from paretune.launchers.sagemaker.account import PREFIX, Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain
from paretune.launchers.sagemaker.request import TrainingJobRequest, build, network_environment
from paretune.launchers.sagemaker.staging import Staging
from paretune.mlflow_backend import container_entrypoint as inside
from paretune.mlflow_backend.command import Command
from paretune.mlflow_backend.environment import Environment
from paretune.spec.job import JobSpec

_GIB = 2**30
_SMALLEST_VOLUME_GIB = 30
_FOLDER = "project"


@dataclass(frozen=True, kw_only=True)
class ProjectJobOrder:
    """Everything a job is made of.

    Attributes:
        spec: cluster, account, limits.
        files: name to file of the project.
        command: what runs.
        environment: what must be there before.
        run_id: of the MLflow run.
        experiment: name of its experiment.
        variables: for the job: how it reaches the tracking server, where it may.
        collect: whether it records into a store of its own.
    """

    spec: JobSpec
    files: Mapping[str, Path]
    command: Command
    environment: Environment
    run_id: str
    experiment: str
    variables: Mapping[str, str]
    collect: bool

    @property
    def job_name(self) -> str:
        """A pure function of the run, so that a job is never started twice."""
        return job_name(self.run_id, 1)


def image_of(spec: JobSpec, environment: Environment, region: str) -> str:
    """The image: the one that was asked for, the project's own, or AWS's newest for CPUs or GPUs."""
    return spec.image_uri or environment.image_uri or images.choose(spec, region, direct=False).uri


def create(order: ProjectJobOrder, account: Account) -> bool:
    """Upload what is not in S3 yet and create the job; False when one of this name is there already.

    Raises:
        LaunchRefused: AWS would not.
    """
    account.create_default_bucket()
    staging = Staging(account.client("s3"), account.bucket, kms_key=order.spec.kms_key)
    request = _request(order, account, staging)
    try:
        account.client("sagemaker").create_training_job(**request)
    except AWS_ERRORS as error:
        if code(error) == "ResourceInUse":
            return False
        raise LaunchRefused(explain(error, "create the training job")) from error
    return True


def find(name: str, account: Account) -> Mapping[str, Any] | None:
    """What DescribeTrainingJob says of a job; None when there is none.

    Raises:
        LaunchRefused: AWS does not say.
    """
    try:
        found: Mapping[str, Any] = account.client("sagemaker").describe_training_job(TrainingJobName=name)
    except AWS_ERRORS as error:
        if code(error) in {"ValidationException", "ResourceNotFound"}:
            return None
        raise LaunchRefused(explain(error, f"look at the training job {name}")) from error
    return found


def project_files(root: Path) -> dict[str, Path]:
    """Name to file of what travels.

    Raises:
        BadInput: it is larger than code can be, or empty.
    """
    files = archive.project_files(root)
    if not files:
        raise BadInput([f"the project in {root} has no files that git would not ignore"])
    return files


def _request(order: ProjectJobOrder, account: Account, staging: Staging) -> dict[str, Any]:
    channels = {
        name: staging.folder("files", path) if path.is_dir() else staging.file("files", path)
        for name, path in order.command.inputs.items()
    }
    document = {
        "command": order.command.text,
        "requirements": list(order.environment.requirements),
        "folder": order.environment.folder,
        "run_id": order.run_id,
        "experiment": order.experiment,
        "collect": order.collect,
    }
    key = f"{PREFIX}/jobs/{order.job_name}/job.json"
    channels["job"] = staging.text(key, json.dumps(document, indent=2))
    files: dict[str, Path | str] = {f"{_FOLDER}/{name}": path for name, path in order.files.items()}
    spec = order.spec
    return build(
        TrainingJobRequest(
            job_name=order.job_name,
            cluster=spec,
            image_uri=image_of(spec, order.environment, account.region),
            code=files | {"inside.py": Path(inside.__file__)},
            command="python3 inside.py /opt/ml",
            channels=channels,
            environment={
                "PYTHONUNBUFFERED": "1",
                **network_environment(spec),
                **dict(order.environment.variables),
                **order.variables,
            },
            checkpoints=staging.uri(f"{PREFIX}/checkpoints/{order.run_id}/"),
            max_seconds=max(60, spec.max_runtime_minutes * 60),
            volume_gib=spec.volume_gib or _volume_gib(order.command.inputs),
            tags={"paretune:run": order.run_id, **spec.tags},
        ),
        account,
        staging,
    )


def _volume_gib(inputs: Mapping[str, Path]) -> int:
    """Room for the inputs and as much again, image layers not included."""
    total = sum(
        file.stat().st_size
        for path in inputs.values()
        for file in ([path] if path.is_file() else path.rglob("*"))
        if file.is_file()
    )
    return max(_SMALLEST_VOLUME_GIB, math.ceil(2 * total / _GIB) + 10)
