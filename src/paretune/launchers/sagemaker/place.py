"""Decides where and how a SageMaker job runs: role, bucket, network, images, volumes, and which types share a request.

The choices become `Order.place`. They are made once a job, before anything is uploaded.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput, collecting, refuse
from paretune.core.machine import user_here
from paretune.core.packages import pinned
from paretune.core.secrets import without_secrets
from paretune.launchers.disk import LARGEST_VOLUME_GIB, bytes_on_disk, pooled_volume_gib, volume_for_gib
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.images import Image, choose_image
from paretune.launchers.sagemaker.request import ANY_BUCKET, ANY_ROLE, RDMA_FAMILIES
from paretune.launchers.sagemaker.storage import absent, upload_faults
from paretune.specification.container import ALLOW_NO_GPU, JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.rules import IN_SECRETS_MANAGER

_OURS = "pydantic>=2.10"  # paretune's own code in a job needs it; AWS's images have it as part of the SageMaker SDK
_READS_SECRETS = "boto3"  # a job needs it to read secrets; AWS's images have it
_PORT_OR_VARIABLE = re.compile(r":(\d+(?=/)|\$\{\w+\})")  # parts of an address that look like a password but are not
_MOST_PREFERENCES = 5  # AWS's limit on InstancePreferences
_OLDEST_TRANSFORMERS = (5, 3)  # the oldest version with which our training is tested
_SMP = {  # our parameters and their names in SMP v2
    "hybrid_shard_degree": "hybrid_shard_degree",
    "tensor_parallel_degree": "tensor_parallel_degree",
    "seed": "random_seed",
}


def place_of(spec: JobSpec, account: Account, environment: Mapping[str, str], *, is_sound: bool) -> dict[str, Any]:
    """Return role, bucket, network and images of a job, with placeholders for role and bucket if not `is_sound`.

    Only ALLOW_NO_GPU and, if the job asks for that, the ARN of a managed MLflow server are sent of `environment`, the
    environment variables of this process. The volumes have the least size until `volumes_of` knows the inputs. Raises
    BadInput if there is no image, or if the SageMaker SDK's configuration cannot be used.
    """
    of_any = {"role": ANY_ROLE, "sagemaker.s3_bucket": ANY_BUCKET}
    given, tags = spec.sagemaker, spec.tags
    found = account.settings(spec.role, given, tags) if is_sound else {**account.usual(given, tags), **of_any}
    job = spec.replace(**found)
    settings, images = job.sagemaker, images_of(job, account.region)
    smp = {smp_name: getattr(job, name) for name, smp_name in _SMP.items()}
    smp = {name: value for name, value in smp.items() if value is not None and value is not False}
    server = environment.get("MLFLOW_TRACKING_URI", "")

    def installed(image: Image) -> Iterator[str]:
        """Yield what pip installs into an image. A project's command has an environment of its own."""
        if job.reads_secrets:
            yield _READS_SECRETS
        if job.project is None:
            yield from (*image.requirements, _OURS)

    return {
        "role": job.role,
        "s3_bucket": settings.s3_bucket,
        "kms_key_id": settings.kms_key_id,
        "subnets": [*settings.subnets],
        "security_group_ids": [*settings.security_group_ids],
        "network_isolation": settings.network_isolation,
        "encrypt_traffic": settings.encrypt_traffic,
        "tags": dict(job.tags),
        "launched_by": user_here(environment),
        "training_plan": settings.training_plan,
        "retry_attempts": settings.retry_attempts,
        "infra_check": settings.infra_check,
        "remote_debug": settings.remote_debug,
        "mlflow": server if settings.link_mlflow and server.startswith("arn:") else None,
        "hyperparameters": (
            {"mp_parameters": json.dumps({**smp, **settings.mp_parameters})} if job.strategy == "smp" else {}
        ),
        "environment": {**_variables(job, environment), **job.environment},
        "input_mode": settings.input_mode,
        "images": {name: {"image": image.uri, "packages": [*installed(image)]} for name, image in images.items()},
        "requests": _requests(job, images),
        "volumes": _volumes(job, volume_for_gib(0.0)),
    }


def _variables(spec: JobSpec, environment: Mapping[str, str]) -> dict[str, str]:
    variables = {"PYTHONUNBUFFERED": "1"}
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


