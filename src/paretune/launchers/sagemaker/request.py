"""Builds the CreateTrainingJob request of an order, and reads it back. `request_rules.py` checks it."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paretune.core.tags import AWS_PREFIX
from paretune.launchers import archive
from paretune.launchers.base import checkpoint_folder
from paretune.launchers.sagemaker.account import PREFIX
from paretune.launchers.sagemaker.jobs import OUR_TRAINING, RUN_VARIABLE, USER_VARIABLE, bucket_in
from paretune.specification import catalog
from paretune.specification.container import RUNNER
from paretune.specification.identity import owned_request
from paretune.specification.inputs import CHANNELS
from paretune.specification.order import Order

if TYPE_CHECKING:  # boto3-stubs, for mypy only
    from mypy_boto3_sagemaker.type_defs import DescribeTrainingJobResponseTypeDef as Description

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


def build_request(order: Order) -> dict[str, Any]:
    """Return the request of an order. Its channels are placeholders that the launcher replaces after the upload."""
    place, limits, offer, together = order.place, order.limits, order.offer, order.together
    instance = catalog.instance(offer.instance_type)
    server, retries = place.get("mlflow"), place.get("retry_attempts")
    runtime_s = max(1, math.ceil(order.max_seconds))
    wait_s = max(runtime_s, int(min(_LONGEST_WAIT_S, runtime_s + _SPOT_WAIT_S)))  # includes the running time
    types = [each.instance_type for each in together]
    network = {"Subnets": list(place["subnets"]), "SecurityGroupIds": list(place["security_group_ids"])}
    own = {f"{AWS_PREFIX}run": order.run_id, f"{AWS_PREFIX}spec": offer.computation}
    tags = {**own, **owner_tags(order)}
    request = {
        "TrainingJobName": order.job_name,
        "RoleArn": place["role"],
        "AlgorithmSpecification": {
            "TrainingImage": offer.image,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/bash"],
            "ContainerArguments": place.get("command") or shell_words(_program(order)),
        },
        "HyperParameters": place["hyperparameters"],
        # Everyone who may call DescribeTrainingJob can see these variables.
        "Environment": {
            **(_RDMA if instance.family in RDMA_FAMILIES else {}),
            **place["environment"],
            **({USER_VARIABLE: place["launched_by"]} if place.get("launched_by") else {}),
            RUN_VARIABLE: order.run_id,
        },
        "InputDataConfig": channels_of(_ANY_CHANNELS, place["input_mode"]),
        "OutputDataConfig": {
            "S3OutputPath": f"s3://{place['s3_bucket']}/{PREFIX}/jobs",
            "CompressionType": "NONE",  # so that MLflow loads the model in place
            "KmsKeyId": place["kms_key_id"],
        },
        "CheckpointConfig": {
            "S3Uri": f"s3://{place['s3_bucket']}/{PREFIX}/checkpoints/{checkpoint_folder(order)}/",
            "LocalPath": "/opt/ml/checkpoints",
        },
        "ResourceConfig": {
            "InstanceType": offer.instance_type if len(types) == 1 else None,
            "InstancePreferences": [{"InstanceType": name} for name in types] if len(types) > 1 else None,
            "InstanceCount": offer.instance_count,
            "VolumeSizeInGB": min(each.volume_gib for each in together),
            "TrainingPlanArn": place["training_plan"],
            "KeepAlivePeriodInSeconds": int(limits.kept_s),
            # CreateTrainingJob refuses a key for local disks, which the instance's hardware encrypts.
            "VolumeKmsKeyId": None if instance.local_storage_gib else place["kms_key_id"],
        },
        "StoppingCondition": {
            "MaxRuntimeInSeconds": runtime_s,
            "MaxWaitTimeInSeconds": wait_s if limits.is_spot else None,
            # Without capacity, a GPU job waits in status Pending. If there are other types to try, this limits the wait
            # to the shortest time that AWS allows.
            "MaxPendingTimeInSeconds": _PENDING_S if together != order.offers and not limits.is_spot else None,
        },
        "EnableManagedSpotTraining": limits.is_spot,
        # With a RetryStrategy, MaxRuntimeInSeconds limits all attempts together (AWS, StoppingCondition).
        "RetryStrategy": {"MaximumRetryAttempts": retries} if retries else None,
        "InfraCheckConfig": {"EnableInfraCheck": True} if place["infra_check"] else None,
        "RemoteDebugConfig": {"EnableRemoteDebug": True} if place["remote_debug"] else None,
        "MlflowConfig": {"MlflowResourceArn": server, "MlflowRunName": order.job_name} if server else None,
        "VpcConfig": network if any(network.values()) else None,
        "EnableNetworkIsolation": place["network_isolation"] or None,
        "EnableInterContainerTrafficEncryption": place["encrypt_traffic"] or None,
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    whole: dict[str, Any] = _without_unset(request)
    return {**whole, "Environment": request["Environment"]}  # an empty environment variable stays


def document_of(order: Order) -> dict[str, Any]:
    """Return the job document that is uploaded: what the job reads, and what later attempts need."""
    return {**order.as_json(), "packages": [*order.offer.packages], "request_key": request_key(order)}


def request_key(order: Order) -> str:
    """Return a digest of the job's request and the tags of its owner, which all attempts share."""
    return owned_request(order.request, owner_tags(order))


