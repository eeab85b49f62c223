"""Finds what AWS is certain to reject in a CreateTrainingJob request, before anything is uploaded.

The limits come from the API's model in botocore. boto itself checks only types, required members and minimums.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StringShape, StructureShape

_PARAMETERS = {  # members of the request, and the job parameters that set them
    "RoleArn": "role",
    "AlgorithmSpecification.TrainingImage": "sagemaker.training_image",
    "Environment": "environment",
    "Environment.PIP_INDEX_URL": "sagemaker.package_index",
    "OutputDataConfig.S3OutputPath": "sagemaker.s3_bucket",
    "OutputDataConfig.KmsKeyId": "sagemaker.kms_key_id",
    "CheckpointConfig.S3Uri": "sagemaker.s3_bucket",
    "ResourceConfig.InstanceCount": "instance_count",
    "ResourceConfig.VolumeSizeInGB": "sagemaker.volume_size_in_gb",
    "ResourceConfig.VolumeKmsKeyId": "sagemaker.kms_key_id",
    "ResourceConfig.KeepAlivePeriodInSeconds": "sagemaker.keep_alive_minutes",
    "ResourceConfig.TrainingPlanArn": "sagemaker.training_plan",
    "RetryStrategy.MaximumRetryAttempts": "sagemaker.retry_attempts",
    "MlflowConfig": "MLFLOW_TRACKING_URI",
    "StoppingCondition.MaxRuntimeInSeconds": "max_runtime_minutes",
    "VpcConfig.Subnets": "sagemaker.subnets",
    "VpcConfig.SecurityGroupIds": "sagemaker.security_group_ids",
    "Tags": "tags",
}
_ADDED = {"environment": "variables", "tags": "tags"}  # parameters to which paretune adds its own entries
# An older boto may not list every instance type; the parameter `instance_type` is checked elsewhere.
_NOT_CHECKED = "InstanceType"
_UNITS = {"string": "characters", "list": "entries", "map": "entries"}
_CLASSES = {  # Java's character classes and their Python equivalents
    r"\p{L}": r"\w",
    r"\p{N}": r"\w",
    r"\p{Z}": " \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000",
    r"\p{Alnum}": "a-zA-Z0-9",
}
_SHOWN = 60  # maximum number of characters of a value that a message quotes


def request_faults(request: Mapping[str, Any], shape: Shape) -> list[str]:
    """Return a request's faults, in terms of the job's parameters. `shape` is the request's shape in botocore."""
    faults = list(_faults(shape, request, ()))
    if request.get("EnableManagedSpotTraining") and request["ResourceConfig"].get("KeepAlivePeriodInSeconds"):
        faults.append(
            "spot and sagemaker.keep_alive_minutes cannot be combined: AWS does not keep spot instances; leave one out"
        )
    return list(dict.fromkeys(faults))


def _faults(shape: Shape, value: Any, path: tuple[str, ...]) -> Iterator[str]:
    kind, least, most = shape.type_name, shape.metadata.get("min"), shape.metadata.get("max")
    yield from _of_members(shape, value, path)
    if kind != "structure" and kind in (*_UNITS, "integer", "long"):
        size = value if kind not in _UNITS else len(value)
        if (least is not None and size < least) or (most is not None and size > most):
            allowed = _bounds(least, most, kind)
            yield f"{_name(path)} must {allowed}, got {size}{_own_part(path)}: AWS rejects anything else"
            return
    if not isinstance(shape, StringShape) or path[-1:] == (_NOT_CHECKED,):
        return
    if shape.enum and value not in shape.enum:
        yield f"{_name(path)} must be one of {', '.join(shape.enum)} for AWS, got {value[:_SHOWN]!r}"
    elif not _fits(shape.metadata.get("pattern", ""), value):
        yield f"{_name(path)} must match {shape.metadata['pattern']} for AWS, got {value[:_SHOWN]!r}"


def _of_members(shape: Shape, value: Any, path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(shape, StructureShape):
        for name in shape.required_members:
            if name not in value:
                others = " and ".join(_name((*path, other)) for other in value) if path else ""
                are = "are" if len(value) > 1 else "is"
                yield f"{_name((*path, name))} must be set for AWS{f', because {others} {are} set' if others else ''}"
        for name, member in value.items():
            if name in shape.members:
                yield from _faults(shape.members[name], member, (*path, name))
            else:
                yield f"{_name((*path, name))} is unknown to the installed boto3: update boto3"
    elif isinstance(shape, ListShape):
        for item in value:
            key = item.get("Key", "") if isinstance(item, Mapping) else ""
            yield from _faults(shape.member, item, (*path, key) if key else path)
    elif isinstance(shape, MapShape):
        for key, item in value.items():
            yield from _faults(shape.key, key, (*path, key))
            yield from _faults(shape.value, item, (*path, key))


def _name(path: tuple[str, ...]) -> str:
    """Return the name of the parameter that sets a request member, such as environment.MODE, or the member's own."""
    for length in range(len(path), 0, -1):
        if parameter := _PARAMETERS.get(".".join(path[:length])):
            rest = [part[:_SHOWN] for part in path[length:] if part not in ("Key", "Value")]
            part = {"Key": "the name of ", "Value": "the value of "}.get(path[-1], "") if rest else ""
            return part + ".".join([parameter, *rest])
    return f"{'.'.join(path)} of the request"


def _own_part(path: tuple[str, ...]) -> str:
    added = _ADDED.get(_name(path))
    return f" with the {added} that paretune adds" if added else ""


def _bounds(least: int | None, most: int | None, kind: str) -> str:
    verb, unit = ("have", f" {_UNITS[kind]}") if kind in _UNITS else ("be", "")
    if most is None:
        return f"{verb} at least {least}{unit}"
    return f"{verb} {least} to {most}{unit}" if least else f"{verb} at most {most}{unit}"


def _fits(pattern: str, text: str) -> bool:
    for java, python in _CLASSES.items():
        pattern = pattern.replace(java, python)
    return not pattern or "\\p{" in pattern or bool(re.fullmatch(pattern, text))
