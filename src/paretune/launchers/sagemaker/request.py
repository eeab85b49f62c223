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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paretune.core.errors import LaunchRefused, refuse
from paretune.launchers.archive import NAME, REQUIREMENTS, pack
from paretune.launchers.sagemaker.account import PREFIX, Account
from paretune.launchers.sagemaker.staging import Staging
from paretune.specification.account import AccountSettings
from paretune.specification.container import TRAINING_PLAN, JobDocument
from paretune.specification.parameters import split_list
from paretune.specification.placement import Placement

LONGEST_ENVIRONMENT_VALUE = 512  # Characters. Source: CreateTrainingJob, Environment (botocore 1.44.5).
_START = Path(__file__).with_name("start_job.sh")
"""The preparation that the entry point of AWS's images makes before a training; the SDK's command replaces it."""
_SPOT_WAIT_MINUTES = 60.0
_LONGEST_WAIT_S = 28 * 24 * 3600  # AWS, StoppingCondition: a job may take 28 days at most
_RDMA_FAMILIES = {"p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300", "trn1"}


@dataclass(frozen=True, kw_only=True)
class TrainingJobRequest:
    """A job in our terms; `build` translates it into AWS's."""

    document: JobDocument  # its name, clusters and maximum runtime; SageMaker takes the first with capacity
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
    mlflow: Mapping[str, str] = field(default_factory=dict)
    """MlflowConfig of a managed MLflow server, which links job and run in Studio; empty without one."""


def load_sdk() -> None:
    """Import the SageMaker SDK."""
    with _quiet():
        import sagemaker.train  # noqa: F401


def build(order: TrainingJobRequest, account: Account, staging: Staging) -> dict[str, Any]:
    """The request as boto takes it. Code and drivers have been uploaded, unless `staging` is dry.

    Raises:
        BadInput: a value is longer than AWS takes.
        LaunchRefused: the SDK has left out the instances or the training plan.
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
    shape = account.client("sagemaker").meta.service_model.shape_for("CreateTrainingJobRequest")
    if order.mlflow and "MlflowConfig" in shape.members:  # older versions of boto lack it
        request["MlflowConfig"] = dict(order.mlflow)
    if (plan := order.document.spec.training_plan) is not None:
        request["Environment"] = {**request.get("Environment", {}), TRAINING_PLAN: plan}
    if lost := lost_capacity(order.document, request.get("ResourceConfig", {})):
        raise LaunchRefused(f"the SageMaker SDK has left {lost} out of the request: another version of it may not")
    return request


def lost_capacity(document: JobDocument, resources: Mapping[str, Any]) -> str:
    """The requested part of the capacity that a ResourceConfig lacks; "" if it has all.

    SDKs have dropped a training plan without a word (aws/sagemaker-python-sdk#6258), and the job ran on demand.
    """
    is_ranked = len(document.clusters) > 1
    ranked = resources.get("InstancePreferences", ())
    types = [entry.get("InstanceType") for entry in ranked] if is_ranked else [resources.get("InstanceType")]
    if types != [cluster.instance_type for cluster in document.clusters]:
        return "InstancePreferences" if is_ranked else "InstanceType"
    return "TrainingPlanArn" if document.spec.training_plan not in (None, *_plans(resources)) else ""


def lost_plan(described: Mapping[str, Any]) -> str:
    """The training plan in a job's environment if AWS does not show the job with it, else ""."""
    plan = str(described.get("Environment", {}).get(TRAINING_PLAN, ""))
    return "" if plan in _plans(described.get("ResourceConfig", {})) else plan


def _plans(resources: Mapping[str, Any]) -> list[str]:
    """The training plans in a ResourceConfig; of several instance types only the first can have any."""
    ranked = resources.get("InstancePreferences", ())
    return [resources.get("TrainingPlanArn", ""), *(ranked[0].get("TrainingPlanArns", ()) if ranked else ())]


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
        subnets=list(split_list(cluster.subnets)), security_group_ids=list(split_list(cluster.security_group_ids))
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
        networking=network if split_list(cluster.subnets) else None,
        # Its driver is not used, because it keeps SIGTERM from the training; only its part of the request is.
        distributed=Torchrun(process_count_per_node=cluster.processes, smp=SMP(**order.smp)) if order.smp else None,
        stopping_condition=configs.StoppingCondition(
            max_runtime_in_seconds=max_runtime_s,
            **({"max_wait_time_in_seconds": _longest_wait_s(cluster, max_runtime_s)} if cluster.spot else {}),
        ),
        environment=dict(order.environment),
        input_data_config=[configs.InputData(channel_name=key, data_source=uri) for key, uri in order.channels.items()],
        checkpoint_config=configs.CheckpointConfig(s3_uri=order.checkpoints, local_path="/opt/ml/checkpoints"),
        output_data_config=configs.OutputDataConfig(
            s3_output_path=staging.uri(f"{PREFIX}/jobs"),
            compression_type="GZIP" if order.compresses_output else "NONE",
            **({"kms_key_id": cluster.kms_key} if cluster.kms_key else {}),
        ),
        tags=[configs.Tag(key=key, value=value) for key, value in order.tags.items()],
    )


