"""One CreateTrainingJob request, made by the SageMaker Python SDK.

The SDK's ModelTrainer builds the request and its drivers. `Staging` uploads what the SDK would upload, and the SDK
makes no call to AWS. Its `train` is never called, so it sends no telemetry. Checked with sagemaker 3.27.0, because the
methods overridden here are private.
"""

import contextlib
import io
import json
import logging
import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paretune.core.errors import refuse
from paretune.launchers.archive import NAME, REQUIREMENTS, pack
from paretune.launchers.sagemaker.account import PREFIX, Account
from paretune.launchers.sagemaker.staging import Staging
from paretune.specification.container import JobDocument
from paretune.specification.job import JobSpec

LONGEST_ENVIRONMENT_VALUE = 512  # Characters. Source: CreateTrainingJob, Environment (botocore 1.44.5).
_START = Path(__file__).with_name("start_job.sh")
"""The preparation that the entry point of AWS's images makes before a training; the SDK's command replaces it."""
_SPOT_WAIT_MINUTES = 60.0
_LONGEST_WAIT_S = 28 * 24 * 3600  # AWS, StoppingCondition: a job may take 28 days at most
_RDMA_FAMILIES = {"p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300", "trn1"}


@dataclass(frozen=True, kw_only=True)
class TrainingJobRequest:
    """A job in our terms; `build` translates it into AWS's."""

    document: JobDocument  # its name, cluster and maximum runtime
    image_uri: str
    code: Mapping[str, Path | str]  # names to files or texts, unpacked in the job's current folder
    command: str  # shell command. It replaces the shell, so that it receives SIGTERM.
    channels: Mapping[str, str]
    environment: Mapping[str, str]  # DescribeTrainingJob shows it to everybody who may call that
    checkpoints: str  # S3 URI of the folder that SageMaker keeps up to date while the job runs
    volume_gib: int
    tags: Mapping[str, str]
    compresses_output: bool = True  # whether SageMaker packs model and results into archives; else they are files in S3
    smp: Mapping[str, Any] | None = None  # settings of AWS's model parallel library; None without it


def load_sdk() -> None:
    """Import the SageMaker SDK."""
    with _quiet():
        import sagemaker.train  # noqa: F401


def build(order: TrainingJobRequest, account: Account, staging: Staging) -> dict[str, Any]:
    """The request as boto takes it. Code and drivers have been uploaded, unless `staging` is dry.

    Raises:
        BadInput: a value is longer than AWS takes.
    """
    refuse(
        [
            f"{name} must be at most {LONGEST_ENVIRONMENT_VALUE} characters for a job"
            for name, text in order.environment.items()
            if len(text) > LONGEST_ENVIRONMENT_VALUE
        ]
    )
    with _quiet(), _role_taken_as_it_is(), tempfile.TemporaryDirectory(prefix="paretune-") as folder:
        archive = pack({**order.code, _START.name: _START}, Path(folder) / NAME)
        trainer = _trainer(order, account, staging, archive)
        request: dict[str, Any] = trainer._create_training_job_args(boto3=True)
    request = {name: value for name, value in request.items() if value not in (None, {}, [])}
    request["TrainingJobName"] = order.document.job_name
    return request


def _sdk_classes(staging: Staging) -> tuple[Any, Any]:
    """The SDK's session and trainer, changed: code is uploaded once per content, and IAM is not asked each time."""
    from sagemaker.core.helper.session_helper import Session
    from sagemaker.train import ModelTrainer

    class ContentAddressedSession(Session):  # type: ignore[misc]  # the SDK ships no types
        def upload_data(self, path: str, *_: Any, **__: Any) -> str:
            return staging.upload("code", Path(path) if Path(path).is_file() else _clean(path))

        def default_bucket(self) -> str:
            return staging.bucket

    class Builder(ModelTrainer):  # type: ignore[misc]
        def _resolve_staging_bucket(self) -> tuple[str, None]:
            return staging.bucket, None  # the SDK would ask IAM before each upload

    return ContentAddressedSession, Builder