def _requests(spec: JobSpec, images: Mapping[str, Image]) -> dict[str, int]:
    """Return the number of the request that names an instance type, for each type of a job.

    A request names types with the same image, batch, RDMA support and kind of disk. There are at most five, and only
    one on spot or with a warm pool.
    """
    most = 1 if spec.spot or spec.sagemaker.keep_alive_minutes else _MOST_PREFERENCES
    groups, last = list[list[str]](), None
    for cluster in spec.clusters():
        instance = cluster.instance()
        is_rdma, has_disks = instance.family in RDMA_FAMILIES, bool(instance.local_storage_gib)
        rest = cluster.plan(), images[cluster.instance_type], is_rdma, has_disks
        if rest != last or len(groups[-1]) == most:
            groups.append([])
        groups[-1].append(cluster.instance_type)
        last = rest
    return {name: number for number, group in enumerate(groups) for name in group}


def volumes_of(spec: JobSpec, place: Mapping[str, Any], account: Account, inputs: JobInputs) -> dict[str, int]:
    """Return the size of the volume in GiB, by instance type, after checking that the inputs suit a job and its place.

    Raises BadInput if data in S3 does not exist, or if data on this machine cannot be uploaded. If neither is the
    case, raises BadInput if the inputs do not fit on the disks, if the size of the volume must be set, if
    requirements contain a password, or if a job with sagemaker.network_isolation needs the network.
    """
    asks = "not_checked" not in place
    addresses = inputs.code.in_s3.items() if asks and inputs.code is not None else ()
    refuse([fault for name, address in addresses if (fault := absent(account, name, address))])
    sources = {"model": inputs.model, **(inputs.code.sources if inputs.code is not None else {})}
    paths = [(name, path) for name, path in sources.items() if isinstance(path, Path)]
    refuse([fault for name, path in paths for fault in upload_faults(name, path)])
    faults = [*isolation_faults(spec, place, inputs)]
    needed = [_PORT_OR_VARIABLE.sub("", line) for line in (inputs.code.requirements if inputs.code else ())]
    if any(without_secrets(line) != line for line in needed):
        faults.append(
            "requirements must not contain a password or key, because they are uploaded with the code: use "
            "sagemaker.package_index, or a sagemaker.training_image that has the packages"
        )
    needed_gib = 0
    with collecting(faults):
        needed_gib = _volume_gib(spec, inputs)
    refuse(faults)
    return _volumes(spec, needed_gib)


def _volumes(spec: JobSpec, needed_gib: int) -> dict[str, int]:
    """Return the size of the volume to request for each instance type of a job.

    AWS provisions no volume for an instance with its own NVMe disks (ResourceConfig, botocore 1.44.5). If such
    instances are kept, all jobs request the same size, so that they can reuse them.
    """
    volumes, settings = dict[str, int](), spec.sagemaker
    for name in spec.instance_types():
        local_gib = spec.instance(name).local_storage_gib
        most_gib = local_gib or LARGEST_VOLUME_GIB
        least_gib = most_gib if settings.keep_alive_minutes and local_gib else needed_gib
        volumes[name] = settings.volume_size_in_gb or min(least_gib, most_gib)
    return volumes


def _volume_gib(spec: JobSpec, inputs: JobInputs) -> int:
    """Return the given or needed size of a job's volume.

    Raises BadInput if it must be set, or if an instance has less space. A study or profile may give one size for all
    types, because AWS ignores it for instances with their own disks.
    """
    faults, given_gib = list[str](), spec.sagemaker.volume_size_in_gb
    local = [spec.instance(name).local_storage_gib for name in spec.instance_types()]
    size = bytes_on_disk(spec, inputs)
    if given_gib is not None:
        enough_gib = given_gib if size is None else min(given_gib, volume_for_gib(size))
        for name, local_gib in zip(spec.instance_types(), local, strict=True):
            if 0 < local_gib < enough_gib:
                faults.append(
                    f"sagemaker.volume_size_in_gb must be at most {local_gib} for {name}, which has its own disks "
                    f"instead of a volume, for a job that may need {enough_gib} GiB, got {given_gib}: lower it if you "
                    "know how much is enough, or use an instance_type with larger disks"
                )
        refuse(faults)
        return given_gib
    if size is None and all(local):
        return min(local)  # such instances have no volume whose size could be set
    if size is None:
        raise BadInput(
            [
                "training_arguments.save_total_limit=null keeps all checkpoints, and it is unknown how many the job "
                "will write: set sagemaker.volume_size_in_gb, or a number for save_total_limit"
            ]
        )
    needed_gib = volume_for_gib(size)
    for name, local_gib in zip(spec.instance_types(), local, strict=True):
        if needed_gib > (most_gib := local_gib or LARGEST_VOLUME_GIB):
            has = f"only {most_gib} GiB on local disks" if local_gib else f"a volume of at most {most_gib} GiB"
            faults.append(
                f"model, data and checkpoints may take {needed_gib} GiB, but {name} has {has}: use fine_tuning=lora or "
                "an instance_type with larger disks, or set sagemaker.volume_size_in_gb if you know how much is enough"
            )
    refuse(faults)
    # A later job can reuse kept instances only if it requests a volume of the same size.
    return pooled_volume_gib(spec, inputs) if spec.sagemaker.keep_alive_minutes > 0 else needed_gib