def _compute(order: TrainingJobRequest, configs: Any) -> Any:
    cluster, keep_alive_s = order.document.spec, int(order.document.spec.keep_alive_minutes * 60)
    has_disks = cluster.instance().has_local_storage
    return configs.Compute(
        **_instances(order.document.clusters),
        volume_size_in_gb=order.volume_gib,
        enable_managed_spot_training=cluster.spot,
        **({"keep_alive_period_in_seconds": keep_alive_s} if cluster.keep_alive_minutes else {}),
        # CreateTrainingJob refuses a key for disks that the instance's own hardware encrypts.
        **({"volume_kms_key_id": cluster.kms_key} if cluster.kms_key and not has_disks else {}),
    )


def _instances(clusters: Sequence[Placement]) -> dict[str, Any]:
    """Instance type and count, or several, best first; only the first may have a training plan."""
    first, plan = clusters[0], clusters[0].training_plan
    if len(clusters) == 1:
        arn = {} if plan is None else {"training_plan_arn": plan}
        return {"instance_type": first.instance_type, "instance_count": first.instance_count, **arn}
    from sagemaker.core.shapes import InstancePreference

    preferences = []
    for cluster in clusters:
        arns = {} if cluster.training_plan is None else {"training_plan_arns": [cluster.training_plan]}
        preferences.append(
            InstancePreference(instance_type=cluster.instance_type, instance_count=cluster.instance_count, **arns)
        )
    return {"instance_preferences": preferences}


def _longest_wait_s(cluster: Placement, max_runtime_s: int) -> int:
    """MaxWaitTimeInSeconds: the time for waiting and running together."""
    minutes = cluster.max_wait_minutes
    wait_s = minutes * 60 if minutes else min(_LONGEST_WAIT_S, max_runtime_s + _SPOT_WAIT_MINUTES * 60)
    return max(max_runtime_s, int(wait_s))


def network_environment(clusters: Sequence[Placement]) -> dict[str, str]:
    """Variables for NCCL on instances with EFA: the settings of the SDK's own torchrun driver, also for newer types.

    Empty if SageMaker may choose a type without EFA: current images find EFA by themselves.
    """
    if not all(cluster.instance().family in _RDMA_FAMILIES for cluster in clusters):
        return {}
    return {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "RDMAV_FORK_SAFE": "1"}


def index_environment(cluster: AccountSettings) -> dict[str, str]:
    """The package index as pip's own variable, or as that of the SDK's driver, which signs in to CodeArtifact."""
    if cluster.package_index is None:
        return {}
    name = "CA_REPOSITORY_ARN" if cluster.package_index.startswith("arn:") else "PIP_INDEX_URL"
    return {name: cluster.package_index}


def mlflow_config(tracking_uri: str, run_id: str, here: Mapping[str, str]) -> dict[str, str]:
    """MlflowConfig of CreateTrainingJob. `run_id` is "" for a job of several runs; `here` is our environment."""
    if not tracking_uri:
        return {}
    experiment = "" if "MLFLOW_EXPERIMENT_ID" in here else here.get("MLFLOW_EXPERIMENT_NAME", "Default")
    named = {"MlflowExperimentName": experiment, "MlflowRunName": run_id}
    return {"MlflowResourceArn": tracking_uri, **{name: text for name, text in named.items() if text}}


def tracking_environment(tracking_uri: str, run_id: str, here: Mapping[str, str]) -> dict[str, str]:
    """Variables for a job that writes to the tracking server itself; `here` is this machine's environment."""
    endpoint = {name: here[name] for name in ("SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT",) if here.get(name)}
    return {"MLFLOW_TRACKING_URI": tracking_uri, "MLFLOW_RUN_ID": run_id, **endpoint}


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