def _trainer(order: TrainingJobRequest, account: Account, staging: Staging, archive: Path) -> Any:
    from sagemaker.core.training import configs
    from sagemaker.train.distributed import SMP, Torchrun

    cluster = order.document.spec
    max_runtime_s = max(1, math.ceil(order.document.max_seconds))
    new_session, new_trainer = _sdk_classes(staging)
    session = new_session(
        boto_session=account.session, sagemaker_client=account.client("sagemaker"), default_bucket=staging.bucket
    )
    network = configs.Networking(
        subnets=list(cluster.sagemaker.subnets), security_group_ids=list(cluster.sagemaker.security_group_ids)
    )
    source_code = configs.SourceCode(
        source_dir=str(archive),
        command=f"exec bash {_START.name} {order.command}",
        entry_script="paretune/training/__main__.py" if order.smp else None,  # the SDK wants one beside SMP
        requirements=REQUIREMENTS if REQUIREMENTS in order.code else None,
    )
    return new_trainer(
        training_image=order.image_uri,
        role=account.role_arn,
        base_job_name="paretune",
        sagemaker_session=session,
        source_code=source_code,
        compute=_compute(order, configs),
        networking=network if cluster.sagemaker.subnets else None,
        # Its driver is not used, because it keeps SIGTERM from the training; only its part of the request is.
        distributed=Torchrun(process_count_per_node=cluster.processes, smp=SMP(**order.smp)) if order.smp else None,
        stopping_condition=configs.StoppingCondition(
            max_runtime_in_seconds=max_runtime_s,
            **({"max_wait_time_in_seconds": _longest_wait_s(max_runtime_s)} if cluster.spot else {}),
        ),
        environment=dict(order.environment),
        input_data_config=[configs.InputData(channel_name=key, data_source=uri) for key, uri in order.channels.items()],
        checkpoint_config=configs.CheckpointConfig(s3_uri=order.checkpoints, local_path="/opt/ml/checkpoints"),
        output_data_config=configs.OutputDataConfig(
            s3_output_path=staging.uri(f"{PREFIX}/jobs"),
            compression_type="GZIP" if order.compresses_output else "NONE",
            **({"kms_key_id": cluster.sagemaker.kms_key_id} if cluster.sagemaker.kms_key_id else {}),
        ),
        tags=[configs.Tag(key=key, value=value) for key, value in order.tags.items()],
    )


def _compute(order: TrainingJobRequest, configs: Any) -> Any:
    cluster, keep_alive_s = order.document.spec, int(order.document.spec.keep_alive_minutes * 60)
    has_disks, key = cluster.instance().has_local_storage, cluster.sagemaker.kms_key_id
    return configs.Compute(
        instance_type=cluster.instance_type,
        instance_count=cluster.instance_count,
        volume_size_in_gb=order.volume_gib,
        enable_managed_spot_training=cluster.spot,
        **({"keep_alive_period_in_seconds": keep_alive_s} if cluster.keep_alive_minutes else {}),
        # CreateTrainingJob refuses a key for disks that the instance's own hardware encrypts.
        **({"volume_kms_key_id": key} if key and not has_disks else {}),
    )


def _longest_wait_s(max_runtime_s: int) -> int:
    """MaxWaitTimeInSeconds: the time for waiting and running together."""
    return max(max_runtime_s, int(min(_LONGEST_WAIT_S, max_runtime_s + _SPOT_WAIT_MINUTES * 60)))


def network_environment(cluster: JobSpec) -> dict[str, str]:
    """Variables for NCCL on instances with EFA: the settings of the SDK's own torchrun driver, also for newer types."""
    if cluster.instance().family not in _RDMA_FAMILIES:
        return {}
    return {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "RDMAV_FORK_SAFE": "1"}


def index_environment(cluster: JobSpec) -> dict[str, str]:
    """The package index as pip's own variable, or as that of the SDK's driver, which signs in to CodeArtifact."""
    if cluster.sagemaker.package_index is None:
        return {}
    name = "CA_REPOSITORY_ARN" if cluster.sagemaker.package_index.startswith("arn:") else "PIP_INDEX_URL"
    return {name: cluster.sagemaker.package_index}


def _clean(path: str) -> Path:
    """The SDK's drivers without traces of this machine: compiled files, and the folder the code was packed in."""
    folder = Path(path)
    for leftover in folder.rglob("__pycache__"):
        shutil.rmtree(leftover)
    description = folder / "sourcecode.json"
    description.write_text(json.dumps(json.loads(description.read_text()) | {"source_dir": NAME}))
    return folder


@contextlib.contextmanager
def _role_taken_as_it_is() -> Iterator[None]:
    """Keep the SDK from asking IAM about the role, which few users may; the preflight has asked what it can."""
    previous = os.environ.get("SAGEMAKER_VALIDATE_ROLE")
    os.environ["SAGEMAKER_VALIDATE_ROLE"] = "false"
    try:
        yield
    finally:
        if previous is None:
            del os.environ["SAGEMAKER_VALIDATE_ROLE"]
        else:
            os.environ["SAGEMAKER_VALIDATE_ROLE"] = previous


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    names = ("sagemaker", "sagemaker.config", "sagemaker.train", "sagemaker.core", "sagemaker.train.model_trainer")
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