def images_of(spec: JobSpec, region: str) -> dict[str, Image]:
    """Choose an image for each instance type of a job. Raises BadInput if AWS has none, or the user's is unsuitable."""
    images, faults, own, is_users = dict[str, Image](), list[str](), spec.sagemaker.training_image, spec.runs_user_code
    added = pinned(("bitsandbytes",)) if spec.fine_tuning == "qlora" and not is_users else ()
    for name in spec.instance_types():
        if own is not None:
            images[name] = Image(own, () if spec.sagemaker.network_isolation else added)
            continue
        try:
            image = choose_image(spec.instance(name), spec.strategy, region, is_users=is_users)
        except ValueError as error:
            reason = str(error).partition(". ")[0].strip()
            faults.append(
                f"AWS's list has no image for strategy {spec.strategy} on {name} in {region} "
                f"({reason}): set sagemaker.training_image, or use another region or instance_type"
            )
        else:
            images[name] = Image(image.uri, (*image.requirements, *added))
    refuse([*faults, *image_faults(spec, region)])
    return images


def image_faults(spec: JobSpec, region: str) -> list[str]:
    """Return the reasons why the user's own image does not suit the job; empty if it does or if there is none."""
    faults, uri = list[str](), spec.sagemaker.training_image
    if uri is None:
        return []
    registry = re.search(r"\.dkr\.ecr\.([\w-]+)\.", uri)
    if registry and registry[1] != region:
        faults.append(
            f"sagemaker.training_image is in {registry[1]}, but the job runs in {region}: use its address there"
        )
    transformers = re.search(r"transformers(\d+)\.(\d+)", uri)
    if transformers and not spec.runs_user_code and tuple(map(int, transformers.groups())) < _OLDEST_TRANSFORMERS:
        oldest = ".".join(map(str, _OLDEST_TRANSFORMERS))
        faults.append(
            f"sagemaker.training_image has transformers {'.'.join(transformers.groups())}, but paretune's training "
            f"needs {oldest} or newer: remove sagemaker.training_image, or set an entry_script of your own"
        )
    kind, other = ("gpu", "cpu") if spec.instance().has_gpu else ("cpu", "gpu")
    if f"-{other}" in uri.rpartition("/")[2].partition(":")[2]:  # only the tag: AWS's tags name the kind
        faults.append(f"sagemaker.training_image must suit {spec.instance_type}, got {uri}: use its -{kind}- variant")
    return faults


def isolation_faults(spec: JobSpec, place: Mapping[str, Any], inputs: JobInputs) -> Iterator[str]:
    """Yield the reasons why a job with sagemaker.network_isolation needs the network."""
    needed = list[str]()
    if not place["network_isolation"]:
        return
    if spec.sagemaker.training_image is None:  # the user's own image may have everything
        packages = [each for image in place["images"].values() for each in image["packages"]]
        needed += [each for each in packages if each not in (_OURS, _READS_SECRETS)]  # AWS's images have these
        needed += inputs.code.requirements if inputs.code is not None else ()
    if names := ", ".join(dict.fromkeys(filter(None, map(str.strip, needed)))):
        image = "set a sagemaker.training_image that has them, or remove network_isolation"
        yield f"sagemaker.network_isolation cuts the job off from the network, but pip must install {names}: {image}"
    for name, text in spec.environment.items():
        if text.startswith(IN_SECRETS_MANAGER):
            read = f"the job reads environment.{name} from Secrets Manager"
            yield f"{read}, but has no network with sagemaker.network_isolation: remove one of them"