def read_back(description: "Description", document: Mapping[str, Any], asked: Order) -> Order:
    """Return a later attempt of a job: its first order, with the attempt, clusters and batch of `asked`.

    All that was sent for the first attempt is read from its `description` in AWS and its `document` in S3. The later
    one has no other code, data, role, network or time.
    """
    first, resources = Order.from_json(document), description["ResourceConfig"]
    offers, payload = {offer.instance_type: offer for offer in first.offers}, first.payload
    known = [replace(offers[each.instance_type], batch=each.batch) for each in asked.offers]
    kept_s, is_spot = resources.get("KeepAlivePeriodInSeconds", 0), description.get("EnableManagedSpotTraining", False)
    return replace(
        asked,
        offers=tuple(known),
        limits=replace(first.limits, kept_s=float(kept_s), is_spot=is_spot),
        payload=payload,
        place={**_place_in(description), "tags": asked.place.get("tags", asked.tags)},
    )


def _place_in(description: "Description") -> dict[str, Any]:
    """Return the launcher's choices for a job from AWS's description, and the channels of its code and data."""
    output, network = description["OutputDataConfig"], description.get("VpcConfig") or {}
    inputs = [channel for channel in description["InputDataConfig"] if channel["ChannelName"] != "job"]
    modes = [channel["InputMode"] for channel in inputs if channel["ChannelName"] not in _WHOLE]
    variables = description.get("Environment", {})
    return {
        "role": description["RoleArn"],
        "s3_bucket": bucket_in(description),
        "kms_key_id": output.get("KmsKeyId") or None,
        "subnets": network.get("Subnets", []),
        "security_group_ids": network.get("SecurityGroupIds", []),
        "network_isolation": bool(description.get("EnableNetworkIsolation")),
        "encrypt_traffic": bool(description.get("EnableInterContainerTrafficEncryption")),
        "training_plan": description["ResourceConfig"].get("TrainingPlanArn"),
        "retry_attempts": description.get("RetryStrategy", {}).get("MaximumRetryAttempts"),
        "infra_check": description.get("InfraCheckConfig", {}).get("EnableInfraCheck", False),
        "remote_debug": description.get("RemoteDebugConfig", {}).get("EnableRemoteDebug", False),
        "mlflow": description.get("MlflowConfig", {}).get("MlflowResourceArn"),
        "hyperparameters": description.get("HyperParameters", {}),
        "environment": {name: text for name, text in variables.items() if _RDMA.get(name) != text},
        "input_mode": next(iter(modes), "File"),
        "command": description["AlgorithmSpecification"]["ContainerArguments"],
        "channels": {each["ChannelName"]: each["DataSource"]["S3DataSource"]["S3Uri"] for each in inputs},
    }


def _program(order: Order) -> str:
    return f"python3 {RUNNER} /opt/ml" if order.payload.runs_user_code else OUR_TRAINING


def shell_words(program: str) -> list[str]:
    """Return the arguments with which bash unpacks the code and runs a program in the code's folder.

    The program replaces bash, so it receives SIGTERM.
    """
    return ["-c", f"cd {_CODE} && tar -xzf {archive.NAME} && exec bash container_start.sh {program}"]


def owner_tags(order: Order) -> dict[str, str]:
    """Return the AWS tags that name the job's run and owner, and the user's own tags."""
    return {f"{AWS_PREFIX}run": order.run_id, **order.owner.aws_tags(), **order.place.get("tags", order.tags)}


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
