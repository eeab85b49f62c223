"""Builds the CreateTrainingJob request of a job from its document. `request_rules.py` checks it."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from paretune.core.tags import AWS_PREFIX
from paretune.launchers import archive
from paretune.launchers.base import checkpoint_folder
from paretune.launchers.disk import LARGEST_VOLUME_GIB
from paretune.launchers.sagemaker.account import PREFIX
from paretune.launchers.sagemaker.jobs import RUN_VARIABLE
from paretune.specification.container import ALLOW_NO_GPU, JobDocument
from paretune.specification.inputs import CHANNELS
from paretune.specification.job import JobSpec

# Placeholders in a request that is checked but not sent; `account_faults` checks the real role and bucket.
ANY_ROLE, ANY_BUCKET = "arn:aws:iam::123456789012:role/any", "any-bucket"
_ANY_CHANNELS = {"code": f"s3://{ANY_BUCKET}/code"}
_WHOLE = ("code", "job", "model")  # channels that are downloaded before the start, whatever sagemaker.input_mode is
_CODE = f"{CHANNELS}/code"
_SPOT_WAIT_S = 3600.0  # a spot job may wait and run for its maximum runtime plus this, both together
_PENDING_S = 1800  # AWS, StoppingCondition: the smallest allowed MaxPendingTimeInSeconds
_LONGEST_WAIT_S = 28 * 24 * 3600  # AWS, StoppingCondition: a job may take at most 28 days
RDMA_FAMILIES = {"p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300", "trn1"}
# The variables that the SageMaker SDK sets for EFA.
_RDMA = {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "RDMAV_FORK_SAFE": "1"}
_SMP = {  # our parameters and their names in SMP v2
    "hybrid_shard_degree": "hybrid_shard_degree",
    "tensor_parallel_degree": "tensor_parallel_degree",
    "seed": "random_seed",
}


def build_request(
    document: JobDocument,
    *,
    image: str,
    types: tuple[str, ...],
    command: Sequence[str],
    needed_gib: int,
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Return a job's request. Its channels are placeholders that the launcher replaces after the upload.

    Args:
        document: the job, with its complete specification.
        image: address of the training image.
        types: instance types that AWS may choose from, best first.
        command: the arguments of bash that `shell_words` returned.
        needed_gib: GiB that the job needs on each instance.
        environment: environment variables of this process; only ALLOW_NO_GPU is sent to the job, and the ARN of a
            managed MLflow server if the job asks for that.
    """
    spec, settings = document.spec, document.spec.sagemaker
    smp = {smp_name: getattr(spec, name) for name, smp_name in _SMP.items()}
    smp = {name: value for name, value in smp.items() if value is not None and value is not False}
    smp |= settings.mp_parameters
    server = environment.get("MLFLOW_TRACKING_URI", "")
    mlflow = {"MlflowResourceArn": server, "MlflowRunName": document.job_name} if server.startswith("arn:") else None
    runtime_s = max(1, math.ceil(document.max_seconds))
    wait_s = max(runtime_s, int(min(_LONGEST_WAIT_S, runtime_s + _SPOT_WAIT_S)))  # includes the running time
    # AWS provisions no volume for an instance with its own NVMe disks (ResourceConfig, botocore 1.44.5).
    most_gib = min(spec.instance(name).local_storage_gib or LARGEST_VOLUME_GIB for name in types)
    if settings.keep_alive_minutes and spec.instance().local_storage_gib:
        needed_gib = most_gib  # the same for all jobs, so that they can reuse kept instances
    volume_gib = settings.volume_size_in_gb or min(needed_gib, most_gib)
    network = {"Subnets": list(settings.subnets), "SecurityGroupIds": list(settings.security_group_ids)}
    own = {f"{AWS_PREFIX}run": document.run_id, f"{AWS_PREFIX}spec": spec.spec_hash()}
    tags = {**own, **owner_tags(document)}
    request = {
        "TrainingJobName": document.job_name,
        "RoleArn": spec.role,
        "AlgorithmSpecification": {
            "TrainingImage": image,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/bash"],
            "ContainerArguments": [*command],
        },
        "HyperParameters": {"mp_parameters": json.dumps(smp) if spec.strategy == "smp" else None},
        # Everyone who may call DescribeTrainingJob can see these variables.
        "Environment": {
            **_environment(spec, environment),
            **spec.environment,
            RUN_VARIABLE: document.run_id,
        },
        "InputDataConfig": channels_of(_ANY_CHANNELS, settings.input_mode),
        "OutputDataConfig": {
            "S3OutputPath": f"s3://{settings.s3_bucket}/{PREFIX}/jobs",
            "CompressionType": "NONE",  # so that MLflow loads the model in place
            "KmsKeyId": settings.kms_key_id,
        },
        "CheckpointConfig": {
            "S3Uri": f"s3://{settings.s3_bucket}/{PREFIX}/checkpoints/{checkpoint_folder(document)}/",
            "LocalPath": "/opt/ml/checkpoints",
        },
        "ResourceConfig": {
            "InstanceType": spec.instance_type if len(types) == 1 else None,
            "InstancePreferences": [{"InstanceType": name} for name in types] if len(types) > 1 else None,
            "InstanceCount": spec.instance_count,
            "VolumeSizeInGB": volume_gib,
            "TrainingPlanArn": settings.training_plan,
            "KeepAlivePeriodInSeconds": int(settings.keep_alive_minutes * 60),
            # CreateTrainingJob refuses a key for local disks, which the instance's hardware encrypts.
            "VolumeKmsKeyId": None if spec.instance().local_storage_gib else settings.kms_key_id,
        },
        "StoppingCondition": {
            "MaxRuntimeInSeconds": runtime_s,
            "MaxWaitTimeInSeconds": wait_s if spec.spot else None,
            # Without capacity, a GPU job waits in status Pending. If there are other types to try, this limits the wait
            # to the shortest time that AWS allows.
            "MaxPendingTimeInSeconds": _PENDING_S if types != spec.instance_types() and not spec.spot else None,
        },
        "EnableManagedSpotTraining": spec.spot,
        # With a RetryStrategy, MaxRuntimeInSeconds limits all attempts together (AWS, StoppingCondition).
        "RetryStrategy": {"MaximumRetryAttempts": settings.retry_attempts} if settings.retry_attempts else None,
        "InfraCheckConfig": {"EnableInfraCheck": True} if settings.infra_check else None,
        "RemoteDebugConfig": {"EnableRemoteDebug": True} if settings.remote_debug else None,
        "MlflowConfig": mlflow if settings.link_mlflow else None,
        "VpcConfig": network if any(network.values()) else None,
        "EnableNetworkIsolation": settings.network_isolation or None,
        "EnableInterContainerTrafficEncryption": settings.encrypt_traffic or None,
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    whole: dict[str, Any] = _without_unset(request)
    return {**whole, "Environment": request["Environment"]}  # an empty environment variable stays


def shell_words(program: str) -> list[str]:
    """Return the arguments with which bash unpacks the code and runs a program in the code's folder.

    The program replaces bash, so it receives SIGTERM.
    """
    return ["-c", f"cd {_CODE} && tar -xzf {archive.NAME} && exec bash container_start.sh {program}"]


def owner_tags(document: JobDocument) -> dict[str, str]:
    """Return the AWS tags that name the job's run and owner, and the user's own tags."""
    return {f"{AWS_PREFIX}run": document.run_id, **document.attribution.aws_tags(), **document.spec.tags}


def _environment(spec: JobSpec, environment: Mapping[str, str]) -> dict[str, str]:
    variables = {"PYTHONUNBUFFERED": "1", **(_RDMA if spec.instance().family in RDMA_FAMILIES else {})}
    if spec.sagemaker.package_index:
        variables["PIP_INDEX_URL"] = spec.sagemaker.package_index
    if spec.project is not None:
        return variables
    variables |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    if ALLOW_NO_GPU in environment:
        variables[ALLOW_NO_GPU] = environment[ALLOW_NO_GPU]
    if spec.entry_script is None:
        variables["HF_HUB_OFFLINE"] = "1"  # because model and data are uploaded with the job
    if spec.strategy == "smddp":
        variables["SM_FRAMEWORK_PARAMS"] = '{"sagemaker_distributed_dataparallel_enabled": true}'
    return variables


def channels_of(uris: Mapping[str, str], data_mode: str) -> list[dict[str, Any]]:
    """Return the channels of a request from their addresses in S3. `data_mode` is the mode of those not in _WHOLE."""

    def channel(name: str, uri: str) -> dict[str, Any]:
        source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
        mode = "File" if name in _WHOLE else data_mode
        return {"ChannelName": name, "DataSource": {"S3DataSource": source}, "InputMode": mode}

    return [channel(name, uri) for name, uri in uris.items()]


def _without_unset(value: Any) -> Any:
    """Return the value without members that are None, zero or empty. False is kept."""
    if not isinstance(value, dict):
        return value
    members = {name: _without_unset(member) for name, member in value.items()}
    return {name: member for name, member in members.items() if member is False or member}
